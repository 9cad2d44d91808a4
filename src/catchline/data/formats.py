"""File formats of pairs: JSON lines, JSON, CSV and TSV, aligned files, DUC, CNN/DailyMail stories, LCSTS; Parquet and
the Hugging Face hub through `datasets`; and rows in memory.

Each reader yields rows: where a row is from, its number, and its columns, or what is wrong with it.
"""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from catchline.data.columns import ReadOptions
from catchline.data.lines import LONGEST_LINE, BadRecordError, bare_name, check_text, raw_lines, text_lines
from catchline.errors import DataError, not_installed
from catchline.types import Record

RowsRead = Iterator[tuple[str, str, Any]]  # origin, number, and a mapping of columns to values or a BadRecordError


def read_jsonl(path: Path, options: ReadOptions) -> RowsRead:
    """One JSON object a line; blank lines are passed over."""
    return json_rows(str(path), raw_lines(path))


def json_rows(name: str, lines: Iterable[tuple[int, bytes]]) -> RowsRead:
    """The same of lines of what is called ``name``."""
    for number, line in text_lines(lines):
        origin = f"{name}:{number}"
        if not line or line.isspace():
            continue
        if number == 1 and line.lstrip().startswith("["):  # on one line or on many
            advice = "name the file .json, or read it with --format json (format='json')"
            raise DataError(f"{origin}: this is a JSON array, not JSON lines; {advice}.")
        try:
            yield origin, str(number), json.loads(line)
        except (ValueError, RecursionError) as error:
            yield origin, str(number), BadRecordError(origin, f"broken JSON: {error}", "repair the line")


def read_json(path: Path, options: ReadOptions) -> RowsRead:
    """An array of objects, an object with one array of them, or, whatever the file's name, JSON lines."""
    lines = list(raw_lines(path))  # once: it may be a pipe
    text = "\n".join(line for _, line in text_lines(lines))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith("{"):
            yield from json_rows(str(path), lines)
            return
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{line}: broken JSON: {error}; repair the file.") from None
    if isinstance(value, dict):
        arrays = [rows for rows in value.values() if isinstance(rows, list) and all(isinstance(r, dict) for r in rows)]
        value = arrays[0] if len(arrays) == 1 else [value]
    if not isinstance(value, list):
        raise DataError(f"{path}: {type(value).__name__} instead of an array of records.")
    yield from _numbered(value, f"{path}: record")


def _numbered(rows: Iterable[Any], origin: str) -> RowsRead:
    return ((f"{origin} {number}", str(number), row) for number, row in enumerate(rows, start=1))


def read_csv(path: Path, options: ReadOptions) -> RowsRead:
    """CSV or TSV with a header line. Line numbers are those on which a record begins. CSV is read by the rules (RFC
    4180); a TSV file keeps its quotation marks unless `_is_quoted` says otherwise."""
    rows = csv_table(path, options.on_choice)
    line, header = next(rows, (1, []))
    if isinstance(header, str):
        raise DataError(f"{path}:{line}: {header}; repair the header line.")
    if not "".join(header).strip():
        raise DataError(f"{path}: the file has no header line.")
    check_text(f"{path}:{line}", "".join(header))
    names = [name if header.count(name) < 2 else f"{name} (column {n})" for n, name in enumerate(header, start=1)]
    number = 0
    for line, row in rows:
        origin = f"{path}:{line}"
        if isinstance(row, str):
            advice = "write a quotation mark inside a cell twice, and put that cell in marks"
            yield origin, "", BadRecordError(origin, row, advice)
        elif "".join(row).strip():
            number += 1
            values: Any = dict(zip(names, row, strict=False))
            if len(row) != len(names):
                reason = f"wrong number of fields ({len(row)} where the header has {len(names)})"
                values = BadRecordError(origin, reason, "a quotation mark or separator is probably missing")
            yield origin, str(number), values


def csv_table(path: Path, on_choice: Callable[[str], object] = lambda _: None) -> Iterator[tuple[int, list[str] | str]]:
    """The rows of a CSV or TSV file, as `csv_rows` gives them, those of the header first."""
    lines = text_lines(raw_lines(path))
    first = next(lines, (1, ""))
    is_tsv = Path(bare_name(path)).suffix.lower() in {".tsv", ".tab"}
    separator = "\t" if is_tsv else max(",\t;|", key=first[1].count)
    lines = itertools.chain([first], lines)
    if separator == "\t":
        whole = list(lines)  # which decides
        quoted = _is_quoted(whole)
        if any('"' in line for _, line in whole):
            on_choice(f"{path}: quotation marks are {'around cells' if quoted else 'part of the text'}")
        if not quoted:
            return ((number, line.split("\t")) for number, line in whole)
        lines = iter(whole)
    return csv_rows(lines, separator)


def csv_rows(lines: Iterable[tuple[int, str]], separator: str) -> Iterator[tuple[int, list[str] | str]]:
    """The rows of CSV, each with the number of the line on which it begins; a string says what is wrong with a line. A
    line that breaks the rules costs itself alone: reading goes back to the one behind it."""
    csv.field_size_limit(LONGEST_LINE)
    waiting, again, taken = iter(lines), deque[tuple[int, str]](), list[tuple[int, str]]()

    def feed() -> Iterator[str]:
        size = 0
        while size < LONGEST_LINE and (line := again.popleft() if again else next(waiting, None)):
            taken.append(line)
            size += len(line[1])
            yield f"{line[1]}\n"

    while True:
        taken.clear()
        try:
            row: list[str] | str = next(csv.reader(feed(), delimiter=separator, strict=True))
        except StopIteration:
            return
        except csv.Error as error:
            row = f"broken CSV: {error}"
            if "unexpected end" in row:
                row = "a quotation that does not end"
            elif "expected after" in row:
                row = f"text behind a closing quotation mark (line {taken[-1][0]})"
        yield taken[0][0], row
        if isinstance(row, str):
            again.extendleft(reversed(taken[1:]))


def _is_quoted(lines: list[tuple[int, str]]) -> bool:
    """Does a TSV file put cells into quotation marks? Then all of it keeps the rules of CSV, and the header has marks,
    or some cell needs them."""
    rows = [row for _, row in csv_rows(lines, "\t")]
    if any(isinstance(row, str) or len(row) != len(rows[0]) for row in rows):
        return False
    marks = lines[0][1].startswith('"') or any('""' in line for _, line in lines)
    return marks or any("\t" in cell or "\n" in cell for row in rows for cell in row)


# ----------------------------------------------------------------------------------------------- aligned files

# (part of a document file's name, part of its summary file's name)
_PAIR_PARTS = (
    (".source", ".target"), (".article", ".title"), (".document", ".summary"), (".src", ".tgt"),
    ("_source", "_target"), ("_article", "_title"),
)  # fmt: skip


def other_half(path: Path) -> tuple[Path | None, bool]:
    """The other half of an aligned pair, compressed or not, which may be missing, and whether this is the summary half;
    None when ``path`` is not named like one."""
    for source, target in _PAIR_PARTS:
        for here, there in ((source, target), (target, source)):
            name, count = re.subn(rf"{re.escape(here)}(?=[._\-]|\Z)", there, path.name)
            if count:
                others = [path.with_name(bare_name(Path(name)) + ending) for ending in ("", ".gz", ".zst")]
                return next((other for other in others if other.is_file()), path.with_name(name)), here == target
    return None, False


_DUC_REFERENCE = re.compile(r"task1_ref(\d+)\.txt")  # task 2 has other documents


def duc_files(place: Path) -> list[Path]:
    """The input and the reference files of a folder (or of the folder of an input file); none where it has none. The
    layout of the usual copies of DUC-2003, DUC-2004 and of Gigaword's test set: ``input.txt`` with one document a line,
    ``task1_ref0.txt`` to ``task1_ref3.txt`` with one reference a line, beside it or in a folder ``references``."""
    folder = place if place.is_dir() else place.parent
    inputs = sorted(folder.glob("input.txt*")) if place.is_dir() else [place]
    inputs = [path for path in inputs if bare_name(path) == "input.txt"]
    for home in (folder, folder / "references"):
        paths = sorted(home.glob("task1_ref*"), reverse=True) if inputs else []  # a plain file before its packed copy
        named = {int(match[1]): path for path in paths if (match := _DUC_REFERENCE.fullmatch(bare_name(path)))}
        if named:
            return [inputs[0], *(named[number] for number in sorted(named))]
    return []


def with_others(path: Path, kind: str) -> list[Path]:
    """A file with those that are read beside it: documents, then summaries. Raises DataError: they are missing."""
    if kind == "pair":
        other, is_summary = other_half(path)
        if other is None or not other.is_file():
            raise DataError(f"{path}: its other half is missing; expected {other.name if other else 'a .target file'}.")
        return [other, path] if is_summary else [path, other]
    if kind == "duc" and not duc_files(path):
        raise DataError(f"{path}: expected input.txt with task1_ref0.txt, task1_ref1.txt, ... in the same folder.")
    return duc_files(path) if kind == "duc" else [path]


def read_aligned(documents: Path, *references: Path, options: ReadOptions) -> RowsRead:
    """One document a line, and one reference a line in each of the other files. Raises DataError: a file has another
    number of lines."""
    count, *others = (sum(1 for _ in raw_lines(path)) for path in (documents, *references))
    for reference, other in zip(references, others, strict=True):
        if other != count:
            raise DataError(
                f"{documents} has {count:,} lines but {reference.name} has {other:,}: the files are misaligned, and "
                "which line belongs to which document cannot be known; write them again."
            )
    options.on_choice(f"{documents}: pairs with {', '.join(path.name for path in references)}")
    for (number, document), *rest in zip(*(text_lines(raw_lines(p)) for p in (documents, *references)), strict=True):
        texts = [text for _, text in rest]
        row = {"document": document, "summary": texts[0], "references": texts}
        yield f"{documents}:{number}", str(number), row


# ------------------------------------------------------------------------------------------- blocks of text


def stories(folder: Path) -> list[Path]:
    """The ``.story`` files of a folder, without the hidden ones that macOS puts beside its files."""
    return sorted(path for path in folder.iterdir() if bare_name(path).endswith(".story") and path.name[0] != ".")


def read_story(path: Path, options: ReadOptions) -> RowsRead:
    """A ``.story`` file of CNN/DailyMail: paragraphs, then highlights, each after a line ``@highlight``. Paragraphs are
    joined by blank lines, as they stand in the file (a blank line ends a sentence), highlights by line breaks."""
    text = "\n".join(line for _, line in text_lines(raw_lines(path)))
    body, *highlights = re.split(r"(?m)^[^\S\n]*@highlight[^\S\n]*$", text)
    paragraphs, lines = ([*filter(None, map(str.strip, t.split("\n")))] for t in (body, "\n".join(highlights)))
    id = bare_name(path).removesuffix(".story")
    yield str(path), id, {"document": "\n\n".join(paragraphs), "summary": "\n".join(lines)}


_TAGS = ("summary", "short_text", "human_label")
_LCSTS = {name: re.compile(rf"<{name}>((?:(?!<{name}>).)*?)</{name}>", re.DOTALL) for name in _TAGS}
_LCSTS_ID = re.compile(r"<doc\s+id\s*=\s*\"?([^\s\">]+)")


def read_lcsts(path: Path, options: ReadOptions) -> RowsRead:
    """``<doc id=0> <summary>...</summary> <short_text>...</short_text> </doc>``, tags on lines of their own or not.
    Parts II and III also have ``<human_label>`` with a score from 1 to 5. The files are not XML (no quotes, no root),
    so they are read by their tags."""
    block, start = "", 1
    for number, line in itertools.chain(text_lines(raw_lines(path)), [(0, "</doc>")]):
        start = start if block.strip() else number
        *ends, rest = line.split("</doc>")
        for text in ends:
            block += text
            values = {name: match[1].strip() for name, tag in _LCSTS.items() if (match := tag.search(block))}
            origin, name, label = f"{path}:{start}", _LCSTS_ID.search(block), values.get("human_label", "")
            if not values.keys() >= {"summary", "short_text"} or block.count("<doc") > 1:
                if block.strip():
                    advice = "it needs a <summary> and a <short_text>"
                    yield origin, "", BadRecordError(origin, "a damaged <doc> block", advice)
            elif not label.isdecimal() or int(label) >= (options.min_human_score or 0):
                row = {"document": values["short_text"], "summary": values["summary"]}
                yield origin, name[1] if name else str(start), row
            block, start = "", number
        block += rest + "\n"


# ------------------------------------------------------------------------------------- datasets, and memory

_HUB = re.compile(
    r"hub:(?P<name>[\w.\-]+/[\w.\-]+)(?::(?P<part>[\w.\-]+))?(?:@(?P<revision>[\w.\-]+))?(?:/(?P<split>\w+))?"
)


def read_parquet(path: Path, options: ReadOptions) -> RowsRead:
    """A Parquet file."""
    rows = _loaded(f"{path} could not be read as Parquet", "parquet", data_files=str(path), split="train")
    return _numbered(rows, f"{path}: row")


def read_hub(path: Path, options: ReadOptions) -> RowsRead:
    """A data set of the hub, ``owner/name:configuration@revision/split``; the split is ``train`` if not given. Raises
    DataError: the name has another form, or the data set cannot be read."""
    name = f"hub:{path.as_posix()}"
    match = _HUB.fullmatch(name)
    if match is None:
        raise DataError(f"{name}: expected hub:owner/name[:configuration][@revision][/split].")
    split = match["split"] or "train"
    rows = _loaded(f"{name} could not be read", match["name"], match["part"], revision=match["revision"], split=split)
    return _numbered(rows, f"hub:{match['name']}: {split} row")


def _loaded(what: str, *names: str | None, **options: Any) -> Iterator[Mapping[str, Any]]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise DataError(f"{what}: {not_installed('datasets')}") from None
    try:
        yield from datasets.load_dataset(*names, streaming=True, **options)
    except Exception as error:  # those of pyarrow, the hub and the library have no base in common
        raise DataError(f"{what} ({str(error).split(chr(10))[0] or type(error).__name__}).") from None


def read_rows(data: Any) -> RowsRead:
    """What is in memory: a table of pandas or polars, or records or dictionaries of columns. Raises DataError: it is
    nothing of the kind."""
    rows = data
    if hasattr(data, "columns"):
        rows = data.to_dicts() if hasattr(data, "to_dicts") else data.to_dict("records")
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise DataError(f"Pairs are a file, a table, or a list of dictionaries, not {type(rows).__name__}.")

    def values(row: Any) -> Any:
        named = {str(name): value for name, value in row.items()} if isinstance(row, Mapping) else row
        return asdict(row) if isinstance(row, Record) else named

    numbered = _numbered(rows, "record")
    return ((getattr(row, "origin", "") or origin, number, values(row)) for origin, number, row in numbered)
