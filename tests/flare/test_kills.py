"""Whoever is killed, and whenever: the run ends with the bits of one that was left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from fedlu.graph import Federation
from tests.flare.conftest import in_one_process, options
from tests.flare.deployment import Deployment, assert_same_bits

pytestmark = pytest.mark.slow

LAST_WORDS = """
    import os, signal
    from pathlib import Path
    import fedlu.flare.executor as executor

    honest, died = executor.to_shareable, Path("MARK")

    def fatal(message):
        if type(message).__name__ == "Trained" and message.round == 4 and not died.exists():
            died.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(message)

    executor.to_shareable = fatal
"""
"""A site that is killed, worker and parent, once: round 4 is trained and on its disk, but not sent."""


def test_whatever_is_killed_it_ends_with_the_same_bits(
    federation: Deployment, data: Federation, tmp_path: Path
) -> None:
    """One run through all of it, SIGKILL each time: a worker while it trains; a site between its training and its
    answer, and the server in the middle of that round; then everybody. Rows are packed, so that what both sides owe has
    to survive, too; so have means over rounds, and what the server adds up."""
    changes: dict[str, Any] = {"rounds": 10, "epochs": 20, "compress": "int8", "add_up": 0.25, "remember": 0.5}
    federation.kill("client-2")
    federation.start("client-2", with_code=LAST_WORDS.replace("MARK", str(tmp_path / "died")))
    federation.learn("faults", *options(**changes), "--silence", "60")
    federation.wait_for_round("client-0", "faults", 2)
    federation.worker("client-1").kill()

    federation.wait_for_end("client-2")
    assert federation.round_of("client-2", "faults") == 4
    federation.kill("server")  # which waits for that round
    assert federation.events("faults")[-1]["round"] == 3
    federation.start("server", "client-2")

    federation.wait_for_round("client-0", "faults", 7)
    for name in ("server", *federation.sites):
        federation.kill(name)
    federation.start()
    federation.finish("faults")
    assert federation.said("faults").count("trying again") >= 3
    assert_same_bits(federation, "faults", in_one_process(data, tmp_path / "whole", **changes))
    events = federation.events("faults")
    assert [event["round"] for event in events] == list(range(1, 11))  # none lost, none twice
    shared, width = len(load_file(next(federation.runs.glob("faults/checkpoints/*/server.safetensors")))["table"]), 8
    assert max(max(event["bytes_up"].values()) for event in events) <= shared * (width + 4)  # a byte each, and a step
