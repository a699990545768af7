"""The pages under docs/: every command and program in them is run, in order; the site builds without a warning."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from markdown.extensions.toc import slugify

from fedlu.cli import main
from tests.test_docs import ROOT

DOCS = ROOT / "docs"
PAGES = ("index", "quickstart", "methods", "predict", "look", "forgetting", "ranking", "faq")
"""Those with commands, in the order in which a reader meets them: later ones use what earlier ones made."""
ELSEWHERE = {"federation": "flare/test_walkthrough.py", "reproduce": "test_docs_reproduce.py"}
"""Pages that need more than a desk, and the test that runs them."""
HOSPITALS = {
    "north/train.tsv": "ada\thas\tflu\nbob\thas\tflu\nflu\tcauses\tfever\nada\tknows\tbob\neve\thas\tcold\n",
    "north/valid.tsv": "bob\tknows\tada\n",
    "north/test.tsv": "ada\thas\tfever\n",
    "south/train.tsv": "aspirin\ttreats\tfever\nflu\tcauses\tfever\naspirin\ttreats\tflu\ncold\tcauses\tfever\n",
    "south/valid.tsv": "flu\tcauses\taspirin\n",
    "south/test.tsv": "fever\tcauses\tflu\n",
}


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.M | re.S)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder, with the data that the pages speak of."""
    folder = tmp_path_factory.mktemp("reader")
    rows = [f"person{a}\tknows{(a + b) % 4}\tperson{b}" for a, b in permutations(range(9), 2)]
    (folder / "my-graph.tsv").write_text("\n".join(rows) + "\n")
    for name, text in HOSPITALS.items():
        path = folder / "hospitals" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for page, name in {"predict": "questions.tsv", "forgetting": "erase.tsv"}.items():
        (shown,) = [text for language, text in blocks(page) if language == "text"]
        (folder / name).write_text(shown)
    return folder


def type_in(line: str) -> None:
    words = shlex.split(line, comments=True)
    if not words:
        return
    assert words[0] == "fedlu", line
    with pytest.raises(SystemExit) as exit_:
        main(words[1:])
    assert exit_.value.code == 0, line


@pytest.mark.slow
def test_the_pages_work_for_a_reader(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    seen = 0
    for page in PAGES:
        for language, text in blocks(page):
            if language == "sh":
                for line in text.splitlines():
                    type_in(line)
                    seen += 1
            elif language == "python":
                exec(compile(text, f"{page}.md", "exec"), {"__name__": page})
                assert capsys.readouterr().out or "save" in text, f"{page}: a program that says nothing"
    assert seen >= 25
    assert (desk / "degrees.png").stat().st_size > 10_000
    assert {"model", "entities.txt", "tables.safetensors", "from-pykeen.safetensors"} <= {
        p.name for p in desk.iterdir()
    }


def test_no_command_hides_from_the_test() -> None:
    """What looks like a command stands in a block that is run, on a page that is run."""
    for path in DOCS.rglob("*.md"):
        page = str(path.relative_to(DOCS).with_suffix(""))
        for language, text in blocks(page):
            if re.search(r"^(fedlu|import fedlu|from fedlu) ", text, flags=re.M):
                assert language in ("sh", "python"), f"{page}: {text}"
            if language in ("sh", "python"):
                assert page in PAGES or page in ELSEWHERE, f"{page} has commands: add it to PAGES"
    for page, test in ELSEWHERE.items():
        assert f"{page}.md" in (ROOT / "tests" / test).read_text(), f"{test} does not run {page}.md"


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = tmp_path / "site"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) >= 9
    for page in pages:
        loads = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(https?:[^\"'>\s]+)", page.read_text())
        styles = re.findall(
            r"<link[^>]*rel=[\"']?(?:stylesheet|preconnect)[^>]*href=[\"']?(https?:[^\"'>\s]+)", page.read_text()
        )
        assert loads + styles == [], page
    api = (site / "api" / "index.html").read_text()
    for name in ("predict_many", "load_pykeen", "start_from", "FilterIndex"):
        assert name in api
    assert (site / "images" / "who-sees-what.svg").exists()


def test_every_page_can_be_reached() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = [file for entry in yaml.safe_load(text)["nav"] for file in entry.values()]
    assert all((DOCS / file).is_file() for file in listed)
    assert {path.name for path in DOCS.glob("*.md")} == set(listed)


def headings(path: Path) -> set[str]:
    """The places of a page that a link can name, as mkdocs makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), flags=re.M)
    return {slugify(title.replace("`", ""), "-") for title in titles}


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        page, _, place = link.partition("#")
        target = path.parent / page if page else path
        assert link.startswith("https://") or target.exists(), link
        assert not place or link.startswith("https://") or place in headings(target), link


def test_the_picture_is_drawn_and_told() -> None:
    root = ElementTree.parse(DOCS / "images" / "who-sees-what.svg").getroot()
    told = "".join(root.find("{http://www.w3.org/2000/svg}desc").itertext())
    assert "no triple" in told
    assert not [value for each in root.iter() for value in each.attrib.values() if value.startswith("http")]


RUN_NOTEBOOK = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text") or output.get("data", {}).get("text/plain", ""))
"""


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    path = DOCS / "notebooks" / "tour.ipynb"
    command = [sys.executable, "-W", "ignore", "-c", RUN_NOTEBOOK, str(path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank" in done.stdout
    assert re.search(r"compared with alone: [+-]0\.\d{3}", done.stdout)
    assert (tmp_path / "run" / "metrics.json").exists()
