"""How much memory there is, for a program in a container, too; and whether a run fits."""

from __future__ import annotations

import os
from pathlib import Path

from fedlu.config import Settings
from fedlu.embedding.models import size_of
from fedlu.errors import InputError
from fedlu.graph.federation import Federation

GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Where Linux says how much a container may use, and how much it does, by either version of its control groups."""


def total() -> int:
    """Bytes: the machine's, or what a container is allowed of them."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(allowed for allowed, _ in _groups())])


def free() -> int:
    """Bytes that nobody uses now."""
    lines = dict(line.split(":", 1) for line in read_system("/proc/meminfo").splitlines() if ":" in line)
    machine = 1024 * int(lines["MemAvailable"].split()[0]) if "MemAvailable" in lines else total()
    return min([machine, *(allowed - used for allowed, used in _groups())])


def _groups() -> list[tuple[int, int]]:
    found = [(read_system(limit).strip(), read_system(usage).strip()) for limit, usage in GROUPS]
    return [(int(limit), int(usage or 0)) for limit, usage in found if limit.isdigit()]  # it may also say "max"


def read_system(path: str) -> str:
    """What Linux says there; empty where it does not."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def refuse_too_large(data: Federation, settings: Settings) -> None:
    """Before anything is made of it."""
    needed, there = estimate(data, settings), total()
    if needed > 0.9 * there:
        width = size_of(settings.model, dimension=settings.dimension).entity_width
        room = f"about {needed / 1e9:.1f} GB; there are {there / 1e9:.1f}"
        what = f"{_rows(data, settings):,} rows of {width:,} numbers and the batches need {room}"
        raise InputError(what, remedy="give a smaller dimension or batch")


def estimate(data: Federation, settings: Settings) -> int:
    """Bytes that a run takes at its peak, beyond what the program and the triples take."""
    entities = _rows(data, settings)
    size = size_of(settings.model, dimension=settings.dimension)
    width, directions = size.entity_width, 2 if settings.reciprocal else 1
    relations = directions * sum(len(client.vocabulary.relations) for client in data.clients)
    kept = 4 if settings.remember else 2  # the best of each, and a mean of each
    tables = entities * width * (2 * (1 + 2) + kept)  # two tables with the moments of Adam
    sets = 2 if settings.begins_apart else 1
    others = relations * size.relation_width * (sets * (1 + 2) + kept) + size.own * len(data.clients) * (1 + 2 + 2)
    graphs = 2 if settings.method == "fedlu" else 1  # both tables go forth before either goes back
    batch = settings.batch_size * settings.negatives * (8 + graphs * size.expanded)  # scores, slopes and their making
    shared = 0
    if settings.method not in ("independent", "centralized"):
        owed = 0 if settings.compress == "none" else 2  # what either end has not told the other yet
        shared = len(data.entities) + (2 + owed) * entities  # the server's table, and rows on their way up and down
    return 4 * (tables + others + batch + shared * width)


def _rows(data: Federation, settings: Settings) -> int:
    if settings.method == "centralized":
        return len(data.entities)
    return sum(len(client.vocabulary.entities) for client in data.clients)
