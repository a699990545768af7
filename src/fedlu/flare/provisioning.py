"""From `federation.toml` to startup kits, one folder for each party: certificates, addresses, and what its jobs may do.

Code submission is closed: a job may name our two components and nothing else, whoever sends it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import shutil
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from fedlu.errors import FedluError, InputError
from fedlu.federated.wire import is_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ALLOWED_CLASSES = ["fedlu.flare.controller.RoundsController", "fedlu.flare.executor.SiteExecutor"]
DEFAULT_PORT = 8002
SECURITY = ("mtls", "clear")
ROLES = ("lead", "member")
EXAMPLE = """expected
name = "hospitals"
[server]
address = "fed.example.org"
listen = "0.0.0.0"
organisation = "lab"
[[sites]]
name = "north"
organisation = "north_hospital"
[[people]]
email = "lead@example.org"
organisation = "lab"
"""


@dataclass(frozen=True)
class Site:
    name: str
    organisation: str


@dataclass(frozen=True)
class Person:
    email: str
    organisation: str
    role: str = "lead"


@dataclass(frozen=True)
class Plan:
    """What `federation.toml` says."""

    name: str
    address: str
    port: int
    listen: str
    organisation: str
    sites: tuple[Site, ...]
    people: tuple[Person, ...]
    security: str = "mtls"


def read_plan(path: Path) -> Plan:
    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("no such file", where=path, remedy=" ".join(EXAMPLE.split())) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as bad:
        raise InputError(f"not TOML ({bad})", where=path, remedy="mend it") from None
    try:
        server = dict(text["server"])
        plan = Plan(
            name=str(text["name"]),
            address=str(server["address"]),
            port=int(server.get("port", DEFAULT_PORT)),
            listen=str(server.get("listen", "")),
            organisation=str(server["organisation"]),
            sites=tuple(Site(**each) for each in text["sites"]),
            people=tuple(Person(**each) for each in text["people"]),
            security=str(server.get("security", "mtls")),
        )
    except (KeyError, TypeError, ValueError) as bad:
        raise InputError(f"{bad} is missing or wrong", where=path, remedy=" ".join(EXAMPLE.split())) from None
    return _checked(plan, path)


def _checked(plan: Plan, path: Path) -> Plan:
    names = [site.name for site in plan.sites]
    for name in (plan.name, *names):
        if not is_name(name) or "." in name:
            raise InputError(f"{name!r} is no name", where=path, remedy="use letters, digits, - and _")
    owners = [*(site.organisation for site in plan.sites), *(person.organisation for person in plan.people)]
    for each in (plan.organisation, *owners):
        if not re.fullmatch(r"[A-Za-z0-9_]+", each):
            raise InputError(f"organisation {each!r}", where=path, remedy="use letters, digits and _")
    if len(set(names)) < len(names) or len(names) < 2:
        raise InputError("needs two sites or more, each with a name of its own", where=path, remedy="add or rename one")
    if "server" in names or plan.address in names:
        raise InputError("a site is called like the server", where=path, remedy="rename it")
    for person in plan.people:
        if not re.fullmatch(r"[^@\s/]+@[^@\s/]+\.[^@\s/]+", person.email) or person.role not in ROLES:
            what = f"{person.email!r} as {person.role!r}"
            raise InputError(what, where=path, remedy=f"give an e-mail address, and a role: {' or '.join(ROLES)}")
    if not any(person.role == "lead" for person in plan.people):
        raise InputError("nobody leads", where=path, remedy="give one of the people the role lead")
    if plan.security not in SECURITY:
        raise InputError(f"security = {plan.security!r}", where=path, remedy=f"choose {' or '.join(SECURITY)}")
    if plan.security == "clear" and not _is_loopback(plan.address):
        raise InputError("nothing but mTLS leaves a machine", where=path, remedy="remove security = 'clear'")
    if not plan.listen and not _is_loopback(plan.address):
        remedy = "say server.listen: an address of the server's machine, or 0.0.0.0 for all of them"
        raise InputError("where shall the server listen?", where=path, remedy=remedy)
    return plan


def _is_loopback(address: str) -> bool:
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def init(plan: Plan, out: Path) -> dict[str, Path]:
    """Kits in `out`, by party. Their certificates are signed by an authority made here, kept in `out/authority`."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("is not empty", where=out, remedy="choose another --out, or `fedlu federation add-site`")
    out.mkdir(parents=True, exist_ok=True)
    _save_plan(plan, out)
    return _provision(plan, out, {plan.address, *(s.name for s in plan.sites), *(p.email for p in plan.people)})


def add_site(out: Path, name: str, organisation: str) -> Path:
    """A kit for another site, by the same authority; the leads' kits learn of it, the others stay as they are."""
    path = out / "authority" / "plan.json"
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError("no federation here", where=out, remedy="make one with `fedlu federation init`") from None
    sites = tuple(Site(**each) for each in saved.pop("sites"))
    people = tuple(Person(**each) for each in saved.pop("people"))
    if name in {site.name for site in sites}:
        raise InputError(f"has a site {name!r} already", where=out, remedy="choose another name")
    plan = _checked(Plan(**saved, sites=(*sites, Site(name, organisation)), people=people), out)
    kits = _provision(plan, out, {name})
    for person in people:
        _describe(plan, out / person.email, {"role": "person", "name": person.email, "org": person.organisation})
    _save_plan(plan, out)
    return kits[name]


# --- inside -------------------------------------------------------------------------------------------------------


def _save_plan(plan: Plan, out: Path) -> None:
    folder = out / "authority"
    folder.mkdir(exist_ok=True, mode=0o700)
    values = {**vars(plan), "sites": [vars(s) for s in plan.sites], "people": [vars(p) for p in plan.people]}
    (folder / "plan.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _provision(plan: Plan, out: Path, wanted: set[str]) -> dict[str, Path]:
    """Let FLARE make certificates and kits, take those that are wanted, and close them."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    project = _project(plan)
    said = StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        provisioner = Provisioner(str(out / "authority"), prepare_builders(project), None)
        context = provisioner.provision(prepare_project(project))
    if context.get(CtxKey.BUILD_ERROR):
        raise FedluError("the kits could not be made", where=out, remedy=said.getvalue()[-300:])
    made = sorted((out / "authority" / plan.name).glob("prod_*"))[-1]
    kits = {}
    for name in sorted(wanted):
        kits[name] = out / name
        shutil.copytree(made / name, kits[name])
    shutil.rmtree(made)
    for name, folder in kits.items():
        _close(plan, name, folder)
    return kits


def _project(plan: Plan) -> dict[str, Any]:
    loopback = {"connection_security": plan.security} if plan.security != "mtls" else {}
    server = {"name": plan.address, "type": "server", "org": plan.organisation, "fed_learn_port": plan.port, **loopback}
    sites = [{"name": s.name, "type": "client", "org": s.organisation, **loopback} for s in plan.sites]
    people = [
        {"name": p.email, "type": "admin", "org": p.organisation, "role": p.role, **loopback} for p in plan.people
    ]
    builder = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": plan.name,
        "description": "a federation of knowledge graphs",
        "participants": [server, *sites, *people],
        "builders": [
            {"path": f"{builder}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{builder}.static_file.StaticFileBuilder", "args": {"config_folder": "config", "scheme": "grpc"}},
            {"path": f"{builder}.cert.CertBuilder", "args": {}},
            {"path": f"{builder}.signature.SignatureBuilder", "args": {}},
        ],
    }


def _close(plan: Plan, name: str, folder: Path) -> None:
    """What is said here wins over FLARE's defaults, which lie beside it as `*.default`."""
    for script in (*folder.glob("startup/*.sh"), *folder.glob("startup/*.ipynb"), *folder.glob("**/readme.txt")):
        script.unlink()  # kits are started by fedlu
    people = {person.email: person for person in plan.people}
    sites = {site.name: site for site in plan.sites}
    if name in people:
        _describe(plan, folder, {"role": "person", "name": name, "org": people[name].organisation})
        return
    local = folder / "local"
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    if name in sites:
        _describe(plan, folder, {"role": "site", "name": name, "org": sites[name].organisation})
        resources["allow_log_streaming"] = False  # a log may name a file, and stays where it is
        resources["components"] = [each for each in resources["components"] if "log" not in each["id"]]
    else:
        _describe(plan, folder, {"role": "server", "name": name, "org": plan.organisation, "listen": _listen(plan)})
        _one_job_at_a_time(resources)
    resources["class_allow_list"], resources["class_list_enforcement_mode"] = ALLOWED_CLASSES, "enforce"
    _write(local / "resources.json", resources)
    _write(local / "authorization.json", _permissions())


LOOK_AGAIN = {"min_schedule_interval": 1.0, "max_schedule_interval": 5.0, "max_schedule_count": 60}
"""Seconds until FLARE looks again whether a job's sites are there: by itself it waits ten, then twice as long, up to
ten minutes. After so many times it gives the job up, and the lead sends it again."""


def _one_job_at_a_time(server: dict[str, Any]) -> None:
    """A site's state is one job's at a time. Where the jobs are kept is said when the server starts."""
    server["servers"][0] |= {"max_num_clients": 1000, "heart_beat_timeout": 30}
    for each in server["components"]:
        if each["id"] == "job_scheduler":
            each["args"] |= {"max_jobs": 1, **LOOK_AGAIN}
    server["components"] = [each for each in server["components"] if "log" not in each["id"]]


def _permissions() -> dict[str, Any]:
    nothing = {
        "submit_job": "none",
        "clone_job": "none",
        "manage_job": "none",
        "download_job": "none",
        "operate": "none",
        "shell_commands": "none",
        "byoc": "none",
        "server-predeployed-flwr": "none",
    }
    return {
        "format_version": "1.0",
        "permissions": {
            "lead": {**nothing, "submit_job": "any", "manage_job": "any", "view": "any", "app_command": "any"},
            "member": {**nothing, "view": "any"},
        },
    }


def _listen(plan: Plan) -> str:
    return plan.listen or ("127.0.0.1" if plan.address == "localhost" else plan.address)


def _describe(plan: Plan, folder: Path, party: dict[str, Any]) -> None:
    common = {"federation": plan.name, "server": plan.address, "sites": [site.name for site in plan.sites]}
    _write(folder / "fedlu.json", {**party, **common})


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
