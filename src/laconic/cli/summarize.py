"""``laconic summarize``: raw text in, summary out; records in, JSON lines out in the same order."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli.inputs import count_lines, documents_of, is_records, model_and_inputs
from laconic.cli.options import BatchSize, DecodingOptions, Device, DocumentOptions, TrustCode, with_groups
from laconic.cli.output import progress, say, show_summaries
from laconic.errors import ConfigError, DataError, LaconicError
from laconic.files import only_writer, write_text
from laconic.systems.bulk import Lines, Request, SummaryJob, lines_of, windows_of
from laconic.text.control import safe_print as print
from laconic.types import Record

if TYPE_CHECKING:
    from laconic.types import Summary

NO_LINES = {".csv", ".tsv", ".xlsx", ".ods", ".parquet", ".html", ".docx"}  # whose readers would find something else


@with_groups
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
    min_length: Annotated[int | None, typer.Option(min=0, help="Least number of tokens.")] = None,
    num_return: Annotated[int | None, typer.Option(min=1, help="Summaries a document, best first.")] = None,
    sentences: Annotated[int | None, typer.Option(min=1, help="Sentences to pick (extractive methods).")] = None,
    *,
    decoding: DecodingOptions,
    explain: Annotated[bool, typer.Option("--explain", help="Say where each word came from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines for text input too.")] = False,
    batch_size: BatchSize = 16,
    reading: DocumentOptions,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes for a file of records.")] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Records on a Ray cluster, --jobs workers.")] = False,
) -> None:
    """Summarize text, files, JSON lines or standard input.

    A text file gives its summary; a file of records (.jsonl, .json, .csv, .tsv, ...) gives one JSON line a
    record, in order. With --output, an interrupted command goes on where it stopped, killed or not.
    """
    model, given = model_and_inputs([*([model] if model else []), *(files or [])])
    inputs = given or ["-"]
    if inputs.count("-") > 1:
        raise ConfigError("Standard input (-) can be read only once.")
    jsonl = jsonl or reading.format != "auto"
    of_records = [is_records(name, jsonl) for name in inputs]
    if any(of_records) and not all(of_records):
        raise ConfigError("Give either text files or files of records, not both in one command.")
    overrides = decoding.settings(model, min_length=min_length, num_return=num_return, sentences=sentences)
    skipped = Skipped()
    records = chain.from_iterable(documents_of(name, reading, jsonl=jsonl, on_skip=skipped) for name in inputs)
    first = list(islice(records, 1))  # a missing file is told before a model is opened
    records = chain(first, records)
    request = Request(
        model, device, overrides, explain, batch_size, reading.skip_bad, decoding.always_write, trust_code
    )
    if all(of_records) or as_json:
        if output is not None and output.suffix.lower() in NO_LINES:
            raise ConfigError(f"{output}: results are JSON lines; name it {output.with_suffix('.jsonl')}.")
        total = count_lines(inputs) if all(of_records) else len(inputs)
        write_lines(lines_of(request, jobs, ray, skipped), request.window, records, output, total)
    elif ray or (jobs or 1) > 1:
        raise ConfigError("--jobs and --ray are for files of records (.jsonl, .csv, ...), not for texts.")
    else:
        write_texts(SummaryJob(request), list(records), output, skipped, several=len(inputs) > 1)
    skipped.report()


@dataclass
class Skipped:
    """Counts the records that were skipped, and says it once at the end."""

    examples: list[str] = field(default_factory=list)
    total: int = 0

    def __call__(self, problem: Exception) -> None:
        self.total += 1
        if len(self.examples) < 5:
            self.examples.append(str(problem))

    def report(self) -> None:
        """Print to stderr."""
        if self.total:
            more = [f"... and {self.total - len(self.examples)} more"] if self.total > len(self.examples) else []
            lines = [f"{self.total} record{'s' if self.total > 1 else ''} skipped:", *self.examples, *more]
            say("\n  ".join(lines))


# --------------------------------------------------------------------------------------------- output


def write_texts(
    job: SummaryJob, records: list[Record], output: Path | None, skipped: Skipped, *, several: bool
) -> None:
    """Print summaries as text; several files get a heading each, several hypotheses a line each."""
    out: list[str] = []
    with progress("Summarizing", total=len(records), silent=len(records) < 2) as bar:
        for record, summary in zip(records, job.run(records, bar.advance, skipped), strict=True):
            if several:
                out.append(f"== {record.origin or record.id}")
            if summary is None:
                continue
            if job.request.explain and output is None:
                flush(out)
                show_summaries([summary])
            else:
                others = summary.alternatives[1:] if summary.declined else summary.alternatives
                out += [one.text for one in (summary, *others)]
            if summary.declined:
                say(f"{record.origin}: {declined(summary)}")
            if summary.truncated:
                read = f"{summary.tokens_read:,} of {summary.tokens_given:,} tokens"
                say(f"{record.origin}: read {read}.")
    if output is None:
        flush(out)
    else:
        write_text(output, "".join(f"{line}\n" for line in out))


def declined(summary: Summary) -> str:
    """Why words of the document stand in place of the model's, and what these are."""
    from laconic.summarizer import FIRST_WORDS

    written, said, given = summary.alternatives[0].text, summary.text.split(), (summary.document or "").split()
    cut = len(said) == FIRST_WORDS and said == given[:FIRST_WORDS]
    what = "how the text begins" if cut else "the document's most central sentence"
    what = "the text itself" if said == given else what
    return f'{summary.declined}; so this is {what}. --always-write gives what the model wrote: "{written}"'


def flush(lines: list[str]) -> None:
    """Print and forget the lines."""
    for line in lines:
        print(line)
    lines.clear()
    sys.stdout.flush()


def write_lines(lines: Lines, window: int, records: Iterable[Record], output: Path | None, total: int | None) -> None:
    """JSON lines to standard output, or to a file that a later run of the command can go on with; ``window`` is a
    window's number of records."""
    if output is None:
        with progress("Summarizing", total=total) as bar:
            for line in lines(windows_of(records, window), bar.advance):
                print(line, flush=True)
        return
    with only_writer(output):
        _continue(lines, window, records, output, total)


def _continue(lines: Lines, window: int, records: Iterable[Record], output: Path, total: int | None) -> None:
    """Go on with what an earlier run left beside ``output``, and give the file its name."""
    if output.is_dir():
        raise ConfigError(f"{output} is a folder; --output names a file, such as {output / 'summaries.jsonl'}.")
    draft = output.with_name(f"{output.name}.partial")  # until all are there
    done = kept_ids(output, draft)
    stream = iter(records)
    begun = read_again(done, stream, draft, window)
    start = len(done) - len(begun)
    if done:
        say(f"{len(done)} summaries of an earlier run are kept.")
    try:
        with progress("Summarizing", total=total) as bar, draft.open("a", encoding="utf-8") as file:
            bar.advance(start)
            if more := list(islice(stream, 1)):
                windows = windows_of(chain(begun, more, stream), window, start + 1)
                for line in islice(lines(windows, bar.advance), len(begun), None):
                    file.write(line + "\n")
                    file.flush()  # a killed process loses at most the line that it was writing
            else:
                bar.advance(len(begun))
    except KeyboardInterrupt:
        say(f"what is done is in {draft}; the same command goes on from there.")
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
