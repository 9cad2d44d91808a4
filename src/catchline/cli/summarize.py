"""``catchline summarize``: raw text in, summary out; records in, JSON lines out in the same order."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.inputs import check_output, count_lines, documents_of, is_records, model_and_inputs, read_once
from catchline.cli.options import DecodingOptions, Device, DocumentOptions, MostAtOnce, TrustCode
from catchline.cli.output import NO_LINES, Skipped, as_lines, is_unicode, progress, say, show_summaries
from catchline.errors import CatchlineError, ConfigError, DataError
from catchline.files import flush, keeps_its_place, only_writer, sha256, write_text
from catchline.summarizer import FIRST_CHARACTERS, FIRST_WORDS
from catchline.systems.bulk import Lines, Request, SummaryJob, lines_of, windows_of
from catchline.text.normalization import safe_print as print
from catchline.types import Record, Summary

DIGEST = "document_sha256"  # key of a line: what was summarized, so that nobody takes it for another text's
MOST_SHOWN = 300  # characters of a line that is only told of


def command(
    model: Annotated[
        str | None,
        Argument(
            metavar="[MODEL_OR_METHOD]",
            help="Model or run folder, hub id, or an extractive method; the model in the box (oneline) if left out.",
        ),
    ] = None,
    files: Annotated[
        list[str] | None, Argument(metavar="[FILE...|-]", help="Text, Markdown, pages or records; - or nothing: stdin.")
    ] = None,
    jsonl: Annotated[bool, Option("--jsonl", help="Standard input is JSON lines, not one text.")] = False,
    output: Annotated[Path | None, Option(help="File for the results; goes on with one that is partial.")] = None,
    min_length: Annotated[int | None, Option(min=0, help="Least number of tokens.")] = None,
    num_return: Annotated[int | None, Option(min=1, help="Summaries a document, best first.")] = None,
    sentences: Annotated[int | None, Option(min=1, help="Sentences to pick (extractive methods).")] = None,
    *,
    decoding: DecodingOptions,
    explain: Annotated[bool, Option("--explain", help="Say where each word came from.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON lines for text input too.")] = False,
    batch_size: MostAtOnce = None,
    reading: DocumentOptions,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    jobs: Annotated[int | None, Option(min=1, help="Processes for a file of records.")] = None,
    ray: Annotated[bool, Option("--ray", help="Records on a Ray cluster, --jobs workers.")] = False,
) -> None:
    """Summarize text, files, JSON lines or standard input.

    A text file gives its summary; a file of records (.jsonl, .json, .csv, .tsv, ...) gives one JSON line a
    record, in order. With --output, an interrupted command goes on where it stopped, killed or not.
    """
    model, given = model_and_inputs([name for name in (model, *(files or [])) if name is not None])
    inputs = given or ["-"]
    read_once(inputs)
    jsonl = jsonl or reading.format != "auto"
    check_output("--output", output, inputs)
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
            raise ConfigError(f"{output}: results are JSON lines; name it {as_lines(output)}.")
        total = count_lines(inputs) if all(of_records) else len(inputs)
        write_lines(lines_of(request, jobs, ray, skipped), request.window, records, output, total)
    elif ray or (jobs or 1) > 1:
        raise ConfigError("--jobs and --ray are for files of records (.jsonl, .csv, ...), not for texts.")
    else:
        write_texts(SummaryJob(request), list(records), output, skipped, several=len(inputs) > 1)
    skipped.report()


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
                print_lines(out)
                show_summaries([summary])
            else:
                others = summary.alternatives[1:] if summary.declined else summary.alternatives
                out += [one.text for one in (summary, *others)]
            if summary.declined:
                say(f"{record.origin}: {declined(summary)}")
            elif summary.unlike and summary.confidence is None:
                say(f"{record.origin}: the text is unlike those the model knows: {summary.unlike[0]}.")
            if summary.truncated:
                read = f"{summary.tokens_read:,} of {summary.tokens_given:,} tokens"
                say(f"{record.origin}: read {read}.")
    if output is None:
        print_lines(out)
    else:
        write_text(output, "".join(f"{line}\n" for line in out))


def declined(summary: Summary) -> str:
    """Why words of the document stand in place of the model's, and what these are."""
    written, said, given = summary.alternatives[0].text, summary.text.split(), (summary.document or "").split()
    cut = (len(said) == FIRST_WORDS and said == given[:FIRST_WORDS]) or len(summary.text) >= FIRST_CHARACTERS
    written = written if len(written) <= MOST_SHOWN else f"{written[:MOST_SHOWN]} ..."
    what = "how the text begins" if cut else "the part of the document that is likeliest to say what it is about"
    what = "the text itself" if said == given else what
    return f'{summary.declined}; so this is {what}. --always-write gives what the model wrote: "{written}"'


def print_lines(lines: list[str]) -> None:
    """Print and forget the lines."""
    for line in lines:
        print(line)
    lines.clear()
    sys.stdout.flush()


def write_lines(lines: Lines, window: int, records: Iterable[Record], output: Path | None, total: int | None) -> None:
    """JSON lines to standard output, or to a file that a later run of the command can go on with; ``window`` is a
    window's number of records."""
    if output is not None and output.is_dir():
        raise ConfigError(f"{output} is a folder; --output names a file, such as {output / 'summaries.jsonl'}.")
    if output is not None and not keeps_its_place(output):
        output = output.resolve() if output.is_symlink() else output
        with only_writer(output):
            _continue(lines, window, records, output, total)
        return
    place = nullcontext(sys.stdout) if output is None else output.open("a", encoding="utf-8")
    with place as file, progress("Summarizing", total=total) as bar:
        for line in lines(windows_of(records, window), bar.advance):
            print(line if is_unicode(file) else json.dumps(json.loads(line)), file=file, flush=True)


class Kept:
    """The whole lines that an earlier run left in ``file``: of each the id and the document's digest (empty in files
    that older versions wrote), with what they were made, and what the last ``window`` of them say; a broken last line
    begins at ``end``. A finished output is taken as the start of a longer one."""

    def __init__(self, file: Path, window: int) -> None:
        self.file, self.end = file, 0
        self.lines: list[tuple[str, str]] = []
        self.said = deque[tuple[Any, Any]](maxlen=window)
        self.made: dict[str, Any] = {}
        self.decoding: dict[str, Any] | None = None  # what it does not say is as by default
        if not file.exists():
            return
        with file.open("rb") as lines:
            for number, raw in enumerate(lines, start=1):
                if not raw.endswith(b"\n"):
                    break
                try:
                    line = json.loads(raw)
                    differs = self.differs(line)
                    self.lines.append((str(line["id"]), str(line.get(DIGEST, ""))))
                    self.said.append(_said(line))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    raise DataError(
                        f"{file} exists and line {number} is not a result of catchline; give another --output."
                    ) from None
                if differs:
                    raise self.other(f"is not all of one making: before line {number} it has {differs}")
                self.end += len(raw)

    def other(self, what: str) -> DataError:
        """Why the file cannot be gone on with."""
        return DataError(f"{self.file} {what}; give another --output, or delete that file.")

    def differs(self, line: dict[str, Any]) -> str:
        """What of the making of ``line`` is not as in the lines before it, or nothing."""
        made = {"model": line["model"]}
        if line["summary"] is not None:  # of a skipped record nothing else is told
            made |= {"explain": "document" in line, "always_write": line.get("always_write", False)}
        unlike = [key for key, value in made.items() if self.made.setdefault(key, value) != value]
        if unlike:
            return f"{unlike[0]} {self.made[unlike[0]]}, not {made[unlike[0]]}"
        now = line.get("decoding", self.decoding or {})
        before = self.decoding = now if self.decoding is None else self.decoding
        unlike = [key for key in sorted({*now, *before}) if now.get(key) != before.get(key)]
        if not unlike:
            return ""
        first, second = (side.get(unlike[0], "as by default") for side in (before, now))
        return f"decoding.{unlike[0]} {first}, not {second}"

    def read_again(self, stream: Iterator[Record], size: int) -> list[Record]:
        """Pass over the records that are done; gives back those of the last window."""
        begun: list[Record] = []
        for number, (known, digest) in enumerate(self.lines, start=1):
            record = next(stream, None)
            if record is None:
                raise self.other(f"holds {len(self.lines)} results, and the input has only {number - 1} records")
            if known != (name := record.id or str(number)):
                raise self.other(f"holds other records: line {number} is '{known}', the input has '{name}'")
            if digest and digest != _digest(record.document):
                raise self.other(f"holds other records: line {number} is of another text of '{known}'")
            begun = [*begun, record] if (number - 1) % size else [record]
        return begun


def _continue(lines: Lines, window: int, records: Iterable[Record], output: Path, total: int | None) -> None:
    """Go on with what an earlier run left as ``output`` or beside it, and give the file its name.

    The records of the last window, complete or not, are summarized again, and these lines dropped: so what is decoded
    together, and with it every byte of the file, is as without the interruption, and it shows whether model, settings
    and calibration are those of the file.
    """
    draft = output.with_name(f"{output.name}.partial")  # until all are there
    kept = Kept(draft if draft.exists() or not output.exists() else output, window)
    done, stream, digests = len(kept.lines), iter(records), deque[str]()
    begun = kept.read_again(stream, window)

    def new() -> Iterator[Record]:
        for record in stream:
            digests.append(_digest(record.document))
            yield record

    windows = windows_of(chain(begun, new()), window, done - len(begun) + 1)
    try:
        with progress("Summarizing", total=total) as bar:
            bar.advance(done - len(begun))
            made = lines(windows, bar.advance)
            for place, line in enumerate(islice(made, len(begun)), start=-len(begun)):
                if differs := kept.differs(now := json.loads(line)):
                    raise kept.other(f"was made with {differs}")
                if kept.said[place] != _said(now):
                    what = f"'{now['id']}' is summarized otherwise now"
                    raise kept.other(f"was made with another training or calibration of the model: {what}")
            if done:
                say(f"{done} summaries of an earlier run are kept.")
            if kept.file == output:
                output.rename(draft)
            with draft.open("a", encoding="utf-8") as file:
                file.truncate(kept.end)
                for line in made:
                    file.write(f'{line[:-1]}, "{DIGEST}": "{digests.popleft()}"}}\n')
                    file.flush()  # a killed process loses at most the line that it was writing
    except KeyboardInterrupt:
        say(f"what is done is in {draft if draft.exists() else output}; the same command goes on from there.")
        raise
    except CatchlineError:
        if draft.exists() and not draft.stat().st_size:
            draft.unlink()
        raise
    flush(draft)
    draft.replace(output)


def _said(line: dict[str, Any]) -> tuple[Any, Any]:
    """What shows whether the same model, calibrated alike, has written a line."""
    return line["summary"], line.get("declined")


def _digest(document: str) -> str:
    return sha256(document.encode(errors="replace"))[:16]
