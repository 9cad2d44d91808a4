"""File formats of pairs: JSON lines, JSON, CSV and TSV, aligned files, DUC, CNN/DailyMail stories, LCSTS; Parquet and
the Hugging Face hub through `datasets`; and rows in memory."""

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

from catchline.data.columns import LONGEST, ReadOptions, Records, Rows
from catchline.data.lines import LONGEST_LINE, BadRecordError, bare_name, check_text, raw_lines, read_text, text_lines
from catchline.errors import DataError, not_installed
from catchline.types import Record

# ------------------------------------------------------------------------------------------------------- JSON


def read_jsonl(path: Path, options: ReadOptions, lines: Iterable[tuple[int, bytes]] | None = None) -> Records:
    """One JSON object a line; blank lines are passed over. ``lines`` of a stream are read instead of the file's."""
    rows = Rows(options, str(path))
    for number, line in text_lines(path, lines):
        origin = f"{path}:{number}"
        if not line or line.isspace():
            continue
        if number == 1 and line.lstrip().startswith("["):  # on one line or on many
            advice = "name the file .json, or read it with --format json (format='json')"
            raise DataError(f"{origin}: this is a JSON array, not JSON lines; {advice}.")
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield BadRecordError(origin, f"broken JSON: {error}", "repair the line")
            continue
        yield rows.record(value, origin, str(number))


def read_json(path: Path, options: ReadOptions) -> Records:
    """An array of objects, an object with one array of them, or, whatever the file's name, JSON lines."""
    lines = list(raw_lines(path))  # once: it may be a pipe
    text = "\n".join(line for _, line in text_lines(path, lines))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith("{"):
            yield from read_jsonl(path, options, lines)
            return
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{line}: broken JSON: {error}; repair the file.") from None
    if isinstance(value, dict):
        arrays = [rows for rows in value.values() if isinstance(rows, list) and all(isinstance(r, dict) for r in rows)]
        value = arrays[0] if len(arrays) == 1 else [value]
    if not isinstance(value, list):
        raise DataError(f"{path}: {type(value).__name__} instead of an array of records.")
    yield from _rows(value, options, str(path), f"{path}: record")


# ------------------------------------------------------------------------------------------------- CSV and TSV

_SWALLOWED = 5  # lines within a cell that all look like rows


def read_csv(path: Path, options: ReadOptions) -> Records:
    """CSV or TSV with a header line. Line numbers are those on which a record begins. CSV is read by the rules (RFC
    4180); a TSV file keeps its quotation marks unless `_is_quoted` says otherwise."""
    separator, rows = csv_table(path, options.on_choice)
    line, header = next(rows, (1, []))
    if isinstance(header, str):
        raise DataError(f"{path}:{line}: {header}; repair the header line.")
    if not "".join(header).strip():
        raise DataError(f"{path}: the file has no header line.")
    check_text(f"{path}:{line}", "".join(header))
    records = Rows(options, str(path))
    try:
        records.choose(header)
    except DataError as problem:
        if max(map(len, header)) <= LONGEST:
            raise
        asked = "Does the first line hold the names of the columns? If not, put one above it: document"
        raise type(problem)(f"{problem} {asked}{separator}summary") from None
    number = 0
    for line, row in rows:
        origin = f"{path}:{line}"
        if isinstance(row, str):
            advice = "write a quotation mark inside a cell twice, and put that cell in marks"
            yield BadRecordError(origin, row, advice)
        elif len(row) == len(header):
            number += 1
            yield records.record(dict(zip(header, row, strict=True)), origin, str(number))
        elif "".join(row).strip():
            number += 1
            reason = f"wrong number of fields ({len(row)} where the header has {len(header)})"
            yield BadRecordError(origin, reason, "a quotation mark or separator is probably missing")


def csv_table(
    path: Path, on_choice: Callable[[str], object] = lambda _: None
) -> tuple[str, Iterator[tuple[int, list[str] | str]]]:
    """The separator of a CSV or TSV file and its rows, as `csv_rows` gives them."""
    lines = text_lines(path)
    first = next(lines, (1, ""))
    separator, lines = _separator(path, first[1]), itertools.chain([first], lines)
    if separator == "\t":
        whole = list(lines)  # which decides
        quoted = _is_quoted(whole)
        if any('"' in line for _, line in whole):
            on_choice(f"{path}: quotation marks are {'around cells' if quoted else 'part of the text'}")
        if not quoted:
            return separator, iter((number, line.split("\t")) for number, line in whole)
        lines = iter(whole)
    return separator, csv_rows(lines, separator)


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
            if len(taken) > _SWALLOWED and all(line.count(separator) == len(row) - 1 > 0 for _, line in taken[1:-1]):
                row = f"a quotation over lines {taken[0][0]} to {taken[-1][0]}, which look like rows"
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
    """Does a TSV file put cells into quotation marks? Then all of it keeps the rules of CSV, and some cell needs its
    marks, or a column has them in every row."""
    if not any(cell.startswith('"') for _, line in lines if '"' in line for cell in line.split("\t")):
        return False
    raw, needed, widths, marked = dict(lines), False, set[int](), list[set[int]]()
    for number, row in csv_rows(lines, "\t"):
        if isinstance(row, str):
            return False
        cells = raw[number].split("\t")
        widths.add(len(row))
        needed = needed or (cells != row and any(mark in cell for cell in row for mark in '\t\n"'))
        marked.append({place for place, cell in enumerate(cells) if len(cell) > 1 and cell[0] == cell[-1] == '"'})
    return len(widths) == 1 and (needed or (len(marked) > 2 and bool(set.intersection(*marked[1:]))))


def _separator(path: Path, header: str) -> str:
    if Path(bare_name(path)).suffix.lower() in {".tsv", ".tab"}:
        return "\t"
    return "," if "," in header else max("\t;|", key=header.count) if any(c in header for c in "\t;|") else ","


# ----------------------------------------------------------------------------------------------- aligned files

# (part of a document file's name, part of its summary file's name)
_PAIR_PARTS = (
    (".source", ".target"), (".article", ".title"), (".document", ".summary"), (".src", ".tgt"),
    ("_source", "_target"), ("_article", "_title"),
)  # fmt: skip
_PACKED = ("", ".gz", ".zst")


def other_half(path: Path) -> tuple[str, bool]:
    """The name of the other half of an aligned pair, and whether this is the summary half; empty when ``path`` is not
    named like one."""
    for source, target in _PAIR_PARTS:
        for here, there in ((source, target), (target, source)):
            name, count = re.subn(rf"{re.escape(here)}(?=[._\-]|\Z)", there, path.name)
            if count:
                return name, here == target
    return "", False


def pair_partner(path: Path) -> Path | None:
    """The existing other half, compressed or not."""
    name, _ = other_half(path)
    for candidate in (name, *(bare_name(Path(name)) + ending for ending in _PACKED)):
        if name and (path.parent / candidate).is_file():
            return path.parent / candidate
    return None


def read_pair(path: Path, options: ReadOptions) -> Records:
    """Two files with one text a line, line n of one belonging to line n of the other. Raises DataError: the other half
    is missing, or the files have different numbers of lines."""
    partner = pair_partner(path)
    if partner is None:
        raise DataError(f"{path}: its other half is missing; expected {other_half(path)[0] or 'a .target file'}.")
    documents, summaries = (partner, path) if other_half(path)[1] else (path, partner)
    yield from _aligned(documents, [summaries], options, f"pairs with {summaries.name}")


def _aligned(documents: Path, references: list[Path], options: ReadOptions, choice: str) -> Records:
    """One document a line, and one reference a line in each of the other files."""
    count, *others = (sum(1 for _ in raw_lines(path)) for path in (documents, *references))
    for reference, other in zip(references, others, strict=True):
        if other != count:
            raise DataError(
                f"{documents} has {count:,} lines but {reference.name} has {other:,}: the files are misaligned, and "
                "which line belongs to which document cannot be known; write them again."
            )
    options.on_choice(f"{documents}: {choice}")
    for lines in zip(*map(text_lines, (documents, *references)), strict=True):
        number, texts = lines[0][0], [text for _, text in lines]
        yield _record(options, f"{documents}:{number}", str(number), texts[0], texts[1:])


def _record(options: ReadOptions, *texts: Any) -> Record | BadRecordError:
    try:
        return options.record(*texts)
    except BadRecordError as problem:
        return problem


_DUC_INPUT = re.compile(r"input(?:\.txt)?(?:\.gz|\.zst)?\Z")
_DUC_REFERENCES = re.compile(r"task1_ref(\d+)(?:\.txt)?(?:\.gz|\.zst)?\Z")  # task 2 has other documents


def duc_files(place: Path) -> tuple[Path, list[Path]] | None:
    """The input and the reference files of a folder (or of the folder of an input file); None where it has none. The
    layout of the usual copies of DUC-2003, DUC-2004 and of Gigaword's test set: ``input.txt`` with one document a line,
    ``task1_ref0.txt`` to ``task1_ref3.txt`` with one reference a line, beside it or in a folder ``references``."""
    folder = place if place.is_dir() else place.parent
    inputs = [path for path in sorted(folder.iterdir()) if _DUC_INPUT.match(path.name)] if folder.is_dir() else []
    if not inputs or (place.is_file() and place not in inputs):
        return None
    for home in (folder, folder / "references"):
        paths = sorted(home.iterdir(), reverse=True) if home.is_dir() else []  # a plain file before its packed copy
        named = {int(match[1]): path for path in paths if (match := _DUC_REFERENCES.match(path.name))}
        if named:
            return (place if place.is_file() else inputs[0]), [named[number] for number in sorted(named)]
    return None


def read_duc(path: Path, options: ReadOptions) -> Records:
    """One document a line, and several files with one reference a line (`duc_files`). Raises DataError: there is no
    such layout, or a file has another number of lines than the input."""
    found = duc_files(path)
    if found is None:
        raise DataError(f"{path}: expected input.txt with task1_ref0.txt, task1_ref1.txt, ... in the same folder.")
    documents, references = found
    plural = "s" if len(references) > 1 else ""
    yield from _aligned(documents, references, options, f"{len(references)} reference{plural} a document")


# ------------------------------------------------------------------------------------------- blocks of text


def stories(folder: Path) -> Iterator[Path]:
    """The ``.story`` files of a folder, without the hidden ones that macOS puts beside its files."""
    return (path for path in folder.iterdir() if bare_name(path).endswith(".story") and not path.name.startswith("."))


def read_story(path: Path, options: ReadOptions) -> Records:
    """CNN/DailyMail's ``.story`` files: paragraphs, then highlights, each after a line ``@highlight``. Paragraphs are
    joined by blank lines, as they stand in the file (a blank line ends a sentence), highlights by line breaks. A folder
    is read in the order of the names."""
    names = sorted(stories(path)) if path.is_dir() else [path]
    options.on_choice(f"{path}: {len(names):,} story file{'s' if len(names) != 1 else ''}")
    for name in names:
        try:
            body, *highlights = re.split(r"(?m)^[^\S\n]*@highlight[^\S\n]*$", read_text(name))
        except BadRecordError as problem:
            yield problem
            continue
        paragraphs, lines = ([*filter(None, map(str.strip, t.split("\n")))] for t in (body, "\n".join(highlights)))
        id = bare_name(name).removesuffix(".story")
        yield _record(options, str(name), id, "\n\n".join(paragraphs), ["\n".join(lines)])


_TAGS = ("summary", "short_text", "human_label")
_LCSTS = {name: re.compile(rf"<{name}>((?:(?!<{name}>).)*?)</{name}>", re.DOTALL) for name in _TAGS}
_LCSTS_ID = re.compile(r"<doc\s+id\s*=\s*\"?([^\s\">]+)")


def read_lcsts(path: Path, options: ReadOptions) -> Records:
    """``<doc id=0> <summary>...</summary> <short_text>...</short_text> </doc>``, tags on lines of their own or not.
    Parts II and III also have ``<human_label>`` with a score from 1 to 5. The files are not XML (no quotes, no root),
    so they are read by their tags."""
    options.on_choice(f"{path}: LCSTS blocks")
    block, start = "", 1
    for number, line in itertools.chain(text_lines(path), [(0, "</doc>")]):
        start = start if block.strip() else number
        *ends, rest = line.split("</doc>")
        for text in ends:
            block += text
            values = {name: match[1].strip() for name, tag in _LCSTS.items() if (match := tag.search(block))}
            origin, name = f"{path}:{start}", _LCSTS_ID.search(block)
            score = int(values["human_label"]) if values.get("human_label", "").isdecimal() else None
            least = options.min_human_score
            if not values.keys() >= {"summary", "short_text"} or block.count("<doc") > 1:
                if block.strip():
                    yield BadRecordError(origin, "a damaged <doc> block", "it needs a <summary> and a <short_text>")
            elif score is None or least is None or score >= least:
                id = name[1] if name else str(start)
                yield _record(options, origin, id, values["short_text"], [values["summary"]])
            block, start = "", number
        block += rest + "\n"


# ------------------------------------------------------------------------------------- datasets, and memory

_HUB = re.compile(
    r"(?P<name>[\w.\-]+/[\w.\-]+)(?::(?P<part>[\w.\-]+))?(?:@(?P<revision>[\w.\-]+))?(?:/(?P<split>\w+))?"
)


def read_parquet(path: Path, options: ReadOptions) -> Records:
    """A Parquet file."""
    rows = _loaded(f"{path} could not be read as Parquet", "parquet", data_files=str(path), split="train")
    return _rows(rows, options, str(path), f"{path}: row")


def read_hub(path: Path, options: ReadOptions) -> Records:
    """A data set of the hub, ``owner/name:configuration@revision/split``; the split is ``train`` if not given. Raises
    DataError: the name has another form, or the data set cannot be read."""
    match = _HUB.fullmatch(path.as_posix())
    if match is None:
        raise DataError(f"hub:{path.as_posix()}: expected hub:owner/name[:configuration][@revision][/split].")
    where, split = f"hub:{match['name']}", match["split"] or "train"
    what = f"hub:{path.as_posix()} could not be read"
    rows = _loaded(what, match["name"], match["part"], revision=match["revision"], split=split)
    return _rows(rows, options, where, f"{where}: {split} row")


def _loaded(what: str, *names: str | None, **options: Any) -> Iterator[Mapping[str, Any]]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise DataError(f"{what}: {not_installed('datasets')}") from None
    try:
        yield from datasets.load_dataset(*names, streaming=True, **options)
    except Exception as error:  # those of pyarrow, the hub and the library have no base in common
        raise DataError(f"{what} ({str(error).split(chr(10))[0] or type(error).__name__}).") from None


def _rows(rows: Iterable[Any], options: ReadOptions, where: str, origin: str) -> Records:
    records = Rows(options, where)
    for number, row in enumerate(rows, start=1):
        place, values = f"{origin} {number}", row
        if isinstance(row, Record):
            place, values = row.origin or place, asdict(row)
        elif isinstance(row, Mapping):
            values = {str(name): value for name, value in row.items()}
        yield records.record(values, place, str(number))


def read_rows(data: Any, options: ReadOptions) -> Records:
    """What is in memory: a table of pandas or polars, or records or dictionaries of columns. Raises DataError: it is
    nothing of the kind."""
    rows = data
    if hasattr(data, "columns"):
        rows = data.to_dicts() if hasattr(data, "to_dicts") else data.to_dict("records")
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise DataError(f"Pairs are a file, a table, or a list of dictionaries, not {type(rows).__name__}.")
    return _rows(rows, options, "data", "record")
