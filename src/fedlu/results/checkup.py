"""Is this installation fit to learn? Each finding says what was found, and what to do if it is not well."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedlu.graph.federation import ClientGraph, Federation
from fedlu.graph.triples import Vocabulary, sort_rows
from fedlu.results import memory as memory_there
from fedlu.seeds import generator

PACKAGES = (
    "fedlu",
    "numpy",
    "numba",
    "torch",
    "polars",
    "pykeen",
    "safetensors",
    "scikit-learn",
    "scipy",
    "matplotlib",
)
EXTRAS = {"pyoxigraph": "RDF files: pip install 'fedlu[rdf]'", "tensorboard": "--tensorboard: pip install tensorboard"}
TRIALS: tuple[dict[str, Any], ...] = (
    {"model": "TransE"},
    {"model": "TransE-L2"},
    {"model": "DistMult"},
    {"model": "ComplEx"},
    {"model": "RotatE"},
    {"model": "TransE", "private_negatives": True},
    {"model": "RotatE", "private_negatives": True},
)
"""Between them these call every loop that the recipes call."""


@dataclass(frozen=True)
class Finding:
    name: str
    status: str
    """ok; warn: it works, but not as it could; fail: it does not work."""
    found: str
    fix: str = ""


def examine() -> list[Finding]:
    """Everything, the cheap first; learning on a tiny federation compiles the loops if they are not in the cache."""
    return [versions(), extras(), cores(), memory(), disk(), *computing()]


def versions() -> Finding:
    found = [f"Python {platform.python_version()} on {platform.machine()}"]
    missing = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    fix = f"pip install {' '.join(missing)}" if missing else ""
    return Finding("versions", "fail" if missing else "ok", ", ".join(found), fix)


def extras() -> Finding:
    there, hints = [], []
    for name, hint in EXTRAS.items():
        try:
            there.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            hints.append(hint)
    return Finding(
        "extras", "ok", ", ".join(there) or "none", "; ".join(hints) and f"if you need it: {'; '.join(hints)}"
    )


def usable_cores() -> int:
    """What this process may use: by affinity, and by the quota of its container."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = memory_there.read_system("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        usable = min(usable, max(1, math.ceil(int(quota[0]) / int(quota[1]))))
    return usable


def cores() -> Finding:
    usable, all_of_them = usable_cores(), os.cpu_count() or 1
    load = os.getloadavg()[0]
    found = f"{usable} usable of {all_of_them}, load {load:.1f}"
    if load > 1.5 * all_of_them:
        return Finding("cores", "warn", found, "others are computing here: expect to wait, or come back later")
    return Finding("cores", "ok", found)


def memory() -> Finding:
    """Free memory, within the limit of the container if there is one."""
    free = memory_there.free()
    found = f"{free / 1e9:.1f} GB free of {memory_there.total() / 1e9:.1f}"
    if free < 2e9:
        return Finding("memory", "warn", found, "close other programs, or learn with a smaller --set dimension=")
    return Finding("memory", "ok", found)


def disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    found = f"{free / 1e9:.1f} GB free here"
    return (
        Finding("disk", "ok", found) if free > 1e9 else Finding("disk", "warn", found, "make room: a run keeps tables")
    )


def computing() -> list[Finding]:
    """Loops, threads and products: tried out, not asked for."""
    start = time.perf_counter()
    try:
        from fedlu.embedding import installation

        learned = _try_to_learn()
    except Exception as bad:  # whatever it is, a person is to see it as a finding
        what = f"{type(bad).__name__}: {' '.join(str(bad).split())[:200]}"
        fix = "point NUMBA_CACHE_DIR to a folder that can be written to" if "locator" in what else "install fedlu anew"
        return [Finding("loops", "fail", what, fix)]
    loops, seconds = installation.loops(), time.perf_counter() - start
    state = f"{loops.compiled} of {loops.used} compiled just now" if loops.compiled else f"all {loops.used} were cached"
    writable = os.access(loops.cache, os.W_OK)
    findings = [
        Finding(
            "loops",
            "ok" if writable else "warn",
            f"{state}, in {loops.cache} ({seconds:.0f} s)",
            "" if writable else "every start will compile: point NUMBA_CACHE_DIR to a folder that can be written to",
        ),
        Finding(
            "learning",
            "ok" if learned else "fail",
            "finite and repeatable" if learned else "not repeatable or not finite",
            "" if learned else "install the versions of constraints.txt: pip install -c constraints.txt fedlu",
        ),
    ]
    return [*findings, *_threads(installation.threads()), _products(installation.products())]


def _try_to_learn() -> bool:
    """Every model on a tiny federation; the first one twice, which must end with the same numbers."""
    from fedlu.results import runs

    settings: dict[str, Any] = {
        "dimension": 8,
        "rounds": 2,
        "warm_rounds": 1,
        "evaluate_every": 1,
        "negatives": 8,
        "batch_size": 32,
    }
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, trial in enumerate((*TRIALS, TRIALS[0])):
            metrics = runs.learn(tiny_federation(), out=Path(folder) / str(number), **{**settings, **trial})
            found.append(metrics["test"]["blend"]["weighted"]["mrr"])
    return all(0 < each <= 1 for each in found) and found[0] == found[-1]


def tiny_federation() -> Federation:
    """Two clients of the same dozen entities."""
    labels = Vocabulary(tuple(f"entity{n:02}" for n in range(12)), ("likes", "needs"))
    clients = []
    for name in ("north", "south"):
        random = generator(0, "tiny", name)
        triples = np.stack([random.integers(n, size=80) for n in (12, 2, 12)], axis=1).astype(np.int32)
        rows = sort_rows(triples, labels)
        rows = rows[random.permutation(len(rows))]
        cuts = [len(rows) - 10, len(rows) - 5]
        train, valid, test = (sort_rows(part, labels) for part in np.split(rows, cuts))
        clients.append(ClientGraph(name, labels, train, valid, test, forget=rows[:0]))
    return Federation("tiny", tuple(clients))


def _threads(found: dict[str, object]) -> list[Finding]:
    usable = usable_cores()
    layer = str(found["layer"])
    findings = [
        Finding(
            "threading layer",
            "warn" if layer == "workqueue" else "ok",
            layer,
            "install libgomp (or intel-openmp, or tbb): workqueue cannot be called from two threads at once"
            if layer == "workqueue"
            else "",
        )
    ]
    for name, variable in (("loops", "NUMBA_NUM_THREADS"), ("products", "OMP_NUM_THREADS")):
        number = int(str(found[name]))
        text = f"{number} for {usable} cores"
        if number < usable:
            fix = f"unset {variable}, or set it to {usable}: cores are idle" if os.environ.get(variable) else ""
            findings.append(Finding(f"threads of {name}", "warn" if fix else "ok", text, fix))
        elif number > usable:
            findings.append(
                Finding(f"threads of {name}", "warn", text, f"set {variable}={usable}: threads wait for cores")
            )
        else:
            findings.append(Finding(f"threads of {name}", "ok", text))
    return findings


def _products(found: dict[str, str]) -> Finding:
    text = ", ".join(f"{name}: {library}" for name, library in found.items())
    if found["torch"] in ("generic", "unknown"):
        return Finding("BLAS", "warn", text, "install torch from PyPI, which brings a fast one")
    return Finding("BLAS", "ok", text)
