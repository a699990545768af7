"""The house plan, read from the imports: arrows point down, and each outside package has its room."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fedlu"

ROOMS = [
    "errors",
    "seeds",
    "config",
    "graph",
    "embedding",
    "learning",
    "federated",
    "results",
    "flare",
    "explorer",
    "display",
    "commands",
    "cli",
]
"""From the cellar to the roof: a room imports from itself and from those before it."""

HOMES = {  # outside packages that only some modules may know
    "typer": {"cli", "commands"},
    "rich": {"display"},
    "pykeen": {"graph.sources", "embedding.pykeen_models", "embedding.pykeen_exchange"},
    "pyoxigraph": {"graph.sources"},
    "matplotlib": {"results.figures"},
    "numba": {
        "embedding.compiling",
        "embedding.kernels",
        "embedding.distance_kernels",
        "embedding.private_kernels",
        "embedding.row_kernels",
        "embedding.short_list_kernels",
        "embedding.installation",
    },
    "llvmlite": {"embedding.short_list_kernels"},
    "safetensors": {f"results.{name}" for name in ("checkpoints", "files", "tables", "exchange", "sites", "hosted")},
    "torch": {
        "embedding.formulas",
        "embedding.scorers",
        "embedding.losses",
        "embedding.pykeen_models",
        "embedding.pykeen_exchange",
        "embedding.installation",
        "results.tensorboard",
    },
    "sklearn": {"graph.partition", "results.maps"},
    "openTSNE": {"results.maps"},
    "jinja2": {"results.report"},
    "fastapi": {"explorer"},
    "uvicorn": {"explorer.serving"},
    "nvflare": {"flare"},
    "psutil": {"flare"},
    "optuna": {"results.tuning"},
}
FORBIDDEN = {"pickle", "shelve", "marshal", "cloudpickle", "dill", "joblib"}

MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def violations(name: str, imports: set[str]) -> list[str]:
    floor = ROOMS.index(name.split(".")[0])
    bad = []
    for imported in sorted(imports):
        package, *rest = imported.split(".")
        if package == "fedlu" and rest and rest[0] in ROOMS and ROOMS.index(rest[0]) > floor:
            bad.append(f"{name} imports {imported}, which is above it")
        if package in FORBIDDEN:
            bad.append(f"{name} imports {package}: nothing is pickled here")
        homes = HOMES.get(package)
        if homes and not any(name == home or name.startswith(f"{home}.") for home in homes):
            bad.append(f"{name} imports {package}, which belongs to {', '.join(sorted(homes))}")
    return bad


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    assert violations(name_of(path), imports_of(path)) == []


def test_every_room_is_in_the_plan() -> None:
    assert {name_of(path).split(".")[0] for path in MODULES} <= set(ROOMS)


@pytest.mark.parametrize(
    ("name", "imported"),
    [("graph.sources", "fedlu.embedding.ranking"), ("graph.triples", "rich.table"), ("results.runs", "pickle")],
)
def test_the_check_can_fail(name: str, imported: str) -> None:
    assert len(violations(name, {imported})) == 1


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_stay_readable(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
