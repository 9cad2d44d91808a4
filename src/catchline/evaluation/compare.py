"""Compare systems: train and score the rows of a plan, each once, and put our figures beside the published ones.

What is finished stays in the folder of the comparison, so that an interrupted one continues::

    state.json               the runs that are trained, and which scores belong to which settings, pairs and records
    runs/ROW-seed-N/         run folders, as `catchline train` makes them; rows that differ in decoding only share one
    predictions/X-KEY.jsonl  what a system wrote; KEY is made of the system's identity and the records
    scores/X-KEY.json        its scores, one a document too; KEY is also made of the options of the scorer

A row that fails is noted with its error and the others follow; the next call tries it again. A row that is scored needs
no weights: neither here nor in a comparison that is given this folder as an ``earlier`` one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from catchline.config.loading import first_difference, read_run
from catchline.config.names import outside_names, sources_of, trusting
from catchline.config.schema import SPLITS, RunConfig
from catchline.data.formats import pair_of_prefix, pair_partner
from catchline.errors import CatchlineError, ConfigError
from catchline.evaluation.measures import REPEATED, REVISION
from catchline.evaluation.plan import Plan, PlannedRow, settings_of
from catchline.evaluation.report import KINDS, Outcome
from catchline.evaluation.run import (
    EvaluationResult,
    RougeScore,
    file_name,
    fingerprint,
    identity,
    model_folder,
    open_system,
    options_of,
    predict,
    read_lines,
    score,
)
from catchline.files import digest_of, sha256, write_json
from catchline.metrics.bleu import bleu_paper, corpus_bleu
from catchline.metrics.copying import repeated_ngram_rate
from catchline.metrics.words import words
from catchline.text.tokenizer import WordTokenizer
from catchline.training.log import LOG, read_log
from catchline.types import Record, references_of

MANIFEST = "manifest.json"  # of spans that were selected
_UNKNOWN = "<unk>"


@dataclass(frozen=True, slots=True)
class ComparisonCallbacks:
    """What the caller provides: how to train (``train(run, folder, resume=, title=)`` gives a `TrainResult`), how to
    show progress (``watch(title, total)`` gives a context manager whose value has ``advance``), and what shows
    messages."""

    train: Callable[..., Any]
    watch: Callable[[str, int], Any]
    say: Callable[[str], object]


class Comparison:
    """The rows of ``plan`` on ``records``, in the folder ``out``; models run on ``device``.

    Raises:
        ConfigError: a run in ``out`` is of other settings or data.
    """

    def __init__(
        self,
        plan: Plan,
        records: Sequence[Record],
        out: Path,
        callbacks: ComparisonCallbacks,
        earlier: Sequence[Path] = (),
        device: str = "cpu",
    ) -> None:
        self.plan, self.records, self.out, self.callbacks = plan, list(records), out, callbacks
        self._earlier, self._device = (out, *earlier), device
        self._options = replace(options_of(plan.evaluation), kinds=KINDS)
        self._ways = [asdict(replace(self._options, batch_size=0)), REVISION, fingerprint("", self.records)]
        self._state = {"runs": {}, "scored": {}} | (_read_json(out / "state.json") or {}) | {"table": []}
        self._digest_of = cache(digest_of)
        self._keys = {_slug(row, run): self._training_key(run) for row in plan.rows for run in row.runs}
        self._places = self._shared_places()

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
                scored, facts = self._existing(row, title) if run is None else self._trained(row, run, title)
                outcome.scored.append(scored)
                outcome.trained += [facts] if facts else []
            except Exception as error:  # the other rows are still worth having
                message = str(error) if isinstance(error, CatchlineError) else f"{type(error).__name__}: {error}"
                outcome.errors.append(": ".join(filter(None, [seed, " ".join(message.split())])))
                self.callbacks.say(f"{title} failed: {message}")
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

    def _shared_places(self) -> dict[str, str]:
        """The run folder of each row and seed: that of the first whose training is the same."""
        runs, places = self._state["runs"], dict[str, str]()
        folders = {noted["key"]: slug for slug, noted in runs.items() if (self.out / "runs" / slug).is_dir()}
        for row in self.plan.rows:
            for run in row.runs:
                slug = _slug(row, run)
                recipe = self.out / "runs" / slug / "recipe.yaml"
                if recipe.is_file():
                    found = first_difference(settings_of(read_run(recipe)), settings_of(run))
                    if found or runs.get(slug, {}).get("key", self._keys[slug]) != self._keys[slug]:
                        what = f"other settings ({found})" if found else "other data or files"
                        advice = f"give another --out, or remove {self.out}"
                        raise ConfigError(f"{recipe.parent} was made with {what}; {advice}.")
                places[slug] = folders.setdefault(self._keys[slug], slug)
        return places

    def _trained(self, row: PlannedRow, run: RunConfig, title: str) -> tuple[EvaluationResult, dict[str, Any]]:
        """Train and score a run, as far as this comparison and the earlier ones have not."""
        slug = _slug(row, run)
        place, runs = self._places[slug], self._state["runs"]
        surface = self.plan.evaluation.surface or run.search.surface
        search = run.search.model_dump() | {"surface": surface}
        key = _digest([self._keys[slug], search, *map(digest_of, sources_of(search)), row.name, self._ways])[:32]
        if known := self._scored_before(key):
            return known
        folder = self.out / "runs" / place
        resume = (folder / "recipe.yaml").is_file()
        if place not in runs or not resume:  # what is noted without a run folder is of one that was removed
            runs[place] = {"key": self._keys[slug], "settings": settings_of(run)}
            self._save()
        if "result" not in runs[place] or not (folder / "model" / "config.json").is_file():
            begun = read_run(folder / "recipe.yaml") if resume else run  # perhaps of a row that decodes otherwise
            result = self.callbacks.train(begun, folder, resume=resume, title=f"{title}: training")
            runs[place]["result"] = asdict(result)
            self._save()
        facts = {"seed": run.training.seed, **runs[place]["result"], **_last_training_losses(folder)}
        with trusting(outside_names(run.model_dump())):
            system = open_system(str(folder), search, self._device)
            return self._score(key, system, identity(system, str(folder)), row.name, slug, facts, title)

    # --------------------------------------------------------------------------------------- scoring

    def _existing(self, row: PlannedRow, title: str) -> tuple[EvaluationResult, dict[str, Any] | None]:
        """Score a method or a model that was trained before."""
        settings, place = row.method, row.place or row.name
        if settings is None:
            surface = self.plan.evaluation.surface
            settings = ({} if surface is None else {"surface": surface}) | dict(row.search)
        system = open_system(place, settings, self._device)
        about, facts = identity(system, place), _training_of(Path(row.place)) if row.place else None
        key = _digest([about, row.name, self._ways])[:32]
        return self._scored_before(key) or self._score(key, system, about, row.name, row.name, facts, title)

    def _scored_before(self, key: str) -> Any:
        """The scores of a system and what is known of its training, from a comparison that has them."""
        for folder in self._earlier:
            entry = (_read_json(folder / "state.json") or {}).get("scored", {}).get(key)
            if entry and (stored := _read_json(folder / "scores" / entry["scores"])):
                self._keep(key, entry, stored)
                return _result_from(stored), entry["facts"]
        return None

    def _keep(self, key: str, entry: dict[str, Any], stored: dict[str, Any]) -> None:
        """Note the scores of a system, and that this table has them."""
        write_json(self.out / "scores" / entry["scores"], stored)
        self._state["scored"][key] = entry
        self._state["table"].append(key)
        self._save()

    def _save(self) -> None:
        write_json(self.out / "state.json", self._state)

    def _score(self, key: str, system: Any, about: str, row: str, name: str, facts: Any, title: str) -> Any:
        made = fingerprint(about, self.records)
        out = self.out / "predictions" / f"{file_name(name)}-{made[:16]}.jsonl"
        seconds = 0.0
        if not out.is_file():
            with self.callbacks.watch(f"{title}: scoring", len(self.records)) as bar:
                how: dict[str, Any] = {"out": out, "about": about, "progress": bar.advance}
                _, seconds = predict(system, self.records, options=self._options, **how)
        lines, unk = read_lines(out), system.system.unk_text
        result = score(name, self.records, lines, options=self._options, unk_text=unk, seconds=seconds)
        result = with_bleu(result, self.records, lines)
        entry = {
            "row": row,
            "scores": f"{file_name(name)}-{key[:16]}.json",
            "run": self._places.get(name),
            "facts": facts,
        }
        self._keep(key, entry, {"result": asdict(result)})
        return result, facts


def with_bleu(
    result: EvaluationResult, records: Sequence[Record], predictions: Sequence[Mapping[str, Any]]
) -> EvaluationResult:
    """Add to ``result`` BLEU, sacreBLEU's (0 to 100) and the headline paper's (0 to 1), and to what it has by document
    the share of repeated 2-grams."""
    hypotheses = [str(line["summary"]) for line in predictions]
    references = [list(references_of(record)) for record in records]
    paper = paper_bleu(hypotheses, references, [bool(line.get("finished", True)) for line in predictions])
    bleu, signature = corpus_bleu(hypotheses, references)
    repeated = tuple(repeated_ngram_rate(words(text), 2) or 0.0 for text in hypotheses)
    measures = {**result.measures, "bleu": bleu, "bleu_paper": paper}
    scores = {**result.per_document, REPEATED[2]: repeated}
    return replace(result, measures=measures, per_document=scores, bleu_signature=signature)


def paper_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], finished: Sequence[bool]) -> float:
    """The headline paper's BLEU, over the lower-cased words and signs of a word tokenizer, unknown words kept."""
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1, unknown_marks=(_UNKNOWN,)))
    tokenizer.train([_UNKNOWN])
    cut = [[list(tokenizer.encode(text).tokens) for text in texts] for texts in (hypotheses, *references)]
    return bleu_paper(cut[0], cut[1:], finished)


def kept_scores(folder: Path) -> dict[str, list[EvaluationResult]]:
    """What the last table of ``folder`` has of trained rows, by row, one a seed; all scores if that is not known."""
    found: dict[str, dict[int, EvaluationResult]] = {}
    state = _read_json(folder / "state.json") or {}
    for entry in map(state.get("scored", {}).get, state.get("table", state.get("scored", ()))):
        facts, stored = entry["facts"] or {}, _read_json(folder / "scores" / entry["scores"])
        if "seed" in facts and stored:
            found.setdefault(entry["row"], {})[facts["seed"]] = _result_from(stored)
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
    place = pair_of_prefix(place) or place
    return [file for file in (place, pair_partner(place)) if file and file.is_file()]


def _training_of(place: Path) -> dict[str, Any] | None:
    """What a run folder, or a model folder, says of its training."""
    model = place / "model" if (place / "model").is_dir() else place
    values = (_read_json(model / "metrics.json") or {}).get("validation")
    return {"metrics": values, **_last_training_losses(model.parent)} if values else None


def _last_training_losses(folder: Path) -> dict[str, float]:
    """``train_loss`` and its part ``train_loss_nll``: means of the logged losses over the last pass over the data."""
    log = folder / LOG
    lines = [line for line in read_log(log) if line.get("kind") == "train"] if log.is_file() else []
    last = [line for line in lines if line["epoch"] > lines[-1]["epoch"] - 1]
    return {
        ours: fmean(line[name] for line in last)
        for ours, name in (("train_loss", "loss"), ("train_loss_nll", "nll"))
        if last and all(name in line for line in last)
    }


def _slug(row: PlannedRow, run: RunConfig) -> str:
    name = f"{row.name}-seed-{run.training.seed}"
    slug = file_name(name)
    return slug if slug == name else f"{slug}-{sha256(name.encode())[:8]}"  # other names may look the same


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def _result_from(stored: Mapping[str, Any]) -> EvaluationResult:
    values = {"bleu_signature": stored.get("bleu_signature", "")} | stored["result"]  # where older files have it
    values["rouge"] = {kind: RougeScore(**figures) for kind, figures in values["rouge"].items()}
    values["per_document"] = {kind: tuple(scores) for kind, scores in values["per_document"].items()}
    return EvaluationResult(**values)


def _read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None where there is no file, or one that cannot be read."""
    with suppress(FileNotFoundError, ValueError):
        values = json.loads(path.read_text(encoding="utf-8"))
        return values if isinstance(values, dict) else None
    return None
