"""Search for decoding settings on validation data, each batch encoded once for all of them.

    trials = trials_of(system, plan(grids, ranges, trials=30, seed=1))
    with TrialLog(folder, digest) as log:
        result = tune(system, records, trials, metric="mean", options=options, log=log, progress=bar.advance)
    result.best.settings, result.best.scores

Decoding is what costs, so what was decoded is kept: a file with one line for each trial and batch, which an interrupted
or longer search reads again, and which another metric can score anew.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from laconic.config.loading import dump_run, merge, read_run
from laconic.config.schema import SearchConfig
from laconic.errors import DataError, ModelError
from laconic.evaluation.run import EvaluationOptions, score
from laconic.evaluation.tuning_plan import Settings
from laconic.files import write_json, write_text
from laconic.systems.neural import NeuralSystem
from laconic.types import Batch, Memory, Record, references_of

METRICS = ("rouge1", "rouge2", "rougeL", "mean")
KINDS = ("1", "2", "L")
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that differ from the model's own, and the whole search they lead to."""

    settings: Settings
    search: SearchConfig

    @property
    def key(self) -> str:
        """Equal searches have equal keys."""
        text = json.dumps(self.search.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Scored:
    """A trial's figures, from 0 to 1 (``words`` is a length); ``mean`` is that of the three kinds of ROUGE."""

    settings: Settings
    scores: dict[str, float]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        rounded = {name: round(value, 6) for name, value in self.scores.items()}
        return {"settings": self.settings, **rounded, "seconds": round(self.seconds, 2)}


@dataclass(frozen=True, slots=True)
class TuningResult:
    """All trials, the one of the model's own settings first, and how they were scored."""

    metric: str
    trials: list[Scored]
    signature: str
    encodings: int  # batches encoded by this call
    notes: tuple[str, ...] = field(default=())

    @property
    def present(self) -> Scored:
        """What the model's own settings give."""
        return self.trials[0]

    @property
    def best(self) -> Scored:
        """The first of the highest score."""
        return max(self.trials, key=lambda trial: trial.scores[self.metric])

    def ranked(self) -> list[Scored]:
        """Best first; of equals the earlier."""
        return sorted(self.trials, key=lambda trial: -trial.scores[self.metric])

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, the trials best first."""
        return {
            "metric": self.metric,
            "signature": self.signature,
            "best": self.best.as_dict(),
            "present": self.present.as_dict(),
            "trials": [trial.as_dict() for trial in self.ranked()],
            "batches_encoded": self.encodings,
            "notes": list(self.notes),
        }


class OnceEncoded:
    """A model that encodes a batch once, however often it is decoded.

    What the encoder leaves is kept for the batch being worked on, once for each value of the switches that may change
    it (``encoder_switches`` of the model).
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._memories: dict[str, Memory] = {}
        self.encodings = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, batch: Batch) -> Memory:
        """The memory of the batch: new after `forget`, or with another switch of the encoder."""
        switches = {name: value for name, value in self._model.switches().items() if self.touches(name)}
        key = json.dumps(switches, sort_keys=True, default=str)
        if key not in self._memories:
            self._memories[key] = self._model.encode(batch)
            self.encodings += 1
        return self._memories[key]

    def forget(self) -> None:
        """Another batch comes."""
        self._memories.clear()

    def touches(self, switch: str) -> bool:
        """May this switch change what the encoder leaves?"""
        known = self._model.encoder_switches
        return known is None or switch in known


class TrialLog:
    """The summaries decoded so far: a line for each trial and batch, behind a line that says of what.

    A file of another model, other data or another batch size is none of this search's: ``digest`` is part of its name.
    """

    def __init__(self, folder: Path | None, digest: str) -> None:
        self.lines: dict[tuple[str, int], dict[str, Any]] = {}
        self._file: TextIO | None = None
        self.path = None if folder is None else folder / f"trials-{digest[:12]}.jsonl"
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open(self.path)

    def __enter__(self) -> TrialLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, trial: Trial, batch: int, summaries: Sequence[str], seconds: float) -> None:
        """Keep what one trial made of one batch; it is on the disk when this returns."""
        line = {"trial": trial.key, "batch": batch, "settings": trial.settings, "summaries": list(summaries)}
        line["seconds"] = round(seconds, 3)
        self.lines[trial.key, batch] = line
        if self._file is not None:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _open(self, path: Path) -> None:
        kept = b""
        for raw in path.read_bytes().splitlines(keepends=True) if path.is_file() else []:
            try:
                line: dict[str, Any] = json.loads(raw) if raw.endswith(b"\n") else {}
                self.lines[line["trial"], line["batch"]] = line
            except (ValueError, TypeError, KeyError):
                break  # a crash cut it short
            kept += raw
        path.write_bytes(kept)
        self._file = path.open("a", encoding="utf-8")


def trials_of(system: NeuralSystem, settings: Sequence[Settings]) -> list[Trial]:
    """The trials, each search checked against the model before anything is decoded.

    Raises:
        ConfigError: a value that does not fit, or a switch that the model does not have.
    """
    trials = [Trial(values, system.options(merge({}, values))) for values in settings]
    before = dict(system.model.switches())
    for trial in trials:
        try:
            system.model.switch(trial.search.model)
        finally:
            system.model.switch({name: before[name] for name in trial.search.model if name in before})
    return trials


def tune(
    system: NeuralSystem,
    records: Sequence[Record],
    trials: Sequence[Trial],
    *,
    metric: str,
    options: EvaluationOptions,
    log: TrialLog,
    progress: Progress,
) -> TuningResult:
    """Decode all records with every trial, batch by batch, and score the trials.

    ``progress`` is told the number of records of a trial that are newly done, also of those that ``log`` had.

    Raises:
        DataError: no records, or one without a summary to compare with.
    """
    assert metric in METRICS, metric
    _refuse_unscorable(records)
    model = OnceEncoded(system.model)
    own = copy.copy(system)
    own.model = model  # type: ignore[assignment]
    run = system.loaded.run
    shown = {} if run is None or run.evaluation.surface is None else {"surface": run.evaluation.surface}
    batches = batches_of(records, options.batch_size)
    for number, indices in enumerate(batches):
        model.forget()
        for trial in trials:
            if (trial.key, number) not in log.lines:
                started = time.perf_counter()
                chosen = [records[index] for index in indices]
                search = trial.search.model_copy(update=shown)
                made = own.summarize_batch(chosen, explain=False, options=search)
                log.add(trial, number, [summary.text for summary in made], time.perf_counter() - started)
            progress(len(indices))
    scored, signature = [], ""
    for trial in trials:
        lines = [log.lines[trial.key, number] for number in range(len(batches))]
        found, signature = _scored(trial, records, batches, lines, options)
        scored.append(found)
    return TuningResult(metric, scored, signature, model.encodings, _notes(model, trials))


def batches_of(records: Sequence[Record], size: int) -> list[list[int]]:
    """Indices of records of similar length, the longest first."""
    order = sorted(range(len(records)), key=lambda index: (-len(records[index].document), index))
    return [order[start : start + size] for start in range(0, len(order), size)]


def apply(folder: Path, search: SearchConfig) -> None:
    """Make ``search`` the decoding defaults of a model folder: its recipe.yaml and generation_config.json.

    Raises:
        ModelError: it is no folder that laconic made.
    """
    recipe, generation = folder / "recipe.yaml", folder / "generation_config.json"
    if not recipe.is_file() or not generation.is_file():
        raise ModelError(f"{folder} is no local folder made by laconic: its decoding settings stay as they are.")
    run = read_run(recipe).model_copy(update={"search": search})
    write_text(recipe, dump_run(run))
    write_json(generation, search.model_dump(mode="json"), indent=2)


def _scored(
    trial: Trial,
    records: Sequence[Record],
    batches: Sequence[Sequence[int]],
    lines: Sequence[Mapping[str, Any]],
    options: EvaluationOptions,
) -> tuple[Scored, str]:
    texts = [""] * len(records)
    for indices, line in zip(batches, lines, strict=True):
        for index, text in zip(indices, line["summaries"], strict=True):
            texts[index] = text
    found = score("", records, [{"summary": text} for text in texts], options=replace(options, kinds=KINDS))
    scores = {f"rouge{kind}": float(found.value(kind)) for kind in KINDS}
    scores["mean"] = sum(scores.values()) / len(KINDS)
    scores |= {name: float(found.measures[name]) for name in ("words", "repetition")}
    return Scored(trial.settings, scores, sum(float(line["seconds"]) for line in lines)), found.signature


def _notes(model: OnceEncoded, trials: Sequence[Trial]) -> tuple[str, ...]:
    values: dict[str, set[str]] = {}
    for trial in trials:
        for name in (name for name in trial.search.model if model.touches(name)):
            values.setdefault(name, set()).add(json.dumps(trial.search.model[name], default=str))
    return tuple(
        f"search.model.{name} may change what the encoder leaves, so each batch was encoded for each of its values."
        for name, different in values.items()
        if len(different) > 1
    )


def _refuse_unscorable(records: Sequence[Record]) -> None:
    if not records:
        raise DataError("There is nothing to tune on: the data set has no records.")
    for record in records:
        if not any(text.strip() for text in references_of(record)):
            where = record.origin or record.id or "a record"
            raise DataError(f"{where} has no summary to compare with; tuning needs one for every document.")
