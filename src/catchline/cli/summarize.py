"""``catchline summarize``: raw text in, summary out; records in, JSON lines out in the same order."""

from __future__ import annotations

import csv
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from catchline.cli.io import (
    NO_LINES,
    TABLES,
    Skipped,
    as_lines,
    check_output,
    count_lines,
    documents_of,
    is_records,
    is_unicode,
    model_and_inputs,
    progress,
    read_once,
    say,
    show_summaries,
)
from catchline.cli.options import DecodingOptions, Device, DocumentOptions, MostAtOnce, TrustCode
from catchline.data.formats import csv_table
from catchline.errors import ConfigError, DataError
from catchline.explain.provenance import UNKNOWN
from catchline.files import flush, keeps_its_place, only_writer, sha256, write_text
from catchline.summarizer.summarize import Request
from catchline.text.control import safe_print as print
from catchline.types import Record, Summary

if TYPE_CHECKING:
    from catchline.summarizer.bulk import Lines

DIGEST = "document_sha256"  # key of a line in a file: the digest of the text
MOST_SHOWN = 300  # characters of a line in a remark


def command(
    model: Annotated[
        str | None,
        Argument(
            metavar="[MODEL_OR_METHOD]",
            help="Model or run folder, hub id, or extractive method (default: oneline, the bundled model).",
        ),
    ] = None,
    files: Annotated[
        list[str] | None, Argument(metavar="[FILE...|-]", help="Text, Markdown, pages or records; - or nothing: stdin.")
    ] = None,
    jsonl: Annotated[bool, Option("--jsonl", help="Read standard input as JSON lines, not as one text.")] = False,
    output: Annotated[Path | None, Option(help="Write results to this file, continuing a partial one.")] = None,
    min_length: Annotated[int | None, Option(min=0, help="Write at least this many tokens.")] = None,
    num_return: Annotated[int | None, Option(min=1, help="Return this many summaries, best first.")] = None,
    *,
    decoding: DecodingOptions,
    explain: Annotated[bool, Option("--explain", help="Show the source of each word.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON lines for text input too.")] = False,
    batch_size: MostAtOnce = None,
    reading: DocumentOptions,
    prefix: Annotated[str | None, Option(help="Put these words before every document: 'summarize: ' for T5.")] = None,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    jobs: Annotated[int | None, Option(min=1, help="Use this many processes for a file of records.")] = None,
    ray: Annotated[bool, Option("--ray", help="Summarize records on a Ray cluster, with --jobs workers.")] = False,
) -> None:
    """Summarize text, files, JSON lines or standard input.

    A text file gives its summary; a file of records (.jsonl, .json, .csv, .tsv, ...) gives one JSON line per
    record, in order. With --output, an interrupted or killed command continues where it stopped.
    """
    model, given = model_and_inputs([name for name in (model, *(files or [])) if name is not None])
    inputs = given or ["-"]
    read_once(inputs)
    jsonl = jsonl or reading.format != "auto"
    check_output("--output", output, inputs)
    of_records = [is_records(name, jsonl) for name in inputs]
    if any(of_records) and not all(of_records):
        raise ConfigError("Give either text files or files of records, not both in one command.")
    overrides = decoding.settings(model, min_length=min_length, num_return=num_return)
    skipped = Skipped()
    records = chain.from_iterable(documents_of(name, reading, jsonl=jsonl, on_skip=skipped) for name in inputs)
    records = chain(list(islice(records, 1)), records)  # a missing file is reported before a model is opened
    request = Request(
        model, device, overrides, explain, batch_size, reading.skip_bad, decoding.always_write, trust_code, prefix
    )
    if all(of_records) or as_json:
        from catchline.summarizer.bulk import lines_of

        if output is not None and output.suffix.lower() in NO_LINES:
            raise ConfigError(f"{output}: results are JSON lines; name it {as_lines(output)}.")
        if output is not None and output.suffix.lower() in TABLES and output.exists():
            raise DataError(f"{output} exists; delete it, or give another --output.")
        total = count_lines(inputs) if all(of_records) else len(inputs)
        finish = partial(write_table, inputs, reading) if all(of_records) else Path.replace
        write_lines(lines_of(request, jobs, ray, skipped), records, output, total, finish)
    elif ray or (jobs or 1) > 1:
        raise ConfigError("--jobs and --ray are for files of records (.jsonl, .csv, ...), not for texts.")
    else:
        write_texts(request, list(records), output, skipped, several=len(inputs) > 1)
    skipped.report()


def write_texts(
    request: Request, records: list[Record], output: Path | None, skipped: Skipped, *, several: bool
) -> None:
    """Print summaries as text; several files get a heading each, several hypotheses a line each."""
    out: list[str] = []
    summarizer = request.open()
    with progress("Summarizing", total=len(records)) if len(records) > 1 else nullcontext() as bar:
        summaries = request.summaries(summarizer, records, bar and bar.advance, skipped)
        for record, summary in zip(records, summaries, strict=True):
            if several:
                out.append(f"== {record.origin or record.id}")
            if summary is None:
                continue
            if request.explain and output is None:
                print_lines(out)
                show_summaries([summary])
            else:
                others = summary.alternatives[1:] if summary.extracted else summary.alternatives
                out += [one.text for one in (summary, *others, *summary.parts)]
            for remark in remarks(summary):
                say(f"{record.origin}: {remark}")
    if output is None:
        print_lines(out)
    else:
        write_text(output, "".join(f"{line}\n" for line in out))


def remarks(summary: Summary) -> Iterator[str]:
    """What a reader of the summary must know: why it is a sentence of the document, that it is empty or of a part."""
    if summary.extracted:
        line = summary.alternatives[0].text
        line = line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]} ..."
        yield f'extracted from the text, because {summary.extracted}. The model\'s line (--always-write): "{line}"'
    elif summary.out_of_domain and summary.confidence is None:
        yield f"the text is out of domain: {summary.out_of_domain}."
    if not summary.text.strip():
        yield "the model wrote an empty line."
    elif set(summary.text.split()) <= set(UNKNOWN):
        yield "the model knows none of the words that it wrote."
    if summary.truncated:
        yield f"read {summary.tokens_read:,} of {summary.tokens_given:,} tokens."


def print_lines(lines: list[str]) -> None:
    """Print and forget the lines."""
    print("".join(f"{line}\n" for line in lines), end="", flush=True)
    lines.clear()


def write_table(inputs: list[str], reading: DocumentOptions, draft: Path, output: Path) -> None:
    """Make a table of finished JSON lines, if ``output`` is to be one: the columns of the input, or the names of the
    records, and the summaries."""
    if output.suffix.lower() not in TABLES:
        draft.replace(output)
        return
    with draft.open(encoding="utf-8") as file:
        values = [json.loads(line) for line in file]
    rows = [["id", "summary"], *([value["id"], value["summary"]] for value in values)]
    if [Path(name).suffix.lower() in TABLES for name in inputs] == [True]:
        table = [(number, row) for number, row in csv_table(Path(inputs[0])) if not isinstance(row, str)]
        records = documents_of(inputs[0], reading, on_skip=lambda _: None)
        lines = (int(record.origin.rpartition(":")[2]) for record in records)
        written = dict(zip(lines, (value["summary"] for value in values), strict=True))
        names = [*table[0][1], "summary_written" if "summary" in table[0][1] else "summary"]
        rows = [names, *([*row, written.get(number, "")] for number, row in table[1:] if any(row))]
    with draft.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=TABLES[output.suffix.lower()]).writerows(rows)
    draft.replace(output)


def write_lines(
    lines: Lines,
    records: Iterable[Record],
    output: Path | None,
    total: int | None,
    finish: Callable[[Path, Path], object] = Path.replace,
) -> None:
    """Write JSON lines to standard output, or to a file whose interrupted part a later run of the command completes,
    and which ``finish`` gives its name."""
    if output is not None and output.is_dir():
        raise ConfigError(f"{output} is a folder; --output names a file, such as {output / 'summaries.jsonl'}.")
    if output is not None and not keeps_its_place(output):
        output = output.resolve() if output.is_symlink() else output
        if output.is_file() and output.stat().st_size:
            with output.open("rb") as file:
                if _key(file.readline()) == ("", ""):
                    raise DataError(f"{output} exists and is not a result of catchline; give another --output.")
        with only_writer(output):
            _complete(lines, iter(records), output, total, finish)
        return
    place = nullcontext(sys.stdout) if output is None else output.open("a", encoding="utf-8")
    with place as file, progress("Summarizing", total=total) as bar:
        for line in lines(records, 1, bar.advance):
            print(line if is_unicode(file) else json.dumps(json.loads(line)), file=file, flush=True)


def _complete(
    lines: Lines, records: Iterator[Record], output: Path, total: int | None, finish: Callable[[Path, Path], object]
) -> None:
    """Add the missing lines to what an earlier run left beside ``output``, then give the file its name. Records are
    compared by id and by the digest of their text."""
    draft, done = output.with_name(f"{output.name}.partial"), 0
    with draft.open("a+b") as file, progress("Summarizing", total=total) as bar:
        file.seek(0)
        for number, raw in enumerate(iter(file.readline, b""), start=1):
            if not raw.endswith(b"\n"):  # cut in the middle of a write
                break
            record = next(records, None)
            if record is None or _key(raw) != (record.id or str(number), _digest(record.document)):
                raise DataError(f"{draft}, line {number}, has another record; delete it, or give another --output.")
            done = file.tell()
            bar.advance()
        if done:
            say(f"{number if done == file.tell() else number - 1} summaries of an earlier run are reused.")
        file.truncate(done)
        digests = deque[str]()

        def digested() -> Iterator[Record]:
            for record in records:
                digests.append(_digest(record.document))
                yield record

        try:
            for line in lines(digested(), int(bar.completed) + 1, bar.advance):
                file.write(f'{line[:-1]}, "{DIGEST}": "{digests.popleft()}"}}\n'.encode())
                file.flush()  # a killed process loses at most the line that it was writing
        except KeyboardInterrupt:
            say(f"Finished lines are in {draft}; the same command completes them.")
            raise
    flush(draft)
    finish(draft, output)


def _key(line: bytes) -> tuple[str, str]:
    """The id and the digest of the text that a line has."""
    try:
        values = json.loads(line)
        return str(values["id"]), str(values[DIGEST])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", ""


def _digest(document: str) -> str:
    return sha256(document.encode(errors="replace"))[:16]
