"""A small federation for the tests of what comes out; a file that needs another one makes its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlu.graph import partition, read, save


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "nations"
    save(partition(read("nations"), clients=2, by="random", seed=1), folder, {})
    return folder
