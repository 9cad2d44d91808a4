"""``laconic demo``: from nothing to an explained headline in a few minutes, without a network.

The corpus are the docstrings of the installed Python packages: the body is the document, the first line the
summary, and no package is in two splits. Every step keeps what it made, so the command can be interrupted and
repeated.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laconic.cli.progress import progress, quiet
from laconic.cli.tables import aligned
from laconic.config.loading import load_recipe, read_run, resolve_run, with_absolute_paths
from laconic.text.control import safe_print as print

if TYPE_CHECKING:
    from laconic.config.schema import RunConfig
    from laconic.evaluation.run import EvaluationResult
    from laconic.types import Record, Summary

RECIPE, ROW = "headline_writer", "pointer-generator-coverage"
NAME = "pointer-generator + coverage"
BASELINES = ("lead-1", "first_words", "lexrank-1", "textrank-1", "lsa-1", "luhn-1", "sumbasic-1")
NUM_SAMPLES = 8

TEXT = (
    "The pool keeps a fixed number of connections open and hands them out one at a time. A caller that asks for a "
    "connection while all of them are taken waits until another caller gives one back. If that takes longer than the "
    "timeout, an error is raised. Connections that nobody has used for a while are closed in the background and "
    "opened again when they are needed."
)


def command(
    text: Annotated[str | None, typer.Argument(help="A text to summarize with the trained model.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for corpus, run, scores and report.html.")] = Path("demo"),
    minutes: Annotated[float, typer.Option(min=0.01, help="Time for training.")] = 6.0,
    size: Annotated[str, typer.Option(help="Size of the recipe.")] = "demo",
    max_train: Annotated[int | None, typer.Option(min=1, help="Train on the first pairs only.")] = None,
    max_test: Annotated[int, typer.Option(min=1, help="Score on this many pairs of held-out packages.")] = 1000,
) -> None:
    """Train on the docstrings installed here, score on packages never seen, and write report.html.

    Repeated, it uses the corpus again and goes on training where it stopped.
    """
    started_at = time.perf_counter()
    document = (text if text is not None else TEXT).strip()
    if not document:
        raise typer.BadParameter("The text to summarize is empty.")
    corpus = _corpus(out / "corpus")
    run = _run(corpus, size, minutes, max_train)
    folder = out / "run"
    _train(run, folder)
    records = _test_records(corpus, max_test)
    results = _evaluate(folder, records, out / "scores")
    verdict = _verdict(results)
    print(_table(results, records, verdict))

    from rich.console import Console

    from laconic.explain.terminal import show
    from laconic.summarizer import Summarizer

    summarizer = Summarizer.from_pretrained(str(folder / "model"))
    own = summarizer.explain(document)
    heading = "Your text" if text else "A text of our own"
    print(f"\n{heading}\n")
    show(own, Console(), words=True, document=True)
    samples = records[:: max(1, len(records) // NUM_SAMPLES)][:NUM_SAMPLES]
    summaries = list(summarizer.summarize([record.document for record in samples], explain=True))
    report = out / "report.html"
    page = _report(results, verdict, folder, (heading, own), samples, summaries)
    report.write_text(page, encoding="utf-8")
    print(f"\n{report}: hover over a word of a summary to see where it came from.")
    _note(f"Finished in {(time.perf_counter() - started_at) / 60:.1f} minutes.")


def _corpus(folder: Path) -> Path:
    """Build the corpus unless it is there."""
    from laconic.data.docstrings import build_corpus

    if not (folder / "test.jsonl").is_file():
        with progress("Collecting docstrings") as bar:
            build_corpus(folder, progress=lambda done, total: bar.update(done, total=total))
    return folder


def _run(corpus: Path, size: str, minutes: float, max_train: int | None) -> RunConfig:
    data = {
        "train": str(corpus / "train.jsonl"),
        "validation": str(corpus / "validation.jsonl"),
        "max_train_records": max_train,
        "max_validation_records": 1000,
    }
    return resolve_run(load_recipe(RECIPE), ROW, size, {"data": data, "training": {"max_minutes": minutes}})


def _train(run: RunConfig, folder: Path) -> None:
    """Train, or go on with the run if it is of the same settings."""
    from laconic.training.loop import train

    recipe = folder / "recipe.yaml"
    same = recipe.is_file() and read_run(recipe) == with_absolute_paths(run)
    minutes = run.training.max_minutes
    _note(f"{'Going on with' if same else 'Training'} {NAME}, for at most {minutes:g} minutes")
    with progress("Training") as bar:
        result = train(run, folder, resume=same, force=not same, progress=bar)
    _note(f"{result.updates:,} updates, {result.epochs} epochs; the best model is that of update {result.best_update}")


def _test_records(corpus: Path, most: int) -> list[Record]:
    """Pairs spread evenly over the held-out packages, which stand one after the other in the file."""
    from laconic.data.readers import read_records

    records = list(read_records(corpus / "test.jsonl"))
    if len(records) <= most:
        return records
    return [records[index * len(records) // most] for index in range(most)]


def _evaluate(folder: Path, records: list[Record], scores: Path) -> list[EvaluationResult]:
    from laconic.evaluation.models import open_model
    from laconic.evaluation.run import evaluate
    from laconic.evaluation.systems import ExtractiveSystem, System

    systems: list[System] = [ExtractiveSystem(name) for name in BASELINES]
    systems.append(open_model(str(folder), name=NAME))
    results = []
    for number, system in enumerate(systems):
        with progress(f"Scoring {system.name}", total=len(records)) as bar:
            out = scores / f"{number}.jsonl"
            results.append(evaluate(system, records, out=out, progress=bar.advance))
    return results


def _verdict(results: list[EvaluationResult]) -> str:
    """One sentence on the trained model against lead-1, whichever way it went."""
    ours, lead = results[-1], results[0]
    parts, wins = [], 0
    for kind in ("1", "L"):
        ahead = ours.rouge[kind].f - lead.rouge[kind].f
        wins += ahead > 0
        parts.append(f"ROUGE-{kind} F1 {100 * ours.rouge[kind].f:.2f} against {100 * lead.rouge[kind].f:.2f}")
    said = {2: "beats lead-1", 1: "beats lead-1 on one measure only", 0: "does not beat lead-1"}[wins]
    return f"The trained model {said} on {ours.records:,} docstrings of packages it never saw: {', '.join(parts)}."


def _table(results: list[EvaluationResult], records: list[Record], verdict: str) -> str:
    from laconic.evaluation.compare import result_table

    header, rows, notes = result_table(results)
    return "\n".join(["", aligned(header, rows), "", *notes, verdict])


def _report(
    results: list[EvaluationResult],
    verdict: str,
    folder: Path,
    own: tuple[str, Summary],
    samples: list[Record],
    summaries: list[Summary],
) -> str:
    from laconic.evaluation.compare import result_table
    from laconic.explain.html import Curves, Prose, Samples, Section, Table, render_report
    from laconic.training.curves import read_curve
    from laconic.types import references_of

    header, rows, notes = result_table(results)
    drawn = {}
    for name in ("nll", "val_loss_tf"):
        places, values = read_curve(folder, name)
        drawn[name] = list(zip(places, values.tolist(), strict=True))
    sections: list[Section] = [
        Samples(own[0], [own[1]]),
        Table("Held-out packages", header, rows, note=f"{verdict} {notes[0]}"),
        Curves("Training", drawn, x_label="update", y_label="nats per word"),
        Samples("Docstrings of held-out packages", summaries, [list(references_of(record)) for record in samples]),
        Prose(
            "How this was made",
            [
                "Documents are the bodies of docstrings of the Python packages installed on this machine, summaries "
                "their first lines. No package is in two splits.",
                f"Model: recipe {RECIPE}, row {ROW}.",
            ],
            code="\n".join(notes[1:]),
        ),
    ]
    return render_report("Laconic: where each word came from", sections, subtitle="Written by laconic demo")


def _note(text: str) -> None:
    if not quiet():
        print(text, file=sys.stderr, flush=True)
