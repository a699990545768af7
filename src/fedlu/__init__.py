"""fedlu: federated knowledge-graph embeddings that learn together and forget on request.

import fedlu
metrics = fedlu.learn("umls-r3", method="fedlu", model="TransE", recipe="fast", out="run")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlu.results.audit import audit
    from fedlu.results.forgetting import forget
    from fedlu.results.runs import evaluate, learn

__version__ = "0.1.0"
__all__ = ["__version__", "audit", "evaluate", "forget", "learn"]
_HOMES = {"audit": "audit", "evaluate": "runs", "forget": "forgetting", "learn": "runs"}


def __getattr__(name: str) -> Any:
    """Loaded when asked for, so that `import fedlu` and `fedlu --help` are quick."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"fedlu.results.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedlu' has no attribute {name!r}")
