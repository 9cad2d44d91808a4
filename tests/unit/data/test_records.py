"""Every format, what is chosen in it, and one sentence with file and line for every kind of bad input."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from catchline.config.schema import DataConfig
from catchline.data import formats, lines
from catchline.data.columns import ReadOptions, strip_publication_suffix
from catchline.data.lines import BadRecordError, raw_lines, unreadable
from catchline.data.records import (
    SkipCounter,
    read_json_lines,
    read_records,
    read_with,
    splits_in,
    write_records,
)
from catchline.errors import DataError
from catchline.types import Record, references_of

GOOD = '{"document": "a b", "summary": "a"}\n'
PAIR = {"document": "The river rose in the night. Schools are closed.", "summary": "River rose"}
Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


def pairs(path: Path | str, **options: Any) -> list[tuple[str, str]]:
    return [(record.document, record.summary) for record in read_records(path, **options)]


def problem(path: Path | str, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        list(read_records(path, **options))
    message = str(caught.value)
    assert "\n" not in message
    return message


# ----------------------------------------------------------------------------------------- formats


def test_json_lines(write: Write) -> None:
    more = '{"id": 7, "document": "x", "summary": "y", "references": ["y", "z"]}'
    path = write("a.jsonl", "\ufeff" + GOOD + "\n" + more)
    first, second = read_records(path)
    assert first == Record("a b", "a", "1", (), (), f"{path}:1")
    assert (second.id, second.references, second.origin) == ("7", ("y", "z"), f"{path}:3")


ROWS = [{"id": "1", "summary": "s", "dialogue": "A: x\r\nB: y"}]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        *[
            ("a.json", json.dumps(value, indent=indent), [("A: x\r\nB: y", "s")])
            for value in (ROWS, {"version": "1.0", "data": ROWS})
            for indent in (None, 1)
        ],
        ("a.json", GOOD, [("a b", "a")]),
        ("a.json", GOOD * 2, [("a b", "a")] * 2),
        ("a.tsv", "text\tsummary\nx, y\tz", [("x, y", "z")]),
        ("a.csv", "text;summary\nx, y;z", [("x, y", "z")]),
        ("a.csv", f"text,summary\n{'x' * 200_000},y\n", [("x" * 200_000, "y")]),
        ("a.csv", '\ufeffid,article,highlights\n1,"a\nb ""q""","h, i"\n2,c,d\n', [('a\nb "q"', "h, i"), ("c", "d")]),
        (
            "a.story",
            "One.\n\nTwo.\n\n@highlight\n\nFirst\n\n@highlight\n\nSecond\n",
            [("One.\n\nTwo.", "First\nSecond")],
        ),
        (
            "PART_I.txt",
            "<doc id=0>\n  <summary>\n    要\n  </summary>\n  <short_text>\n    文本\n  </short_text>\n</doc>\n"
            "<doc id=1>\n<human_label>5</human_label><summary>二</summary><short_text>三</short_text>\n</doc>\n",
            [("文本", "要"), ("三", "二")],
        ),
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz", ".zst", "mac"])
def test_forms_of_a_pair(write: Write, name: str, content: str, expected: list[tuple[str, str]], ending: str) -> None:
    data = content.encode()
    if ending == "mac":
        path = write(name, content.replace("\r\n", "\n").replace("\n", "\r"))
        expected = [tuple(text.replace("\r\n", "\n") for text in pair) for pair in expected]  # type: ignore[misc]
        found = [tuple(text.replace("\r\n", "\n").replace("\r", "\n") for text in pair) for pair in pairs(path)]
        assert found == expected
    else:
        pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[ending]
        assert pairs(write(name + ending, pack(data))) == expected


def test_aligned_files(write: Write) -> None:
    for source, target in (
        ("t.source", "t.target"),
        ("train.article.txt", "train.title.txt"),
        ("x.src", "x.tgt"),
        ("news_title.source", "news_title.target"),
    ):
        first, second = write(source, "a\nb\u2028c\n"), write(target, "A\nB\n")
        assert pairs(first) == pairs(second) == [("a", "A"), ("b\u2028c", "B")]
    write("t.target", "A\n")
    for skip_bad in (False, True):
        assert "2 lines but t.target has 1" in problem(first.with_name("t.source"), skip_bad=skip_bad)
    write("t.target", "A\n\n")
    assert "t.source:2: empty summary" in problem(first.with_name("t.source"))
    assert "expected q.target" in problem(write("q.source", "a\n"))


@pytest.mark.parametrize("references", [".", "references"])
def test_an_input_with_files_of_references(write: Write, references: str) -> None:
    folder = write("DUC2004/input.txt", "first document .\nsecond document .\n").parent
    for number, text in {0: "One\nTwo\n", 1: "Uno\n\n", 10: "Ichi\nNi\n", 2: "Un\nDeux\n"}.items():
        write(f"DUC2004/{references}/task1_ref{number}.txt", text)
    write(f"DUC2004/{references}/task2_ref0.txt", "Other\n")
    for place in (folder, folder / "input.txt"):
        first, second = read_records(place)
        # in the order of the numbers; an empty line is no reference
        assert (first.references, second.references) == (("One", "Uno", "Un", "Ichi"), ("Two", "Deux", "Ni"))
        assert second.origin.endswith("input.txt:2")
    assert splits_in(folder) == {}
    write(f"DUC2004/{references}/task1_ref2.txt", "Un\n")
    assert "input.txt has 2 lines but task1_ref2.txt has 1" in problem(folder)


def test_stories_are_known_by_their_ending(write: Write) -> None:
    folder = write("in/train.jsonl", GOOD).parent
    write("in/notes.storyboard.txt", "x")
    assert splits_in(folder)
    write("in/a.story.gz", gzip.compress(b"Body.\n\n@highlight\n\nHigh\n"))
    write("in/._a.story", b"\0\5\xff")
    assert splits_in(folder) == {}
    assert pairs(folder) == [("Body.", "High")]


def lcsts(scores: list[int | None]) -> list[str]:
    label = "<human_label>{}</human_label>"
    blocks = enumerate("" if score is None else label.format(score) for score in scores)
    return [f"<doc id={n}> {own} <summary>{n}</summary> <short_text>文{n}</short_text> </doc>" for n, own in blocks]


def test_ratings_and_damaged_blocks_of_lcsts(write: Write) -> None:
    path = write("PART_III.txt", "\n".join(lcsts([5, 2, 3, None, 1])))
    kept = read_with(path, ReadOptions(min_human_score=3))
    assert [record.id for record in kept] == ["0", "2", "3"]  # what nobody rated stays
    assert len(list(read_with(path, ReadOptions.of(DataConfig(min_human_score=4))))) == 2
    path.write_text(" ".join(lcsts([5, None])), encoding="utf-8")  # all in one line
    assert [record.id for record in read_records(path)] == ["0", "1"]
    blocks = [block.encode() for block in lcsts([1, 2, 3])]
    for bad in range(3):  # a line that is not UTF-8 costs its block alone
        path.write_bytes(b"\n".join([*blocks[:bad], b"<doc id=9> \xff </doc>", *blocks[bad + 1 :]]))
        found = [record.id for record in read_records(path, skip_bad=True)]
        assert found == [str(place) for place in range(3) if place != bad]
    for name in ("PART_I", "PART_II"):
        path.with_name(f"{name}.txt").write_text("".join(lcsts([3])), encoding="utf-8")
    assert [(split, Path(place).stem) for split, place in splits_in(path.parent).items()] == [
        ("train", "PART_I"),
        ("validation", "PART_II"),
        ("test", "PART_III"),
    ]


def test_parquet_through_datasets(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"article": ["x y", "z"], "highlights": [["a", "b"], ["c"]]}), path)
    assert pairs(path) == [("x y", "a\nb"), ("z", "c")]
    assert "could not be read as Parquet" in problem(write("bad.parquet", "PAR1junk"))
    assert "expected hub:owner/name[" in problem("hub:only")
    asked: dict[str, Any] = {}

    class Library:
        @staticmethod
        def load_dataset(*names: str, **options: Any) -> list[dict[str, str]]:
            asked.update(options, names=names)
            return [{"text": "x", "title": "y"}]

    monkeypatch.setattr(formats.importlib, "import_module", lambda name: Library)
    assert pairs("hub:o/n:part@main/test") == [("x", "y")]
    assert asked == {"names": ("o/n", "part"), "revision": "main", "split": "test", "streaming": True}

    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(formats.importlib, "import_module", absent)
    assert "pip install 'catchline[train]'" in problem(path)


def test_numbered_files_are_one_data_set(write: Write, tmp_path: Path) -> None:
    names = [f"part-{number}.jsonl" for number in range(11)]
    for name in names:
        write(f"d/train/{name}", json.dumps({"text": f"of {name}", "summary": "x"}))
    notes: list[str] = []
    assert [document for document, _ in pairs(tmp_path / "d" / "train", on_choice=notes.append)] == [
        f"of {name}" for name in names
    ]
    assert len(notes) == 1
    assert splits_in(tmp_path / "d") == {"train": str(tmp_path / "d" / "train")}
    for number, (others, words) in enumerate(
        [
            (["part-0.jsonl", "part-2.jsonl"], "number 1 is missing"),
            (["part-1.jsonl", "part-999999999999999.jsonl"], "number 2 is missing"),
            (["t-00000-of-00003.jsonl", "t-00001-of-00003.jsonl"], "number 2 is missing"),
            *(
                (["a-0.jsonl", name], "is a folder with 2 data files")
                for name in ("b-1.jsonl", "a-1.csv", "a-00.jsonl")
            ),
            (["2019.jsonl", "2020.jsonl"], "is a folder with 2 data files"),
        ]
    ):
        for name in others:
            write(f"{number}/{name}", GOOD)
        assert words in problem(tmp_path / str(number))


def test_splits_in_a_folder(write: Write, tmp_path: Path) -> None:
    for name in ("training.jsonl", "dev.source", "dev.target", "test.csv", "notes.txt", "stats.json"):
        write(f"d/{name}", GOOD)
    found = {split: Path(path).name for split, path in splits_in(tmp_path / "d").items()}
    assert found == {"train": "training.jsonl", "validation": "dev.source", "test": "test.csv"}
    assert pairs(write("f/train.CSV", "document,summary\na b,a\n").parent) == [("a b", "a")]
    write("d/train.csv", GOOD)
    with pytest.raises(DataError, match="several files for the train split"):
        splits_in(tmp_path / "d")
    single = write("e/1.txt", "A text.").parent
    with pytest.raises(DataError, match=r"no file named train.* If each text is a file, write them into one"):
        splits_in(single)
    assert f"`catchline summarize` takes texts by name: {single}/*.txt" in problem(single)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    records = [
        Record("a b.\nc d.", "x", "1", sentences=("a b.", "c d.")),
        Record("é \u2028 z", "one", "2", references=("one", "two", "one")),
    ]
    path = tmp_path / "deep" / "out.jsonl"
    assert write_records(path, records) == 2
    for mine, theirs in zip(read_records(path), records, strict=True):
        for name in ("document", "summary", "id", "references", "sentences"):
            assert getattr(mine, name) == getattr(theirs, name), name


def test_json_that_comes_through_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(json.dumps([PAIR, PAIR], indent=1),), daemon=True)
    writer.start()
    assert len(list(read_records(path))) == 2
    writer.join()


# -------------------------------------------------------------------------------- quotation marks in tables

STRAY = [
    ("The ferry stopped at noon because of strong wind.", "Ferry stops"),
    ('"We will rebuild the pier before spring, said the mayor.', "Mayor promises pier"),
    ("The library opens a second reading room in May.", "Library grows"),
    ('"Rain" fell on the valley, so the road is closed.', '"Rain" closes road'),
    ('Bakers ask for cheaper flour, since the harvest was "good again.', "Bakers want cheap flour"),
    ('"A whole cell in marks."', "Marks"),
    ("The choir sings in the town hall.", "Choir sings"),
]


def table(rows: list[tuple[str, ...]], separator: str) -> str:
    return "".join(separator.join(row) + "\n" for row in [("document", "summary"), *rows])


def test_stray_marks_in_tsv_are_text(write: Write) -> None:
    said: list[str] = []
    assert pairs(write("a.tsv", table(STRAY, "\t")), on_choice=said.append) == STRAY
    assert [line.partition(": ")[2] for line in said] == ["quotation marks are part of the text"]
    many = [(('"' if number % 10 == 0 else "") + f"text {number}", f"line {number}") for number in range(200)]
    assert pairs(write("b.tsv", table(many, "\t"))) == many


@pytest.mark.parametrize("every", [True, False])
def test_a_tsv_file_that_is_plainly_quoted(write: Write, every: bool) -> None:
    """As QUOTE_ALL and QUOTE_MINIMAL write it."""
    rows = [("a b", "x"), ("c\td\ne", 'y "z"'), ('"f" g', "h")] if not every else [("a b", "x"), ("c", "d")]

    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if every or any(mark in text for mark in '\t\n"') else text

    said: list[str] = []
    content = table([tuple(map(cell, row)) for row in rows], "\t")
    assert pairs(write("a.tsv", content), on_choice=said.append) == rows
    assert said[0].endswith("quotation marks are around cells")


def test_csv_is_read_strictly_and_a_bad_line_costs_itself_alone(write: Write) -> None:
    rows = [(document.replace(",", ";"), summary) for document, summary in STRAY]
    path, skipped = write("a.csv", table(rows, ",")), SkipCounter()
    assert f"{path}:3: text behind a closing quotation mark" in problem(path)
    kept = [*rows[:1], rows[2], rows[4], ("A whole cell in marks.", "Marks"), rows[6]]
    assert pairs(path, skip_bad=True, on_skip=skipped) == kept
    assert skipped.counts == {"text behind a closing quotation mark": 2}
    path = write("b.csv", 'document,summary\nThe river rose.,River\nA cat sat.,"Cat\nIt fell.,Fell\n')
    assert f"{path}:3: a quotation that does not end" in problem(path)
    assert pairs(path, skip_bad=True) == [("The river rose.", "River"), ("It fell.", "Fell")]
    swallowed = "".join(f"text {number},line {number}\n" for number in range(8))
    path = write("c.csv", f'document,summary\n"begins here,x\n{swallowed}ends here",y\n')
    assert f"{path}:2: a quotation over lines 2 to 11, which look like rows" in problem(path)
    assert len(pairs(path, skip_bad=True)) == 9
    address = '"Street 1\nTown\n\nCountry\nPlanet\nStar",y\n'
    assert pairs(write("d.csv", f"document,summary\n{address}"))[0][0].startswith("Street 1\nTown")
    path = write("e.csv", "text,summary\na,b\nc\nd,e,f\n")
    assert f"{path}:3: wrong number of fields (1 where the header has 2)" in problem(path)
    assert pairs(path, skip_bad=True) == [("a", "b")]


# --------------------------------------------------------------------------------------- bad input


def test_lines_without_end_are_refused_in_bounded_memory(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 1 << 20)
    content = b"a" * (3 << 20)
    for name in ("a.jsonl", "a.json", "a.csv", "a.tsv", "a.source", "a.txt"):
        write("a.target", "x\n")
        for ending, pack in {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.items():
            path = write(name + ending, pack(content))
            assert "a line of more than 1 MB; write one record per line." in problem(path, skip_bad=True)
            path.unlink()
    taken = 0
    for chunk in lines._zstd(io.BytesIO(zstandard.ZstdCompressor().compress(bytes(1 << 28)))):
        taken = max(taken, len(chunk))
    assert taken < 1 << 27


def test_damaged_archives(write: Write) -> None:
    text = "".join(f"{number}\n" for number in range(100_000)).encode()
    for name, content in {
        "a.txt.gz": gzip.compress(text)[:-12],
        "b.txt.gz": b"no gzip",
        "c.txt.zst": zstandard.ZstdCompressor().compress(text)[:-12],
        "d.txt.zst": b"no zstd at all",
    }.items():
        with pytest.raises(DataError, match=r"the compressed data is damaged after line \d+ \("):
            list(raw_lines(write(name, content)))
    two = zstandard.ZstdCompressor().compress(text) * 2
    assert sum(1 for _ in raw_lines(write("e.txt.zst", two))) == 200_000


@pytest.mark.parametrize(
    ("line", "wanted", "reason"),
    [
        (b'{"document": " ", "summary": "y"}', ":2: empty document", "empty document"),
        (b'{"document": "x", "summary": " \\n"}', ":2: empty summary", "empty summary"),
        (b'{"document": "x", "summary": null}', ":2: empty summary", "empty summary"),
        (b'{"document": "x", "summary": NaN}', ":2: empty summary", "empty summary"),
        (b'{"document": "x"}', ":2: no field 'summary'", "no field 'summary'"),
        (b'{"document": {"a": 1}, "summary": "y"}', ":2: the field 'document' is dict", "the field 'document'"),
        (b'{"document": ["x", null], "summary": "y"}', ":2: the field 'document' holds NoneType", "the field 'docu"),
        (b"[1, 2]", ":2: list instead of an object", "list instead"),
        (b'{"document": "x", "summary" "y"}', ":2: broken JSON: Expecting ':' delimiter: line 1", "broken JSON"),
        ('{"document": "café", "summary": "y"}'.encode("latin-1"), ":2: not UTF-8: byte 0xE9; save the", "not UTF-8"),
        (b'{"document": "half \\ud83d", "summary": "y"}', r":2: half a character (\ud83d)", "half a character"),
        (b'{"document": "x", "summary": "y", "id": "\\ud83d"}', r":2: half a character (\ud83d)", "half a character"),
    ],
)
def test_bad_lines(write: Write, line: bytes, wanted: str, reason: str) -> None:
    path, skipped = write("a.jsonl", GOOD.encode() + line + b"\n" + GOOD.encode()), SkipCounter()
    assert f"{path}{wanted}" in problem(path)
    assert "--skip-bad (skip_bad=True)" in problem(path)
    assert len(pairs(path, skip_bad=True, on_skip=skipped)) == 2
    assert next(iter(skipped.counts)).startswith(reason)
    with pytest.raises(BadRecordError, match="standard input:2"):
        list(read_json_lines([GOOD.encode(), line], "standard input", ReadOptions()))


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "5", "null", '"text"', "[1" + "0" * 9999 + "]", "[[[]]]", "{}", "[]", "nan"],
)
def test_json_without_records(write: Write, name: str, text: str) -> None:
    assert name in problem(write(name, text))


def test_what_cannot_be_read(write: Write, tmp_path: Path) -> None:
    write("train.jsonl", GOOD)
    assert "Did you mean" in problem(tmp_path / "trian.jsonl")
    assert "hub:owner/name" in problem("owner/name")
    assert "choose with --format: jsonl, json" in problem(write("x.foo", "x"))
    assert "Unknown data format 'jsonll'. Did you mean 'jsonl'?" in problem(tmp_path / "train.jsonl", format="jsonll")
    assert "no record" in problem(write("empty.jsonl", ""))
    assert "1 bad ones were skipped" in problem(write("a.jsonl", '{"document": "", "summary": "x"}'), skip_bad=True)
    assert "no header" in problem(write("empty.csv", ""))
    assert "a.csv:1: a quotation that does not end; repair the header" in problem(
        write("a.csv", 'document,"summary\nx\n')
    )
    assert "a.csv:1: not UTF-8: byte 0xE9" in problem(write("a.csv", b"r\xe9sum\xe9,text\nx,y\n"))
    table = write("a.csv", b"text,summary\nok,ok\ncaf\xe9,x\nok,ok\n")
    assert f"{table}:3: not UTF-8: byte 0xE9" in problem(table)
    assert len(pairs(table, skip_bad=True)) == 2
    write("two/b.csv", "x")
    assert "2 data files" in problem(write("two/a.jsonl", GOOD).parent)
    assert "UTF-16" in problem(write("b.jsonl", GOOD.encode("utf-16")))
    assert "a spreadsheet: save it as CSV" in problem(write("b.xlsx", "PK"))
    assert unreadable("doc") == unreadable(f"{tmp_path}/doc") == ""  # a text that is called so
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    assert "does not exist" in problem(tmp_path / "loop.jsonl")


# ----------------------------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("names", "document", "summary"),
    [
        (["document", "summary"], "document", "summary"),
        (["article", "highlights", "id"], "article", "highlights"),
        (["article_id", "article_text", "abstract_text"], "article_text", "abstract_text"),
        (["id", "dialogue", "summary", "topic"], "dialogue", "summary"),
        (["text", "summary", "title"], "text", "summary"),
        (["Email Body", "Subject-Line"], "Email Body", "Subject-Line"),
        (["id", "title", "publication", "author", "date", "content", "url"], "content", "title"),
        (["abstract", "title"], "abstract", "title"),
        (["article", "abstract", "section_names"], "article", "abstract"),
        (["id", "document", "summary", "source"], "document", "summary"),
        (["text", "Document", "tldr", "Summary"], "Document", "Summary"),
    ],
)
def test_known_columns(names: list[str], document: str, summary: str) -> None:
    assert ReadOptions().choose(names, "f") == (document, summary)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        *(([name], name) for name in ("ticket_id", "ticketId", "Ticket ID", "TicketID", "key", "Number")),
        (["id", "customer_id"], "id"),
        (["ticket_id", "customer_id"], None),
        (["paid", "monkey", "GRID"], None),
    ],
)
def test_the_id_column_is_known_by_its_name(write: Write, more: list[str], found: str | None) -> None:
    ids, said = ",".join(map(str, range(5, 5 + len(more)))), list[str]()
    path = write("t.csv", f"{','.join(more)},body,subject\n{ids},Text.,Line\n")
    (record,) = read_records(path, on_choice=said.append)
    assert record.id == (str(5 + more.index(found)) if found else "1")
    assert (f"id: '{found}'" in said[0]) == (found is not None)


def test_lists_are_sentences_or_references_by_the_column(write: Write) -> None:
    said: list[str] = []
    row = {"source": ["One.", "Two."], "target": ["s", "t"], "paper_id": "p"}
    (record,) = read_records(path := write("a.jsonl", json.dumps(row)), on_choice=said.append)
    assert record == Record("One.\nTwo.", "s", "p", ("s", "t"), ("One.", "Two."), f"{path}:1")
    assert said[1].endswith("the lists in 'target' are read as several references, of which the first is learnt.")
    for name in ("highlights", "abstract_text"):
        path = write("b.jsonl", (json.dumps({"article": "x", name: ["One.", "Two."]}) + "\n") * 2)
        assert [(r.summary, r.references) for r in read_records(path, on_choice=said.append)] == [
            ("One.\nTwo.", ())
        ] * 2
        assert said[-1].endswith(f"the lists in '{name}' are read as one summary, a sentence each.")
    path = write("a.jsonl", '{"fname": "t", "dialogue": "d", "summary1": "a", "summary2": "b", "topic1": "x"}')
    assert next(read_records(path)).references == ("a", "b")
    for summary, given, expected in (("a", "aba", "aba"), ("c", "aa", "caa"), ("a", "ba", "ab")):
        row = {"document": "a b", "summary": summary, "references": list(given)}
        assert references_of(next(read_records(write("a.jsonl", json.dumps(row))))) == tuple(expected)


def test_ambiguous_and_missing_columns_list_what_there_is(write: Write) -> None:
    ambiguous = write("a.jsonl", '{"text": "x", "article": "z", "summary": "y"}')
    assert "could be any of 'article', 'text'; choose with document_column (--document-column)" in problem(ambiguous)
    assert pairs(ambiguous, document_column="text") == [("x", "y")]
    missing, said = write("b.jsonl", '{"text": "x", "other": "z"}'), list[str]()
    assert "no column name is known for the summary" in problem(missing)
    assert "Columns: 'text', 'other'." in problem(missing)
    assert pairs(missing, need_summary=False) == [("x", "")]
    assert "no column 'oter'. Did you mean 'other'?" in problem(missing, summary_column="oter")
    assert pairs(missing, summary_column="other", on_choice=said.append)
    assert said == [f"{missing}: document: 'text', summary: 'other'"]
    list(read_records(write("c.jsonl", '{"text": "x", "summary": "z", "Split": "test"}'), on_choice=said.append))
    assert said[1].endswith("; column 'Split' is not read: splits are files (train, validation, test)")
    for header, options, words in (
        ("Text,text,summary", {}, "the document could be any of 'Text', 'text'; choose with document_column ("),
        ("document,summary,summary", {}, "the summary could be any of 'summary', 'summary'; rename all but one"),
        ("document,summary,summary", {"summary_column": "summary"}, "several columns are called 'summary'; rename"),
    ):
        assert words in problem(write("a.csv", f"{header}\nfirst,second,third\n"), **options)
    assert pairs(write("d.jsonl", GOOD + '{"document": "c d"}\n'), need_summary=False) == [("a b", "a"), ("c d", "")]


def test_a_first_line_that_is_a_record_is_not_quoted_whole(write: Write) -> None:
    text = "The river\nrose. " * 50
    said = problem(write("a.csv", f'"{text}",River rose\n'))
    assert "'The river rose. The river" in said
    assert said.endswith("hold the names of the columns? If not, put one above it: document,summary")
    assert len(said) < 400


@pytest.mark.parametrize(
    ("title", "publication", "wanted"),
    [
        ("A storm comes - The New York Times", "New York Times", "A storm comes"),
        ("A storm comes - The New York Times", "", "A storm comes - The New York Times"),
        ("Storm - Breitbart - Breitbart", "Breitbart", "Storm - Breitbart"),
        ("A | b c - Unknown Paper", "", "A | b c - Unknown Paper"),
        ("x – My.Paper", "My.Paper", "x"),
        ("- CNN", "CNN", "- CNN"),
    ],
)
def test_publication_suffix(title: str, publication: str, wanted: str) -> None:
    assert strip_publication_suffix(title, publication) == wanted
    read = read_with(
        [{"content": "x", "title": title, "publication": publication}], ReadOptions(strip_publication_suffix=True)
    )
    assert [record.summary for record in read] == [wanted]
