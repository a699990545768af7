"""`fedlu predict`, `export`, `import-pykeen` and `doctor` as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedlu
from fedlu.graph import partition, read, save
from fedlu.results import checkup, memory
from fedlu.results.checkup import Finding
from tests.test_cli import run

QUICK = {"dimension": 8, "rounds": 2, "evaluate_every": 1, "warm_rounds": 1, "negatives": 8}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    save(partition(read("nations"), clients=2, by="random", seed=1), folder / "nations", {})
    fedlu.learn(folder / "nations", out=folder / "run", **QUICK)
    return folder / "run"


def question(learned: Path, split: str = "train") -> tuple[str, str, str]:
    graph = fedlu.load(learned).desks["client-0"].graph
    return graph.vocabulary.labels(graph.split(split)[:1])[0]


def test_one_question(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, relation, tail = question(learned)
    asked = ["predict", learned, "--client", "client-0", "--relation", relation]
    code, out, err = run(*asked, "--head", head, "--top", "14", capsys=capsys)
    assert (code, err) == (0, "")
    assert f"client-0, blend: {head} - {relation} - ?" in out
    row = next(line for line in out.splitlines() if f" {tail} " in line)
    assert "train" in row
    assert " new " in out
    code, out, _ = run(*asked, "--tail", tail, "--global", "--top", "3", "--json", capsys=capsys)
    found = json.loads(out)
    assert (found["view"], found["head"], found["tail"]) == ("global", None, tail)
    expected = fedlu.load(learned).predict("client-0", tail=tail, relation=relation, view="global", top=3)
    assert found["answers"] == [{**row, "score": pytest.approx(row["score"])} for row in expected.to_dicts()]
    code, out, _ = run(*asked, "--head", head, "--new-only", "--top", "14", "--json", capsys=capsys)
    answers = json.loads(out)["answers"]
    assert answers
    assert all(each["known"] is None for each in answers)


def test_a_file_of_questions(learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, relation, tail = question(learned)
    file = tmp_path / "questions.tsv"
    file.write_text(f"{head}\t{relation}\t?\n\n\t{relation}\t{tail}\n", encoding="utf-8-sig")
    code, out, err = run("predict", learned, "--client", "client-0", "--from", file, "--top", "2", capsys=capsys)
    assert (code, err) == (0, "")
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0] == ["query", "rank", "head", "relation", "tail", "score", "known"]
    assert [(line[0], line[1]) for line in lines[1:]] == [("0", "1"), ("0", "2"), ("1", "1"), ("1", "2")]
    assert {line[2] for line in lines[1:3]} == {head}
    assert {line[4] for line in lines[3:]} == {tail}
    code, out, _ = run("predict", learned, "--client", "client-0", "--from", file, "--json", capsys=capsys)
    assert len(json.loads(out)) == 20


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("brazil\tembassy\n", "questions.tsv:2: 2 columns, expected 3; head, relation, tail"),
        ("brasil\tRELATION\t?\n", "questions.tsv:2: no entity 'brasil'; did you mean 'brazil'?"),
        ("brazil\tRELATION\tchina\n", "questions.tsv:2: a question has either a head or a tail"),
    ],
)
def test_faults_in_a_file_have_a_line(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    head, relation, _ = question(learned)
    (tmp_path / "questions.tsv").write_text(f"{head}\t{relation}\t?\n" + line.replace("RELATION", relation))
    asked = ["predict", learned, "--client", "client-0", "--from", tmp_path / "questions.tsv"]
    code, out, err = run(*asked, capsys=capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no question; give --relation with --head or --tail, or --from FILE"),
        (["--relation", "embassy"], "which client?; give --client, one of client-0, client-1"),
        (["--client", "client-0", "--relation", "embassyy", "--head", "brazil"], "did you mean"),
        (["--relation", "embassy", "--from", "x.tsv"], "a question and a file of questions"),
        (["--client", "client-0", "--from", "x.tsv"], "x.tsv: no such file"),
        (["--relation", "embassy", "--global", "--view", "local"], "--global and --view local; give one of the two"),
    ],
)
def test_wrong_questions(learned: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    code, out, err = run("predict", learned, *options, capsys=capsys)
    assert (code, out) == (2, "")
    assert message in err


def test_out_and_in_again(learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tables = tmp_path / "model", tmp_path / "tables.safetensors"
    options = ["--client", "client-1", "--view", "local", "--format", "pykeen", "--out", model]
    code, out, _ = run("export", learned, *options, capsys=capsys)
    assert (code, out) == (0, f"wrote {model}: the local tables of client-1 as pykeen\n")
    code, out, _ = run("import-pykeen", model, "--out", tables, capsys=capsys)
    assert code == 0
    settings = "--model TransE --set dimension=8 --set reciprocal=false"
    assert f"next: fedlu learn FEDERATION {settings} --start-from {tables} --out RUN" in out
    nations = learned.parent / "nations"
    quick = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    code, _, err = run(
        "learn", nations, *quick, "--start-from", f"client-1={tables}", "--out", tmp_path / "warm", capsys=capsys
    )
    assert (code, err) == (0, "")
    (record,) = json.loads((tmp_path / "warm" / "config.json").read_text())["start_from"]
    assert record["client"] == "client-1"
    code, _, err = run("export", learned, *options, capsys=capsys)
    assert (code, err) == (2, f"fedlu: {model}: is there already; choose another --out\n")


def test_moved_data_is_found_where_one_says(learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, away = learned.parent / "nations", tmp_path / "elsewhere"
    head, relation, _ = question(learned)
    asked = ["predict", learned, "--client", "client-0", "--head", head, "--relation", relation]
    home.rename(away)
    try:
        code, _, err = run(*asked, capsys=capsys)
        assert (code, "the data of the run is gone; put it back, or say where it is now" in err) == (2, True)
        assert run(*asked, "--data", away, capsys=capsys)[0] == 0
    finally:
        away.rename(home)


# --- doctor


def test_the_doctor_finds_us_well(capsys: pytest.CaptureFixture[str]) -> None:
    """Tried out here and now: every model learns, and the loops are in the cache afterwards."""
    code, out, _ = run("doctor", "--json", capsys=capsys)
    findings = {each["name"]: each for each in json.loads(out)}
    assert code == 0, findings
    assert {"versions", "cores", "memory", "disk", "loops", "learning", "threading layer", "BLAS"} <= set(findings)
    assert f"fedlu {fedlu.__version__}" in findings["versions"]["found"]
    assert findings["loops"]["status"] == "ok"
    assert findings["learning"]["found"] == "finite and repeatable"
    assert "1 for" in findings["threads of loops"]["found"]  # as the tests set it


def test_what_the_doctor_says_to_a_person(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "computing", lambda: [Finding("loops", "fail", "no cache", "set NUMBA_CACHE_DIR")])
    code, out, _ = run("doctor", capsys=capsys)
    assert code == 1
    assert "FAIL loops: no cache\n     set NUMBA_CACHE_DIR\n" in out
    monkeypatch.setattr(checkup, "examine", lambda: [Finding("cores", "ok", "2")])
    code, out, _ = run("doctor", capsys=capsys)
    assert (code, out) == (0, "ok   cores: 2\nall is well\n")


def test_the_doctor_names_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise RuntimeError("cannot cache function: no locator available for file kernels.py")

    with monkeypatch.context() as patch:
        patch.setattr(checkup, "_try_to_learn", broken)
        (finding,) = checkup.computing()
    assert (finding.status, "NUMBA_CACHE_DIR" in finding.fix) == ("fail", True)
    monkeypatch.setattr(checkup, "usable_cores", lambda: 4)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    layer, loops, products = checkup._threads({"layer": "workqueue", "loops": 1, "products": 8})
    assert (layer.status, "libgomp" in layer.fix) == ("warn", True)
    assert loops == Finding(
        "threads of loops", "warn", "1 for 4 cores", "unset NUMBA_NUM_THREADS, or set it to 4: cores are idle"
    )
    assert products.fix == "set OMP_NUM_THREADS=4: threads wait for cores"
    assert checkup._products({"torch": "generic", "numpy": "x"}).status == "warn"
    monkeypatch.setattr(
        memory, "read_system", lambda path: {"/proc/meminfo": "MemAvailable: 1000000 kB\n"}.get(path, "")
    )
    assert checkup.memory().status == "warn"
    monkeypatch.setattr(checkup, "PACKAGES", ("numpy", "no-such-package"))
    assert (checkup.versions().status, checkup.versions().fix) == ("fail", "pip install no-such-package")


def test_a_container_is_taken_at_its_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup.os, "sched_getaffinity", lambda _: set(range(16)))
    for text, cores in {"150000 100000": 2, "max 100000": 16, "": 16, "50000 100000": 1}.items():
        monkeypatch.setattr(memory, "read_system", lambda path, text=text: text)
        assert checkup.usable_cores() == cores
