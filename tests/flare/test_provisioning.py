"""Kits: what a plan has to say, what is refused, and that every kit is closed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from fedlu.errors import InputError
from fedlu.flare.keys import new_key, read_key
from fedlu.flare.processes import SiteFiles, kit_of, run_server, run_site, who_runs
from fedlu.flare.provisioning import ALLOWED_CLASSES, add_site, init, read_plan
from tests.conftest import Write

PLAN = """
name = "hospitals"
[server]
address = "fed.example.org"
port = 8002
listen = "0.0.0.0"
organisation = "lab"
[[sites]]
name = "north"
organisation = "north_hospital"
[[sites]]
name = "south"
organisation = "south_hospital"
[[people]]
email = "lead@example.org"
organisation = "lab"
"""


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kits")
    (folder / "federation.toml").write_text(PLAN)
    init(read_plan(folder / "federation.toml"), folder / "kits")
    add_site(folder / "kits", "east", "east_hospital")
    return folder / "kits"


def test_a_kit_for_every_party_and_no_more(kits: Path) -> None:
    names = {"authority", "fed.example.org", "north", "south", "east", "lead@example.org"}
    assert {path.name for path in kits.iterdir()} == names
    for name in names - {"authority"}:
        secret = {path.name for path in (kits / name).rglob("*.key")}
        assert secret == {"server.key" if name == "fed.example.org" else "client.key"}
    roots = {(kits / name / "startup" / "rootCA.pem").read_bytes() for name in names - {"authority"}}
    assert len(roots) == 1  # a site that came later trusts the same authority
    assert json.loads((kits / "lead@example.org" / "fedlu.json").read_text())["sites"] == ["north", "south", "east"]
    assert stat.S_IMODE((kits / "authority").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["north", "east", "fed.example.org"])
def test_kits_take_no_code_and_no_commands(kits: Path, name: str) -> None:
    local = kits / name / "local"
    resources = json.loads((local / "resources.json").read_text())
    assert resources["class_allow_list"] == ALLOWED_CLASSES
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert not any("log" in component["id"] for component in resources["components"])
    assert not resources.get("allow_log_streaming")
    roles = json.loads((local / "authorization.json").read_text())["permissions"]
    assert set(roles) == {"lead", "member"}
    for role in roles.values():
        assert role["byoc"] == role["shell_commands"] == role["operate"] == role["download_job"] == "none"
    assert roles["member"]["submit_job"] == "none"
    assert not list((kits / name).rglob("*.sh"))


def test_a_kit_is_for_its_own_party(kits: Path, tmp_path: Path) -> None:
    assert kit_of(kits / "north", "site")["org"] == "north_hospital"
    with pytest.raises(InputError, match="is the kit of a site, not of a server"):
        run_server(kits / "north", tmp_path / "runs")
    with pytest.raises(InputError, match="not a kit"):
        kit_of(tmp_path, "site")
    assert who_runs(kits / "north") is None


def test_a_site_needs_data_and_key(kits: Path, tmp_path: Path) -> None:
    new_key(tmp_path / "key")
    with pytest.raises(InputError, match="not a key"):
        run_site(kits / "north", SiteFiles(tmp_path, tmp_path / "none", tmp_path / "state"))
    with pytest.raises(InputError, match="no such folder"):
        run_site(kits / "north", SiteFiles(tmp_path / "none", tmp_path / "key", tmp_path / "state"))


def test_a_key_is_secret_random_and_never_replaced(tmp_path: Path) -> None:
    for name in ("a", "b"):
        new_key(tmp_path / name)
    assert len(read_key(tmp_path / "a")) == 32
    assert read_key(tmp_path / "a") != read_key(tmp_path / "b")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    with pytest.raises(InputError, match="exists"):
        new_key(tmp_path / "a")
    (tmp_path / "short").write_text("abcd")
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        read_key(tmp_path / "short")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('name = "hospitals"', 'name = "../up"', "is no name"),
        ('name = "hospitals"\n', "", "'name' is missing"),
        ('"north"', '"south"', "a name of its own"),
        ('"north"', '"server"', "like the server"),
        ('"north_hospital"', '"north hospital"', "organisation 'north hospital'"),
        ('"lead@example.org"', '"nobody"', "an e-mail address"),
        ('email = "lead@example.org"', 'email = "a@b.org"\nrole = "member"', "nobody leads"),
        ('email = "lead@example.org"', 'email = "a@b.org"\nrole = "king"', "a role"),
        ('listen = "0.0.0.0"\n', "", "where shall the server listen"),
        ('listen = "0.0.0.0"', 'listen = "0.0.0.0"\nsecurity = "clear"', "nothing but mTLS"),
        ("[server]", "[server", "not TOML"),
    ],
)
def test_a_plan_that_does_not_hold_is_refused(write: Write, old: str, new: str, reason: str) -> None:
    assert old in PLAN
    with pytest.raises(InputError, match=reason):
        read_plan(write("federation.toml", PLAN.replace(old, new)))


def test_nothing_is_overwritten(kits: Path, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(PLAN)
    with pytest.raises(InputError, match="is not empty"):
        init(read_plan(tmp_path / "federation.toml"), kits)
    with pytest.raises(InputError, match="has a site 'north' already"):
        add_site(kits, "north", "north_hospital")
    with pytest.raises(InputError, match="no federation here"):
        add_site(tmp_path, "west", "west_hospital")
    with pytest.raises(InputError, match="no such file"):
        read_plan(tmp_path / "none.toml")
