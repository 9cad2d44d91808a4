"""``catchline evaluate``: one table of trained models and extractive methods on one data set."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import aligned, check_folder, print_result, progress, records_of
from catchline.cli.options import (
    AsJson,
    Device,
    MaxRecords,
    MinHumanScore,
    MostAtOnce,
    PromptOptions,
    ReadingOptions,
    SearchSettings,
    Split,
    TrustCode,
    search_settings,
)
from catchline.config.schema import EvaluationConfig
from catchline.data.records import split_of
from catchline.errors import ConfigError
from catchline.evaluation.report import compared, csv_text, latex
from catchline.evaluation.run import EvaluationResult, evaluate_system, file_name, identity, open_system
from catchline.evaluation.table import cells, copy_table, notes, table_of_results
from catchline.files import only_here, write_json, write_text
from catchline.metrics.scoring import check_scoring
from catchline.summarizer.extractive import check_name, is_method, meaning
from catchline.summarizer.summarize import LANGUAGE_MODEL


def command(
    data: Annotated[str, Option(help="A file of records, or a folder with one file per split.")],
    systems: Annotated[
        list[str] | None,
        Argument(metavar="MODEL_OR_METHOD...", help="Model or run folders, hub ids, extractive methods."),
    ] = None,
    *,
    split: Split = "validation",
    output: Annotated[Path | None, Option(help="Write predictions and scores to this folder.")] = None,
    batch_size: MostAtOnce = None,
    max_records: MaxRecords = None,
    profile: Annotated[
        str | None,
        Option(
            help="gigaword, duc2004, lcsts, cnn-plain, cnndm, cnndm-first, samsum: as papers score that data. Or a "
            "profile of ROUGE: rouge155, google, plain, unicode, characters; if not given rouge155, or unicode where "
            "most references are of another script than Latin."
        ),
    ] = None,
    stem: Annotated[bool | None, Option("--stem/--no-stem", help="Override the profile's stemming.")] = None,
    restore_numbers: Annotated[
        bool, Option("--restore-numbers", help="Replace a written ## by a number of that length from the document.")
    ] = False,
    copying: Annotated[bool, Option("--copying", help="Add correct copying and over-copying.")] = False,
    search: SearchSettings = None,
    prompting: PromptOptions,
    reading: ReadingOptions,
    min_human_score: MinHumanScore = None,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Summarize a data set with each system and print ROUGE, copying, repetition and length.

    Interrupted with --output, the same command continues where it stopped. Marks compare with the first system.
    """
    settings = search_settings(search)
    check_folder(output)
    if not systems:
        raise ConfigError("Name a model or an extractive method to score, such as lead-3.")
    named = dict[str, str]()  # each once, by the name that it has first
    for name in systems:
        check_name(name)
        named.setdefault(meaning(name), name)
    names = list(named.values())
    prompted = dict.fromkeys((one for one in names if one.startswith(LANGUAGE_MODEL)), prompting.settings(names, data))
    if settings and all(is_method(name) or name in prompted for name in names):
        raise ConfigError("--set changes how models decode, and none of these systems is a model: leave it out.")
    files: dict[str, str] = {}
    for name in names if output else ():
        if (other := files.setdefault(file_name(name).lower(), name)) != name:
            raise ConfigError(f"The predictions of {other} and {name} would go to one file; give one its full path.")
    rouge = {} if stem is None else {"stem": stem}
    config = EvaluationConfig(profile=profile, restore_numbers=restore_numbers, rouge=rouge)
    check_scoring(profile, rouge)
    path = split_of(data, split)
    records = records_of(path, reading.options(min_human_score=min_human_score), max_records)
    results: list[EvaluationResult] = []
    drafts: list[Path] = []  # of systems that are decoded: the next call decodes none again
    with only_here(output) if output else nullcontext():
        for name in names:
            system = open_system(name, prompted.get(name, None if is_method(name) else settings), device)
            how: dict[str, Any] = {"name": name, "config": config, "batch_size": batch_size, "keep": drafts.append}
            how["out"] = output / f"{file_name(name)}.predictions.jsonl" if output else None
            with progress(f"Evaluating {name}", total=len(records)) as bar:
                about = identity(system, name)
                results.append(evaluate_system(system, records, about=about, progress=bar, **how))
        table = table_of_results(results, path)
        content = {"data": path, "systems": compared(table, results)}
        if output:
            write_json(output / "scores.json", content, indent=2)
            write_text(output / "scores.csv", csv_text(table))
            write_text(output / "scores.tex", latex(table))
        for draft in drafts:
            draft.unlink()
    parts = [aligned(*cells(table)), "", *([aligned(*copy_table(table)), ""] if copying else [])]
    print_result(as_json, content, "\n".join([*parts, *notes(table)]))
