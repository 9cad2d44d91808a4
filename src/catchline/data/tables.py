"""Formats with named columns: JSON lines, JSON arrays, CSV and TSV, SQLite; with the extra ``hf`` Parquet and data sets
of the Hugging Face hub."""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from catchline.data.columns import EXCEL_SEPARATOR, LONGEST, Columns, RawRecord, RawRecords, TableOptions, listed
from catchline.data.lines import BadRecordError, bad_byte, bare_name, check_text, decode_line, raw_lines, text_lines
from catchline.errors import DataError
from catchline.types import Record

_LARGEST_FIELD = 2**31 - 1
_END = "\x1eend"  # a line behind the last one of a CSV file: a quotation that does not end takes it in
_NEWS_TABLE = "longform"  # All the news 1.0


# ------------------------------------------------------------------------------------------- JSON


def read_jsonl(
    path: Path, options: TableOptions, lines: Iterable[tuple[int, bytes]] | None = None, chosen: Columns | None = None
) -> RawRecords:
    """One JSON object a line; blank lines are passed over. ``lines``: those of a stream, in place of the file's;
    ``chosen``: what its first record has chosen, if that came before them."""
    columns = _RecordColumns(options, str(path), chosen)
    for number, line in text_lines(path, lines):
        origin = f"{path}:{number}"
        if isinstance(line, BadRecordError):
            yield line
            continue
        if not line.strip():
            continue
        if number == 1 and line.lstrip().startswith("["):  # on one line or on many
            said = "this is JSON, not JSON lines"
            if path.suffix in (".jsonl", ".ndjson"):
                said += f"; name the file {path.with_suffix('.json').name}"
            problem = BadRecordError(origin, "a JSON array where an object was expected", said)
            problem.option = ("format", "json")
            yield problem
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield BadRecordError(origin, f"broken JSON: {_json_problem(error)}", "repair the line")
            continue
        yield columns.record(value, origin, str(number))


def first_columns(path: Path, options: TableOptions, lines: Iterable[bytes]) -> Columns | None:
    """What the first JSON object among ``lines`` chooses, if there is one and it has what is needed."""
    for line in lines:
        with suppress(ValueError, RecursionError):
            if isinstance(value := json.loads(line.decode()), dict):
                with suppress(DataError):
                    return options.choose(tuple(value), str(path))
                return None  # to be said when it is read
    return None


def read_json(path: Path, options: TableOptions) -> RawRecords:
    """An array of objects, an object that holds one array, or (by its first line) JSON lines."""
    found = None if path.is_file() else list(raw_lines(path)) or [(1, b"")]  # a pipe can be read only once
    if _is_json_lines(found or raw_lines(path)):
        yield from read_jsonl(path, options, found)
        return
    try:
        value = json.loads("\n".join(decode_line(path, *line) for line in found or raw_lines(path)))
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{line}: broken JSON: {_json_problem(error)}; repair the file.") from None
    if isinstance(value, dict):
        arrays = {name: rows for name, rows in value.items() if isinstance(rows, list)}
        if len(arrays) != 1:
            raise DataError(
                f"{path}: a JSON object with {len(arrays)} arrays ({listed(arrays) or 'none'}) where one array of "
                "records was expected; write the records as JSON lines."
            )
        value = next(iter(arrays.values()))
    if not isinstance(value, list):
        raise DataError(f"{path}: a JSON {_kind(value)} where an array of records was expected.")
    columns = _RecordColumns(options, str(path))
    for number, row in enumerate(value, start=1):
        yield columns.record(row, f"{path}: record {number}", str(number))


def _is_json_lines(found: Iterable[tuple[int, bytes]]) -> bool:
    lines = (line for _, line in found if line.strip())
    try:
        value = json.loads(next(lines, b""))
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    # {"data": [...]} alone on its line is an object with an array, anything else is the first record
    arrays = [one for one in value.values() if isinstance(one, list)]
    records = len(arrays) == 1 and (len(value) == 1 or all(isinstance(one, dict) for one in arrays[0]))
    return not records or next(lines, None) is not None


def _json_problem(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
    return str(error)


class _RecordColumns:
    """Columns of JSON records: chosen at the first; later records may have other optional fields."""

    def __init__(self, options: TableOptions, where: str, chosen: Columns | None = None) -> None:
        self._options, self._where, self._chosen = options, where, chosen
        self._by_fields: dict[tuple[str, ...], Columns] = {}

    def record(self, value: Any, origin: str, number: str) -> RawRecord | BadRecordError:
        if not isinstance(value, dict):
            return BadRecordError(origin, f"a JSON {_kind(value)} where an object was expected")
        fields = tuple(value)
        columns = self._by_fields.get(fields)
        if columns is None:
            if self._chosen is None:
                self._chosen = self._options.choose(fields, self._where)
            columns = self._chosen.adapted(fields)
            if len(self._by_fields) < 1000:
                self._by_fields[fields] = columns
        return mapped_record(value, columns, origin, number)


def mapped_record(row: Mapping[str, Any], columns: Columns, origin: str, number: str) -> RawRecord | BadRecordError:
    """Turn a row into a record; lists of strings are sentences of a document, or several summaries."""
    try:
        document = _strings(row, columns.document, origin)
        has_summary = columns.summary and (columns.need_summary or row.get(columns.summary) is not None)
        references = _strings(row, columns.summary, origin) if columns.summary and has_summary else []
        more = [
            text for name in columns.references if row.get(name) is not None for text in _strings(row, name, origin)
        ]
        summary = references[0] if references else ""
        # A list of all references holds the summary too, once, perhaps with other line breaks (a highlight a line);
        # it stays first. Two people who wrote the same stay two references: ROUGE averages over them.
        for place, text in enumerate(references):
            same = next((other for other in (text, *more) if other in more and other.split() == text.split()), None)
            if same is not None:
                more.remove(same)
                references[place] = same
        references += more
        sentences = _strings(row, columns.sentences, origin) if columns.sentences and row.get(columns.sentences) else []
        given = row.get(columns.id) if columns.id else None
        if isinstance(given, str):
            check_text(origin, given)
    except BadRecordError as problem:
        return problem
    if not sentences and len(document) > 1:
        sentences = document
    publication = row.get(columns.publication) if columns.publication else None
    return RawRecord(
        document="\n".join(document),
        references=tuple(references),
        id=number if given in (None, "") or isinstance(given, dict | list) or _is_nan(given) else str(given),
        origin=origin,
        sentences=tuple(sentences),
        publication=publication if isinstance(publication, str) else "",
        summary=summary,
    )


def _strings(row: Mapping[str, Any], name: str, origin: str) -> list[str]:
    if name not in row:
        raise BadRecordError(origin, f"no field '{name}' (fields: {listed(map(str, row))})")
    value = row[name]
    if value is None or _is_nan(value):
        return []
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [str(value)]
    values = value if isinstance(value, list | tuple) else [value]
    for item in values:
        if not isinstance(item, str):
            holds = "holds" if values is value else "is"
            raise BadRecordError(origin, f"the field '{name}' {holds} a JSON {_kind(item)} where text was expected")
        check_text(origin, item)
    return list(values)


def _is_nan(value: Any) -> bool:
    """NaN and Infinity stand in JSON and Parquet for a cell without a value."""
    return isinstance(value, float) and not math.isfinite(value)


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number" if isinstance(value, int | float) else type(value).__name__)


def read_rows(data: Any, options: TableOptions) -> RawRecords:
    """What is in memory: a table of pandas or polars, or one after the other records or dictionaries of columns.

    Raises:
        DataError: it is nothing of the kind.
    """
    rows = data
    if hasattr(data, "columns"):
        rows = data.to_dicts() if hasattr(data, "to_dicts") else data.to_dict("records")
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise DataError(f"Pairs are a file, a table, or a list of dictionaries, no {type(rows).__name__}.")
    columns = _RecordColumns(options, "data")
    for number, row in enumerate(rows, start=1):
        origin = f"record {number}"
        if isinstance(row, Record):
            origin, row = row.origin or origin, asdict(row)
        if isinstance(row, Mapping):
            yield columns.record({str(name): value for name, value in row.items()}, origin, str(number))
        else:
            yield BadRecordError(origin, f"{type(row).__name__} where a dictionary of columns was expected")


# -------------------------------------------------------------------------------------------- CSV


def read_csv(path: Path, options: TableOptions) -> RawRecords:
    """CSV or TSV with a header line. Line numbers are those on which a record starts."""
    csv.field_size_limit(_LARGEST_FIELD)
    lines = (line.decode("utf-8", errors="surrogateescape") for _, line in raw_lines(path))
    first = next(lines, "")
    told = EXCEL_SEPARATOR.match(first)
    separator, origin = (told[1], f"{path}:2") if told else (_delimiter(path, first), f"{path}:1")
    reader = csv.reader(itertools.chain([first], lines, [_END]), delimiter=separator)
    try:
        header = next(reader) if told is None else next(itertools.islice(reader, 1, None))
    except csv.Error as error:
        raise DataError(f"{origin}: broken CSV: {error}; repair the header line.") from None
    if not "".join(header).removesuffix(_END).strip():
        raise DataError(f"{path}: the file has no header line.")
    if header[-1].endswith(_END):
        raise DataError(f"{origin}: the header line opens a quotation that does not end; close it.")
    if bad := next(filter(None, map(_undecodable, header)), None):
        raise bad_byte(origin, bad, path=path)
    check_text(origin, "".join(header))
    try:
        columns = options.choose(header, str(path))
    except DataError as problem:
        if max(map(len, header)) <= LONGEST:
            raise
        asked = "Does the first line hold the names of the columns? If not, put one above it: document"
        raise type(problem)(f"{problem} {asked}{separator}summary") from None
    return _csv_rows(path, reader, header, columns)


def _csv_rows(path: Path, reader: Any, header: list[str], columns: Columns) -> RawRecords:
    number = 0
    while True:
        origin = f"{path}:{reader.line_num + 1}"
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadRecordError(origin, f"broken CSV: {error}")
            continue
        if row and row[-1].endswith(_END):
            if row != [_END]:
                yield BadRecordError(origin, "a quotation that does not end", "close it, or double its quotation mark")
            return
        if not row or (len(row) == 1 and not row[0].strip() and len(header) > 1):
            continue
        number += 1
        if len(row) != len(header):
            yield BadRecordError(
                origin,
                f"wrong number of fields ({len(row)} where the header has {len(header)})",
                "a quotation mark or separator is probably missing",
            )
            continue
        bad = next(filter(None, map(_undecodable, row)), None)
        yield (
            bad_byte(origin, bad, path=path)
            if bad
            else mapped_record(dict(zip(header, row, strict=True)), columns, origin, str(number))
        )


def _delimiter(path: Path, header: str) -> str:
    if Path(bare_name(path)).suffix.lower() in {".tsv", ".tab"}:
        return "\t"
    return "," if "," in header else max("\t;|", key=header.count) if any(c in header for c in "\t;|") else ","


def _undecodable(text: str) -> int | None:
    """The first byte that was not UTF-8 (``surrogateescape`` keeps it as U+DC80 to U+DCFF)."""
    if text.isascii():
        return None
    return next((ord(character) - 0xDC00 for character in text if "\udc80" <= character <= "\udcff"), None)


# ----------------------------------------------------------------------------------------- SQLite


def read_sqlite(path: Path, options: TableOptions) -> RawRecords:
    """One table of an SQLite file: the only one, or ``longform`` (All the news 1.0)."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = bytes
            tables = [
                name.decode("utf-8", "replace")
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
                )
            ]
            if _NEWS_TABLE not in tables and len(tables) != 1:
                found = f"{len(tables)} tables ({listed(tables) or 'none'}) where one was expected"
                how = "; write one as CSV: sqlite3 -header -csv {} 'select * from \"{}\"'"
                raise DataError(f"{path}: {found}{how.format(path, tables[0]) if tables else ''}.")
            table = _NEWS_TABLE if _NEWS_TABLE in tables else tables[0]
            cursor = connection.execute('SELECT * FROM "{}"'.format(table.replace('"', '""')))
            names = [column[0] for column in cursor.description]
            columns = options.choose(names, str(path))
            for number, row in enumerate(cursor, start=1):
                values = dict(zip(names, row, strict=True))
                yield _sqlite_record(values, columns, f"{path}: {table} row {number}", number)
    except sqlite3.DatabaseError as error:
        raise DataError(f"{path} could not be read as SQLite ({error}).") from None


def _sqlite_record(row: dict[str, Any], columns: Columns, origin: str, number: int) -> RawRecord | BadRecordError:
    try:
        decoded = {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
    except UnicodeDecodeError as error:
        name = next(name for name, value in row.items() if value == error.object)
        return bad_byte(origin, error.object[error.start], f" in '{name}'")
    return mapped_record(decoded, columns, origin, str(number))


# -------------------------------------------------------------------------------------------------- Parquet and the hub


def read_parquet(path: Path, options: TableOptions) -> RawRecords:
    """A Parquet or Arrow file, a batch of rows at a time.

    Raises:
        DataError: the extra is not installed, or the file is damaged.
    """
    parquet = _optional("pyarrow.parquet", f"{path}: Parquet files")
    try:
        file = parquet.ParquetFile(path)
        columns = options.choose(file.schema_arrow.names, str(path))
        rows = (row for batch in file.iter_batches(batch_size=256) for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield mapped_record(row, columns, f"{path}: row {number}", str(number))
    except DataError:
        raise
    except Exception as error:  # pyarrow's errors are ValueErrors, KeyErrors, NotImplementedErrors, ...
        raise DataError(f"{path} could not be read as Parquet ({error}).") from None


def read_hub(path: Path, options: TableOptions) -> RawRecords:
    """``owner/name`` or ``owner/name/split`` of the hub, streamed; the split is ``train`` when not given."""
    parts = path.as_posix().split("/")
    if len(parts) not in {2, 3}:
        raise DataError(f"hub:{path.as_posix()}: expected hub:owner/name or hub:owner/name/split.")
    owner_name, split = "/".join(parts[:2]), parts[2] if len(parts) == 3 else "train"
    datasets: Any = _optional("datasets", f"hub:{owner_name}: data sets of the hub")
    try:
        rows = datasets.load_dataset(owner_name, split=split, streaming=True)
        columns: Any = None
        for number, row in enumerate(rows, start=1):
            columns = columns or options.choose(list(row), f"hub:{owner_name}")
            yield mapped_record(row, columns, f"hub:{owner_name}: {split} row {number}", str(number))
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"hub:{owner_name} ({split}) could not be read: {error}") from None


def _optional(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(f"{what} need the extra 'hf'; install it with: pip install 'catchline[hf]'.") from None
