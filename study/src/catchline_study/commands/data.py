"""``catchline data subset``, ``haystack``, ``prepare`` and ``select-spans``: data sets made of others and of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import NO_LINES, aligned, as_lines, print_json, print_result, progress, say, stream_records
from catchline.cli.options import AsJson, ColumnOptions, Commands, MinHumanScore, ReadingOptions
from catchline.data.checks import WORD
from catchline.data.records import files_of, write_records
from catchline.errors import ConfigError
from catchline.text.control import safe_print as print
from catchline.types import Record
from catchline_study.corpora.prepare import dialogue, duc_records, first_highlight, gigaword_pair, news, words_by
from catchline_study.corpora.subset import SubsetOptions, build_haystacks, choose
from catchline_study.spans.settings import SpanSettings

File = Annotated[str, Argument(metavar="FILE", help="The data to read.")]
OutFile = Annotated[Path, Argument(metavar="OUT", help="The file of JSON lines to write.")]

prepare = Commands("Convert Gigaword, DUC, SAMSum or CNN/DailyMail to the papers' input.", no_args_is_help=True)


def subset_command(
    file: File,
    out: OutFile,
    *,
    reading: ReadingOptions,
    shortest_mean: Annotated[
        float | None, Option(min=0, help="Keep the shortest documents, up to this mean length.")
    ] = None,
    window_mean: Annotated[
        float | None, Option(min=0, help="Keep as many longer documents, with a mean length close to this.")
    ] = None,
    min_tokens: Annotated[int | None, Option(min=0, help="Keep documents of at least this many tokens.")] = None,
    max_tokens: Annotated[int | None, Option(min=0, help="Keep documents of at most this many tokens.")] = None,
    last: Annotated[int | None, Option(min=1, help="Keep the last records: the newest, if sorted.")] = None,
    sample: Annotated[int | None, Option(min=1, help="Keep a random sample of this size.")] = None,
    seed: Annotated[int, Option(help="Set the seed of the sample.")] = 1,
    rest: Annotated[Path | None, Option(help="Write all other records to this file.")] = None,
    min_human_score: MinHumanScore = None,
    as_json: AsJson = False,
) -> None:
    """Write a part of a data set: by the length of its documents, by their mean length, the last ones, a random sample.

    Records keep their order. The same call writes the same file.
    """
    if window_mean is not None and shortest_mean is None:
        raise ConfigError("--window-mean needs --shortest-mean, which says how many documents and behind which.")
    part = SubsetOptions(min_tokens, max_tokens, shortest_mean, window_mean, last, sample, seed)
    if part == SubsetOptions(seed=seed) and min_human_score is None:
        known = "--shortest-mean, --min-tokens, --max-tokens, --last, --sample or --min-human-score"
        raise ConfigError(f"Say which part: {known}.")
    _refuse_same([file], reading.format, *([out, rest] if rest else [out]))
    options = reading.options(need_summary=False, min_human_score=min_human_score)
    with progress("Reading") as bar:
        records = stream_records(file, options, bar)
        lengths = [(len(WORD.findall(one.document)), len(WORD.findall(one.summary))) for one in records]
    parts = {out: choose([document for document, _ in lengths], part)}
    if rest is not None:
        parts[rest] = sorted(set(range(len(lengths))) - set(parts[out]))
    for path, places in parts.items():
        kept = set(places)  # of the rest perhaps none: no older file may stay in its place
        records = (one for n, one in enumerate(stream_records(file, options, silent=True)) if n in kept)
        with progress(f"Writing {path.name}", total=len(kept)) as bar:
            write_records(path, records, bar.advance)
    written = {str(path): places for path, places in parts.items()}
    _print_parts({file: range(len(lengths)), **written}, lengths, as_json)


def haystack_command(
    file: File,
    out: OutFile,
    *,
    columns: ColumnOptions,
    documents: Annotated[int, Option(min=2, help="Put this many documents into a haystack.")] = 50,
    count: Annotated[int, Option(min=1, help="Write this many haystacks.")] = 1000,
    seed: Annotated[int, Option(help="Set the seed of the documents.")] = 0,
) -> None:
    """Hide one document among many, after its first sentence; the reference is its summary.

    For models that read little of much: each record tells where the one stands, without its first sentence.
    """
    _refuse_same([file], columns.format, out)
    with progress("Reading") as bar:
        records = list(stream_records(file, columns.options(), bar))
    with progress("Writing haystacks", total=count) as bar:
        words = build_haystacks(out, records, documents=documents, count=count, seed=seed, progress=bar.advance)
    print(f"{out}: {count:,} haystacks of {documents:,} documents, {words:,} words each.")


@prepare.command("gigaword")
def gigaword_command(
    file: File,
    out: OutFile,
    *,
    reading: ReadingOptions,
    keep_all: Annotated[
        bool, Option("--keep-all", help="Do not filter by length, title words and common words (test data).")
    ] = False,
    tokenized: Annotated[bool, Option("--tokenized", help="Split words at spaces only.")] = False,
    as_json: AsJson = False,
) -> None:
    """First sentence and headline, lower-cased, digits as #, as Rush et al. (2015) prepared Annotated Gigaword."""
    _prepare(file, out, partial(gigaword_pair, words=words_by(tokenized), filtered=not keep_all), reading, as_json)


@prepare.command("duc2004")
def duc_command(
    documents: Annotated[Path, Argument(metavar="DOCS", help="The folder with one folder per document set.")],
    out: OutFile,
    references: Annotated[Path, Option(help="Read the references of task 1 in this folder, one per file.")],
    as_json: AsJson = False,
) -> None:
    """The input sentence of each document and its references, as Rush et al. (2015) made them of the distribution."""
    _refuse_same([documents, references], None, out)
    numbers = Counter[int]()

    def prepared() -> Iterator[Record | str]:
        for record in duc_records(documents, references):
            if record.document:
                numbers[len(record.references)] += 1
            yield record if record.document else "document without a sentence"

    _write(out, prepared(), as_json, numbers)


@prepare.command("samsum")
def samsum_command(file: File, out: OutFile, *, reading: ReadingOptions, as_json: AsJson = False) -> None:
    """Dialogues in one line, their turns joined by ' | ', speakers' names kept (SAMSum, DialogSum, your own)."""
    _prepare(file, out, dialogue, reading, as_json)


@prepare.command("cnndm")
def cnndm_command(
    file: File,
    out: OutFile,
    *,
    reading: ReadingOptions,
    first: Annotated[
        bool, Option("--first-highlight", help="Use every highlight as a reference and learn the first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Articles in one line; highlights joined by blanks for training and one a line for scoring (CNN/DailyMail)."""
    _prepare(file, out, first_highlight if first else news, reading, as_json)


def _prepare(
    file: str, out: Path, change: Callable[[Record], Record | str], reading: ReadingOptions, as_json: bool
) -> None:
    """Write every record changed, one for one, or say why not."""
    _refuse_same([file], reading.format, out)
    _write(out, map(change, stream_records(file, reading.options())), as_json)


def _write(out: Path, made: Iterable[Record | str], as_json: bool, references: Mapping[int, int] | None = None) -> None:
    """Write the records and say how many there are, by their number of ``references`` too, and why others, the reasons
    among ``made``, are not."""
    left_out = Counter[str]()

    def kept() -> Iterator[Record]:
        for one in made:
            if isinstance(one, str):
                left_out[one] += 1
            else:
                yield one
            bar()

    with progress("Preparing") as bar:
        written = write_records(out, kept())
    shares = {f"{number} references": count for number, count in sorted((references or {}).items())}
    if as_json:
        print_json({"file": str(out), "records": written, "left_out": dict(left_out), **shares})
        return
    said = ", ".join(f"{count:,} with {what}" for what, count in shares.items())
    print(f"{out}: {written:,} record{'' if written == 1 else 's'}{f' ({said})' if said else ''}")
    if left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
        print(f"{left_out.total():,} left out: {reasons}")


def _refuse_same(read: Sequence[str | Path], format: str | None, *written: Path) -> None:
    """Before anything is lost: what is written is neither a file that is read, with all that belongs to it, nor lies in
    a folder that is. ``format`` is that of the data, None for folders as they are."""
    taken = {Path(place).resolve() for place in read}
    if format is not None:
        taken |= {file.resolve() for place in read for file in files_of(place, format)}
    for path in written:
        if path.suffix.lower() in NO_LINES:
            raise ConfigError(f"{path}: records are written as JSON lines; name it {as_lines(path)}.")
        place = path.resolve()
        if place in taken:
            raise ConfigError(f"What is read and what is written are the same file ({path}); choose another name.")
        if folder := taken.intersection(place.parents):
            raise ConfigError(f"{path} would lie in {folder.pop()}, which is read; write to another folder.")
        taken.add(place)


def _print_parts(parts: dict[str, Sequence[int]], lengths: Sequence[tuple[int, int]], as_json: bool) -> None:
    """Number and mean lengths of the whole and of what was written."""
    found, rows = {}, []
    for name, places in parts.items():
        means = [fmean([lengths[place][side] for place in places if lengths[place][side]] or [0]) for side in (0, 1)]
        found[name] = {"records": len(places), "document_tokens": means[0], "summary_tokens": means[1]}
        rows.append([name, f"{len(places):,}", *(f"{mean:,.1f}" for mean in means)])
    print_result(as_json, found, aligned(["", "records", "tokens a document", "tokens a summary"], rows))


def select_spans_command(
    files: Annotated[
        list[str] | None, Argument(metavar="[FILE|DIR|GLOB...]", help="More inputs, as for --input.")
    ] = None,
    *,
    out: Annotated[Path, Option(help="The folder to write.")],
    input: Annotated[
        list[str] | None,
        Option(metavar="FILE|DIR|GLOB", help="Read text or JSON lines, also .gz and .zst; may be repeated."),
    ] = None,
    selection: SpanSettings,
    workers: Annotated[int, Option(min=1, help="Processes.")] = 1,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace a selection in OUT.")] = False,
    as_json: AsJson = False,
) -> None:
    """Select spans of running text that have most in common with the span in front of them, as pairs to train on.

    The same command continues a job that was interrupted. The output does not depend on the number of workers.
    """
    from catchline_study.spans.selection import select_spans

    inputs = [*(input or []), *(files or [])]
    if not inputs:
        raise ConfigError("Nothing to read: name files, folders or patterns with --input.")
    with progress("Selecting spans") as bar:
        how: dict[str, Any] = {"workers": workers, "overwrite": overwrite, "progress": bar.update}
        manifest, complete = select_spans(inputs, out, selection, **how)
    for warning in manifest["warnings"]:
        say(f"warning: {warning}")
    before = f"{out} is complete already; nothing was done.\n" if complete else ""
    print_result(as_json, manifest, before + _told(out, manifest))


def _told(out: Path, manifest: dict[str, Any]) -> str:
    threshold = manifest["threshold"]
    rows = {name: f"{manifest['corpus'][name]:,}" for name in ("documents", "tokens", "chunks", "candidates")}
    rows |= {"chosen": f"{manifest['records']:,}", "lowest score": f"{threshold['score']:.4f}"}
    rows |= {"at that score": f"{threshold['taken_at']:,} of {threshold['at']:,}"}
    rows |= {name.replace("_", " "): f"{count:,}" for name, count in manifest["reports"].items()}
    return "\n".join([f"{out}: {len(manifest['files'])} files", *(f"  {n:<31}{v:>12}" for n, v in rows.items())])
