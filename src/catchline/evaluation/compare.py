"""Compare systems: train and score the rows of a plan, each once, and put our figures beside the published ones.

What is finished stays in the folder, so that an interrupted comparison continues::

    runs/ROW-seed-N/         run folders, as `catchline train` makes them; rows that differ in decoding only share one
    runs/ROW-seed-N.json     a digest of what decides the training, and whether it is done
    predictions/X-KEY.jsonl  what a system wrote; KEY is made of the system's identity and the records
    scores/X-KEY.json        its scores, one a document too; KEY is also made of the options of the scorer
    state.json               which scores the last table has

A row that fails is noted with its error and the others follow; the next call tries it again. A row that is scored needs
no weights: neither here nor in a comparison that is given this folder as an ``earlier`` one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from catchline.config.loading import read_run
from catchline.config.names import outside_names, sources_of, trusting
from catchline.config.schema import SPLITS, RunConfig
from catchline.data.formats import other_half
from catchline.errors import CatchlineError, ConfigError
from catchline.evaluation.measures import REPEATED, REVISION
from catchline.evaluation.plan import Plan, PlannedRow, settings_of
from catchline.evaluation.run import (
    EvaluationResult,
    file_name,
    fingerprint,
    identity,
    model_folder,
    open_system,
    predict,
    read_lines,
    score,
)
from catchline.evaluation.table import Outcome
from catchline.files import digest_of, write_json
from catchline.metrics.bleu import bleu_paper, corpus_bleu
from catchline.metrics.scoring import check_scoring
from catchline.metrics.words import repeated_ngram_rate, words
from catchline.summarizer.summarize import LANGUAGE_MODEL
from catchline.text.tokenizer import WordTokenizer
from catchline.training.log import LOG, read_log
from catchline.types import Record, references_of

MANIFEST = "manifest.json"  # of spans that were selected
STATE = "state.json"
_UNKNOWN = "<unk>"
_RESULT = TypeAdapter(EvaluationResult)
Scored = tuple[EvaluationResult, dict[str, Any]]  # and what is known of the training


class Comparison:
    """The rows of ``plan`` on ``records``, in the folder ``out``; models run on ``device``.

    ``train(run, folder, resume=, title=)`` trains, ``watch(title, total)`` gives a context manager whose value has
    ``advance``, ``say`` shows messages. Raises ConfigError: a run in ``out`` is of other settings or data.
    """

    def __init__(
        self,
        plan: Plan,
        records: Sequence[Record],
        out: Path,
        *,
        train: Callable[..., object],
        watch: Callable[[str, int], Any],
        say: Callable[[str], object],
        earlier: Sequence[Path] = (),
        device: str = "cpu",
    ) -> None:
        self.plan, self.records, self.out = plan, list(records), out
        self._train, self._watch, self._say = train, watch, say
        self._earlier, self._device = (out, *earlier), device
        check_scoring(plan.evaluation.profile, plan.evaluation.rouge)
        ways = plan.evaluation.model_dump(exclude={"surface"})
        self._ways = [ways, REVISION, fingerprint("", self.records)]
        self._scored: dict[str, dict[str, Any]] = {}
        self._digest_of = cache(digest_of)
        self._keys = {_slug(row, run): self._training_key(run) for row in plan.rows for run in row.runs}
        for slug, key in self._keys.items():
            folder = out / "runs" / slug
            if folder.is_dir() and _noted(folder).get("key") != key:
                advice = f"give another --out, or remove {out}"
                raise ConfigError(f"{folder} was made with other settings, data or files; {advice}.")

    def run(self) -> list[Outcome]:
        """Train and score every row. Failures are in the outcomes; an interruption ends it here and loses nothing."""
        self.out.mkdir(parents=True, exist_ok=True)
        return [self._row(number, row) for number, row in enumerate(self.plan.rows, 1)]

    def _row(self, number: int, row: PlannedRow) -> Outcome:
        outcome = Outcome(row)
        for run in row.runs or (None,):
            seed = "" if run is None or len(row.runs) == 1 else f"seed {run.training.seed}"
            title = ", ".join(filter(None, [f"[{number}/{len(self.plan.rows)}] {row.name}", seed]))
            try:
                result, facts = self._existing(row, title) if run is None else self._trained(row, run, title)
                outcome.scored.append(result)
                outcome.trained.append(facts)
            except Exception as error:  # the other rows are still worth having
                message = str(error) if isinstance(error, CatchlineError) else f"{type(error).__name__}: {error}"
                outcome.errors.append(": ".join(filter(None, [seed, " ".join(message.split())])))
                self._say(f"{title} failed: {message}")
        return outcome

    # -------------------------------------------------------------------------------------- training

    def _training_key(self, run: RunConfig) -> str:
        """A digest of what decides a training; files count by what is in them, not by their places."""
        settings = settings_of(run) | {"row": ""}
        settings["data"] = {key: value for key, value in settings["data"].items() if key not in SPLITS}
        if run.pretraining.enabled:
            settings["pretraining"] = settings["pretraining"] | {"data": None}
        files = [self._digest_of(file) for place in _places_of(run) for file in _files_of(place)]
        return _digest([settings, files])

    def _trained(self, row: PlannedRow, run: RunConfig, title: str) -> Scored:
        """Train and score a run, as far as this comparison and the earlier ones have not."""
        slug, search = _slug(row, run), run.search.model_dump()
        search["surface"] = self.plan.evaluation.surface or run.search.surface
        key = _digest([self._keys[slug], search, *map(digest_of, sources_of(search)), row.name, self._ways])
        if known := self._scored_before(row, slug, key):
            return known
        training, runs = self._keys[slug], self.out / "runs"
        folder = next((path for path in sorted(runs.glob("*/")) if _noted(path).get("key") == training), runs / slug)
        note, resume = folder.with_name(f"{folder.name}.json"), (folder / "recipe.yaml").is_file()
        noted = _noted(folder) if resume else {"key": training}
        write_json(note, noted)  # before the training begins
        if "done" not in noted or not (folder / "model" / "config.json").is_file():
            begun = read_run(folder / "recipe.yaml") if resume else run  # perhaps of a row that decodes otherwise
            self._train(begun, folder, resume=resume, title=f"{title}: training")
            write_json(note, noted | {"done": True})
        facts = {"seed": run.training.seed, **_training_of(str(folder))}
        with trusting(outside_names(run.model_dump())):
            system = open_system(str(folder), search, self._device)
            return self._score(row, slug, key, system, identity(system, str(folder)), facts, title)

    # --------------------------------------------------------------------------------------- scoring

    def _existing(self, row: PlannedRow, title: str) -> Scored:
        """Score a method or a model that was trained before."""
        surface = self.plan.evaluation.surface
        decodes = "type" not in row.settings and not row.place.startswith(LANGUAGE_MODEL)
        settings = ({"surface": surface} if surface and decodes else {}) | dict(row.settings)
        system = open_system(row.place, settings, self._device)
        about, facts = identity(system, row.place), _training_of(row.place)
        key = _digest([about, row.name, self._ways])
        known = self._scored_before(row, row.name, key)
        return known or self._score(row, row.name, key, system, about, facts, title)

    def _scored_before(self, row: PlannedRow, name: str, key: str) -> Scored | None:
        """The scores of a system and what is known of its training, from a comparison that has them."""
        for folder in self._earlier:
            if stored := _read_json(folder / "scores" / f"{file_name(name)}-{key[:16]}.json"):
                self._keep(row, name, key, stored)
                return _RESULT.validate_python(stored["result"]), stored["facts"]
        return None

    def _score(
        self, row: PlannedRow, name: str, key: str, system: Any, about: str, facts: dict[str, Any], title: str
    ) -> Scored:
        out = self.out / "predictions" / f"{file_name(name)}-{fingerprint(about, self.records)[:16]}.jsonl"
        config, seconds = self.plan.evaluation, 0.0
        if not out.is_file():
            with self._watch(f"{title}: scoring", len(self.records)) as bar:
                how: dict[str, Any] = {"out": out, "about": about, "progress": bar.advance}
                _, seconds = predict(system, self.records, **how)
        lines, unk = read_lines(out), system.system.unk_text
        result = score(name, self.records, lines, config=config, unk_text=unk, seconds=seconds)
        result = with_bleu(result, self.records, lines)
        self._keep(row, name, key, {"result": asdict(result), "facts": facts})
        return result, facts

    def _keep(self, row: PlannedRow, name: str, key: str, stored: dict[str, Any]) -> None:
        """Note the scores of a system, and that this table has them."""
        file = f"{file_name(name)}-{key[:16]}.json"
        write_json(self.out / "scores" / file, stored)
        self._scored[key] = {"row": row.name, "scores": file, "facts": stored["facts"]}
        write_json(self.out / STATE, {"scored": self._scored})


def with_bleu(
    result: EvaluationResult, records: Sequence[Record], predictions: Sequence[Mapping[str, Any]]
) -> EvaluationResult:
    """Add to ``result`` BLEU, sacreBLEU's (0 to 100) and the headline paper's (0 to 1, over the lower-cased words and
    signs of a word tokenizer, unknown words kept), and to what it has by document the share of repeated 2-grams."""
    hypotheses = [str(line["summary"]) for line in predictions]
    references = [list(references_of(record)) for record in records]
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1, unknown_marks=(_UNKNOWN,)))
    tokenizer.train([_UNKNOWN])
    cut = [[list(tokenizer.encode(text).tokens) for text in texts] for texts in (hypotheses, *references)]
    paper = bleu_paper(cut[0], cut[1:], [bool(line.get("finished", True)) for line in predictions])
    bleu, signature = corpus_bleu(hypotheses, references)
    repeated = tuple(repeated_ngram_rate(words(text), 2) or 0.0 for text in hypotheses)
    measures = {**result.measures, "bleu": bleu, "bleu_paper": paper}
    scores = {**result.per_document, REPEATED[2]: repeated}
    return replace(result, measures=measures, per_document=scores, bleu_signature=signature)


def kept_scores(folder: Path) -> dict[str, list[EvaluationResult]]:
    """What the last table of ``folder`` has of trained rows, by row, one a seed."""
    found: dict[str, dict[int, EvaluationResult]] = {}
    for entry in _read_json(folder / STATE).get("scored", {}).values():
        if "seed" in (entry["facts"] or {}):
            stored = _read_json(folder / "scores" / entry["scores"])
            found.setdefault(entry["row"], {})[entry["facts"]["seed"]] = _RESULT.validate_python(stored["result"])
    return {row: list(seeds.values()) for row, seeds in found.items()}


def _places_of(run: RunConfig) -> list[Path]:
    """The files and folders that a run uses: pairs, those of its pre-training stage, initial weights, word vectors,
    the tokenizer's file, code from outside."""
    stage = run.pretraining.data if run.pretraining.enabled else None
    weights = run.training.initial_weights
    places: list[Any] = [run.data.train, run.data.validation, stage, weights and model_folder(weights)]
    places += [run.text.pretrained_embeddings, run.text.tokenizer.get("path"), *sources_of(settings_of(run))]
    return [Path(place) for place in places if place is not None]


def _files_of(place: Path) -> list[Path]:
    if place.is_dir():
        found = (path for path in place.rglob("*") if path.is_file() and not path.name.startswith("."))
        return sorted(path for path in found if path.name != MANIFEST)  # which says how spans were selected
    return [file for file in (place, other_half(place)[0]) if file and file.is_file()]


def _training_of(place: str) -> dict[str, Any]:
    """What a run or model folder says of its training: validation losses, and ``train_loss`` with its part
    ``train_loss_nll``, means of the logged losses over the last pass over the data."""
    model = model_folder(place)
    log = model.parent / LOG
    lines = [line for line in read_log(log) if line.get("kind") == "train"] if log.is_file() else []
    last = [line for line in lines if line["epoch"] > lines[-1]["epoch"] - 1]
    losses = {
        ours: fmean(line[name] for line in last)
        for ours, name in (("train_loss", "loss"), ("train_loss_nll", "nll"))
        if last and all(name in line for line in last)
    }
    return {"metrics": _read_json(model / "metrics.json").get("validation", {}), **losses}


def _noted(run: Path) -> dict[str, Any]:
    """What is known of a run folder of a comparison."""
    return _read_json(run.with_name(f"{run.name}.json"))


def _slug(row: PlannedRow, run: RunConfig) -> str:
    return file_name(f"{row.name}-seed-{run.training.seed}")


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is no file, or one that cannot be read."""
    with suppress(FileNotFoundError, ValueError):
        values = json.loads(path.read_text(encoding="utf-8"))
        return values if isinstance(values, dict) else {}
    return {}
