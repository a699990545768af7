"""fedlu: federated knowledge-graph embeddings that learn together and forget on request.

import fedlu
metrics = fedlu.learn("umls-r3", method="fedlu", model="TransE", recipe="fast", out="run")
fedlu.load("run").predict("client-0", head="virus", relation="causes")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlu.results.prediction import load
    from fedlu.results.runs import evaluate, learn

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "learn", "load"]


def __getattr__(name: str) -> Any:
    """Loaded when asked for, so that `import fedlu` and `fedlu --help` are quick."""
    if name in ("evaluate", "learn"):
        from fedlu.results import runs

        return getattr(runs, name)
    if name == "load":
        from fedlu.results.prediction import load

        return load
    raise AttributeError(f"module 'fedlu' has no attribute {name!r}")
