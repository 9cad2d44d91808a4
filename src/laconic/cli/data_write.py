"""``laconic data subset`` and ``laconic data prepare``: data sets made of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.inputs import stream_records
from laconic.cli.options import AsJson, ColumnOptions, MinHumanScore, ReadingOptions, subcommands, with_groups
from laconic.cli.output import aligned, print_json, print_result, progress
from laconic.errors import ConfigError
from laconic.text.control import safe_print as print

if TYPE_CHECKING:
    from laconic.types import Record

TOKENS = (
    "words (words and signs), blanks (what stands between blanks), word-tokenizer, character-tokenizer, or the folder "
    "of a model or run."
)
File = Annotated[str, typer.Argument(metavar="FILE", help="The data to read.")]
OutFile = Annotated[Path, typer.Argument(metavar="OUT", help="The file of JSON lines to write.")]
Separator = Annotated[
    str | None, typer.Option(metavar="TOKEN", help="Count this word between sentences, such as <EOS>.")
]


@with_groups
def haystack_command(
    file: File,
    out: OutFile,
    *,
    columns: ColumnOptions,
    documents: Annotated[int, typer.Option(min=2, help="Documents in a haystack.")] = 50,
    count: Annotated[int, typer.Option(min=1, help="Haystacks to write.")] = 1000,
    seed: Annotated[int, typer.Option(help="Which documents stand together, and where.")] = 0,
) -> None:
    """Put many documents behind the first sentence of one of them, whose summary is to be written.

    For models that read little of much: each record tells where the one stands, without its first sentence.
    """
    from laconic.study.corpora.haystack import build_haystacks

    _refuse_same(file, out, None)
    with progress("Reading") as bar:
        records = list(stream_records(file, columns.options(), bar))
    with progress("Writing haystacks", total=count) as bar:
        words = build_haystacks(out, records, documents=documents, count=count, seed=seed, progress=bar.advance)
    print(f"{out}: {count:,} haystacks of {documents:,} documents, {words:,} words each.")


@with_groups
def subset_command(
    file: File,
    out: OutFile,
    *,
    reading: ReadingOptions,
    shortest_mean: Annotated[
        float | None, typer.Option(min=0, help="The shortest documents, as many as have at most this mean length.")
    ] = None,
    window_mean: Annotated[
        float | None,
        typer.Option(min=0, help="Instead of these: as many next in length whose mean is nearest to this."),
    ] = None,
    min_tokens: Annotated[int | None, typer.Option(min=0, help="Only documents of at least so many tokens.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Only documents of at most so many tokens.")] = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="The last so many: the newest, where records stand by date.")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="A random sample of so many.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 1,
    rest: Annotated[Path | None, typer.Option(help="Write all other records to this file.")] = None,
    tokens: Annotated[str, typer.Option(help="What counts as a token: " + TOKENS)] = "words",
    sentence_separator: Separator = None,
    min_human_score: MinHumanScore = None,
    as_json: AsJson = False,
) -> None:
    """Write a part of a data set: by the length of its documents, by their mean length, the last ones, a random sample.

    Records keep their order. The same call writes the same file.
    """
    from laconic.data.subset import SubsetOptions, choose, counter_of, write_records

    if window_mean is not None and shortest_mean is None:
        raise ConfigError("--window-mean needs --shortest-mean, which says how many documents and behind which.")
    part = SubsetOptions(min_tokens, max_tokens, shortest_mean, window_mean, last, sample, seed)
    if part == SubsetOptions(seed=seed) and min_human_score is None:
        known = "--shortest-mean, --min-tokens, --max-tokens, --last, --sample or --min-human-score"
        raise ConfigError(f"Say which part: {known}.")
    _refuse_same(file, out, rest)
    count = counter_of(tokens, sentence_separator)
    options = reading.options(need_summary=False, min_human_score=min_human_score)
    with progress("Reading") as bar:
        lengths = [count(record) for record in stream_records(file, options, bar)]
    chosen = choose([document for document, _ in lengths], part)
    kept = set(chosen)
    others = [place for place in range(len(lengths)) if place not in kept]
    for path, places in ((out, kept), (rest, set(others))):
        if path is not None and places:
            with progress(f"Writing {path.name}", total=len(places)) as bar:
                write_records(path, _at(stream_records(file, options, silent=True), places), bar.advance)
    parts = {str(out): chosen, **({str(rest): others} if rest else {})}
    _print_parts({file: range(len(lengths)), **parts}, lengths, as_json)


prepare_app = subcommands(
    "Make Gigaword, DUC, SAMSum or CNN/DailyMail into what the papers' models read.", no_args_is_help=True
)


@prepare_app.command("gigaword")
@with_groups
def gigaword_command(
    file: File,
    out: OutFile,
    *,
    reading: ReadingOptions,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="No filter by length, title words and common words (test data).")
    ] = False,
    tokenized: Annotated[bool, typer.Option("--tokenized", help="Words are what stands between blanks.")] = False,
    as_json: AsJson = False,
) -> None:
    """First sentence and headline, lower-cased, digits as #, as Rush et al. (2015) prepared Annotated Gigaword."""
    from laconic.data.prepare import gigaword_pair, words_by

    _prepare(file, out, partial(gigaword_pair, words=words_by(tokenized), filtered=not keep_all), reading, as_json)


@prepare_app.command("duc2004")
def duc_command(
    documents: Annotated[Path, typer.Argument(metavar="DOCS", help="The folder with a folder a document set.")],
    out: OutFile,
    references: Annotated[Path, typer.Option(help="The folder with the references of task 1, one a file.")],
    as_json: AsJson = False,
) -> None:
    """The input sentence of each document and its references, as Rush et al. (2015) made them of the distribution."""
    from laconic.data.prepare import duc_records
    from laconic.data.subset import write_records

    numbers, empty = Counter[int](), Counter[str]()

    def prepared() -> Iterator[Record]:
        for record in duc_records(documents, references):
            if record.document:
                numbers[len(record.references)] += 1
                yield record
            else:
                empty["document without a sentence"] += 1

    with progress("Preparing") as bar:
        written = write_records(out, prepared(), bar.advance)
    shares = {f"{count} references": documents for count, documents in sorted(numbers.items())}
    _print_written(out, written, empty, as_json, shares)


@prepare_app.command("samsum")
@with_groups
def samsum_command(file: File, out: OutFile, *, reading: ReadingOptions, as_json: AsJson = False) -> None:
    """Dialogues in one line, their turns joined by ' | ', speakers' names kept (SAMSum, DialogSum, your own)."""
    from laconic.data.prepare import dialogue

    _prepare(file, out, dialogue, reading, as_json)


@prepare_app.command("cnndm")
@with_groups
def cnndm_command(
    file: File,
    out: OutFile,
    *,
    reading: ReadingOptions,
    first: Annotated[
        bool, typer.Option("--first-highlight", help="Learn the first highlight; every highlight is a reference.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Articles in one line; highlights joined by blanks for training and one a line for scoring (CNN/DailyMail)."""
    from laconic.data.prepare import first_highlight, news

    change = first_highlight if first else news
    _prepare(file, out, change, reading, as_json)


def _prepare(
    file: str, out: Path, change: Callable[[Record], Record | str], reading: ReadingOptions, as_json: bool
) -> None:
    """Write every record changed, one for one, or say why not."""
    from laconic.data.subset import write_records

    _refuse_same(file, out, None)
    left_out = Counter[str]()

    def prepared(records: Iterable[Record]) -> Iterator[Record]:
        for made in map(change, records):
            if isinstance(made, str):
                left_out[made] += 1
            else:
                yield made

    with progress("Preparing") as bar:
        written = write_records(out, prepared(stream_records(file, reading.options(), bar)))
    _print_written(out, written, left_out, as_json)


# --------------------------------------------------------------------------------------- reading


def _at(records: Iterable[Record], places: set[int]) -> Iterator[Record]:
    return (record for place, record in enumerate(records) if place in places)


def _refuse_same(file: str, out: Path, rest: Path | None) -> None:
    paths = [Path(file), out, *([rest] if rest else [])]
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError(f"What is read and what is written are the same file ({out}); choose another name.")


# --------------------------------------------------------------------------------------- showing


def _print_parts(parts: dict[str, Sequence[int]], lengths: Sequence[tuple[int, int]], as_json: bool) -> None:
    """Number, means and extremes of the whole and of what was written."""
    found: dict[str, dict[str, Any]] = {}
    for name, places in parts.items():
        documents = [lengths[place][0] for place in places]
        summaries = [lengths[place][1] for place in places if lengths[place][1]]
        found[name] = {
            "records": len(documents),
            "document_tokens": {"mean": _mean(documents), "min": min(documents or [0]), "max": max(documents or [0])},
            "summary_tokens": {"mean": _mean(summaries)},
        }
    rows = []
    for name, part in found.items():
        of = part["document_tokens"]
        figures = [f"{of['mean']:,.1f}", f"{of['min']:,}", f"{of['max']:,}", f"{part['summary_tokens']['mean']:,.1f}"]
        rows.append([name, f"{part['records']:,}", *figures])
    header = ["", "records", "tokens a document", "shortest", "longest", "tokens a summary"]
    print_result(as_json, found, aligned(header, rows))


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def _print_written(
    out: Path, written: int, left_out: Counter[str], as_json: bool, more: dict[str, int] | None = None
) -> None:
    if as_json:
        print_json({"file": str(out), "records": written, "left_out": dict(left_out), **(more or {})})
        return
    shares = ", ".join(f"{count:,} with {what}" for what, count in (more or {}).items())
    print(f"{out}: {written:,} record{'' if written == 1 else 's'}{f' ({shares})' if shares else ''}")
    if left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
        print(f"{left_out.total():,} left out: {reasons}")
