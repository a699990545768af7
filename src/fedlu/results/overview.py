"""What a run folder tells of itself before its tables are loaded: settings, rounds, metrics, audit, its federation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlu.errors import FedluError, InputError
from fedlu.graph.statistics import FederationStatistics, describe
from fedlu.results.files import read_json
from fedlu.results.runs import data_of


@dataclass(frozen=True)
class Overview:
    """A run, finished or under way."""

    folder: Path
    label: str
    """What tells it from the other runs shown with it."""
    config: dict[str, Any]
    events: tuple[dict[str, Any], ...]
    """A record per round of learning."""
    cycles: tuple[dict[str, Any], ...]
    """A record per cycle of forgetting, for a run that forgot."""
    metrics: dict[str, Any] | None
    """None while it is under way."""
    audit: dict[str, Any] | None

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.config["settings"]
        return settings

    @property
    def measured(self) -> list[dict[str, Any]]:
        """The rounds after which valid was ranked."""
        return [event for event in self.events if event["valid"]]


@dataclass(frozen=True)
class Data:
    """The federation that one or more runs learned from: described, or why it cannot be."""

    name: str
    fingerprint: str
    statistics: FederationStatistics | None
    missing: str = ""


def read(folders: list[Path]) -> list[Overview]:
    """The runs of these folders, in their order."""
    labels = labels_of(folders)
    return [_read(folder, label) for folder, label in zip(folders, labels, strict=True)]


def _read(folder: Path, label: str) -> Overview:
    if not (folder / "config.json").is_file():
        raise InputError("no run", where=folder, remedy="make one with `fedlu learn`")
    metrics, audit = folder / "metrics.json", folder / "audit.json"
    events = _events(folder / "events.jsonl")
    return Overview(
        folder=folder,
        label=label,
        config=read_json(folder / "config.json"),
        events=tuple(event for event in events if "round" in event),
        cycles=tuple(event for event in events if "cycle" in event),
        metrics=read_json(metrics) if metrics.is_file() else None,
        audit=read_json(audit) if audit.is_file() else None,
    )


def _events(path: Path) -> tuple[dict[str, Any], ...]:
    """A line per round; one that is being written is left for later."""
    if not path.is_file():
        return ()
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    try:
        return tuple(json.loads(line) for line in lines)
    except ValueError as bad:
        raise InputError(f"a line is no event ({bad})", where=path, remedy="start a new run") from None


def labels_of(folders: list[Path]) -> list[str]:
    """The shortest ends of the paths that differ from each other."""
    paths = [folder.resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        raise InputError("a run is named twice", remedy="name each run once")
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        labels = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(labels)) == len(labels):
            break
    return labels


def federations_of(runs: list[Overview]) -> list[Data]:
    """Each federation once, as it lies on disk; one that is gone or has changed is named, with the reason."""
    found: dict[str, Data] = {}
    for run in runs:
        fingerprint = run.config["fingerprint"]
        if found.get(fingerprint) is None or found[fingerprint].statistics is None:
            found[fingerprint] = _describe(run)
    return list(found.values())


def _describe(run: Overview) -> Data:
    name, fingerprint = run.config["federation"], run.config["fingerprint"]
    try:
        return Data(name, fingerprint, describe(data_of(run.folder)))
    except FedluError as refusal:
        return Data(name, fingerprint, None, str(refusal))
