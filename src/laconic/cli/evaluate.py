"""``laconic evaluate``: one table of trained models and extractive methods on one data set."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.inputs import split_of
from laconic.cli.options import TrustCode
from laconic.cli.output import aligned, progress, quiet
from laconic.config.loading import parse_overrides
from laconic.config.schema import EvaluationConfig
from laconic.data.readers import ReadOptions, SkipCounter, read_with
from laconic.errors import ConfigError, DataError
from laconic.text.control import safe_print as print

if TYPE_CHECKING:
    from laconic.evaluation.run import EvaluationOptions, EvaluationResult
    from laconic.evaluation.systems import Contender
    from laconic.study.breakdown import Bucket
    from laconic.types import Record


def command(
    data: Annotated[str, typer.Option(help="A file of records, or a folder with one file a split.")],
    systems: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL_OR_METHOD...", help="Model or run folders, hub ids, extractive methods."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of a folder.")] = "validation",
    output: Annotated[Path | None, typer.Option(help="Folder for predictions and scores.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Records decoded at once.")] = 32,
    max_records: Annotated[int | None, typer.Option(min=1, help="Score the first records only.")] = None,
    profile: Annotated[
        str,
        typer.Option(
            help="gigaword, duc2004, lcsts, cnn-plain, cnndm, cnndm-first, samsum: as papers score that data. Or a "
            "profile of ROUGE: rouge155, google, plain, unicode, characters."
        ),
    ] = "rouge155",
    stem: Annotated[bool | None, typer.Option("--stem/--no-stem", help="Porter stemming, unlike the profile.")] = None,
    restore_numbers: Annotated[
        bool, typer.Option("--restore-numbers", help="Score a written ## as a number of that length in the document.")
    ] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD:FROM-TO", help="An extractive method at several sizes, such as lead:1-5."),
    ] = None,
    by_length: Annotated[
        str | None,
        typer.Option(metavar="N|A,B,...", help="Also score by document length: N equal buckets, or where they begin."),
    ] = None,
    copying: Annotated[
        bool, typer.Option("--copying", help="Also a table of what is copied: rightly, and without need.")
    ] = False,
    search: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Decoding setting.")] = None,
    document_column: Annotated[str | None, typer.Option(help="Name of the document's column.")] = None,
    summary_column: Annotated[str | None, typer.Option(help="Name of the summary's column.")] = None,
    data_format: Annotated[str, typer.Option("--format", help="Format of the data; detected by default.")] = "auto",
    min_human_score: Annotated[
        int | None, typer.Option(min=1, max=5, help="Only pairs that people rated so high (LCSTS: 3).")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count bad records.")] = False,
    device: Annotated[str, typer.Option(help="Device of the models, such as cpu or cuda.")] = "cpu",
    trust_code: TrustCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Summarize a data set with each system and print ROUGE, copying, repetition and length.

    Interrupted with --output, the same command goes on where it stopped. Marks compare with the first system.
    """
    overrides = parse_overrides(search or [])
    overrides = overrides.get("search", overrides)
    from laconic.evaluation.run import options_of
    from laconic.evaluation.systems import Contender
    from laconic.study.breakdown import sweep_names
    from laconic.systems.extractive import check_name, is_method

    sweeps = {spec: sweep_names(spec) for spec in sweep or []}
    names = list(dict.fromkeys([*(systems or []), *(name for group in sweeps.values() for name in group)]))
    if not names:
        raise ConfigError("Name a model or an extractive method to score, or give --sweep lead:1-5.")
    for name in names:
        check_name(name)
    if overrides and all(map(is_method, names)):
        raise ConfigError("--set changes how models decode, and none of these systems is a model: leave it out.")
    scoring = EvaluationConfig(
        profile=profile,
        batch_size=batch_size,
        rouge={} if stem is None else {"stem": stem},
        restore_numbers=restore_numbers,
    )
    options = options_of(scoring)
    path = split_of(data, split)
    reading = ReadOptions(data_format, document_column, summary_column, skip_bad, min_human_score=min_human_score)
    report = Report(path, _records(path, reading, max_records), options, sweeps, by_length, copying)
    for name in names:
        report.add(name, Contender(name, settings={} if is_method(name) else overrides, device=device), output)
    content = report.as_dict()
    if output:
        (output / "scores.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(content, indent=2, ensure_ascii=False) if as_json else report.text())


class Report:
    """The scores as they come in: one table, sweeps, and tables by document length."""

    def __init__(
        self,
        path: str,
        records: Sequence[Record],
        options: EvaluationOptions,
        sweeps: Mapping[str, Sequence[str]],
        by_length: str | None,
        copying: bool = False,
    ) -> None:
        from laconic.study.breakdown import buckets

        self.path, self.records, self.options, self.sweeps = path, records, options, sweeps
        self.copying = copying
        self.buckets: list[Bucket] = buckets(records, by_length) if by_length else []
        self.results: dict[str, EvaluationResult] = {}
        self.lengths: dict[str, list[EvaluationResult]] = {}

    def add(self, name: str, system: Contender, output: Path | None) -> None:
        """Decode with one system, or read what an earlier call decoded, and score."""
        from laconic.evaluation.run import predict, score
        from laconic.study.breakdown import by_length

        records, options = self.records, self.options
        out = output / f"{_file_name(name)}.predictions.jsonl" if output else None
        with progress(f"Evaluating {name}", total=len(records)) as bar:
            lines, seconds = predict(system, records, batch_size=options.batch_size, out=out, progress=bar.advance)
        unk = system.unk_text
        self.results[name] = score(system.name, records, lines, options=options, unk_text=unk, seconds=seconds)
        if self.buckets:
            self.lengths[name] = by_length(name, records, lines, self.buckets, options=options, unk_text=unk)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        from laconic.study.breakdown import as_dicts
        from laconic.study.tables import compared

        content: dict[str, Any] = {"data": self.path, "systems": compared(list(self.results.values()))}
        if self.sweeps:
            content["sweeps"] = [{"sweep": spec, "best": best} for spec, best in self._best().items()]
        if self.buckets:
            content["by_length"] = as_dicts(self.buckets, self.lengths)
        return content

    def text(self) -> str:
        """For people."""
        from laconic.study.breakdown import best_lines
        from laconic.study.tables import COPYING_NOTE, copy_table, result_row, result_table

        header, rows, notes = result_table(list(self.results.values()))
        parts = [aligned(header, rows), ""]
        if self.copying:
            parts += [aligned(*copy_table(map(result_row, self.results.values()))), COPYING_NOTE, ""]
        if self.sweeps:
            parts += [*best_lines(self._best(), self.results), ""]
        if self.buckets:
            parts += [self._length_table(), ""]
        return "\n".join([*parts, f"{self.path}: {len(self.records)} records", *notes])

    def _best(self) -> dict[str, dict[str, str]]:
        from laconic.study.breakdown import best_of

        return {spec: best_of([self.results[name] for name in names]) for spec, names in self.sweeps.items()}

    def _length_table(self) -> str:
        from laconic.study.tables import MEASURES, measure_column, result_row

        shown = [measure_column(measure) for measure in MEASURES if measure[0].startswith(("repeated", "words"))]
        kinds = [f"ROUGE-{kind}" for kind in self.options.kinds]
        header = ["document words", "system", "documents", *kinds, *[column.heading for column in shown]]
        rows = []
        for place, bucket in enumerate(self.buckets):
            for name, results in self.lengths.items():
                figures = [f"{100 * results[place].value(kind):.2f}" for kind in self.options.kinds]
                first = f"{bucket.name} (mean {bucket.mean:,.1f})"
                cells = [column.cell(result_row(results[place])) for column in shown]
                rows.append([first, name, f"{len(bucket.places):,}", *figures, *cells])
        return aligned(header, rows, left=2)


def _records(path: str, reading: ReadOptions, most: int | None) -> list[Record]:
    skipped = SkipCounter()
    records = list(islice(read_with(path, reading, on_skip=skipped, on_choice=_note), most))
    if skipped.total:
        _note(skipped.describe())
    if not records:
        raise DataError(f"{path} holds no records.")
    return records


def _note(text: str) -> None:
    if not quiet():
        print(text, file=sys.stderr)


def _file_name(system: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in system).strip("-.") or "system"
