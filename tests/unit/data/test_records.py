"""Every format, what is chosen in it, and one sentence with file and line for every kind of bad input."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

from catchline.config.schema import SPLITS, DataConfig
from catchline.data import formats, lines
from catchline.data.columns import ReadOptions
from catchline.data.lines import BadRecordError, raw_lines, unreadable
from catchline.data.records import SkipCounter, files_of, read_json_lines, read_records, read_with, splits_in
from catchline.data.records import write_records as write_out
from catchline.errors import DataError
from catchline.jobs import batches
from catchline.types import Record, references_of

GOOD = '{"document": "a b", "summary": "a"}\n'
Write = Callable[[str, str | bytes], Path]
PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress}
PACKED[".zst"] = zstandard.ZstdCompressor().compress


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


def problem(path: Any, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        list(read_records(path, **options))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_json_lines_and_what_is_written(write: Write, tmp_path: Path) -> None:
    more = '{"id": 7, "document": "x", "summary": "y", "references": ["y", "z"]}'
    path = write("a.jsonl", "\ufeff" + GOOD + "\n" + more)
    assert list(read_records(path)) == [
        Record("a b", "a", "1", (), (), f"{path}:1"),
        Record("x", "y", "7", ("y", "z"), (), f"{path}:3"),
    ]
    out = tmp_path / "deep" / "out.jsonl"
    records = [
        Record("a b.\nc d.", "x", "1", sentences=("a b.", "c d."), origin=f"{out}:1"),
        Record("é \u2028 z", "one", "2", references=("one", "two", "one"), origin=f"{out}:2"),
    ]
    assert write_out(out, records) == 2
    assert list(read_records(out)) == records


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
        *[(f"a.{name}", "text\tsummary\nx, y\tz", [("x, y", "z")]) for name in ("tsv", "tab")],
        ("a.csv", "text;summary\nx, y;z\n;\n", [("x, y", "z")]),
        ("a.csv", f"text,summary\n{'x' * 200_000},y\n", [("x" * 200_000, "y")]),
        ("a.csv", '\ufeffid,article,highlights\n1,"a\nb ""q""","h, i"\n2,c,d\n', [('a\nb "q"', "h, i"), ("c", "d")]),
        ("a.story", "One.\n\nTwo.\n\n@highlight\n\nA\n\n@highlight\n\nB\n", [("One.\n\nTwo.", "A\nB")]),
        (
            "PART_I.txt",
            "<doc id=0>\n  <summary>\n    要\n  </summary>\n  <short_text>\n    文本\n  </short_text>\n</doc>\n"
            "<doc id=1>\n<human_label>5</human_label><summary>二</summary><short_text>三</short_text>\n</doc>\n",
            [("文本", "要"), ("三", "二")],
        ),
    ],
)
@pytest.mark.parametrize("ending", PACKED)
def test_forms_of_a_pair(write: Write, name: str, content: str, expected: list[tuple[str, str]], ending: str) -> None:
    assert pairs(write(name + ending, PACKED[ending](content.encode()))) == expected


def test_aligned_files(write: Write) -> None:
    names = "t.source t.target train.article.txt train.title.txt x.src x.tgt news_title.source news_title.target"
    for source, target in batches(names.split(), 2):
        first, second = write(source, "a\nb\u2028c\n"), write(target, "A\nB\n")
        assert pairs(first) == pairs(second) == [("a", "A"), ("b\u2028c", "B")]
        assert files_of(second) == [first, second]
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
    assert len(files_of(folder)) == 5
    assert splits_in(folder) == {}
    write(f"DUC2004/{references}/task1_ref2.txt", "Un\n")
    assert "input.txt has 2 lines but task1_ref2.txt has 1" in problem(folder)


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


def test_parquet_through_datasets(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"article": ["x y", "z"], "highlights": [["a", "b"], ["c"]]}), path)
    assert pairs(path) == [("x y", "a\nb"), ("z", "c")]
    assert "could not be read as Parquet" in problem(write("bad.parquet", "PAR1junk"))
    assert "expected hub:owner/name[" in problem("hub:only")
    asked: dict[str, Any] = {}

    def load_dataset(*names: str, **options: Any) -> list[dict[str, str]]:
        asked.update(options, names=names)
        return [{"text": "x", "title": "y"}]

    monkeypatch.setattr(formats.importlib, "import_module", lambda name: SimpleNamespace(load_dataset=load_dataset))
    assert pairs("hub:o/n:part@main/test") == [("x", "y")]
    assert asked == {"names": ("o/n", "part"), "revision": "main", "split": "test", "streaming": True}

    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(formats.importlib, "import_module", absent)
    assert "pip install 'catchline[train]'" in problem(path)


def test_files_that_are_not_one_data_set(write: Write, tmp_path: Path) -> None:
    for number, (names, words) in enumerate(
        (
            ("part-0.jsonl part-2.jsonl", "number 1 is missing"),
            ("part-1.jsonl part-999999999999999.jsonl", "number 2 is missing"),
            ("t-00000-of-00003.jsonl t-00001-of-00003.jsonl", "number 2 is missing"),
            *((f"a-0.jsonl {name}", "folder with 2 data files") for name in ("b-1.jsonl", "a-1.csv", "a-00.jsonl")),
            ("2019.jsonl 2020.jsonl", "folder with 2 data files"),
            ("1.txt", "`catchline summarize` takes texts by name: "),
        )
    ):
        for name in names.split():
            write(f"{number}/{name}", GOOD)
        assert words in problem(tmp_path / str(number))


def test_a_folder_is_one_data_set_or_has_splits(write: Write, tmp_path: Path) -> None:
    names, notes = [f"part-{number}.jsonl" for number in range(11)], list[str]()
    for name in names:
        write(f"d/train/{name}", json.dumps({"text": f"of {name}", "summary": "x"}))
    assert [text for text, _ in pairs(tmp_path / "d" / "train", on_choice=notes.append)] == [f"of {n}" for n in names]
    assert [note.partition("train: ")[2][:14] for note in notes] == ["11 jsonl files", "document: 'tex"]
    for name in ("dev.source", "dev.target", "test.csv", "notes.txt", "stats.json"):
        write(f"d/{name}", GOOD)
    found = {split: Path(path).name for split, path in splits_in(tmp_path / "d").items()}
    assert found == {"train": "train", "validation": "dev.source", "test": "test.csv"}
    parts = [str(write(f"l/PART_{'I' * n}.txt", "".join(lcsts([3])))) for n in (1, 2, 3)]
    assert splits_in(tmp_path / "l") == dict(zip(SPLITS, parts, strict=True))
    assert pairs(write("f/train.CSV", "document,summary\na b,a\n").parent) == [("a b", "a")]
    write("d/train.csv", GOOD)
    for folder, words in (("d", "several files for the train"), ("e", r"no file named train.* If each text is a file")):
        write("e/1.txt", "A text.")
        with pytest.raises(DataError, match=words):
            splits_in(tmp_path / folder)
    place = write("in/train.jsonl", GOOD).parent
    write("in/notes.storyboard.txt", "x")
    assert splits_in(place)
    write("in/a.story.gz", gzip.compress(b"Body.\n\n@highlight\n\nHigh\n"))  # stories are known by their ending
    write("in/._a.story", b"\0\5\xff")
    assert splits_in(place) == {}
    assert pairs(place) == [("Body.", "High")]


def test_json_that_comes_through_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    os.mkfifo(path)
    text = json.dumps([json.loads(GOOD)] * 2, indent=1)
    writer = threading.Thread(target=path.write_text, args=(text,), daemon=True)
    writer.start()
    assert len(list(read_records(path))) == 2
    writer.join()


STRAY = [
    ("The ferry stopped at noon because of strong wind.", "Ferry stops"),
    ('"We will rebuild the pier before spring, said the mayor.', "Mayor promises pier"),
    ("The library opens a second reading room in May.", "Library grows"),
    ('"Rain" fell on the valley, so the road is closed.', '"Rain" closes road'),
    ('Bakers ask for cheaper flour, since the harvest was "good again.', "Bakers want cheap flour"),
    ('"A whole cell in marks."', "Marks"),
    ("The choir sings in the town hall.", "Choir sings"),
]
HEADER = ("document", "summary")


def table(rows: list[tuple[str, ...]], separator: str) -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


def marked(text: str, every: bool) -> str:
    """As QUOTE_ALL and QUOTE_MINIMAL write it."""
    return '"' + text.replace('"', '""') + '"' if every or any(mark in text for mark in '\t\n"') else text


def test_marks_in_tsv_are_text_unless_all_of_it_is_quoted(write: Write) -> None:
    for rows, every, said in (
        (STRAY, None, "part of the text"),
        ([(('"' if n % 10 == 0 else "") + f"text {n}", f"line {n}") for n in range(200)], None, "part of the text"),
        ([("a b", "x"), ("c\td\ne", 'y "z"'), ('"f" g', "h")], False, "around cells"),
        ([("a b", "x"), ("c", "d")], True, "around cells"),
    ):
        whole, notes = [HEADER, *rows], list[str]()
        if every is not None:
            whole = [tuple(marked(cell, every) for cell in row) for row in whole]
        path = write("a.tsv", table(whole, "\t"))
        assert pairs(path, on_choice=notes.append) == rows
        assert notes == [f"{path}: quotation marks are {said}"]


def test_csv_is_read_strictly_and_a_bad_line_costs_itself_alone(write: Write) -> None:
    stray = table([HEADER, *((document.replace(",", ";"), summary) for document, summary in STRAY)], ",")
    left = ["The ferry", "The library", "Bakers ask", "A whole cell", "The choir"]
    for content, words, kept in (
        (stray, ":3: text behind a closing quotation mark", left),
        ('document,summary\nA b.,c\nd.,"e\nf.,g\n', ":3: a quotation that does not end", ["A b.", "f."]),
        ("text,summary\na,b\nc\nd,e,f\n", ":3: wrong number of fields (1 where the header has 2)", ["a"]),
        (b"text,summary\nok,ok\ncaf\xe9,x\nok,ok\n", ":3: not UTF-8: byte 0xE9", ["ok", "ok"]),
    ):
        path = write("a.csv", content)
        assert f"{path}{words}" in problem(path)
        assert [text[: len(start)] for (text, _), start in zip(pairs(path, skip_bad=True), kept, strict=True)] == kept


def test_lines_without_end_are_refused_in_bounded_memory(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 1 << 20)
    write("a.target", "x\n")
    for name in ("a.jsonl", "a.json", "a.csv", "a.tsv", "a.source"):
        for ending, pack in PACKED.items():
            path = write(name + ending, pack(b"a" * (3 << 20)))
            assert "a line of more than 1 MB; write one record per line." in problem(path, skip_bad=True)
            path.unlink()
    packed = io.BytesIO(PACKED[".zst"](bytes(1 << 28)))
    assert max(map(len, lines._zstd(packed))) < 1 << 27


def test_damaged_archives(write: Write) -> None:
    text = "".join(f"{number}\n" for number in range(100_000)).encode()
    for number, content in enumerate((PACKED[".gz"](text)[:-12], b"no gzip", PACKED[".zst"](text)[:-12], b"no zstd")):
        with pytest.raises(DataError, match=r"the compressed data is damaged after line \d+ \("):
            list(raw_lines(write(f"{number}.txt{'.gz' if number < 2 else '.zst'}", content)))
    assert sum(1 for _ in raw_lines(write("e.txt.zst", PACKED[".zst"](text) * 2))) == 200_000


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b'{"document": " ", "summary": "y"}', "empty document"),
        (b'{"document": "x", "summary": " \\n"}', "empty summary"),
        (b'{"document": "x", "summary": null}', "empty summary"),
        (b'{"document": "x", "summary": NaN}', "empty summary"),
        (b'{"document": "x"}', "no field 'summary'"),
        (b'{"document": {"a": 1}, "summary": "y"}', "the field 'document' is dict"),
        (b'{"document": ["x", null], "summary": "y"}', "the field 'document' holds NoneType"),
        (b"[1, 2]", "list instead of an object"),
        (b'{"document": "x", "summary" "y"}', "broken JSON: Expecting ':' delimiter: line 1"),
        ('{"document": "café", "summary": "y"}'.encode("latin-1"), "not UTF-8: byte 0xE9; save the"),
        (b'{"document": "half \\ud83d", "summary": "y"}', r"half a character (\ud83d)"),
        (b'{"document": "x", "summary": "y", "id": "\\ud83d"}', r"half a character (\ud83d)"),
    ],
)
def test_bad_lines(write: Write, line: bytes, wanted: str) -> None:
    path, skipped = write("a.jsonl", GOOD.encode() + line + b"\n" + GOOD.encode()), SkipCounter()
    said = problem(path)
    assert f"{path}:2: {wanted}" in said
    assert "--skip-bad (skip_bad=True)" in said
    assert len(pairs(path, skip_bad=True, on_skip=skipped)) == 2
    assert next(iter(skipped.counts)) in said
    with pytest.raises(BadRecordError, match="standard input:2"):
        list(read_json_lines([GOOD.encode(), line], "standard input", ReadOptions()))


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_json_without_records(write: Write, name: str) -> None:
    strange = ["[" * 100_000, '{"a":' * 100_000, "[1" + "0" * 9999 + "]"]
    for text in (*strange, "5", "null", '"text"', "[[[]]]", "{}", "[]", "nan"):
        assert name in problem(write(name, text))


LONG = "The river\nrose. " * 50
TWO, CHOOSE = "text,other\nx,y\n", "choose with document_column (--document-column)"


def test_what_cannot_be_read(write: Write, tmp_path: Path) -> None:
    for name, content, options, words in (
        ("x.foo", "x", {}, "choose with --format: jsonl, json"),
        ("a.jsonl", GOOD, {"format": "jsonll"}, "Unknown data format 'jsonll'. Did you mean 'jsonl'?"),
        ("a.jsonl", "", {}, "no record"),
        ("a.jsonl", '{"document": "", "summary": "x"}', {"skip_bad": True}, "1 bad ones were skipped"),
        ("a.csv", "", {}, "no header"),
        ("a.csv", 'document,"summary\nx\n', {}, "a.csv:1: a quotation that does not end; repair the header"),
        ("a.csv", b"r\xe9sum\xe9,text\nx,y\n", {}, "a.csv:1: not UTF-8: byte 0xE9"),
        ("a.csv", "document,summary\rx,y\r", {}, "a.csv:1: broken CSV: new-line character seen"),
        ("a.csv", "text,article,summary\nx,y,z\n", {}, f"could be any of 'article', 'text'; {CHOOSE}"),
        ("a.csv", "Text,text,summary\nx,y,z\n", {}, f"the document could be any of 'Text', 'text'; {CHOOSE}"),
        ("a.csv", TWO, {}, "no column name is known for the summary; choose one with summary_column"),
        ("a.csv", TWO, {}, "Columns: 'text', 'other'."),
        ("a.csv", TWO, {"summary_column": "oter"}, "no column 'oter'. Did you mean 'other'?"),
        ("a.csv", "text,summary,summary\nx,y,z\n", {}, "'text', 'summary (column 2)', 'summary (column 3)'."),
        ("a.csv", f'"{LONG}",River\nx,y\n', {}, "'The river rose. The river"),
        ("a.csv", f'"{LONG}",River\nx,y\n', {}, "Does the first line hold the names of the columns? If not, put"),
    ):
        said = problem(write(name, content), **options)
        assert words in said
        assert len(said) < 500
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    loop, memory = (tmp_path / "loop.jsonl", "does not exist"), ([{1: "a b"}], "Columns: '1'.")
    for place, words in (("owner/name", "hub:owner/name"), loop, memory, (5, "Pairs are a file, a table, or a list")):
        assert words in problem(place)
    assert unreadable("doc") == unreadable(f"{tmp_path}/doc") == ""  # a text that is called so


def test_known_columns() -> None:
    for names, document, summary in (
        ("document summary", "document", "summary"),
        ("article_id article_text abstract_text highlights_id", "article_text", "abstract_text"),
        ("id dialogue summary topic", "dialogue", "summary"),
        ("text summary title", "text", "summary"),
        ("Email-Body Subject-Line", "Email-Body", "Subject-Line"),
        ("id title publication author date content url", "content", "title"),
        ("abstract title", "abstract", "title"),
        ("article abstract section_names", "article", "abstract"),
        ("id document summary source", "document", "summary"),
        ("text Document tldr Summary", "Document", "Summary"),
        ("dialogue title summary1 summary2", "dialogue", "summary1"),
    ):
        assert ReadOptions().choose(names.split(), "f") == (document, summary)


def test_the_id_column_is_known_by_its_name() -> None:
    for found in ("ticket_id", "Ticket ID", "key", "Number", "id customer_id", "", "x_id y_id", "paid", "monkey"):
        names = found.split() if found.startswith(("id", "x_")) else [found]
        row = dict.fromkeys(names, "5") | {"body": "Text.", "subject": "Line"}
        (record,), said = read_records([row]), list[str]()
        list(read_records([row], on_choice=said.append))
        assert record.id == ("1" if found in ("", "x_id y_id", "paid", "monkey") else "5"), found
        assert ("id: " in said[0]) == (record.id == "5")


def test_lists_are_sentences_or_references_by_the_column() -> None:
    for row, document, summary, references in (
        ({"source": ["One.", "Two."], "target": ["s", "t"]}, "One.\nTwo.", "s", ["s", "t"]),
        ({"article": "x", "highlights": ["One.", "Two."]}, "x", "One.\nTwo.", ["One.\nTwo."]),
        ({"article": "x", "abstract_text": ["<S>One.</S>", "Two."]}, "x", "One.\nTwo.", ["One.\nTwo."]),
        ({"dialogue": "d", "summary1": "a", "summary2": "b", "topic1": "x"}, "d", "a", ["a", "b"]),
        ({"document": "d", "summary": "a", "references": ["a", "b", "a"]}, "d", "a", ["a", "b", "a"]),
        ({"document": "d", "summary": "c", "references": ["a", "a"]}, "d", "c", ["c", "a", "a"]),
        ({"document": "d", "summary": "a", "references": ["b", "a"]}, "d", "a", ["a", "b"]),
        ({"document": "d", "summary": "One. Two.", "references": ["One.\nTwo."]}, "d", "One. Two.", ["One.\nTwo."]),
    ):
        (record,) = read_records([row])
        assert (record.document, record.summary, list(references_of(record))) == (document, summary, references)
        assert record.sentences == (("One.", "Two.") if "source" in row else ())


def test_columns_that_are_chosen_and_what_is_said_of_it(write: Write) -> None:
    path, said = write("b.jsonl", '{"text": "x", "other": "z"}'), list[str]()
    assert pairs(path, need_summary=False) == [("x", "")]
    assert pairs(path, summary_column="other", on_choice=said.append) == [("x", "z")]
    assert said == [f"{path}: document: 'text', summary: 'other'"]
    list(read_records(write("c.jsonl", '{"text": "x", "summary": "z", "Split": "test"}'), on_choice=said.append))
    assert said[1].endswith("; column 'Split' is not read: splits are files (train, validation, test)")
    assert pairs(write("a.csv", "text,article,summary\nx,y,z\n"), document_column="text") == [("x", "z")]
    assert pairs(write("d.jsonl", GOOD + '{"document": "c d"}\n'), need_summary=False) == [("a b", "a"), ("c d", "")]


def test_publication_suffix() -> None:
    options = ReadOptions(strip_publication_suffix=True)
    for title, publication, wanted in (
        ("A storm comes - The New York Times", "New York Times", "A storm comes"),
        ("A storm comes - The New York Times", "", "A storm comes - The New York Times"),
        ("Storm - Breitbart - Breitbart", "Breitbart", "Storm - Breitbart"),
        ("x – My.Paper", "My.Paper", "x"),
        ("- CNN", "CNN", "- CNN"),
    ):
        row = {"content": "x", "title": title, "publication": publication}
        assert [record.summary for record in read_with([row], options)] == [wanted]
