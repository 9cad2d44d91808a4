"""``laconic summarize``: raw text in, summary out; records in, JSON lines out in the same order."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.options import TrustCode
from laconic.cli.progress import progress
from laconic.config.loading import parse_overrides
from laconic.config.shipped import SHIPPED, default_model
from laconic.errors import ConfigError, DataError, LaconicError
from laconic.systems.bulk import Job, Lines, Request, lines_of, windows_of
from laconic.systems.extractive import is_method
from laconic.text.control import safe_print as print
from laconic.types import Record

if TYPE_CHECKING:
    from laconic.types import Summary

RECORD_SUFFIXES = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".story", ".db", ".sqlite", ".sqlite3"}


def command(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL_OR_METHOD]",
            help="Model or run folder, hub id, or an extractive method; the model in the box (oneline) if left out.",
        ),
    ] = None,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE...|-]", help="Text or record files; - or nothing: stdin.")
    ] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Standard input is JSON lines, not one text.")] = False,
    output: Annotated[Path | None, typer.Option(help="File for the results; goes on with one that is partial.")] = None,
    beam_size: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step.")] = None,
    min_length: Annotated[int | None, typer.Option(min=0, help="Least number of tokens.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Largest number of tokens.")] = None,
    num_return: Annotated[int | None, typer.Option(min=1, help="Summaries a document, best first.")] = None,
    sentences: Annotated[int | None, typer.Option(min=1, help="Sentences to pick (extractive methods).")] = None,
    search: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting.")] = None,
    always_write: Annotated[
        bool, typer.Option("--always-write", help="What the model wrote, also where it is not sure.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The words as the model wrote them, nothing mended.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say where each word came from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines for text input too.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Documents decoded together.")] = 16,
    document_column: Annotated[str | None, typer.Option(help="Name of the document's column.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Go on after a bad record.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, ... or auto.")] = "cpu",
    trust_code: TrustCode = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes for a file of records.")] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Records on a Ray cluster, --jobs workers.")] = False,
) -> None:
    """Summarize text, files, JSON lines or standard input.

    A text file gives its summary; a file of records (.jsonl, .json, .csv, .tsv, ...) gives one JSON line a
    record, in order. With --output, an interrupted command goes on where it stopped, killed or not.
    """
    given = {
        "beam_size": beam_size,
        "min_length": min_length,
        "max_length": max_length,
        "num_return": num_return,
        "sentences": sentences,
    }
    overrides: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    extra = parse_overrides(search or [])
    overrides |= extra.get("search", extra)
    model, given_inputs = model_and_inputs([*([model] if model else []), *(files or [])])
    overrides |= raw_surface(model, raw)
    inputs = given_inputs or ["-"]
    if inputs.count("-") > 1:
        raise ConfigError("Standard input (-) can be read only once.")
    of_records = {is_records(name, jsonl) for name in inputs}
    if len(of_records) > 1:
        raise ConfigError("Give either text files or files of records, not both in one command.")
    notes = Notes()
    records = chain.from_iterable(read(name, jsonl, document_column, skip_bad, notes) for name in inputs)
    first = list(islice(records, 1))  # a missing file is told before a model is opened
    records = chain(first, records)
    request = Request(model, device, overrides, explain, batch_size, skip_bad, always_write, trust_code)
    if of_records == {True} or as_json:
        total = count_lines(inputs) if of_records == {True} else len(inputs)
        write_lines(lines_of(request, jobs, ray, notes), request.window, records, output, total)
    elif ray or (jobs or 1) > 1:
        raise ConfigError("--jobs and --ray are for files of records (.jsonl, .csv, ...), not for texts.")
    else:
        write_texts(Job(request), list(records), output, notes, several=len(inputs) > 1)
    notes.report()


def raw_surface(model: str, raw: bool) -> dict[str, str]:
    """The setting behind ``--raw``; an extractive method shows the document's own words anyway."""
    return {"surface": "raw"} if raw and not is_method(model) else {}


# ---------------------------------------------------------------------------------------------- input


def model_and_inputs(names: list[str]) -> tuple[str, list[str]]:
    """The first name is a model's unless it is that of an input; the others are inputs.

    Without a model it is the one in the box, or, with a word to stderr, an extractive method where there is none.
    """
    if names and not is_input(names[0]):
        return names[0], names[1:]
    return default_model(lambda text: print(f"laconic: {text}", file=sys.stderr)), names


def is_input(name: str) -> bool:
    """Does a command's first name mean something to read? A file there is, or the name of one that is missing."""
    if is_method(name) or name in SHIPPED:
        return False
    path = Path(name)
    return (
        name == "-"
        or name.startswith("hub:")
        or path.is_file()
        or (not path.exists() and path.suffix.lower() in {".txt", ".md", *RECORD_SUFFIXES})
    )


class Notes:
    """Counts what was skipped, and says it once at the end."""

    def __init__(self) -> None:
        self.skipped: list[str] = []
        self.total = 0

    def __call__(self, problem: Exception) -> None:
        self.total += 1
        if len(self.skipped) < 5:
            self.skipped.append(str(problem))

    def report(self) -> None:
        """Print to stderr."""
        if self.total:
            print(f"laconic: {self.total} record{'s' if self.total > 1 else ''} skipped:", file=sys.stderr)
            for line in self.skipped:
                print(f"  {line}", file=sys.stderr)
            if self.total > len(self.skipped):
                print(f"  ... and {self.total - len(self.skipped)} more", file=sys.stderr)


def is_records(name: str, jsonl: bool) -> bool:
    """Is this input a file of records rather than one text?"""
    if name == "-":
        return jsonl
    path = Path(name)
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return jsonl or path.is_dir() or name.startswith("hub:") or (bool(suffixes) and suffixes[-1] in RECORD_SUFFIXES)


def read(name: str, jsonl: bool, document_column: str | None, skip_bad: bool, notes: Notes) -> Iterator[Record]:
    """The records of one input; a text file or standard input is one record.

    Raises:
        DataError: it cannot be read.
    """
    if name == "-" and jsonl:
        yield from read_json_lines(sys.stdin.buffer, document_column, skip_bad, notes)
    elif name == "-":
        yield Record(decoded(sys.stdin.buffer.read(), "standard input"), id="stdin", origin="standard input")
    elif is_records(name, jsonl):
        from laconic.data.readers import read_records

        yield from read_records(
            name,
            format="jsonl" if jsonl else "auto",
            document_column=document_column,
            skip_bad=skip_bad,
            need_summary=False,
            on_skip=notes,
        )
    else:
        try:
            raw = Path(name).read_bytes()
        except FileNotFoundError:
            raise DataError(f"There is no file {name}.") from None
        yield Record(decoded(raw, name), id=Path(name).name, origin=name)


def decoded(raw: bytes, name: str) -> str:
    """UTF-8 bytes as text.

    Raises:
        DataError: other bytes, with the place of the first.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(f"{name}, line {line} is not UTF-8 text; convert it, for example with iconv.") from None


def read_json_lines(
    lines: Iterable[bytes], document_column: str | None, skip_bad: bool, notes: Notes
) -> Iterator[Record]:
    """Records from a stream of JSON objects, one a line, as they arrive."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json_record(line, number, document_column)
        except DataError as error:
            if not skip_bad:
                raise
            notes(error)
            continue
        yield record


def json_record(line: bytes, number: int, document_column: str | None) -> Record:
    """One JSON object of standard input as a record.

    Raises:
        DataError: not a JSON object, or no document in it.
    """
    from laconic.data.columns import DOCUMENT_EXACT, DOCUMENT_STRONG, DOCUMENT_WEAK
    from laconic.data.lines import check_text, decode_line

    origin = f"standard input:{number}"
    try:
        values = json.loads(decode_line(Path("standard input"), number, line))
    except json.JSONDecodeError as error:
        raise DataError(f"{origin} is not valid JSON ({error.msg} at character {error.pos + 1}).") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{origin} is not valid JSON ({str(error) or 'nested too deeply'}).") from None
    if not isinstance(values, dict):
        raise DataError(f"{origin} is not a JSON object with a document.")
    known = (*DOCUMENT_EXACT, *DOCUMENT_STRONG, *DOCUMENT_WEAK)
    names = [document_column] if document_column else [name for name in known if name in values][:1]
    if not names or not isinstance(values.get(names[0]), str):
        raise DataError(f"{origin} has no text '{names[0] if names else 'document'}'; keys: {', '.join(values)}.")
    name = values.get("id", "")
    record = Record(values[names[0]], id="" if isinstance(name, dict | list) else str(name), origin=origin)
    check_text(origin, record.document + record.id)
    return record


def count_lines(inputs: list[str]) -> int | None:
    """How many lines there are to do, when that is quick to know."""
    if not all(name.endswith((".jsonl", ".ndjson")) and Path(name).is_file() for name in inputs):
        return None
    total = 0
    for name in inputs:
        with Path(name).open("rb") as file:
            total += sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    return total


# --------------------------------------------------------------------------------------------- output


def write_texts(job: Job, records: list[Record], output: Path | None, notes: Notes, *, several: bool) -> None:
    """Print summaries as text; several files get a heading each, several hypotheses a line each."""
    out: list[str] = []
    with progress("Summarizing", total=len(records), silent=len(records) < 2) as bar:
        for record, summary in zip(records, job.run(records, bar.advance, notes), strict=True):
            if several:
                out.append(f"== {record.origin or record.id}")
            if summary is None:
                continue
            if job.request.explain and output is None:
                flush(out)
                explained(summary)
            else:
                others = summary.alternatives[1:] if summary.declined else summary.alternatives
                out += [one.text for one in (summary, *others)]
            if summary.declined:
                print(f"laconic: {record.origin}: {declined(summary)}", file=sys.stderr)
            if summary.truncated:
                print(
                    f"laconic: {record.origin}: read {summary.tokens_read:,} of {summary.tokens_given:,} tokens.",
                    file=sys.stderr,
                )
    if output is None:
        flush(out)
    else:
        draft = partial_name(output)
        draft.write_text("".join(f"{line}\n" for line in out), encoding="utf-8")
        draft.replace(output)


def declined(summary: Summary) -> str:
    """Why a sentence of the document stands in place of the model's words, and what these are."""
    written = summary.alternatives[0].text
    return (
        f"{summary.declined}; so this is the document's most central sentence. --always-write gives what the model"
        f' wrote: "{written}"'
    )


def flush(lines: list[str]) -> None:
    """Print and forget the lines."""
    for line in lines:
        print(line)
    lines.clear()
    sys.stdout.flush()


def explained(summary: Summary) -> None:
    """The terminal view of one summary."""
    from rich.console import Console

    from laconic.explain.terminal import show

    show(summary, Console(highlight=False, soft_wrap=True), words=True)


def write_lines(lines: Lines, window: int, records: Iterable[Record], output: Path | None, total: int | None) -> None:
    """JSON lines to standard output, or to a file that a later run of the command can go on with; ``window`` is a
    window's number of records."""
    if output is None:
        with progress("Summarizing", total=total) as bar:
            for line in lines(windows_of(records, window), bar.advance):
                print(line, flush=True)
        return
    draft = partial_name(output)
    done = kept_ids(output, draft)
    stream = iter(records)
    begun = read_again(done, stream, draft, window)
    start = len(done) - len(begun)
    if done:
        print(f"laconic: {len(done)} summaries of an earlier run are kept.", file=sys.stderr)
    try:
        with progress("Summarizing", total=total) as bar, draft.open("a", encoding="utf-8") as file:
            bar.advance(start)
            more = list(islice(stream, 1))
            if more:
                windows = windows_of(chain(begun, more, stream), window, start + 1)
                append(file, islice(lines(windows, bar.advance), len(begun), None))
            else:
                bar.advance(len(begun))
    except KeyboardInterrupt:
        print(f"laconic: what is done is in {draft}; the same command goes on from there.", file=sys.stderr)
        raise
    except LaconicError:
        if not draft.stat().st_size:
            draft.unlink()
        raise
    draft.replace(output)


def read_again(done: list[str], stream: Iterator[Record], draft: Path, size: int) -> list[Record]:
    """Pass over the records that are done; gives back those of the window that is begun but not complete.

    They are summarized again, and their lines dropped: what is decoded together is then the same as without the
    interruption, and so is every byte of the file.

    Raises:
        DataError: the file holds the results of other records.
    """
    begun: list[Record] = []
    for number, (known, record) in enumerate(zip(done, stream, strict=False), start=1):  # `done` is the shorter one
        if known != (record.id or str(number)):
            raise DataError(
                f"{draft} holds other records: line {number} is '{known}', the input has '{record.id or number}';"
                " give another --output, or delete that file."
            )
        begun = [] if number % size == 0 else [*begun, record]
    return begun


def append(file: IO[str], lines: Iterable[str]) -> None:
    """Write line by line, so that a killed process loses at most the line it was writing."""
    for line in lines:
        file.write(line + "\n")
        file.flush()


def partial_name(output: Path) -> Path:
    """Where results are until all are there."""
    output.parent.mkdir(parents=True, exist_ok=True)
    return output.with_name(output.name + ".partial")


def kept_ids(output: Path, draft: Path) -> list[str]:
    """The ids of the whole lines that an earlier run left, in order; a broken last line is cut off.

    A finished ``output`` is taken as the start of a longer one.

    Raises:
        DataError: the file holds something else than results.
    """
    if not draft.exists():
        if not output.exists():
            return []
        output.rename(draft)
    ids: list[str] = []
    end = 0
    try:
        with draft.open("rb") as file:
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                ids.append(str(json.loads(raw)["id"]))
                end += len(raw)
    except (ValueError, KeyError, TypeError):
        with suppress(OSError):
            if not output.exists():
                draft.rename(output)
        raise DataError(
            f"{output} exists and line {len(ids) + 1} is not a result of laconic; give another --output."
        ) from None
    with draft.open("rb+") as file:
        file.truncate(end)
    return ids
