"""fedlu: federated knowledge-graph embeddings that learn together and forget on request.

import fedlu
metrics = fedlu.learn("umls-r3", method="fedlu", model="TransE", recipe="fast", out="run")
fedlu.load("run").predict("client-0", head="antibiotic", relation="treats")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlu.results.audit import audit
    from fedlu.results.exchange import export, load_pykeen
    from fedlu.results.forgetting import forget
    from fedlu.results.plots import plot
    from fedlu.results.prediction import load
    from fedlu.results.report import report
    from fedlu.results.runs import evaluate, learn

__version__ = "0.1.0"
__all__ = ["__version__", "audit", "evaluate", "export", "forget", "learn", "load", "load_pykeen", "plot", "report"]
_HOMES = {
    "audit": "audit",
    "evaluate": "runs",
    "export": "exchange",
    "forget": "forgetting",
    "learn": "runs",
    "load": "prediction",
    "load_pykeen": "exchange",
    "plot": "plots",
    "report": "report",
}


def __getattr__(name: str) -> Any:
    """Loaded when asked for, so that `import fedlu` and `fedlu --help` are quick."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"fedlu.results.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedlu' has no attribute {name!r}")
