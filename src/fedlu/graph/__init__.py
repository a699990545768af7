"""Knowledge graphs and federations of them: read, partition, load, save, describe."""

from fedlu.graph.federation import ClientGraph, Federation, load, save
from fedlu.graph.partition import partition
from fedlu.graph.sources import LabelledTriples, read
from fedlu.graph.statistics import ClientStatistics, FederationStatistics, describe
from fedlu.graph.triples import Triples, Vocabulary

__all__ = [
    "ClientGraph",
    "ClientStatistics",
    "Federation",
    "FederationStatistics",
    "LabelledTriples",
    "Triples",
    "Vocabulary",
    "describe",
    "load",
    "partition",
    "read",
    "save",
]
