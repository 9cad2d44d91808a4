"""Train and score the rows of a comparison, each once.

What is finished stays in the folder of the comparison, so that an interrupted one goes on::

    state.json               the runs that are trained, with the settings and the data they were trained with
    runs/ROW-seed-N/         run folders, as `catchline train` makes them; rows that differ in decoding only share one
    predictions/X-KEY.jsonl  what a system wrote; KEY is made of the system's identity and the records
    scores/X-KEY.json        its scores, one a document too; KEY is also made of the options of the scorer

A row that fails is noted with its error and the others go on; the next call tries it again. ``state.json`` also says
which scores belong to which settings, pairs and records, so that a row needs no weights any more once it is scored:
neither here nor in a comparison that is given this folder as an ``earlier`` one; and which of them the last table has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from catchline import __version__
from catchline.config.base import validate
from catchline.config.loading import first_difference, read_run
from catchline.config.names import outside_names, sources_of, trusting
from catchline.config.schema import SPLITS, RunConfig, SearchConfig
from catchline.data.formats import pair_of_prefix, pair_partner
from catchline.errors import CatchlineError, ConfigError
from catchline.evaluation.measures import REPEATED, REVISION
from catchline.evaluation.plan import Plan, PlannedRow, settings_of
from catchline.evaluation.predictions import file_name, fingerprint, read_lines
from catchline.evaluation.run import EvaluationResult, RougeScore, options_of, predict, score
from catchline.evaluation.systems import Contender, model_folder
from catchline.explain.record import from_dict, to_dict
from catchline.files import digest_of, sha256, write_json
from catchline.metrics.bleu import bleu_paper, corpus_bleu
from catchline.metrics.copying import repeated_ngram_rate
from catchline.metrics.words import words
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Record, Summary, references_of

KINDS = ("1", "2", "L")
NUM_SAMPLES = 6
MANIFEST = "manifest.json"  # of spans that were selected
_UNKNOWN = "<unk>"


@dataclass(frozen=True, slots=True)
class ScoredSystem:
    """The scores of one system, and what it wrote of a few documents. ``measures`` has ``bleu`` (sacreBLEU, 0 to
    100) and ``bleu_paper`` (the headline paper's, 0 to 1) beside those of `catchline.evaluation.measures`."""

    result: EvaluationResult
    bleu_signature: str
    samples: tuple[Summary, ...] = ()


@dataclass(slots=True)
class Outcome:
    """What became of a row: scores and training results by seed (one for a system that is not trained here)."""

    row: PlannedRow
    scored: list[ScoredSystem] = field(default_factory=list)
    trained: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the caller provides: how to train (``train(run, folder, resume=, title=)``, going on with the run that is
    there if ``resume``, gives a `TrainResult`), how to show progress (``watch(title, total)`` gives a context manager
    whose value has ``advance``), where to say things, and on which device models run."""

    train: Callable[..., Any]
    watch: Callable[[str, int], Any]
    say: Callable[[str], object]
    device: str = "cpu"


class Comparison:
    """The rows of ``plan`` on ``records``, in the folder ``out``."""

    def __init__(
        self, plan: Plan, records: Sequence[Record], out: Path, around: Surroundings, earlier: Sequence[Path] = ()
    ) -> None:
        self.plan, self.records, self.out, self.around = plan, list(records), out, around
        self.earlier = (out, *earlier)
        step = max(1, len(self.records) // NUM_SAMPLES)
        self.sampled = self.records[::step][:NUM_SAMPLES]
        self._options = replace(options_of(plan.evaluation), kinds=KINDS)
        way = asdict(replace(self._options, batch_size=0))
        if not way["scoring"]["hash_digits"]:  # as of all that tables/ keeps, whose keys do not say it
            del way["scoring"]["hash_digits"]
        self._ways = [way, REVISION]  # of scoring, in keys
        self._state_file = out / "state.json"
        self._state = {"runs": {}, "scored": {}} | (_read_json(self._state_file) or {})
        self._digest_of = cache(digest_of)
        self._places = self._shared_places()
        self._refuse_other_settings()

    def run(self) -> list[Outcome]:
        """Train and score every row. Failures are in the outcomes; an interruption ends it here and loses nothing."""
        self.out.mkdir(parents=True, exist_ok=True)
        self._state["table"] = []
        return [self._row(number, row) for number, row in enumerate(self.plan.rows, 1)]

    def _row(self, number: int, row: PlannedRow) -> Outcome:
        outcome = Outcome(row)
        where = f"[{number}/{len(self.plan.rows)}] {row.name}"
        for run in row.runs or (None,):
            title = where if run is None or len(row.runs) == 1 else f"{where}, seed {run.training.seed}"
            try:
                self._one(outcome, run, title)
            except Exception as error:  # the other rows are still worth having
                message = str(error) if isinstance(error, CatchlineError) else f"{type(error).__name__}: {error}"
                seed = "" if run is None or len(row.runs) == 1 else f"seed {run.training.seed}: "
                outcome.errors.append(seed + " ".join(message.split()))
                self.around.say(f"{title} failed: {message}")
        return outcome

    def _one(self, outcome: Outcome, run: RunConfig | None, title: str) -> None:
        row = outcome.row
        if run is None:
            outcome.scored.append(self._score(self._contender(row, row.place, row.search), row, title))
            if row.place is not None and (found := _training_of(Path(row.place))):
                outcome.trained.append(found)
            return
        slug = _run_slug(row, run)
        place = self._places[slug]
        folder = self.out / "runs" / place
        key = self._scored_key(run)
        if not (folder / "recipe.yaml").is_file() and (before := self._scored_before(key, run)):
            outcome.scored.append(before[0])
            outcome.trained.append(before[1])
            return
        result = self._trained(place, run, folder, title)
        now = _read_json(folder / "model" / "generation_config.json") or {}  # tuning may have changed it
        own = validate(SearchConfig, now, where="search").model_dump()
        search = {name: value for name, value in run.search.model_dump().items() if own[name] != value}
        search["surface"] = self._surface(run)
        with trusting(outside_names(run.model_dump())):
            system = self._contender(row, str(folder), search, slug)
            scored = self._score(system, row, title)
        facts = {"seed": run.training.seed, **result, **_last_training_losses(folder)}
        made = {"row": row.name, "scores": self._scores_file(system).name, "run": place, "facts": facts}
        self._keep(key, made | {"given": self._state["runs"][place].get("given", "")})
        outcome.scored.append(scored)
        outcome.trained.append(facts | {"folder": str(folder)})

    def _scored_key(self, run: RunConfig) -> str:
        """A digest of what decides the scores of a run, but for our version; files count by what is in them."""
        settings = settings_of(run)
        settings["data"] = {key: value for key, value in settings["data"].items() if key not in SPLITS}
        if run.pretraining.enabled:
            settings["pretraining"] = settings["pretraining"] | {"data": None}
        asked = [settings, self._data_digests(run)["data"], run.search.model_dump(mode="json"), run.row]
        if (surface := self._surface(run)) != "raw":  # as of all that tables/ keeps, whose keys do not say it
            asked.append(surface)
        asked += map(digest_of, sources_of(run.model_dump()))
        return _digest([asked, [*self._ways, fingerprint("", self.records)]])[:32]

    def _surface(self, run: RunConfig) -> str:
        return self.plan.evaluation.surface or run.search.surface

    def _keep(self, key: str, entry: dict[str, Any]) -> None:
        """Note the scores of a run, and that this table has them."""
        self._state["scored"][key] = entry
        self._state["table"].append(key)
        write_json(self._state_file, self._state)

    def _scored_before(self, key: str, run: RunConfig) -> tuple[ScoredSystem, dict[str, Any]] | None:
        """The scores of a run, and what is known of its training, from a comparison that has it."""
        for folder in self.earlier:
            entry = (_read_json(folder / "state.json") or {}).get("scored", {}).get(key)
            stored = _read_json(folder / "scores" / entry["scores"]) if entry else None
            if entry and stored and not self._changed(entry, run):
                if folder != self.out:
                    write_json(self.out / "scores" / entry["scores"], stored)
                self._keep(key, entry)
                return _scored_from(stored), entry["facts"] | {"folder": str(folder / "runs" / entry["run"])}
        return None

    # -------------------------------------------------------------------------------------- training

    def _shared_places(self) -> dict[str, str]:
        """The run folder of each row and seed. Rows whose trainings are the same (they decode in another way) use
        that of the first of them; its decoding settings are those that validate, where validation decodes."""
        trained = {}
        for recipe in sorted((self.out / "runs").glob("*/recipe.yaml"), reverse=True):
            trained[_training_key(read_run(recipe))] = recipe.parent.name
        places = {}
        for row in self.plan.rows:
            for run in row.runs:
                slug = _run_slug(row, run)
                own = (self.out / "runs" / slug / "recipe.yaml").is_file()
                places[slug] = slug if own else trained.setdefault(_training_key(run), slug)
        return places

    def _trained(self, slug: str, run: RunConfig, folder: Path, title: str) -> dict[str, Any]:
        """The result of the training, which is done now unless it was before."""
        runs, resume = self._state["runs"], (folder / "recipe.yaml").is_file()
        if slug not in runs or not resume:  # what is noted without a run folder is of one that was removed
            runs[slug] = {"settings": settings_of(run), **self._data_digests(run)}
            write_json(self._state_file, self._state)
        if "result" not in runs[slug] or not (folder / "model" / "config.json").is_file():
            begun = read_run(folder / "recipe.yaml") if resume else run  # perhaps of a row that decodes otherwise
            runs[slug]["result"] = asdict(self.around.train(begun, folder, resume=resume, title=f"{title}: training"))
            write_json(self._state_file, self._state)
        return dict(runs[slug]["result"])

    def _refuse_other_settings(self) -> None:
        """Found out before the first row is trained, not after the third."""
        advice = f"give another --out, or remove {self.out}"
        for row in self.plan.rows:
            for run in row.runs:
                slug = self._places[_run_slug(row, run)]
                recipe = self.out / "runs" / slug / "recipe.yaml"
                if not recipe.is_file():
                    continue
                made = settings_of(read_run(recipe))
                if found := first_difference(made, settings_of(run) | {"row": made["row"]}):
                    raise ConfigError(f"{recipe.parent} was made with other settings ({found}); {advice}.")
                if named := self._changed(self._state["runs"].get(slug, {}), run):
                    raise ConfigError(f"{named} has changed since {recipe.parent} was trained; {advice}.")

    def _changed(self, entry: Mapping[str, Any], run: RunConfig) -> str:
        """The places that hold other files now than when ``entry`` was noted, as far as it says."""
        for kind, now in self._data_digests(run).items():
            if now and entry.get(kind, now) not in ("", now):
                return " or ".join(map(str, _uses(run)[kind]))
        return ""

    def _data_digests(self, run: RunConfig) -> dict[str, str]:
        """What identifies all that a run uses; empty where it is not in files."""
        found = {}
        for kind, places in _uses(run).items():
            files, digest = [file for place in places for file in _files_of(place)], hashlib.sha256()
            for path in files:
                digest.update(bytes.fromhex(self._digest_of(path)))
            found[kind] = digest.hexdigest() if files else ""
        return found

    # --------------------------------------------------------------------------------------- scoring

    def _contender(self, row: PlannedRow, place: str | None, search: Mapping[str, Any], name: str = "") -> Contender:
        if row.method is not None:
            return Contender(row.name, settings=row.method)
        assert place is not None
        surface = self.plan.evaluation.surface
        search = ({} if surface is None else {"surface": surface}) | dict(search)
        return Contender(place, name=name or row.name, settings=search, device=self.around.device)

    def _score(self, system: Contender, row: PlannedRow, title: str) -> ScoredSystem:
        options = self._options
        scores = self._scores_file(system)
        if (stored := _read_json(scores)) is not None:
            return _scored_from(stored)
        made = fingerprint(system.identity, self.records)
        out = self.out / "predictions" / f"{file_name(system.name)}-{made[:16]}.jsonl"
        wanted = set(map(id, self.sampled))
        seen: dict[int, Summary] = {}

        def keep(record: Record, summary: Summary) -> None:
            if id(record) in wanted:
                seen[id(record)] = summary

        seconds = 0.0
        if not out.is_file():
            with self.around.watch(f"{title}: scoring", len(self.records)) as bar:
                _, seconds = predict(system, self.records, options=options, out=out, progress=bar.advance, watch=keep)
        lines, unk = read_lines(out), system.unk_text
        result = score(system.name, self.records, lines, options=options, unk_text=unk, seconds=seconds)
        scored = with_bleu(result, self.records, lines, self._samples(system, row, seen))
        samples = [to_dict(summary) for summary in scored.samples]
        kept = {"result": asdict(scored.result), "bleu_signature": scored.bleu_signature, "samples": samples}
        write_json(scores, kept)
        return scored

    def _scores_file(self, system: Contender) -> Path:
        key = _digest([fingerprint(system.identity, self.records), *self._ways, __version__])[:16]
        return self.out / "scores" / f"{file_name(system.name)}-{key}.json"

    def _samples(self, system: Contender, row: PlannedRow, seen: dict[int, Summary]) -> tuple[Summary, ...]:
        """The sampled documents' summaries; those that an earlier process wrote are written again."""
        missing = [record for record in self.sampled if id(record) not in seen]
        made = system.summarize(missing, batch_size=self._options.batch_size) if missing else []
        seen |= {id(record): summary for record, summary in zip(missing, made, strict=True)}
        return tuple(
            replace(seen[id(record)], document=record.document, id=record.id, model=row.label)
            for record in self.sampled
        )


def with_bleu(
    result: EvaluationResult,
    records: Sequence[Record],
    predictions: Sequence[Mapping[str, Any]],
    samples: tuple[Summary, ...] = (),
) -> ScoredSystem:
    """Add both readings of BLEU to ``result``, and to what it has by document the share of repeated 2-grams."""
    hypotheses = [str(line["summary"]) for line in predictions]
    references = [list(references_of(record)) for record in records]
    paper = paper_bleu(hypotheses, references, [bool(line.get("finished", True)) for line in predictions])
    corpus = corpus_bleu(hypotheses, references)
    repeated = tuple(repeated_ngram_rate(words(text), 2) or 0.0 for text in hypotheses)
    by_document = {**result.per_document, REPEATED[2]: repeated}
    measures = {**result.measures, "bleu": corpus.score, "bleu_paper": paper}
    return ScoredSystem(replace(result, measures=measures, per_document=by_document), corpus.signature, samples)


def paper_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], finished: Sequence[bool]) -> float:
    """The headline paper's BLEU, over the lower-cased words and signs of a word tokenizer, unknown words kept."""
    cut = [[list(_cutter().encode(text).tokens) for text in texts] for texts in (hypotheses, *references)]
    return bleu_paper(cut[0], cut[1:], finished)


@cache
def _cutter() -> WordTokenizer:
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1, unknown_marks=(_UNKNOWN,)))
    tokenizer.train([_UNKNOWN])
    return tokenizer


def by_document(results: Sequence[EvaluationResult], kind: str) -> list[float]:
    """Each document's figure as the mean over seeds; ``kind`` is one of ROUGE, or `REPEATED`'s for 2-grams."""
    return [fmean(each) for each in zip(*(result.per_document[kind] for result in results), strict=True)]


def kept_scores(folder: Path) -> dict[str, list[EvaluationResult]]:
    """What the last table of ``folder`` has of trained rows, by row, one a seed; all scores if that is not known."""
    found: dict[str, dict[int, EvaluationResult]] = {}
    state = _read_json(folder / "state.json") or {}
    for entry in map(state.get("scored", {}).get, state.get("table", state.get("scored", ()))):
        if stored := _read_json(folder / "scores" / entry["scores"]):
            found.setdefault(entry["row"], {})[entry["facts"]["seed"]] = _scored_from(stored).result
    return {row: list(seeds.values()) for row, seeds in found.items()}


def _uses(run: RunConfig) -> dict[str, list[Path]]:
    """The places of the ``data`` a run learns from: its pairs, those of its pre-training stage, its initial weights;
    and of what it is ``given`` beside (not in keys): validation pairs, word vectors, tokenizer's files, own code."""
    stage = run.pretraining.data if run.pretraining.enabled else None
    weights, code = run.training.initial_weights, map(str, sources_of(settings_of(run)))
    places = {
        "data": [run.data.train, stage, None if weights is None else str(model_folder(weights))],
        "given": [run.data.validation, run.text.pretrained_embeddings, run.text.tokenizer.get("path"), *code],
    }
    return {kind: [Path(place) for place in some if place is not None] for kind, some in places.items()}


def _files_of(place: Path) -> list[Path]:
    if place.is_dir():
        found = (path for path in place.rglob("*") if path.is_file() and not path.name.startswith("."))
        return sorted(path for path in found if path.name != MANIFEST)  # which says how spans were selected
    place = pair_of_prefix(place) or place
    return [file for file in (place, pair_partner(place)) if file and file.is_file()]


def training_log(folder: Path) -> list[dict[str, Any]]:
    """The entries of a run's log, none where there is no log; damaged and unfinished lines are left out."""
    path = folder / "log.jsonl"
    entries = []
    for line in path.read_bytes().split(b"\n")[:-1] if path.is_file() else []:
        with suppress(ValueError):
            entries.append(json.loads(line))
    return entries


def _training_of(place: Path) -> dict[str, Any] | None:
    """What a run folder, or a model folder, says of its training: validation values, and where the log is."""
    model = place / "model" if (place / "model").is_dir() else place
    values = (_read_json(model / "metrics.json") or {}).get("validation")
    return {"metrics": values, "folder": str(model.parent), **_last_training_losses(model.parent)} if values else None


def _last_training_losses(folder: Path) -> dict[str, float]:
    """``train_loss`` and its part ``train_loss_nll``: means of the logged losses over the last pass over the data."""
    lines = [line for line in training_log(folder) if line.get("kind") == "train"]
    last = [line for line in lines if line["epoch"] > lines[-1]["epoch"] - 1]
    return {
        ours: sum(line[name] for line in last) / len(last)
        for ours, name in (("train_loss", "loss"), ("train_loss_nll", "nll"))
        if last and all(name in line for line in last)
    }


def _run_slug(row: PlannedRow, run: RunConfig) -> str:
    name = f"{row.name}-seed-{run.training.seed}"
    slug = file_name(name)
    return slug if slug == name else f"{slug}-{sha256(name.encode())[:8]}"  # other names may look the same


def _training_key(run: RunConfig) -> str:
    """Equal for runs whose trainings are the same, whatever the rows are called."""
    return json.dumps(settings_of(run) | {"row": ""}, sort_keys=True)


def _digest(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True, default=str).encode())


def _scored_from(stored: Mapping[str, Any]) -> ScoredSystem:
    values = dict(stored["result"])
    values["rouge"] = {kind: RougeScore(**score) for kind, score in values["rouge"].items()}
    values["per_document"] = {kind: tuple(scores) for kind, scores in values["per_document"].items()}
    samples = tuple(from_dict(summary) for summary in stored["samples"])
    return ScoredSystem(EvaluationResult(**values), stored["bleu_signature"], samples)


def _read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None where there is no file, or one that cannot be read."""
    with suppress(FileNotFoundError, ValueError):
        values = json.loads(path.read_text(encoding="utf-8"))
        return values if isinstance(values, dict) else None
    return None
