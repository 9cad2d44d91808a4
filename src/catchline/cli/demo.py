"""``catchline demo``: what the model in the box writes at once, what a few minutes of training make of it, and what
they make of nothing; without a network.

The corpus are the docstrings of the installed Python packages: the body is the document, the first line the
summary, and no package is in two splits, nor is one that the model in the box learnt from held out. Every step keeps
what it made, so the command can be interrupted and repeated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from catchline.cli.inputs import TEXT_SUFFIXES, documents_of
from catchline.cli.output import aligned, note, progress, show_summaries
from catchline.cli.own_data import calibrated
from catchline.config.loading import load_recipe, merge, read_run, resolve_run, with_absolute_paths
from catchline.config.schema import RunConfig
from catchline.config.shipped import DEFAULT, default_model, place_of
from catchline.data.readers import read_records
from catchline.evaluation.run import EvaluationResult, evaluate
from catchline.evaluation.systems import Contender
from catchline.explain.html import Curves, Prose, Samples, Section, Table, render_report
from catchline.study.corpora.docstrings import build_corpus, learnt_packages
from catchline.study.tables import result_table
from catchline.summarizer import Summarizer
from catchline.text.control import safe_print as print
from catchline.types import Record, Summary, references_of

RECIPE, ROW, SIZE = "headline_writer", "pointer-generator-coverage", "demo"
SCRATCH, TUNED = "from scratch", f"{DEFAULT}, fine-tuned"
FOLDERS = {TUNED: "finetuned", SCRATCH: "run"}
BASELINES = ("lead-1", "first_words", "lexrank-1", "textrank-1", "lsa-1", "luhn-1", "sumbasic-1")
NUM_SAMPLES, NUM_CALIBRATED = 8, 300

TEXT = (
    "Tidepool is a small monitor for home weather stations. It reads temperature, humidity, rain and wind from sensors "
    "attached over USB or a serial line, stores the readings in an SQLite database, and draws charts in the browser."
)


def command(
    text: Annotated[str | None, Argument(help="A text to summarize, or its file.")] = None,
    out: Annotated[Path, Option(help="Folder for corpus, run, scores and report.html.")] = Path("demo"),
    minutes: Annotated[float, Option(min=0.01, help="Time for each of the two trainings.")] = 6.0,
    size: Annotated[str, Option(help=f"Size of the recipes: {SIZE}, or tiny to see that it runs.")] = SIZE,
    max_train: Annotated[int | None, Option(min=1, help="Train on the first pairs only.")] = None,
    max_test: Annotated[int, Option(min=1, help="Score on this many pairs of held-out packages.")] = 1000,
) -> None:
    """Summarize with the model in the box, fine-tune it on the docstrings installed here, compare, write report.html.

    It is compared with itself as it came, with a model trained from nothing in the same time, and with sentences of the
    text, on packages that none of them saw. Repeated, the command uses the corpus again and goes on where it stopped.
    """
    started_at = time.perf_counter()
    document = (text if text is not None else TEXT).strip()
    if os.path.exists(document) or (len(document.split()) == 1 and Path(document).suffix.lower() in TEXT_SUFFIXES):
        document = next(documents_of(document)).document.strip()
    if not document:
        raise BadParameter("The text to summarize is empty.")
    boxed = default_model(lambda text: note(f"{text} The demo trains from nothing.")) == DEFAULT
    corpus = out / "corpus"
    runs = _runs(corpus, size, minutes, max_train, boxed)
    heading = "Your text" if text else "A text of our own"
    own: list[Summary] = []
    if boxed:
        own.append(Summarizer.from_pretrained(DEFAULT).explain(document))
        print(f"{heading}, by the model in the box\n")
        show_summaries(own, document=True)
    if not (corpus / "test.jsonl").is_file():
        seen = learnt_packages() if boxed else ()
        with progress("Collecting docstrings") as bar:
            build_corpus(corpus, in_training=seen, progress=bar.update)
    for name, run in runs.items():
        _train(name, run, out / FOLDERS[name])
    held_out = list(read_records(corpus / "test.jsonl"))
    most = min(max_test, len(held_out))
    records = [held_out[index * len(held_out) // most] for index in range(most)]  # of all packages, which stand in turn
    places = {**({DEFAULT: DEFAULT} if boxed else {}), **{name: str(out / FOLDERS[name]) for name in reversed(runs)}}
    systems = [*map(Contender, BASELINES), *(Contender(place, name=name) for name, place in places.items())]
    results = []
    for number, system in enumerate(systems):
        with progress(f"Scoring {system.name}", total=len(records)) as bar:
            scored = out / "scores" / f"{number}.jsonl"
            results.append(evaluate(system, records, out=scored, progress=bar.advance))
    verdict = _verdict(results)
    header, rows, notes = result_table(results)
    print("\n".join(["", aligned(header, rows), "", *notes, verdict]))

    best = results[-1].system
    summarizer = Summarizer.from_pretrained(places[best])
    own.append(replace(summarizer.explain(document, always_write=True), model=best))
    print(f"\n{heading}, {best}\n")
    show_summaries(own[-1:], document=True)
    samples = records[:: max(1, len(records) // NUM_SAMPLES)][:NUM_SAMPLES]
    made = summarizer.summarize([record.document for record in samples], explain=True, always_write=True)
    summaries = [replace(summary, model=best) for summary in made]
    report = out / "report.html"
    scores = Table("Held-out packages", header, rows, note=f"{verdict} {notes[0]}")
    folders = {name: out / FOLDERS[name] for name in runs}
    report.write_text(_report(scores, notes[1:], folders, (heading, own), samples, summaries), encoding="utf-8")
    print(f"\n{report}: hover over a word of a summary to see where it came from.")
    note(f"Finished in {(time.perf_counter() - started_at) / 60:.1f} minutes.")


def _runs(corpus: Path, size: str, minutes: float, max_train: int | None, boxed: bool) -> dict[str, RunConfig]:
    """Fine-tuning, where there is something to fine-tune, and the same time from nothing."""
    data = {
        "train": str(corpus / "train.jsonl"),
        "validation": str(corpus / "validation.jsonl"),
        "max_train_records": max_train,
        "max_validation_records": 1000,
    }
    changes: dict[str, Any] = {"data": data, "training": {"max_minutes": minutes}}
    runs = {SCRATCH: resolve_run(load_recipe(RECIPE), ROW, size, changes)}
    if boxed:
        recipe = load_recipe(DEFAULT)
        box = read_run(place_of(DEFAULT) / "recipe.yaml")  # whatever the size: the weights are of this model
        start = {"training": {"initial_weights": DEFAULT}, "model": box.model, "text": box.text.model_dump()}
        chosen = recipe.default_size if size == SIZE else size
        runs = {TUNED: resolve_run(recipe, None, chosen, merge(changes, start)), **runs}
    return runs


def _train(name: str, run: RunConfig, folder: Path) -> None:
    """Train, or go on with the run if it is of the same settings; calibrate."""
    from catchline.training.outlook import with_processes
    from catchline.training.run import train

    recipe, run = folder / "recipe.yaml", with_processes(run)
    same = recipe.is_file() and read_run(recipe) == with_absolute_paths(run)
    minutes = run.training.max_minutes
    note(f"{'Going on with' if same else 'Training'} {name}, for at most {minutes:g} minutes")
    with progress("Training") as bar:
        result = train(run, folder, resume=same, force=not same, progress=bar.update)
    note(f"{result.updates:,} updates, {result.epochs} epochs; the best model is that of update {result.best_update}")
    note(calibrated(folder / "model", list(islice(read_records(str(run.data.validation)), NUM_CALIBRATED))))


def _verdict(results: list[EvaluationResult]) -> str:
    """One sentence on the last model against lead-1 and against each other model, whichever way it went."""
    ours, *others = [results[-1], results[0], *results[len(BASELINES) : -1]]
    parts = []
    for other in others:
        wins = sum(ours.rouge[kind].f > other.rouge[kind].f for kind in ("1", "L"))
        parts.append(("does not beat {}", "beats {} on one measure only", "beats {}")[wins].format(other.system))
    figures = [
        f"ROUGE-{kind} F1 {100 * ours.rouge[kind].f:.2f} against "
        f"{', '.join(f'{100 * other.rouge[kind].f:.2f}' for other in others)}"
        for kind in ("1", "L")
    ]
    return (
        f"On {ours.records:,} docstrings of packages it never saw the model {ours.system} {', '.join(parts)}: "
        f"{'; '.join(figures)}."
    )


def _report(
    scores: Table,
    signatures: Sequence[str],
    folders: Mapping[str, Path],
    own: tuple[str, list[Summary]],
    samples: list[Record],
    summaries: list[Summary],
) -> str:
    from catchline.training.logging import read_curve

    curves: list[Section] = []
    for name, folder in folders.items():
        read = {measure: read_curve(folder, measure) for measure in ("nll", "val_loss_tf")}
        drawn = {key: list(zip(places, values.tolist(), strict=True)) for key, (places, values) in read.items()}
        curves.append(Curves(f"Training {name}", drawn, x_label="update", y_label="nats per word"))
    sections: list[Section] = [
        Samples(own[0], own[1]),
        scores,
        *curves,
        Samples("Docstrings of held-out packages", summaries, [list(references_of(record)) for record in samples]),
        Prose(
            "How this was made",
            [
                "Documents are the bodies of docstrings of the Python packages installed on this machine, summaries "
                "their first lines. No package is in two splits, and none that the model in the box learnt from is "
                "held out.",
                f"Model {SCRATCH}: recipe {RECIPE}, row {ROW}.",
                *([f"Model {TUNED}: recipe {DEFAULT}, from the model in the box."] if TUNED in folders else []),
            ],
            code="\n".join(signatures),
        ),
    ]
    return render_report("Catchline: where each word came from", sections, subtitle="Written by catchline demo")
