"""fedlu: federated knowledge-graph embeddings that learn together and forget on request.

import fedlu
metrics = fedlu.learn("umls-r3", method="fedlu", model="TransE", recipe="fast", out="run")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlu.results.runs import evaluate, learn

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "learn"]


def __getattr__(name: str) -> Any:
    """Loaded when asked for, so that `import fedlu` and `fedlu --help` are quick."""
    if name in ("evaluate", "learn"):
        from fedlu.results import runs

        return getattr(runs, name)
    raise AttributeError(f"module 'fedlu' has no attribute {name!r}")
