"""Rows in fewer bytes: how far they are off, that nothing is lost for good, what is refused, and what a run keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlu.federated.compression import Sender, pack, slice_of, unpack
from fedlu.federated.messages import MessageError, Packed, Trained
from fedlu.graph import partition, read, save
from fedlu.results import runs
from tests.federated.test_server import LABELS, Registration, Server, tokens
from tests.results.test_runs import assert_same

WHO = "north"
QUICK: dict[str, Any] = {"dimension": 16, "rounds": 6, "evaluate_every": 2, "negatives": 32, "warm_rounds": 2}


@pytest.fixture
def rows(random: np.random.Generator) -> np.ndarray:
    sizes = np.array([[1.0], [1e-3], [0.0], [1e-40], [30.0]])  # a row of zeros and one that is hardly there, too
    return (random.normal(size=(5, 32)) * sizes).astype(np.float32)


@pytest.fixture(scope="module")
def umls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "umls"
    save(partition(read("umls"), clients=3, by="random"), folder, {})
    return folder


def there_and_back(rows: np.ndarray, kind: str) -> np.ndarray:
    return unpack(pack(rows, kind), kind, rows.shape, WHO)


def test_half_precision_keeps_eleven_bits(rows: np.ndarray) -> None:
    back = there_and_back(rows, "fp16")
    assert (np.abs(back - rows) <= np.abs(rows) * 2.0**-11 + 2.0**-25).all()  # below 6e-5, steps are even
    assert back[0].tolist() != rows[0].tolist()


def test_whole_numbers_are_off_by_half_a_step_at_most(rows: np.ndarray) -> None:
    back = there_and_back(rows, "int8")
    half = np.abs(rows).max(axis=1, keepdims=True) / 127 / 2
    assert (np.abs(back - rows) <= half * 1.0001 + 1e-44).all()
    assert (back[2] == 0).all()
    largest = np.abs(rows).argmax(axis=1)[[0, 1, 4]], [0, 1, 4]
    assert np.allclose(back[largest[1], largest[0]], rows[largest[1], largest[0]], rtol=1e-6)


def test_without_compression_rows_are_the_very_same(rows: np.ndarray) -> None:
    assert pack(rows, "none") is rows
    assert Sender.of("none", 5, 32).pack(rows) is rows
    assert Sender.of("none", 5, 32).pack_change(rows, rows) is rows


@pytest.mark.parametrize(("kind", "share"), [("fp16", 0.5), ("int8", 0.25)])
def test_bytes_are_a_half_and_a_quarter(kind: str, share: float, random: np.random.Generator) -> None:
    table = random.normal(size=(100, 256)).astype(np.float32)
    packed = pack(table, kind)
    overhead = 0 if kind == "fp16" else 100 * 4  # a step for each row
    assert packed.nbytes == share * table.nbytes + overhead


@pytest.mark.parametrize("kind", ["fp16", "int8"])
def test_error_feedback_keeps_the_mean_unbiased(kind: str, random: np.random.Generator) -> None:
    """What is sent in all differs from what was meant in all by what is still owed: one rounding, however long."""
    value = random.normal(size=(4, 16)).astype(np.float32)
    sender = Sender.of(kind, 4, 16)
    sent = [unpack(sender.pack(value), kind, (4, 16), WHO) for _ in range(200)]
    once = np.abs(there_and_back(value, kind) - value)
    off = np.abs(np.mean(sent, axis=0, dtype=np.float64) - value)
    assert off.max() < once.max() / 50
    assert np.allclose(np.sum(sent, axis=0, dtype=np.float64) + sender.owed, 200 * value.astype(float), atol=2e-4)


def test_a_change_too_small_for_a_step_arrives_later(random: np.random.Generator) -> None:
    """One large number makes the steps coarse; a change of a tenth of a step would never get through alone."""
    change = np.full((1, 8), 0.001, dtype=np.float32)
    change[0, 0] = 1.27
    sender, alone, fed = Sender.of("int8", 1, 8), np.zeros((1, 8)), np.zeros((1, 8))
    for _ in range(100):
        alone += unpack(pack(change, "int8"), "int8", (1, 8), WHO)
        fed += unpack(sender.pack(change), "int8", (1, 8), WHO)
    assert (alone[0, 1:] == 0).all()
    assert np.allclose(fed[0, 1:], 0.1, atol=0.006)


def test_all_who_share_a_row_receive_the_same(random: np.random.Generator) -> None:
    server = Server(8, 0.1, seed=1, compress="int8")
    server.register([Registration(name, tokens(labels, b"key")) for name, labels in LABELS.items()])
    server.table = random.normal(size=server.table.shape).astype(np.float32)
    sent = server.send(["north", "south", "west"])
    plain = {name: unpack(rows, "int8", (len(server.rows[name]), 8), name) for name, rows in sent.items()}
    for name, other in (("south", "north"), ("west", "north")):
        for place, row in enumerate(server.rows[name]):
            twin = int(np.flatnonzero(server.rows[other] == row)[0])
            assert (plain[name][place] == plain[other][twin]).all()


def test_the_rounding_of_what_was_sent_stays_out_of_the_servers_table(random: np.random.Generator) -> None:
    """A client that changes nothing leaves the table to the bit as it was, though it received it rounded."""
    server = Server(8, 0.1, seed=1, compress="int8")
    server.register([Registration(name, tokens(labels, b"key")) for name, labels in LABELS.items()])
    before = server.table.copy()
    replies = []
    for name, rows in server.send(["north", "south", "west"]).items():
        start = unpack(rows, "int8", (len(server.rows[name]), 8), name)
        assert (start != server.rows_for(name)).any()
        client = Sender.of("int8", len(start), 8)
        replies.append(Trained(name, 1, client.pack_change(start.copy(), start), {}))
    server.aggregate([server.receive(reply) for reply in replies])
    assert (server.table == before).all()


def packed(numbers: Any, steps: Any) -> Packed:
    return Packed(np.asarray(numbers), np.asarray(steps, dtype=np.float32))


@pytest.mark.parametrize(
    ("kind", "rows", "message"),
    [
        ("int8", np.zeros((2, 3), np.float32), "plain rows, expected int8"),
        ("none", packed(np.zeros((2, 3), np.int8), [1, 1]), "packed rows, expected plain ones"),
        ("int8", packed(np.zeros((2, 3), np.float16), []), r"numbers of \(2, 3\) float16, expected \(2, 3\) int8"),
        ("fp16", packed(np.zeros((2, 3), np.int8), [1, 1]), "numbers of"),
        ("int8", packed(np.zeros((1, 3), np.int8), [1]), "numbers of"),
        ("int8", packed(np.zeros((2, 3), np.int8), [1]), r"steps of \(1,\)"),
        ("fp16", packed(np.zeros((2, 3), np.float16), [1, 1]), r"steps of \(2,\)"),
        ("int8", packed(np.ones((2, 3), np.int8), [1, np.nan]), "not finite"),
        ("int8", packed(np.full((2, 3), 127, np.int8), [1, 3e38]), "not finite"),
        ("fp16", packed(np.full((2, 3), np.inf, np.float16), []), "not finite"),
    ],
)
def test_what_arrives_is_checked(kind: str, rows: Any, message: str) -> None:
    with pytest.raises(MessageError, match=rf"^north: .*{message}"):
        unpack(rows, kind, (2, 3), WHO)


def test_what_is_too_large_for_half_precision_arrives_bit_by_bit() -> None:
    sender = Sender.of("fp16", 1, 3)
    large = np.array([[200_000.0, -200_000.0, 1.0]], np.float32)
    arrived = np.zeros((1, 3), np.float32)
    for change in (large, 0 * large, 0 * large, 0 * large):
        arrived += unpack(sender.pack(change), "fp16", (1, 3), "client")
    np.testing.assert_array_equal(arrived, large)
    np.testing.assert_array_equal(sender.owed, 0 * large)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["fp16", "int8"])
def test_rows_that_are_not_finite_do_not_become_so(kind: str, bad: float) -> None:
    rows = np.ones((2, 3), dtype=np.float32)
    rows[1, 1] = bad
    with pytest.raises(MessageError, match="not finite"):
        unpack(Sender.of(kind, 2, 3).pack(rows), kind, (2, 3), WHO)


def test_some_rows_of_a_packed_table() -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    for kind in ("none", "fp16", "int8"):
        chosen = slice_of(pack(table, kind), np.array([3, 1]))
        assert (unpack(chosen, kind, (2, 3), WHO) == there_and_back(table, kind)[[3, 1]]).all()


# --- whole runs


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def test_a_run_counts_the_bytes_it_sent(umls: Path, tmp_path: Path) -> None:
    total = {}
    for kind in ("none", "fp16", "int8"):
        runs.learn(umls, out=tmp_path / kind, compress=kind, **{**QUICK, "rounds": 4})
        found = events(tmp_path / kind)
        total[kind] = [sum(sum(event[way].values()) for event in found) for way in ("bytes_up", "bytes_down")]
    for way in (0, 1):
        assert total["fp16"][way] == total["none"][way] / 2
        assert total["int8"][way] == total["none"][way] / 4 + total["none"][way] / 64 * 4  # 16 numbers, then a step


def test_none_is_what_there_was_before(umls: Path, tmp_path: Path) -> None:
    runs.learn(umls, out=tmp_path / "a", **QUICK)
    runs.learn(umls, out=tmp_path / "b", compress="none", **QUICK)
    assert_same(tmp_path / "a", tmp_path / "b")
    checkpoint = next((tmp_path / "a" / "checkpoints").iterdir())
    assert all(b'"owed"' not in path.read_bytes() for path in checkpoint.iterdir())


@pytest.mark.parametrize("kind", ["fp16", "int8"])
def test_stopped_after_any_round_a_compressed_run_ends_the_same(
    umls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What is owed is part of a checkpoint."""
    monkeypatch.setattr(runs, "CHECKPOINT_SECONDS", 0.0)
    options = {**QUICK, "compress": kind, "fraction": 0.7}
    runs.learn(umls, out=tmp_path / "whole", **options)
    checkpoint = next((tmp_path / "whole" / "checkpoints").iterdir())
    assert all(b'"owed"' in path.read_bytes() for path in checkpoint.iterdir())

    def stop(event: Any, _: Any) -> None:
        if event.round == stop_at:
            raise KeyboardInterrupt

    for stop_at in (1, 2, 3, 5):
        with pytest.raises(KeyboardInterrupt):
            runs.learn(umls, out=tmp_path / "parts", resume=stop_at > 1, watch=stop, **options)
    runs.learn(umls, out=tmp_path / "parts", resume=True, **options)
    assert_same(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("method", ["fede", "fedlu"])
def test_accuracy_hardly_suffers(umls: Path, tmp_path: Path, method: str) -> None:
    options = {"dimension": 32, "rounds": 20, "warm_rounds": 8, "evaluate_every": 5, "learning_rate": 0.01}
    found = {}
    for kind in ("none", "fp16", "int8"):
        metrics = runs.learn(umls, method=method, out=tmp_path / kind, compress=kind, **options)
        found[kind] = metrics["test"]["global"]["weighted"]["mrr"]
    assert found["none"] > 0.5
    assert abs(found["fp16"] - found["none"]) < 0.02
    assert abs(found["int8"] - found["none"]) < 0.02


@pytest.mark.parametrize("method", ["independent", "centralized"])
def test_methods_that_share_nothing(umls: Path, tmp_path: Path, method: str) -> None:
    runs.learn(umls, method=method, out=tmp_path / "run", compress="int8", **{**QUICK, "rounds": 2})
    assert all(sum(event["bytes_up"].values()) == 0 for event in events(tmp_path / "run"))


def test_a_compressed_run_can_forget(tmp_path: Path) -> None:
    from fedlu.results.forgetting import forget

    save(partition(read("nations"), clients=2, by="random", forget=0.01), tmp_path / "nations", {})
    runs.learn(tmp_path / "nations", out=tmp_path / "run", compress="int8", **QUICK)
    facts = forget(tmp_path / "run", tmp_path / "out", forget_sets=True)
    assert sum(facts["forgotten"].values()) > 0
    assert runs.evaluate(tmp_path / "out")["global"]["weighted"]["count"] > 0


def test_a_run_from_before_the_setting_goes_on(umls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.learn(umls, out=tmp_path / "run", **QUICK)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["settings"]["compress"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert runs.learn(umls, out=tmp_path / "run", resume=True, **QUICK)["rounds"] == QUICK["rounds"]
