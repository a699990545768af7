"""fedlu: federated knowledge-graph embeddings that learn together and forget on request."""

__version__ = "0.1.0"
