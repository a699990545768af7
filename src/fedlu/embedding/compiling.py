"""How loops are compiled: once for an installation, and always in another process than the one that runs them.

A process that has just compiled a loop runs code that was optimised once; whoever loads it from Numba's cache runs code
that was linked and optimised once more, which sums in another order. A run that was begun by the one and resumed by the
other would not end with the same bits. So who misses a loop in the cache has a helper compile it, and then loads it
like everybody else.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

SPINS = 20_000
"""How often a thread looks whether the others are done before it sleeps: for about half a millisecond."""


def share_the_cores() -> None:
    """Beside another program, threads that spin while they wait take the very core that the one they wait for needs:
    a step of training took seven times as long. OpenMP reads this when it is loaded, so what loads torch before us goes
    without; who has set it knows better."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


share_the_cores()

import numba  # noqa: E402, before its threads or torch's are there
from numba.core.caching import FunctionCache  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

Function = TypeVar("Function", bound=Callable[..., Any])

REORDERED = {"reassoc", "contract", "nsz", "nnan", "ninf"}
"""Which liberties the compiler may take with sums."""
IDLE = 20.0
"""Seconds without work after which the helper goes."""
HELPER = "fedlu.embedding.compiling"

log = logging.getLogger(__name__)


def compiled(function: Function) -> Function:
    """A loop in parallel; comparisons with NaN stay exact. Numba's decorator has no types: this keeps ours."""
    return _cached(function)


def fast(function: Function) -> Function:
    """As above, where sums may be reordered so that they are vectorised; divisions and roots stay exact."""
    return _cached(function, fastmath=REORDERED)


def in_order(function: Function) -> Function:
    """As above, where sums are taken as they are written: for loops that are vectorised without reordering any."""
    return _cached(function, fastmath=REORDERED - {"reassoc"})


def estimated(function: Function) -> Function:
    """As above, where a reciprocal root may be an estimate with a step of Newton's."""
    return _cached(function, fastmath=True)


WIDE = '"prefer-vector-width"="512"'


@intrinsic  # type: ignore[untyped-decorator]
def _wide_vectors(typing: Any) -> Any:
    """Called within a parallel loop: the compiler may use the widest vectors that the processor has; by itself it takes
    half of that. Only for loops in which each number stays in its place: where numbers are summed over the places of a
    vector, other bits would come of it."""

    def generate(context: Any, builder: Any, *_: Any) -> Any:
        attributes = builder.function.attributes
        if isinstance(attributes, set):  # llvmlite's own `add` refuses what it does not know
            set.update(attributes, {WIDE})
        return context.get_dummy_value()

    return numba.types.void(), generate


def _nothing() -> None:
    """Loops that are plain Python have no vectors."""


wide_vectors: Any = _nothing if numba.config.DISABLE_JIT else _wide_vectors


def inline(function: Function) -> Function:
    return cast(Function, numba.njit(inline="always", fastmath=REORDERED)(function))


def _cached(function: Function, **options: Any) -> Function:
    dispatcher = numba.njit(parallel=True, nogil=True, **options)(function)
    if not numba.config.DISABLE_JIT:
        dispatcher._cache = _Loading(function)
    return cast(Function, dispatcher)


class _Loading(FunctionCache):  # type: ignore[misc]
    """Numba's cache, which has somebody else compile what it does not hold."""

    def load_overload(self, signature: tuple[Any, ...], target: Any) -> Any:
        found = super().load_overload(signature, target)
        if found is None and _helper.compiles(self._py_func, signature):
            found = super().load_overload(signature, target)
        return found


class _Helper:
    """The process that compiles for this one, as long as there is something to compile."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.asked = 0
        """Loops compiled for this process so far."""
        self.is_one = False
        """In the helper itself, which asks nobody."""

    def compiles(self, function: Any, signature: tuple[Any, ...]) -> bool:
        """Whether it could; else this process compiles for itself: the results are as good, but for last bits."""
        if self.is_one:
            return False
        wanted = json.dumps([function.__module__, function.__name__, [_describe(each) for each in signature]])
        with self.lock:
            for _ in range(2):  # one that was idle may go just now
                try:
                    process = self._running()
                    assert process.stdin is not None  # a pipe
                    assert process.stdout is not None
                    process.stdin.write(f"{wanted}\n")
                    process.stdin.flush()
                    if process.stdout.readline().strip() == "done":
                        self.asked += 1
                        return True
                except (OSError, ValueError):
                    pass
                self.stop()
        log.warning("no other process could compile %s: this one does, and may differ in last bits", function.__name__)
        return False

    def _running(self) -> subprocess.Popen[str]:
        if self.owner != os.getpid():  # a fork: the pipes are its parent's
            self.process, self.owner = None, os.getpid()
        if self.process is not None and self.process.poll() is not None:  # it was idle, and went
            self.stop()
        if self.process is None:
            command = [sys.executable, "-m", HELPER]
            pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
            self.process = subprocess.Popen(  # noqa: S603, this program itself
                command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True
            )
        return self.process

    def stop(self) -> None:
        if self.process is not None and self.owner == os.getpid():
            with self.process as process:  # closes its pipes
                process.kill()
        self.process = None


_helper = _Helper()
atexit.register(_helper.stop)


def compiled_just_now() -> int:
    """Loops that were not in the cache when this process needed them."""
    return _helper.asked


def _describe(kind: Any) -> Any:
    """A type of Numba's, as JSON."""
    if isinstance(kind, numba.types.Array):
        return [str(kind.dtype), kind.ndim, kind.layout, not kind.mutable, kind.aligned]
    return str(kind)


def _kind(described: Any) -> Any:
    if isinstance(described, str):
        return getattr(numba.types, "boolean" if described == "bool" else described)
    dtype, ndim, layout, readonly, aligned = described
    return numba.types.Array(_kind(dtype), ndim, layout, readonly=readonly, aligned=aligned)


def _compile_for_another() -> None:
    """The helper: a line in for each loop, a line out when it is in the cache; gone with its asker, or if idle."""
    sys.modules[HELPER] = sys.modules["__main__"]  # one module, whether it is run or imported
    _helper.is_one = True
    while True:
        idle = threading.Timer(IDLE, os._exit, (0,))
        idle.daemon = True
        idle.start()
        line = sys.stdin.readline()
        idle.cancel()
        if not line:
            return
        module, name, kinds = json.loads(line)
        getattr(importlib.import_module(module), name).compile(tuple(_kind(each) for each in kinds))
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _compile_for_another()
