"""The events of a run for TensorBoard, if that is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedlu.errors import UnavailableError
from fedlu.federated.rounds import Progress, RoundEvent


def tensorboard_watch(folder: Path) -> Callable[[RoundEvent, Progress], None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UnavailableError("TensorBoard is not installed", remedy="pip install 'fedlu[tensorboard]'") from None
    writers: list[SummaryWriter] = []  # made at the first event, when the folder is known to be a run

    def watch(event: RoundEvent, _: Progress) -> None:
        if not writers:
            # what a killed run had written of rounds that are now computed again is not to be shown twice
            writers.append(SummaryWriter(folder / "tensorboard", purge_step=event.round))
        (writer,) = writers
        for client, tables in event.losses.items():
            for table, loss in tables.items():
                writer.add_scalar(f"loss/{table}/{client}", loss, event.round)
        for view, mrr in event.valid_mrr.items():
            writer.add_scalar(f"valid mrr/{view}", mrr, event.round)
        writer.flush()

    return watch
