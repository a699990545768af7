"""Runs: what a folder holds, what is refused, and that a run killed at any moment ends with the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file

import fedlu
from fedlu.config import Settings
from fedlu.errors import InputError
from fedlu.federated.client import Client
from fedlu.federated.messages import Train, Trained
from fedlu.federated.rounds import DivergedError, RoundEvent
from fedlu.graph import Federation, load, partition, read, save
from fedlu.results import checkpoints, files, memory, runs

QUICK: dict[str, Any] = {"dimension": 8, "rounds": 6, "evaluate_every": 2, "warm_rounds": 2, "negatives": 16}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "nations"
    save(partition(read("nations"), clients=2, by="random", seed=1), folder, {})
    return folder


def embeddings(run: Path) -> dict[str, np.ndarray]:
    (checkpoint,) = (run / "checkpoints").iterdir()
    return {f"{file.stem}.{name}": array for file in checkpoint.iterdir() for name, array in load_file(file).items()}


def assert_same(first: Path, second: Path) -> None:
    mine, theirs = embeddings(first), embeddings(second)
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


def metrics_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return found


def test_what_a_run_leaves(data: Path, tmp_path: Path) -> None:
    returned = fedlu.learn(data, out=tmp_path / "run", **QUICK)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "checkpoints",
        "config.json",
        "events.jsonl",
        "metrics.json",
        "state.json",
    ]
    metrics = metrics_of(tmp_path / "run")
    assert metrics == json.loads(json.dumps(returned))
    for split in ("valid", "test"):
        assert set(metrics[split]) == {"local", "global", "blend"}
        for view in metrics[split].values():
            assert set(view) == {"weighted", "mean", "clients"}
            assert 0 < view["weighted"]["hits@1"] <= view["weighted"]["mrr"] < 1
            assert set(view["clients"]) == {"client-0", "client-1"}
    assert metrics["fedlu"] == fedlu.__version__
    assert metrics["fingerprint"] == load(data).fingerprint
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["rounds"] == 6
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["round"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert [event["valid"] is not None for event in events] == [False, True] * 3
    shared = load_file(next((tmp_path / "run" / "checkpoints").iterdir()) / "server.safetensors")["table"]
    assert events[0]["bytes_up"]["client-0"] == shared.nbytes  # both clients share all of the 14 nations
    assert all(event["seconds"] > 0 and event["losses"]["client-1"] for event in events)


@pytest.mark.parametrize("model", ["TransE", "pykeen:TuckER"])
def test_evaluate_gives_the_metrics_again(data: Path, tmp_path: Path, model: str) -> None:
    """From the folder alone; a model's own parameters belong to the best round, too."""
    fedlu.learn(data, out=tmp_path / "run", model=model, **{**QUICK, "learning_rate": 0.3})
    for split in ("valid", "test"):
        assert fedlu.evaluate(tmp_path / "run", split) == metrics_of(tmp_path / "run")[split]
    with pytest.raises(InputError, match="no split 'train'"):
        fedlu.evaluate(tmp_path / "run", "train")


def test_the_best_round_is_kept_and_patience_ends_a_run(data: Path, tmp_path: Path) -> None:
    """A learning rate that spoils: the best is early, the run stops after `patience` looks, the best is reported."""
    options = {**QUICK, "rounds": 60, "method": "fede", "learning_rate": 3.0, "patience": 2, "valid_share": 1.0}
    metrics = fedlu.learn(data, out=tmp_path / "run", **options)
    assert metrics["rounds"] < 60
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    seen = {event["round"]: event["valid"] for event in events if event["valid"]}
    for view in ("local", "global"):
        best = max(seen, key=lambda number: seen[number][view]["weighted"]["mrr"])
        assert metrics["best_round"][view] == best
        assert metrics["valid"][view]["weighted"]["mrr"] == seen[best][view]["weighted"]["mrr"]  # all of valid is used
    last = max(max(metrics["best_round"].values()), 0)
    assert metrics["rounds"] == last + 2 * 2  # two looks, two rounds apart


def test_the_seed_decides(data: Path, tmp_path: Path) -> None:
    for name, seed in {"a": 1, "b": 1, "c": 2}.items():
        fedlu.learn(data, out=tmp_path / name, seed=seed, **QUICK)
    assert_same(tmp_path / "a", tmp_path / "b")
    assert metrics_of(tmp_path / "a")["test"] == metrics_of(tmp_path / "b")["test"]
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "a", tmp_path / "c")


def test_refusals(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fedlu.learn(data, out=run, **QUICK)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="run: holds a run; choose another --out, or --resume"):
        fedlu.learn(data, out=run, **QUICK)
    with pytest.raises(InputError, match="other settings: dimension was 8"):
        fedlu.learn(data, out=run, resume=True, **{**QUICK, "dimension": 4})
    other = tmp_path / "other"
    save(partition(read("nations"), clients=2, by="random", seed=2), other, {})
    with pytest.raises(InputError, match="the data has changed"):
        fedlu.learn(other, out=run, resume=True, **QUICK)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.doc").write_text("precious")
    with pytest.raises(InputError, match="thesis: is in use"):
        fedlu.learn(data, out=tmp_path / "thesis", **QUICK)
    with pytest.raises(InputError, match="no model 'TransX'"):
        fedlu.learn(data, model="TransX", out=tmp_path / "new")
    with pytest.raises(InputError, match=r"need about [\d.]+ GB"):
        fedlu.learn(data, out=tmp_path / "new", dimension=10**9)
    with pytest.raises(InputError, match=r"need about [\d.]+ GB"):  # nearly all of it for TuckER's core
        fedlu.learn(data, model="pykeen:TuckER", out=tmp_path / "new", dimension=3000)
    with pytest.raises(InputError, match=r"need about [\d.]+ GB"):  # for what its convolutions keep of every score
        fedlu.learn(data, model="pykeen:ConvE", out=tmp_path / "new", batch_size=4096)
    with pytest.raises(InputError, match="thesis: no run; check the name"):
        fedlu.evaluate(tmp_path / "thesis")
    assert not (tmp_path / "new").exists()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("refused", [{"device": "cuda"}, {"dura": 0.1}, {"model": "pykeen:ConvE", "remember": 0.5}])
def test_what_is_refused_leaves_the_folder_for_another(data: Path, tmp_path: Path, refused: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        fedlu.learn(data, out=tmp_path / "run", **{**QUICK, **refused})
    assert not list((tmp_path / "run").iterdir())
    assert fedlu.learn(data, out=tmp_path / "run", **QUICK)["rounds"] == 6


def test_a_client_may_be_called_server(tmp_path: Path) -> None:
    save(partition(read("nations"), clients=2, by="random", seed=1), tmp_path / "data", {})
    (tmp_path / "data" / "client-1").rename(tmp_path / "data" / "server")
    fedlu.learn(tmp_path / "data", out=tmp_path / "run", **QUICK)
    assert fedlu.evaluate(tmp_path / "run") == metrics_of(tmp_path / "run")["test"]


def test_two_clients_of_one_name_are_refused(data: Path, tmp_path: Path) -> None:
    client = load(data).clients[0]
    with pytest.raises(InputError, match="two clients have the same name"):
        fedlu.learn(Federation("twins", (client, client)), out=tmp_path / "run", **QUICK)


def test_killed_before_it_had_a_config_it_can_begin(data: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.json.part").write_text('{"half')
    assert fedlu.learn(data, out=tmp_path / "run", resume=True, **QUICK)["rounds"] == 6


def test_one_process_at_a_time(data: Path, tmp_path: Path) -> None:
    def again(*_: object) -> None:
        fedlu.learn(data, out=tmp_path / "run", resume=True, **QUICK)

    with pytest.raises(InputError, match="another process is at this run"):
        fedlu.learn(data, out=tmp_path / "run", watch=again, **QUICK)


def test_another_version_does_not_resume(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fedlu.learn(data, out=tmp_path / "run", **QUICK)
    monkeypatch.setattr(fedlu, "__version__", "99")
    with pytest.raises(InputError, match="begun with fedlu 0"):
        fedlu.learn(data, out=tmp_path / "run", resume=True, **QUICK)


@pytest.mark.parametrize("name", ["config.json", "state.json", "checkpoints/round-000006/client-0001.safetensors"])
def test_a_damaged_run_is_one_line(data: Path, tmp_path: Path, name: str) -> None:
    fedlu.learn(data, out=tmp_path / "run", **QUICK)
    (tmp_path / "run" / name).write_text("{")
    with pytest.raises(InputError, match=r"not a file of a run|the checkpoint is damaged"):
        fedlu.evaluate(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("config.json", lambda had: {}),
        ("config.json", lambda had: []),
        ("config.json", lambda had: {**had, "settings": {**had["settings"], "colour": 3}}),
        ("config.json", lambda had: {**had, "settings": {**had["settings"], "rounds": []}}),
        ("state.json", lambda had: {}),
        ("state.json", lambda had: []),
        ("state.json", lambda had: {**had, "progress": {"pace": 1}}),
        ("state.json", None),
    ],
)
def test_files_that_say_something_else(
    data: Path, tmp_path: Path, name: str, changed: Callable[[dict[str, Any]], object] | None
) -> None:
    fedlu.learn(data, out=tmp_path / "run", **QUICK)
    path = tmp_path / "run" / name
    path.unlink() if changed is None else path.write_text(json.dumps(changed(json.loads(path.read_text()))))
    with pytest.raises(InputError, match=r"not a file of a run|settings that are none|checkpoint is damaged|is gone"):
        fedlu.evaluate(tmp_path / "run")


def test_one_clients_rows_are_not_taken_for_anothers(data: Path, tmp_path: Path) -> None:
    fedlu.learn(data, out=tmp_path / "run", **QUICK)
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    (checkpoint / "client-0001.safetensors").write_bytes((checkpoint / "client-0000.safetensors").read_bytes())
    with pytest.raises(InputError, match=r"the checkpoint is damaged \(.*values of \(\d+, 8\), expected"):
        fedlu.evaluate(tmp_path / "run")


def test_a_full_disk_is_an_os_error_and_the_run_goes_on_later(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "CHECKPOINT_SECONDS", 0.0)
    written, save_file = [], files.save_file

    def full(arrays: Any, path: Path) -> None:
        written.append(path)
        if len(written) == 5:  # in the middle of the second checkpoint
            path.write_bytes(b"half")
            raise SafetensorError("No space left on device")
        save_file(arrays, path)

    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        fedlu.learn(data, out=tmp_path / "run", **QUICK)
    fedlu.learn(data, out=tmp_path / "whole", **QUICK)
    fedlu.learn(data, out=tmp_path / "run", resume=True, **QUICK)
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_run_over_changed_data_is_not_evaluated(tmp_path: Path) -> None:
    data = tmp_path / "data"
    save(partition(read("nations"), clients=2, by="random", seed=1), data, {})
    fedlu.learn(data, out=tmp_path / "run", **QUICK)
    save(partition(read("nations"), clients=2, by="random", seed=2), data, {}, replace=True)
    with pytest.raises(InputError, match="the data has changed since"):
        fedlu.evaluate(tmp_path / "run")


def test_a_diverged_run_keeps_its_last_good_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the last round that was measured, if that is later than the last one by the clock."""
    train = Client.train

    def spoiled(self: Client, message: Train) -> Trained:
        if message.round == 4:
            self.relations.values[:] = np.nan
        return train(self, message)

    monkeypatch.setattr(Client, "train", spoiled)
    said = r"round 4: the local loss of client-\d is nan; lower learning_rate; the tables of round 3 are kept"
    with pytest.raises(DivergedError, match=said):
        fedlu.learn(data, out=tmp_path / "run", **{**QUICK, "evaluate_every": 3})
    assert json.loads((tmp_path / "run" / "state.json").read_text())["progress"]["round"] == 3
    assert all(np.isfinite(array).all() for array in embeddings(tmp_path / "run").values())
    monkeypatch.setattr(Client, "train", train)
    assert fedlu.learn(data, out=tmp_path / "run", resume=True, **{**QUICK, "evaluate_every": 3})["rounds"] == 6


@pytest.mark.parametrize("table", ["local", "avatar", "relations"])
def test_tables_that_are_no_numbers_are_not_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Spoiled by the last update of a round: no loss of that round tells."""
    monkeypatch.setattr(runs, "CHECKPOINT_SECONDS", 0.0)
    learn = Client._learn

    def spoiled(self: Client, number: int) -> dict[str, float]:
        losses = learn(self, number)
        if number == 4:
            getattr(self, table).values[0, 0] = np.inf
        return losses

    monkeypatch.setattr(Client, "_learn", spoiled)
    said = r"run: round 4: the \w+ loss of client-\d is nan; lower learning_rate; the tables of round 3 are kept"
    with pytest.raises(DivergedError, match=said):
        fedlu.learn(data, out=tmp_path / "run", **QUICK)
    assert all(np.isfinite(array).all() for array in embeddings(tmp_path / "run").values())


def test_scores_that_are_no_numbers_name_the_round(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that is found out only when it is measured."""
    train = Client.train

    def spoiled(self: Client, message: Train) -> Trained:
        trained = train(self, message)
        if message.round == 4:
            self.local.values[:] = np.nan
        return trained

    monkeypatch.setattr(Client, "train", spoiled)
    said = r"run: round 4: the model scores some triples NaN; .*; the tables of round 2 are kept"
    with pytest.raises(DivergedError, match=said):
        fedlu.learn(data, method="independent", model="DistMult", out=tmp_path / "run", **QUICK)


def test_a_learning_rate_out_of_bounds_diverges_with_a_clear_line(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"round \d+: the \w+ loss of client-\d is (nan|inf); lower learning_rate"):
        fedlu.learn(data, out=tmp_path / "run", model="DistMult", **{**QUICK, "learning_rate": 1e30})


def test_a_run_that_is_not_finished_can_be_looked_at(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its best tables so far, without disturbing it: it goes on as if nobody had looked."""
    monkeypatch.setattr(runs, "CHECKPOINT_SECONDS", 0.0)
    options = {**QUICK, "valid_share": 1.0}
    fedlu.learn(data, out=tmp_path / "whole", **options)
    seen: dict[int, RoundEvent] = {}

    def stop_in(number: int) -> Callable[[RoundEvent, object], None]:
        def watch(event: RoundEvent, _: object) -> None:
            seen[event.round] = event
            if event.round == number:
                raise KeyboardInterrupt  # before its checkpoint

        return watch

    broken = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        fedlu.learn(data, out=broken, watch=stop_in(2), **options)
    with pytest.raises(InputError, match=r"nothing was measured yet; go on with `fedlu learn \.\.\. --resume`"):
        fedlu.evaluate(broken)
    with pytest.raises(KeyboardInterrupt):
        fedlu.learn(data, out=broken, watch=stop_in(5), resume=True, **options)
    before = {path: path.read_bytes() for path in broken.rglob("*") if path.is_file()}
    best = {view: max(seen[number].valid_mrr[view] for number in (2, 4)) for view in ("local", "global")}
    found = fedlu.evaluate(broken, "valid")
    assert {view: found[view]["weighted"]["mrr"] for view in best} == pytest.approx(best)
    assert len(fedlu.load(broken).clients) == 2
    assert runs.how_far(broken) == "not finished: the best tables of 4 rounds, of 6"
    assert {path: path.read_bytes() for path in broken.rglob("*") if path.is_file()} == before
    fedlu.learn(data, out=broken, resume=True, **options)
    assert runs.how_far(broken) == ""
    assert_same(tmp_path / "whole", broken)


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_anew(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a run that goes on meanwhile: the first file is there, the others are gone when they are looked for."""
    run = tmp_path / "run"
    fedlu.learn(data, out=run, **QUICK)
    expected, read, reads = embeddings(run), checkpoints.load_file, []

    def replaced(path: Path) -> dict[str, np.ndarray]:
        reads.append(path)
        found = read(path)
        if len(reads) == 1:
            path.parent.rename(path.parent.with_name("round-000007"))
            state = json.loads((run / "state.json").read_text())
            (run / "state.json").write_text(json.dumps({**state, "checkpoint": "round-000007"}))
        return found

    monkeypatch.setattr(checkpoints, "load_file", replaced)
    assert fedlu.evaluate(run) == metrics_of(run)["test"]
    assert len(reads) == 2 + 3  # the server's, a client's in vain; then the server's and both clients'
    assert embeddings(run).keys() == expected.keys()


def test_without_valid_triples_the_last_tables_count(tmp_path: Path) -> None:
    """There is nothing to choose a round by, nor to stop for; what is shown has no MRR of it."""
    whole = partition(read("umls"), clients=2, by="random", seed=1)
    blind = replace(whole, clients=tuple(replace(client, valid=client.valid[:0]) for client in whole.clients))
    seen: list[RoundEvent] = []
    options = {**QUICK, "evaluate_every": 1, "patience": 1}
    metrics = fedlu.learn(blind, out=tmp_path / "run", watch=lambda event, _: seen.append(event), **options)
    assert (metrics["rounds"], metrics["best_round"]) == (6, {"local": 6, "global": 6})
    assert [event.valid_mrr for event in seen] == [{}] * 6
    assert metrics["test"]["local"]["weighted"]["mrr"] > 0


@pytest.mark.parametrize(("limit", "refused"), [("1000000", True), ("max", False), ("9" * 18, False)])
def test_a_container_may_have_less_memory_than_the_machine(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, refused: bool
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("250000\n")
    groups = [(str(tmp_path / "memory.max"), str(tmp_path / "memory.current")), ("/not/there", "/not/there")]
    monkeypatch.setattr(memory, "GROUPS", groups)
    assert (memory.total() == 1_000_000) == refused
    assert (memory.free() == 750_000) == refused
    settings = Settings(dimension=64)
    if not refused:
        memory.refuse_too_large(load(data), settings)
        return
    with pytest.raises(InputError, match=r"need about .* GB; there are 0\.0; give a smaller dimension or batch"):
        memory.refuse_too_large(load(data), settings)


@pytest.mark.parametrize(
    ("method", "model", "settings"),
    [
        ("fedlu", "TransE", {}),
        ("fedlu", "TransE", {"remember": 0.5}),
        ("fedlu", "TransE", {"warm_rounds": 0, "remember": 0.5}),
        ("fedlu", "pykeen:ConvE", {"warm_rounds": 0}),
        ("fedlu", "TransE", {"epochs": 0.25, "batch_size": 64, "add_up": 0.5}),
        ("fedlu", "ComplEx", {}),
        ("fedec", "RotatE", {"remember": 0.9}),
        ("fedlu", "pykeen:ConvE", {}),
        # one update a round by an optimizer that forgets: its count is the same in every round
        ("independent", "pykeen:ConvE", {"keep_optimizer": False, "epochs": 0.5, "batch_size": 4096}),
    ],
)
def test_stopped_anywhere_and_resumed_it_ends_the_same(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, model: str, settings: dict[str, Any]
) -> None:
    """Interrupted after every round in turn, in this process."""
    monkeypatch.setattr(runs, "CHECKPOINT_SECONDS", 0.0)
    options = {**QUICK, "method": method, "model": model, **settings}
    fedlu.learn(data, out=tmp_path / "whole", **options)

    broken, stopped = tmp_path / "broken", set()

    def stop(event: Any, _: object) -> None:
        if event.round not in stopped:  # each round once, before its checkpoint
            stopped.add(event.round)
            raise KeyboardInterrupt

    for _ in range(6):
        with pytest.raises(KeyboardInterrupt):
            fedlu.learn(data, out=broken, resume=True, watch=stop, **options)
    fedlu.learn(data, out=broken, resume=True, watch=stop, **options)
    assert stopped == {1, 2, 3, 4, 5, 6}
    assert_same(tmp_path / "whole", broken)
    assert metrics_of(tmp_path / "whole")["test"] == metrics_of(broken)["test"]


def test_the_number_of_threads_changes_nothing(data: Path, tmp_path: Path) -> None:
    program = "import sys, fedlu; fedlu.learn(sys.argv[1], out=sys.argv[2], dimension=32, rounds=3, warm_rounds=1)"
    for threads in ("1", "2"):
        environment = {**os.environ, "NUMBA_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", program, str(data), str(tmp_path / threads)]
        subprocess.run(command, env=environment, check=True)
    assert_same(tmp_path / "1", tmp_path / "2")


PROGRAM = """
    import sys
    import fedlu
    from fedlu.results import runs
    runs.CHECKPOINT_SECONDS = 0.0
    fedlu.learn(sys.argv[1], out=sys.argv[2], model=sys.argv[3], resume=True, dimension=16, rounds=150,
                evaluate_every=7, warm_rounds=40, negatives=16, patience=99, epochs=float(sys.argv[4]),
                compress=sys.argv[5])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "epochs", "compress", "times"), [("TransE", 1, "none", 8), ("ComplEx", 0.5, "int8", 5)]
)
def test_killed_at_random_moments_it_ends_with_the_same_bits(
    data: Path, tmp_path: Path, model: str, epochs: float, compress: str, times: int
) -> None:
    """SIGKILL, again and again, wherever it is: in a batch, between files of a checkpoint, before the first one."""

    def start(out: Path) -> subprocess.Popen[bytes]:
        words = [str(data), str(out), model, str(epochs), compress]
        return subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM), *words])

    def wait_until(there: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 60
        while process.poll() is None and not there() and time.monotonic() < deadline:
            time.sleep(0.001)

    def checkpointed() -> int:
        path = broken / "state.json"
        return int(json.loads(path.read_text())["progress"]["round"]) if path.is_file() else 0

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(whole).wait(timeout=120) == 0
    random, killed_at = np.random.default_rng(3), []
    for number in range(times):
        before, process = checkpointed(), start(broken)
        if number == 0:
            wait_until(broken.exists, process)  # before it has a config
        elif number == 1:
            wait_until((broken / "config.json").exists, process)
        else:  # somewhere in the rounds that follow, after at least one of its own
            wait_until(lambda before=before: checkpointed() > before, process)  # type: ignore[misc]
            time.sleep(float(random.uniform(0, 0.1)))
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL, "it ended before it was killed"
        killed_at.append(checkpointed())
    assert sorted(set(killed_at[2:])) == killed_at[2:]  # each time further on
    assert 0 < killed_at[2] < killed_at[-1] < 150
    assert start(broken).wait(timeout=120) == 0
    assert_same(whole, broken)
    assert metrics_of(whole)["test"] == metrics_of(broken)["test"]
    numbers = [json.loads(line)["round"] for line in (broken / "events.jsonl").read_text().splitlines()]
    assert numbers == list(range(1, 151))  # no round twice, none missing
