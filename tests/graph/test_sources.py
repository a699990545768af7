"""Reading: every kind of source gives the same triples, and every fault is named with its file and line."""

from __future__ import annotations

import gzip
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fedlu.errors import InputError, UnavailableError
from fedlu.graph import sources
from fedlu.graph.triples import index
from tests.conftest import Write

ROWS = [("ada", "knows", "bob"), ("bob", "likes", "café"), ("a b", "knows", "#c")]


def rows(path: Path) -> list[tuple[str, ...]]:
    return sources.read(path).frame.rows()


TSV = "".join("\t".join(row) + "\n" for row in ROWS)
CSV = "".join(",".join(row) + "\n" for row in ROWS)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("g.tsv", TSV.encode()),
        ("g.txt", TSV.encode()),
        ("g.csv", CSV.encode()),
        ("g.tsv.gz", gzip.compress(TSV.encode(), mtime=0)),
        ("g.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("windows.tsv", TSV.replace("\n", "\r\n").encode()),
        ("bom.tsv", b"\xef\xbb\xbf" + TSV.encode()),
        ("open-end.tsv", TSV.rstrip("\n").encode()),
        ("blank-lines.tsv", TSV.replace("\n", "\n\n").encode()),
        ("header.csv", b"head,relation,tail\n" + CSV.encode()),
        ("header.tsv", b"Subject\tPredicate\tObject\n" + TSV.encode()),
    ],
)
def test_every_kind_of_file_gives_the_same_rows(write: Write, name: str, data: bytes) -> None:
    assert rows(write(name, data)) == ROWS


def test_csv_quotes_and_tsv_does_not(write: Write) -> None:
    assert rows(write("q.csv", '"a, b",knows,"say ""hi"""\n')) == [("a, b", "knows", 'say "hi"')]
    assert rows(write("q.tsv", '"a\tknows\t"b"\n')) == [('"a', "knows", '"b"')]


def test_words_that_look_like_missing_values_are_labels(write: Write) -> None:
    assert rows(write("n.tsv", "null\tNA\tnan\nNone\tNA\t-\n")) == [("null", "NA", "nan"), ("None", "NA", "-")]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tsv", "a\tb\tc\nd\te\n", "a.tsv:2: 2 columns, expected 3 (head, relation, tail)"),
        ("a.tsv", "a\tb\tc\n\nd\te\tf\tg\n", "a.tsv:3: 4 columns"),
        ("a.tsv", "a b c\n", "a.tsv:1: 1 column, expected 3 (head, relation, tail); separate the columns by tabs"),
        ("a.csv", 'a,b,c\n"x\ny",b,c,d\n', "a.csv:2: 4 columns"),
        ("a.tsv", "a\tb\tc\na\t\tc\n", "a.tsv:2: the relation is empty"),
        ("a.csv", '"x\ty",b,c\n', "a.csv:1: a label holds a tab or a line break"),
        ("a.tsv", "a\tb\tc\r\r\nd\te\tf\n", "a.tsv:1: a label holds a tab or a line break"),
        ("a.csv", 'a,b,c\n"",b,c\n', "a.csv:2: the head is empty"),
        ("a.tsv", "a\tb\tc\n\t\t\nd\te\tf\n", "a.tsv:2: the head is empty"),
        ("a.csv", ",,\n", "a.csv:1: the head is empty"),
        ("a.tsv", "", "a.tsv: the file is empty"),
        ("a.tsv", "\n \n", "a.tsv: the file is empty"),
        ("a.csv", "head,relation,tail\n", "a.csv: no triples, only a header"),
        ("a.tsv", b"a\tb\tc\na\tb\xff\tc\n", "a.tsv:2: byte 0xff is not UTF-8"),
        ("a.tsv.gz", b"not gzip", "a.tsv.gz: not a whole gzip file"),
        ("a.tsv.gz", gzip.compress(b"a\tb\tc\n" * 99, mtime=0)[:-9], "a.tsv.gz: not a whole gzip file"),
        ("a.xlsx", "a", "a.xlsx: unknown kind of file '.xlsx'"),
        ("a.nt", "<http://a> <http://b> .\n", "a.nt:1: The object of a triple"),
        ("a.nt", '<http://a> <http://b> "x" .\n', "a.nt: no triples between nodes (1 with literals)"),
    ],
)
def test_faults_are_named(write: Write, name: str, data: str | bytes, message: str) -> None:
    path = write(name, data)
    with pytest.raises(InputError) as refusal:
        sources.read(path)
    assert str(refusal.value).startswith(f"{path.parent}/{message}")
    assert refusal.value.remedy
    assert "\n" not in str(refusal.value)


def test_faults_in_the_middle_of_many_lines(write: Write) -> None:
    lines = [f"e{i}\tr\te{i + 1}" for i in range(50_000)]
    lines[31_337] = "only two\tcolumns"
    with pytest.raises(InputError, match=r":31338: 2 columns"):
        sources.read(write("many.tsv", "\n".join(lines)))


def test_rdf_skips_and_counts_literals_and_numbers_blank_nodes(write: Write) -> None:
    turtle = """
        @prefix : <http://example.org/> .
        :ada :knows :bob, [ :livesIn :york ] ; :age 36 ; :name "Ada"@en .
        _:x :knows :ada .
    """
    read = sources.read(write("g.ttl", textwrap.dedent(turtle)))
    base = "http://example.org/"
    assert read.skipped_literals == 2
    assert sorted(read.frame.rows()) == [
        ("_:b0", f"{base}livesIn", f"{base}york"),
        ("_:b1", f"{base}knows", f"{base}ada"),
        (f"{base}ada", f"{base}knows", "_:b0"),
        (f"{base}ada", f"{base}knows", f"{base}bob"),
    ]


def test_ntriples_equal_turtle(write: Write) -> None:
    line = "<http://a> <http://p> <http://b> .\n"
    for name, data in {"g.nt": line.encode(), "g.ttl": line.encode(), "g.nt.gz": gzip.compress(line.encode())}.items():
        assert rows(write(name, data)) == [("http://a", "http://p", "http://b")]


def test_rdf_without_its_extra_says_what_to_install(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(UnavailableError, match=r"pip install 'fedlu\[rdf\]'"):
        sources.read(write("g.nt", "<http://a> <http://p> <http://b> .\n"))


@pytest.mark.parametrize(
    ("name", "sizes"), [("umls", (6529, 135, 46)), ("Kinships", (10686, 104, 25)), ("nations", (1992, 14, 55))]
)
def test_embedded_datasets_need_no_network(name: str, sizes: tuple[int, int, int]) -> None:
    vocabulary, (triples,) = index([sources.read(name).frame])
    assert (len(triples), len(vocabulary.entities), len(vocabulary.relations)) == sizes


def test_an_unknown_dataset_suggests_a_known_one() -> None:
    with pytest.raises(InputError, match=r"no dataset named 'fb15k-238'; did you mean fb15k237"):
        sources.read("fb15k-238")


def test_a_dataset_that_cannot_be_downloaded_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import pykeen.datasets

    def offline(**_: object) -> None:
        raise OSError("no route to host\nsecond line")

    monkeypatch.setattr(pykeen.datasets, "get_dataset", offline)
    with pytest.raises(UnavailableError, match=r"^fb15k237: cannot be loaded \(no route to host\); check the network"):
        sources.read("fb15k237")


def test_a_downloaded_dataset_is_read_by_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a download, with a dataset that needs none."""
    import pykeen.datasets

    nations = pykeen.datasets.get_dataset(dataset="nations")
    monkeypatch.setattr(pykeen.datasets, "get_dataset", lambda **_: nations)
    assert sorted(sources.read("fb15k237").frame.rows()) == sorted(sources.read("nations").frame.rows())


@pytest.mark.parametrize("source", ["missing.tsv", "no/such/folder/graph"])
def test_a_missing_file_is_not_taken_for_a_dataset(source: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        sources.read(source)


def test_a_folder_is_not_a_source(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        sources.read(tmp_path)


def test_a_txt_file_has_no_header(write: Write) -> None:
    """Federations are saved as .txt: a triple of these very words must come back."""
    assert rows(write("g.txt", "head\trelation\ttail\n")) == [("head", "relation", "tail")]


def test_line_of_gives_up_rather_than_fail(write: Write) -> None:
    assert sources.line_of(write("a.tsv", "a\tb\tc\n"), ("x", "y", "z")) is None
    long = "x" * 200_000  # more than the csv module takes by default
    assert sources.line_of(write("a.csv", f"a,b,c\n{long},b,c\n"), (long, "b", "c")) == 2
    assert sources.line_of(write("b.tsv", "a\tb\tc\r"), ("a", "b", "c")) == 1


def test_line_of_counts_as_an_editor_does(write: Write) -> None:
    assert sources.line_of(write("a.tsv", "a\tb\tc\n\nd\te\tf\r\n"), ("d", "e", "f")) == 3
    assert sources.line_of(write("a.csv", 'a,b,"c\nc"\nd,e,f\n'), ("d", "e", "f")) == 3


@pytest.mark.slow
def test_a_million_lines_in_three_seconds_and_a_gigabyte(tmp_path: Path) -> None:
    """In a process of its own, so that the memory is the reader's alone: its peak after one reading, as the kernel
    counts it for this process (ru_maxrss would begin with the peak of the process that started it). The time is the
    best of three, on a noisy machine where other tests run: no more than its processor time, which is what it would
    take with one core to itself."""
    program = """
        import sys, time
        from pathlib import Path
        from fedlu.graph import sources
        from fedlu.graph.triples import index
        seconds = []
        for _ in range(3):
            start, begun = time.perf_counter(), time.process_time()
            _, (triples,) = index([sources.read(sys.argv[1]).frame])
            seconds.append(min(time.perf_counter() - start, time.process_time() - begun))
            if len(seconds) == 1:
                status = Path("/proc/self/status").read_text()
                peak = int(status.split("VmHWM:")[1].split()[0]) / 1e6
        print(len(triples), min(seconds), peak)
    """
    path = tmp_path / "million.tsv"
    with path.open("w") as file:
        file.writelines(
            f"http://x.org/e/{i * 7919 % 250007}\tp{i % 499}\thttp://x.org/e/{i % 250007}\n" for i in range(10**6)
        )
    command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    triples, seconds, gigabytes = map(float, output.split())
    assert triples == 10**6
    assert seconds <= 3
    assert gigabytes <= 1
