"""Who listens on a plain-text line, below every encryption, hears tokens and rows: no label, no relation, no key."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedlu.federated.alignment import tokens
from fedlu.graph import Federation, partition, read
from tests.flare.conftest import options
from tests.flare.deployment import deployed
from tests.flare.wiretap import Wiretap

pytestmark = pytest.mark.slow


def unmistakable(kind: str, number: int) -> str:
    """A label that no other text holds by chance."""
    return f"{kind}-{hashlib.sha256(f'{kind} {number}'.encode()).hexdigest()[:20]}"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    random = np.random.default_rng(3)
    kinds = ("entity", "relation", "entity")
    numbers = zip(*(random.integers(size, size=400) for size in (30, 6, 30)), strict=True)
    lines = ["\t".join(unmistakable(kind, n) for kind, n in zip(kinds, row, strict=True)) for row in numbers]
    path = tmp_path_factory.mktemp("secrets") / "graph.tsv"
    path.write_text("\n".join(lines) + "\n")
    return partition(read(path), clients=2, by="random", seed=1)


def test_no_label_and_no_key_is_on_the_wire(secrets: Federation, compiled: None, tmp_path: Path) -> None:
    with deployed(tmp_path, secrets, security="clear") as federation, Wiretap(federation.port) as line:
        for name in federation.sites:
            path = federation.kits[name] / "startup" / "fed_client.json"
            path.write_text(path.read_text().replace(f"localhost:{federation.port}", f"localhost:{line.own_port}"))
        path = federation.lead / "startup" / "fed_admin.json"
        path.write_text(path.read_text().replace(f'"port": {federation.port}', f'"port": {line.own_port}'))
        federation.start()
        federation.learn("overheard", *options(rounds=3, warm_rounds=1))
        federation.finish("overheard")
        key = bytes.fromhex(federation.key.read_text())
        # the line is open and we hear all: the settings, the sites' names, every token, and the last global rows
        assert line.heard(b"overheard")
        assert line.heard(b"evaluate_every")
        for client in secrets.clients:
            assert line.heard(client.name.encode())
            assert all(line.heard(token) for token in tokens(client.vocabulary.entities, key))
        (checkpoint,) = (federation.runs / "overheard" / "checkpoints").iterdir()
        table = load_file(checkpoint / "server.safetensors")["table"]
        assert any(line.heard(row.tobytes()) for row in table)
        # and yet
        said = [label for client in secrets.clients for labels in vars(client.vocabulary).values() for label in labels]
        assert len(said) > 60
        for label in said:
            plain = label.encode()
            forms = (plain, label.encode("utf-16-le"), base64.b64encode(plain).rstrip(b"="), plain.hex().encode())
            assert not any(line.heard(form) for form in forms), label
            assert not line.heard(hashlib.sha256(plain).digest())  # nor a hash that needs no key
        for form in (key, key.hex().encode(), base64.b64encode(key)):
            assert not line.heard(form)
        assert json.loads((federation.runs / "overheard" / "metrics.json").read_text())["rounds"] == 3
