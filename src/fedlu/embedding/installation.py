"""What computes here: the compiled loops and where they are cached, their threads, and the libraries of products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
from threadpoolctl import ThreadpoolController

from fedlu.embedding import compiling, distance_kernels, kernels, private_kernels, row_kernels, short_list_kernels


@dataclass(frozen=True)
class Loops:
    used: int
    """Versions of loops that were called in this process."""
    compiled: int
    """Those of them that were not in the cache, and are now."""
    cache: str


def loops() -> Loops:
    """What the calls so far have found in the cache, and what they had to compile."""
    modules = (kernels, distance_kernels, private_kernels, row_kernels, short_list_kernels)
    found = {id(each): each for module in modules for each in vars(module).values() if hasattr(each, "stats")}
    stats = [each.stats for each in found.values() if each.stats.cache_path]
    hits, misses = (sum(sum(getattr(each, name).values()) for each in stats) for name in ("cache_hits", "cache_misses"))
    return Loops(hits + misses, misses + compiling.compiled_just_now(), stats[0].cache_path)


def threads() -> dict[str, Any]:
    """After a loop was run: what runs its threads, and how many there are."""
    import torch  # takes seconds, and most of what imports this module does without

    return {"layer": numba.threading_layer(), "loops": numba.get_num_threads(), "products": torch.get_num_threads()}


@contextmanager
def one_thread() -> Iterator[None]:
    """For a few rows: threads that wait for each other would take longer than the work."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)


@contextmanager
def products_alone() -> Iterator[None]:
    """NumPy's products on one thread: its threads spin while they wait, and ours would wait for them. A forgetting took
    twice as long; and torch, whose threads are ours, takes a second to load."""
    with _of_numpy().limit(limits=1):
        yield


@cache
def _of_numpy() -> ThreadpoolController:
    return ThreadpoolController().select(internal_api="openblas")


def products() -> dict[str, str]:
    """The libraries behind matrix products: torch's, which training uses, and NumPy's."""
    import torch

    words = torch.__config__.show().replace(",", " ").split()
    of_torch = next((word.removeprefix("BLAS_INFO=") for word in words if word.startswith("BLAS_INFO=")), "unknown")
    found: Any = np.show_config(mode="dicts")
    return {"torch": of_torch, "numpy": str(found.get("Build Dependencies", {}).get("blas", {}).get("name", "unknown"))}
