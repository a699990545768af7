"""Federations on disk: what is loaded, what is refused, and that a save is whole or not at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedlu.errors import InputError
from fedlu.graph import federation as federations
from fedlu.graph import load, save
from fedlu.graph.federation import check_target
from tests.conftest import Write


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_clients_splits_and_rows(hospitals: Path) -> None:
    federation = load(hospitals)
    north, south = federation.clients
    assert (north.name, south.name) == ("north", "south")
    assert north.vocabulary.entities == ("ada", "bob", "fever", "flu")
    assert north.vocabulary.labels(north.forget) == [("bob", "has", "flu")]
    assert south.vocabulary.labels(south.train)[0] == ("aspirin", "treats", "fever")
    assert [len(south.split(name)) for name in ("train", "valid", "test", "forget")] == [3, 1, 1, 0]
    assert federation.entities == ("ada", "aspirin", "bob", "fever", "flu")
    assert [rows.tolist() for rows in federation.rows] == [[0, 2, 3, 4], [1, 3, 4]]
    assert len(north.known) == 6


def test_gz_and_csv_load_alike(hospitals: Path) -> None:
    before = load(hospitals)
    train = hospitals / "north" / "train.txt"
    (hospitals / "north" / "train.csv.gz").write_bytes(gzip.compress(train.read_bytes().replace(b"\t", b",")))
    train.unlink()
    assert (load(hospitals).clients[0].train == before.clients[0].train).all()


def test_what_is_saved_loads_the_same(hospitals: Path, tmp_path: Path) -> None:
    federation = load(hospitals)
    save(federation, tmp_path / "copy", {"made": "by a test"})
    copy = load(tmp_path / "copy")
    assert copy.entities == federation.entities
    for old, new in zip(federation.clients, copy.clients, strict=True):
        assert old.vocabulary == new.vocabulary
        assert all((old.split(s) == new.split(s)).all() for s in ("train", "valid", "test", "forget"))
    assert not (tmp_path / "copy" / "south" / "forget.txt").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("north/test.txt", "ada\thas\tfever\nada\thas\tflu\n", "north/test.txt:2: the triple is in train.txt:1 too"),
        ("north/forget.txt", "ada\thas\tfever\n", "north/forget.txt:1: the triple is not in train"),
        ("north/train.txt", "", "north/train.txt: the file is empty"),
        ("north/valid.txt", "", "north/valid.txt: the file is empty"),
        ("north/train.tsv", "a\tb\tc\n", "north: train is there twice, as train.tsv and train.txt"),
        ("south/test.tsv", "a\tb\n", "south/test.tsv:1: 2 columns"),
        ("west/notes.md", "x", "west: no train split; expected train.txt, .tsv or .csv, plain or .gz"),
    ],
)
def test_refusals(hospitals: Path, write: Write, name: str, text: str, message: str) -> None:
    write(f"hospitals/{name}", text)
    with pytest.raises(InputError) as refusal:
        load(hospitals)
    assert str(refusal.value).startswith(f"{hospitals}/{message}")


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_missing_split_is_refused(hospitals: Path, split: str) -> None:
    (hospitals / "north" / f"{split}.txt").unlink()
    with pytest.raises(InputError, match=f"north: no {split} split"):
        load(hospitals)


def test_leaks_can_be_looked_at(hospitals: Path, write: Write) -> None:
    write("hospitals/north/test.txt", "ada\thas\tflu\n")
    client = load(hospitals, allow_leaks=True).clients[0]
    assert client.vocabulary.labels(client.shared_triples("train", "test")) == [("ada", "has", "flu")]


def test_repeated_lines_are_read_once_and_counted(hospitals: Path, write: Write) -> None:
    write("hospitals/south/valid.tsv", "flu\tcauses\taspirin\n" * 3)
    south = load(hospitals).clients[1]
    assert (len(south.valid), south.repeated) == (1, 2)


def test_the_union_does_not_train_on_anybodys_test(hospitals: Path, write: Write) -> None:
    write("hospitals/south/train.tsv", "aspirin\ttreats\tfever\nflu\tcauses\tfever\nada\thas\tfever\nflu\tis\tfever\n")
    federation = load(hospitals)  # north's test triple (ada, has, fever) is in south's train
    union = federation.union()
    assert ("ada", "has", "fever") in union.vocabulary.labels(union.test)
    assert ("ada", "has", "fever") not in union.vocabulary.labels(union.train)
    assert ("flu", "is", "fever") in union.vocabulary.labels(union.train)
    for client, number in zip(federation.clients, (0, 1), strict=True):
        lifted = union.vocabulary.labels(federation.lift(number, client.test))
        assert sorted(lifted) == sorted(client.vocabulary.labels(client.test))


@pytest.mark.parametrize("name", ["a\nb", "caf\udce9"])
def test_client_names_are_plain_text(hospitals: Path, name: str) -> None:
    (hospitals / "north").rename(hospitals / name)
    with pytest.raises(InputError, match="the name of a client is not plain text; rename"):
        load(hospitals)


def test_folders_that_are_no_federation(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no clients"):
        load(tmp_path)


def test_only_a_folder_of_our_own_is_replaced(hospitals: Path, tmp_path: Path) -> None:
    federation, mine, other = load(hospitals), tmp_path / "mine", tmp_path / "other"
    save(federation, mine, {"seed": 1})
    with pytest.raises(InputError, match="--force to replace it"):
        save(federation, mine, {"seed": 2})
    save(federation, mine, {"seed": 2}, replace=True)
    assert b'"seed": 2' in (mine / "partition.json").read_bytes()
    other.mkdir()
    check_target(other)  # empty: free to use
    (other / "thesis.doc").write_text("precious")
    with pytest.raises(InputError, match="not all made by `fedlu partition`"):
        save(federation, other, {}, replace=True)
    with pytest.raises(InputError, match="is a file"):
        check_target(other / "thesis.doc")


@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_save_leaves_nothing_behind(
    hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    federation, out = load(hospitals), tmp_path / "out"
    if existing:
        save(federation, out, {"seed": 1})
    before = tree(tmp_path)

    def full(*_: object, **__: object) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(federations.json, "dumps", full)  # after the clients were written
    with pytest.raises(OSError, match="no space left"):
        save(federation, out, {}, replace=True)
    assert tree(tmp_path) == before
    assert out.exists() == existing


def test_an_interrupt_between_the_two_renames_keeps_the_old(
    hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, out = load(hospitals), tmp_path / "out"
    save(federation, out, {"seed": 1})
    before, rename = tree(out), Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(federation, out, {"seed": 2}, replace=True)
    assert tree(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hospitals", "out"]


@pytest.mark.parametrize("name", ["notes.md", "run1/config.json", "north/notes.md"])
def test_a_folder_with_anything_else_in_it_is_not_replaced(
    hospitals: Path, write: Write, tmp_path: Path, name: str
) -> None:
    save(load(hospitals), tmp_path / "out", {})
    write(f"out/{name}", "precious")
    with pytest.raises(InputError, match="not all made by"):
        save(load(hospitals), tmp_path / "out", {}, replace=True)
    assert (tmp_path / "out" / name).read_text() == "precious"


def test_places_that_cannot_be_written_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    for place in (tmp_path, Path(), tmp_path / "file" / "below", tmp_path / "link"):
        with pytest.raises(InputError):
            check_target(place)


@pytest.mark.slow
def test_the_published_federations_load_as_they_are(published: Path) -> None:
    c3, r3 = load(published / "C3"), load(published / "R3")
    assert [len(client.vocabulary.entities) for client in c3.clients] == [5419, 1259, 12110]
    assert [len(client.test) for client in r3.clients] == [12259, 9801, 8953]
    assert [len(client.forget) for client in c3.clients] == [443, 121, 1919]
    assert c3.entities == r3.entities
    assert sum(len(client.known) for client in c3.clients) == 310_116
    assert all((np.diff(rows) > 0).all() for rows in c3.rows)
