"""Fixtures: small graphs made here, and the published federations where the checkout has them beside it."""

from __future__ import annotations

import os

# The graphs of the tests are tiny: a second thread would only wait, long on a busy machine. Set before Numba is loaded;
# that threads change no result has a test of its own.
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import tarfile
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("here", deadline=None)  # tests run beside each other: a slow moment is no fault
hypothesis.settings.load_profile("here")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "fb15k-237"

Write = Callable[[str, str], Path]

LONGEST = (
    "test_docs.py",
    "test_hostile.py",
    "test_kills.py",
    "test_methods.py",
    "test_deployment.py",
    "test_matrix.py",
    "test_runs.py",
    "test_browser.py",
    "test_docs_site.py",
    "test_docs_reproduce.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: workers take files in this order, and a long one that begins last is waited for."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below the test's folder, making its folders."""

    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def hospitals(write: Write, tmp_path: Path) -> Path:
    """Two clients that share two entities (flu, fever)."""
    write("hospitals/north/train.txt", "ada\thas\tflu\nbob\thas\tflu\nflu\tcauses\tfever\nada\tknows\tbob\n")
    write("hospitals/north/valid.txt", "bob\tknows\tada\n")
    write("hospitals/north/test.txt", "ada\thas\tfever\n")
    write("hospitals/north/forget.txt", "bob\thas\tflu\n")
    write("hospitals/south/train.tsv", "aspirin\ttreats\tfever\nflu\tcauses\tfever\naspirin\ttreats\tflu\n")
    write("hospitals/south/valid.tsv", "flu\tcauses\taspirin\n")
    write("hospitals/south/test.tsv", "fever\tcauses\tflu\n")
    return tmp_path / "hospitals"


@pytest.fixture(scope="session")
def fb15k237() -> Path:
    path = SHARED / "all.txt.gz"
    if not path.is_file():
        pytest.skip("the published FB15k-237 is not beside this checkout")
    return path


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the paper's federations C3 and R3."""
    folder = tmp_path_factory.mktemp("published")
    for name in ("C3", "R3"):
        archive = SHARED / f"{name}.tar.gz"
        if not archive.is_file():
            pytest.skip("the published splits of FB15k-237 are not beside this checkout")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return folder


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


HOSTILE = ("</script><script>window.hacked = 1</script>", '"><img src=x onerror="window.hacked = 1">', "a & b ' c")
"""Names that would break out of a page that trusts them."""


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two clients whose names, entities and relations are hostile to a page."""
    from fedlu.results import runs

    folder = tmp_path_factory.mktemp("hostile")
    names = [*HOSTILE, *(f"{place} <b>{number}</b>" for number, place in enumerate(["north", "south", "east", "west"]))]
    pairs = [(a, f"<i>likes</i> {(i + j) % 2}", b) for i, a in enumerate(names) for j, b in enumerate(names) if i != j]
    for number, client in enumerate(("<b>north & 'co'", 'so"uth')):
        mine = [pair for place, pair in enumerate(pairs) if place % 3 != number]
        (folder / "data" / client).mkdir(parents=True)
        for split, part in {"train": mine[:-6], "valid": mine[-6:-3], "test": mine[-3:]}.items():
            text = "".join("\t".join(triple) + "\n" for triple in part)
            (folder / "data" / client / f"{split}.txt").write_text(text, encoding="utf-8")
    quick = {"dimension": 8, "rounds": 4, "evaluate_every": 2, "warm_rounds": 1}
    runs.learn(folder / "data", out=folder / "run", **quick)
    return folder / "run"


@pytest.fixture(scope="session")
def umls_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned something: UMLS, three clients."""
    from fedlu.graph import partition, read, save
    from fedlu.results import runs

    folder = tmp_path_factory.mktemp("umls")
    save(partition(read("umls"), clients=3, by="random"), folder / "data", {})
    settings = {"dimension": 32, "rounds": 30, "warm_rounds": 10, "learning_rate": 0.01, "negatives": 64}
    runs.learn(folder / "data", out=folder / "run", **settings)
    return folder / "run"
