"""Every format, and one sentence with file and line for every kind of bad input."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from catchline.data.columns import TableOptions
from catchline.data.readers import (
    ReadOptions,
    SkipCounter,
    find_splits,
    read_records,
    read_with,
    strip_publication_suffix,
)
from catchline.errors import DataError
from catchline.types import Record

GOOD = '{"document": "a b", "summary": "a"}\n'


@pytest.fixture
def write(tmp_path: Path):
    def _write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


def pairs(path: Path | str, **options: object) -> list[tuple[str, str]]:
    return [(record.document, record.summary) for record in read_records(path, **options)]  # type: ignore[arg-type]


def problem(path: Path | str, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        list(read_records(path, **options))  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


# ----------------------------------------------------------------------------------------- formats


def test_json_lines(write) -> None:
    path = write(
        "a.jsonl",
        "\ufeff" + GOOD + "\n" + '{"id": 7, "document": "x", "summary": "y", "references": ["y", "z"]}',
    )
    first, second = read_records(path)
    assert first == Record("a b", "a", "1", (), (), f"{path}:1")
    assert (second.id, second.references, second.origin) == ("7", ("y", "z"), f"{path}:3")


def test_lists_are_sentences_and_references_and_summaries_may_be_numbered(write) -> None:
    path = write("a.jsonl", json.dumps({"source": ["One.", "Two."], "target": ["s", "t"], "paper_id": "p"}))
    (record,) = read_records(path)
    assert record == Record("One.\nTwo.", "s", "p", ("s", "t"), ("One.", "Two."), f"{path}:1")
    path = write("a.jsonl", '{"fname": "t", "dialogue": "d", "summary1": "a", "summary2": "b", "topic1": "x"}')
    assert next(read_records(path)).references == ("a", "b")


ROWS = [{"id": "1", "summary": "s", "dialogue": "A: x\r\nB: y"}]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        *[
            ("a.json", json.dumps(value, indent=indent), ("A: x\r\nB: y", "s"))
            for value in (ROWS, {"data": ROWS})
            for indent in (None, 1)
        ],
        ("a.json", GOOD, ("a b", "a")),
        ("a.tsv", "text\tsummary\nx, y\tz", ("x, y", "z")),
        ("a.csv", "text;summary\nx, y;z", ("x, y", "z")),
        ("a.csv", "text\tsummary\nx, y\tz", ("x, y", "z")),
        ("a.csv", f"text,summary\n{'x' * 200_000},y\n", ("x" * 200_000, "y")),
    ],
)
def test_other_forms_of_a_pair(write, name: str, content: str, expected: tuple[str, str]) -> None:
    assert pairs(write(name, content)) == [expected]


def test_csv_with_quoted_line_breaks_and_with_a_missing_field(write) -> None:
    path = write("a.csv", '\ufeffid,article,highlights\n1,"a\nb ""q""","h, i"\n2,c,d\n')
    records = list(read_records(path))
    assert [(r.document, r.summary) for r in records] == [('a\nb "q"', "h, i"), ("c", "d")]
    assert [r.origin for r in records] == [f"{path}:2", f"{path}:4"]
    path = write("b.csv", "text,summary\na,b\nc\nd,e,f\n")
    assert f"{path}:3: wrong number of fields (1 where the header has 2)" in problem(path)
    assert pairs(path, skip_bad=True) == [("a", "b")]


def test_the_separator_that_excel_writes_above_the_header(write) -> None:
    path = write("a.csv", "\ufeffsep=;\r\ntext;title\r\nSea, sand and sun.;Sea, sun\r\nBroken\r\n")
    records = list(read_records(path, skip_bad=True))
    assert [(record.document, record.summary) for record in records] == [("Sea, sand and sun.", "Sea, sun")]
    assert "a.csv:4: wrong number of fields" in problem(path)
    assert "has no header line" in problem(write("b.csv", "sep=;\n"))


def test_aligned_files(write) -> None:
    for source, target in (
        ("t.source", "t.target"),
        ("train.article.txt", "train.title.txt"),
        ("valid.article.filter.txt", "valid.title.filter.txt"),
        ("x.src", "x.tgt"),
        ("news_title.source", "news_title.target"),
    ):
        first = write(source, "a\nb\u2028c\n")
        second = write(target, "A\nB\n")
        assert pairs(first) == pairs(second) == [("a", "A"), ("b\u2028c", "B")]
    assert pairs(str(first).removesuffix(".source")) == [("a", "A"), ("b\u2028c", "B")]


def test_stories(write) -> None:
    story = "One.\n\nTwo.\n\n@highlight\n\nFirst\n\n@highlight\n\nSecond\n"
    path = write("stories/b.story", story)
    write("stories/a.story", story.replace("One", "Uno"))
    assert pairs(path) == [("One.\n\nTwo.", "First\nSecond")]
    assert [record.id for record in read_records(path.parent)] == ["a", "b"]


def test_lcsts(write) -> None:
    path = write(
        "PART_I.txt",
        "<doc id=0>\n  <summary>\n    要\n  </summary>\n  <short_text>\n    文本\n  </short_text>\n</doc>\n"
        "<doc id=1>\n<human_label>5</human_label><summary>二</summary><short_text>三</short_text>\n</doc>\n",
    )
    records = list(read_records(path))
    assert [(r.id, r.document, r.summary, r.origin[-2:]) for r in records] == [
        ("0", "文本", "要", ":1"),
        ("1", "三", "二", ":9"),
    ]


def news(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("create table longform (title, author, content, publication)")
    rows = [("Big - The Daily", "x", "body", "The Daily"), (None, "x", "body", "y"), ("T", "x", " ", "y")]
    connection.executemany("insert into longform values (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def test_all_the_news(tmp_path: Path) -> None:
    path = news(tmp_path / "all-the-news.db")
    skipped = SkipCounter()
    assert pairs(path, skip_bad=True, on_skip=skipped) == [("body", "Big - The Daily")]
    assert skipped.describe() == "2 records skipped: 1 empty summary, 1 empty document"
    options = ReadOptions(skip_bad=True, strip_publication_suffix=True)
    assert [record.summary for record in read_with(path, options)] == ["Big"]


@pytest.mark.parametrize(
    ("title", "publication", "wanted"),
    [
        ("A storm comes - The New York Times", "", "A storm comes"),
        ("Storm - Breitbart - Breitbart", "Breitbart", "Storm - Breitbart"),
        ("A | b c - Unknown Paper", "", "A | b c - Unknown Paper"),
        ("x – My.Paper", "My.Paper", "x"),
        ("- CNN", "", "- CNN"),
    ],
)
def test_publication_suffix(title: str, publication: str, wanted: str) -> None:
    assert strip_publication_suffix(title, publication) == wanted


def test_compressed_files(write) -> None:
    path = write("a.jsonl.gz", gzip.compress(GOOD.encode() * 50))
    assert pairs(path) == [("a b", "a")] * 50
    path.write_bytes(path.read_bytes()[:-12])
    assert "gzip data is damaged" in problem(path)


# --------------------------------------------------------------------------------------- bad input


def test_broken_json(write) -> None:
    path = write("a.jsonl", GOOD * 711 + '{"document": "x", "summary" "y"}\n' + GOOD)
    message = problem(path)
    assert message.startswith(f"{path}:712: broken JSON: expecting ':' delimiter at column 29")
    skipped = SkipCounter()
    assert len(pairs(path, skip_bad=True, on_skip=skipped)) == 712
    assert skipped.counts == {"broken JSON": 1}


@pytest.mark.parametrize(
    ("line", "wanted", "reason"),
    [
        ('{"document": " ", "summary": "y"}', ":2: empty document", "empty document"),
        ('{"document": "x", "summary": " \\n"}', ":2: empty summary", "empty summary"),
        ('{"document": "x", "summary": null}', ":2: empty summary", "empty summary"),
        ('{"document": "x"}', ":2: no field 'summary'", "no field 'summary'"),
        ('{"document": {"a": 1}, "summary": "y"}', ":2: the field 'document' is a JSON object", "the field 'document'"),
        ('{"document": ["x", null], "summary": "y"}', ":2: the field 'document' holds a JSON null", "the field 'docum"),
        ("[1, 2]", ":2: a JSON array where an object", "a JSON array"),
        ("x\0y", ":2: a NUL byte", "a NUL byte"),
    ],
)
def test_bad_lines(write, line: str, wanted: str, reason: str) -> None:
    path = write("a.jsonl", GOOD + line + "\n" + GOOD)
    assert f"{path}{wanted}" in problem(path)
    skipped = SkipCounter()
    assert len(pairs(path, skip_bad=True, on_skip=skipped)) == 2
    assert next(iter(skipped.counts)).startswith(reason)


def test_latin_1_bytes(write) -> None:
    path = write("a.jsonl", GOOD.encode() + '{"document": "café", "summary": "y"}\n'.encode("latin-1"))
    message = problem(path)
    assert f"{path}:2: not UTF-8: byte 0xE9 at position 18" in message
    assert "save the file as UTF-8" in message
    assert len(pairs(path, skip_bad=True)) == 1
    table = write("a.csv", b"text,summary\nok,ok\ncaf\xe9,x\nok,ok\n")
    assert f"{table}:3: not UTF-8: byte 0xE9" in problem(table)
    assert len(pairs(table, skip_bad=True)) == 2
    assert "UTF-16" in problem(write("b.jsonl", GOOD.encode("utf-16")))


def test_misaligned_pairs(write) -> None:
    path = write("t.source", "a\nb\n")
    assert "expected t.target" in problem(path)
    write("t.target", "A\n")
    for skip_bad in (False, True):
        assert "2 lines but t.target has 1" in problem(path, skip_bad=skip_bad)
    write("t.target", "A\n\n")
    assert f"{path}:2: empty summary" in problem(path)


def test_missing_and_unknown_files(write, tmp_path: Path) -> None:
    write("train.jsonl", GOOD)
    assert "Did you mean" in problem(tmp_path / "trian.jsonl")
    assert "hub:owner/name" in problem("owner/name")
    assert "choose with format (--format, data.format)" in problem(write("x.foo", "x"))
    assert "Unknown data format 'jsonll'. Did you mean 'jsonl'?" in problem(tmp_path / "train.jsonl", format="jsonll")
    assert "no record" in problem(write("empty.jsonl", ""))
    assert "1 bad ones were skipped" in problem(write("a.jsonl", '{"document": "", "summary": "x"}'), skip_bad=True)
    assert "no header" in problem(write("empty.csv", ""))
    write("two/b.csv", "x")
    assert "2 data files" in problem(write("two/a.jsonl", GOOD).parent)
    assert "SQLite" in problem(write("x.db", "not a database, but long enough to be read as one" * 20))


def test_extras_are_named(write, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    for path in (str(write("a.parquet", b"PAR1")), "hub:owner/name"):
        assert "pip install 'catchline[hf]'" in problem(path)


# ----------------------------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("names", "document", "summary"),
    [
        (["document", "summary"], "document", "summary"),
        (["article", "highlights", "id"], "article", "highlights"),
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
    columns = TableOptions().choose(names, "f")
    assert (columns.document, columns.summary) == (document, summary)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        (["ticket_id"], "ticket_id"),
        (["ticketId"], "ticketId"),
        (["Ticket ID"], "Ticket ID"),
        (["TicketID"], "TicketID"),
        (["key"], "key"),
        (["Number"], "Number"),
        (["id", "customer_id"], "id"),
        (["ticket_id", "customer_id"], None),
        (["paid", "monkey", "GRID"], None),
    ],
)
def test_the_id_column_is_known_by_its_name(write, more: list[str], found: str | None) -> None:
    columns = TableOptions().choose([*more, "body", "subject"], "f")
    assert columns.id == found
    assert (f"id: '{found}'" in columns.describe()) == (found is not None)
    ids = ",".join(map(str, range(5, 5 + len(more))))
    (record,) = read_records(write("t.csv", f"{','.join(more)},body,subject\n{ids},Text.,Line\n"))
    assert record.id == (str(5 + more.index(found)) if found else "1")


def test_ambiguous_and_missing_columns_list_what_there_is(write) -> None:
    with pytest.raises(DataError, match="could be any"):
        TableOptions().choose(["description", "abstract"], "f")
    ambiguous = write("a.jsonl", '{"text": "x", "article": "z", "summary": "y"}')
    assert "could be any of 'article', 'text'" in problem(ambiguous)
    assert pairs(ambiguous, document_column="text") == [("x", "y")]
    missing = write("b.jsonl", '{"text": "x", "other": "z"}')
    assert "no column is known to hold the summary" in problem(missing)
    assert "Columns: 'text', 'other'." in problem(missing)
    assert pairs(missing, need_summary=False) == [("x", "")]
    assert "no column 'oter'. Did you mean 'other'?" in problem(missing, summary_column="oter")
    messages: list[str] = []
    list(read_records(missing, summary_column="other", on_choice=messages.append))
    assert messages == [f"{missing}: document: 'text', summary: 'other'"]
    parts = write("c.jsonl", '{"text": "x", "summary": "z", "Split": "test"}')
    list(read_records(parts, on_choice=messages.append))
    assert messages[1].endswith("; column 'Split' is not read: parts are a file each (train, validation, test)")


@pytest.mark.parametrize(
    ("header", "options", "said"),
    [
        ("Text,text,summary", {}, "the document could be any of 'Text', 'text'; choose with document_column ("),
        ("document,summary,summary", {}, "the summary could be any of 'summary', 'summary'; rename all but one"),
        ("document,summary,summary", {"summary_column": "summary"}, "several columns are called 'summary'; rename"),
        ("Text,text,summary", {"document_column": "Text"}, ""),
        ("document,summary,summary", {"need_summary": False}, ""),
    ],
)
def test_columns_of_one_name(write, header: str, options: dict[str, object], said: str) -> None:
    path = write("a.csv", f"{header}\nfirst,second,third\n")
    if said:
        assert said in problem(path, **options)
    else:
        assert pairs(path, **options)[0][0] == "first"


def test_a_first_line_that_is_a_record_is_not_quoted_whole(write) -> None:
    a_text = "The river\nrose. " * 50
    said = problem(write("a.csv", f'"{a_text}",River rose\n'))
    assert "'The river rose. The river" in said
    assert said.endswith("hold the names of the columns? If not, put one above it: document,summary")
    assert len(said) < 400
    assert "no column 'text'" in (again := problem(write("a.csv", "a" * 99 + "\tb\n"), document_column="text"))
    assert again.endswith("document\tsummary")
    assert len(problem(write("a.jsonl", json.dumps({a_text: "a", "x": "b"})))) < 300


def test_find_splits(write, tmp_path: Path) -> None:
    for name in ("training.jsonl", "dev.source", "dev.target", "test.csv", "notes.txt", "stats.json"):
        write(f"d/{name}", GOOD)
    found = find_splits(tmp_path / "d")
    assert {split: path.name for split, path in found.items()} == {
        "train": "training.jsonl",
        "validation": "dev.source",
        "test": "test.csv",
    }
    upper = write("f/train.CSV", "document,summary\na b,a\n")
    assert find_splits(upper.parent)["train"] == upper
    assert pairs(upper.parent) == [("a b", "a")]
    write("d/train.csv", GOOD)
    with pytest.raises(DataError, match="several files for the train split"):
        find_splits(tmp_path / "d")
    with pytest.raises(DataError, match="no file named train"):
        find_splits(write("e/x.jsonl", GOOD).parent)


def test_where_no_summary_is_needed_single_records_may_lack_it(write) -> None:
    path = write("mixed.jsonl", GOOD + '{"document": "c d"}\n{"document": "e f", "summary": null}\n')
    assert [summary for _, summary in pairs(path, need_summary=False)] == ["a", "", ""]
    assert "mixed.jsonl:2: no field 'summary'" in problem(path)


def test_equal_references_of_two_people_stay_two(write) -> None:
    for summary, given, expected in (("a", "aba", "aba"), ("c", "aa", "caa"), ("a", "ba", "ab")):
        row = {"document": "a b", "summary": summary, "references": list(given)}
        assert next(read_records(write("a.jsonl", json.dumps(row)))).references == tuple(expected)


def test_a_folder_of_single_texts_is_told_what_to_do(write) -> None:
    folder = write("1.txt", "A text.").parent
    write("1.sum", "A line.")
    with pytest.raises(DataError, match="Where each text is a file of its own, write them into one file first"):
        find_splits(folder)
    assert f"`catchline summarize` takes texts by their own names: {folder}/*.txt" in problem(folder)
