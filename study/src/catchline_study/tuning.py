"""Search for decoding settings on validation data, each batch encoded once for all of them.

    trials = trials_of(system, plan([parse_grid("beam_size=4,5,8")], [], trials=30, seed=1))
    with TrialLog(folder, digest) as log:
        result = tune(system, records, trials, metric="mean", options=options, log=log, progress=bar.advance)
    result.best.settings, result.best.scores

What was decoded is kept for an interrupted or longer search or another metric: the first n draws are the same whatever
number is asked for.
"""

from __future__ import annotations

import copy
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import BaseModel

from catchline.config.loading import dump_run, merge, parse_yaml, read_run
from catchline.config.schema import SearchConfig, Surface
from catchline.config.shipped import SHIPPED
from catchline.config.spellings import sections_in
from catchline.errors import ConfigError, did_you_mean, unknown_choice
from catchline.evaluation.predictions import Journal
from catchline.evaluation.run import EvaluationOptions, refuse_unscorable, score
from catchline.evaluation.systems import model_folder
from catchline.files import sha256, write_json, write_text
from catchline.jobs import batches
from catchline.runtime.manifest import MANIFEST
from catchline.summarizer import BATCH
from catchline.systems.extractive import Progress
from catchline.systems.neural import NeuralSystem
from catchline.types import Batch, Memory, Record, Summary

METRICS = ("rouge1", "rouge2", "rougeL", "mean")
KINDS = ("1", "2", "L")
FLAGS = ("log", "both-signs")
RECIPE, GENERATION = "recipe.yaml", "generation_config.json"
DIGITS = 4  # significant digits of a draw, so that what is printed is what was tried
Settings = dict[str, Any]  # dotted key below ``search`` -> value
SearchGrid = tuple[str, tuple[Any, ...]]  # such a key and the values to try


# --------------------------------------------------------------------------------------- what to try


@dataclass(frozen=True, slots=True)
class SearchRange:
    """Numbers between ``low`` and ``high``: uniform, or with ``log`` uniform in the logarithm; either sign if asked."""

    key: str
    low: float
    high: float
    log: bool = False
    both_signs: bool = False
    integer: bool = False

    def draw(self, source: random.Random) -> float | int:
        """One number. Every range takes two from ``source``, whatever its kind."""
        place, sign = source.random(), -1 if source.random() < 0.5 and self.both_signs else 1
        if self.integer:
            low, high = int(self.low), int(self.high)
            return sign * min(high, low + int(place * (high - low + 1)))
        if self.log:
            value = math.exp(math.log(self.low) + place * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + place * (self.high - self.low)
        return sign * float(f"{value:.{DIGITS}g}")


def parse_grid(text: str) -> SearchGrid:
    """``key=a,b,c``; of ``scorers`` each value is a list of them.

    Raises:
        ConfigError: no such key of ``search``, or no value.
    """
    key, values = _split(text, "--grid", "beam_size=4,5,8")
    if key == "scorers":
        lists = parse_yaml(f"[{values}]", f"--grid '{text[:100]}'")
        if not all(isinstance(one, list) for one in lists):
            raise ConfigError(
                f"--grid '{text}': give lists of scorers between commas, for example "
                "'scorers=[],[{type: ngram_blocking, size: 3}]'."
            )
        return key, tuple(one for place, one in enumerate(lists) if one not in lists[:place])
    listed = [parse_yaml(part, f"--grid '{text[:100]}': a value") for part in values.split(",")]
    if any(value is None or isinstance(value, list | dict) for value in listed):
        raise ConfigError(f"--grid '{text}': give single values between commas, for example beam_size=4,5,8.")
    return key, tuple(dict.fromkeys(listed))


def parse_range(text: str) -> SearchRange:
    """``key=low:high[:log][:both-signs]``.

    Raises:
        ConfigError: no such key of ``search``, ends that are not numbers or the wrong way round, an unknown flag.
    """
    example = "distraction.context=0.05:10:log:both-signs"
    key, rest = _split(text, "--random", example)
    parts = rest.split(":")
    try:
        low, high = (float(part) for part in parts[:2])
    except ValueError:
        raise ConfigError(f"--random '{text}': give two numbers low:high, for example {example}.") from None
    if unknown := [flag for flag in parts[2:] if flag not in FLAGS]:
        raise ConfigError(f"--random '{text}': {unknown_choice('flag', unknown[0], FLAGS)}")
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ConfigError(f"--random '{text}': the low end {parts[0]} must not be above the high end {parts[1]}.")
    log, both_signs = "log" in parts[2:], "both-signs" in parts[2:]
    if log and low <= 0:
        raise ConfigError(f"--random '{text}': with log the low end must be above 0 (both-signs draws the sign).")
    if both_signs and low < 0:
        raise ConfigError(f"--random '{text}': with both-signs the low end is a size and must be at least 0.")
    kind = _kind(key)
    if kind not in (None, int, float):
        raise ConfigError(f"--random '{text}': search.{key} is not a number; list its values with --grid.")
    if kind is int and (log or low != int(low) or high != int(high)):
        raise ConfigError(f"--random '{text}': search.{key} is a whole number; give whole ends, without log.")
    return SearchRange(key, low, high, log, both_signs, kind is int)


def plan(grids: Sequence[SearchGrid], ranges: Sequence[SearchRange], trials: int, seed: int) -> list[Settings]:
    """The settings to try, without repetition: nothing first, then each combination of the grids with each draw.

    Raises:
        ConfigError: nothing to search, or a key that is named twice.
    """
    if not grids and not ranges:
        raise ConfigError("Say what to search: --grid beam_size=4,5,8 or --random distraction.context=0.05:10:log.")
    gridded = [key for key, _ in grids]
    keys = [*gridded, *(part.key for part in ranges)]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"search.{twice[0]} is searched twice; name it once.")
    source = random.Random(seed)
    found: list[Settings] = [{}]
    for _ in range(trials if ranges else 1):
        drawn = {part.key: part.draw(source) for part in ranges}
        for values in product(*(values for _, values in grids)):
            settings = dict(zip(gridded, values, strict=True)) | drawn
            if settings not in found:
                found.append(settings)
    return found


def _split(text: str, option: str, example: str) -> tuple[str, str]:
    key, equals, rest = text.partition("=")
    key = key.strip().removeprefix("search.")
    if not equals or not key or not rest.strip():
        raise ConfigError(f"{option} '{text}' is not of the form key=..., for example {example}.")
    _kind(key)
    return key, rest.strip()


def _kind(key: str) -> type | None:
    """The type of ``search.key`` where the schema knows it: int, float, or object for anything else.

    Raises:
        ConfigError: no such key, or a section.
    """
    cls: type[BaseModel] = SearchConfig
    path = key.split(".")
    for place, part in enumerate(path):
        if part not in cls.model_fields:
            where = ".".join(["search", *path[: place + 1]])
            raise ConfigError(f"Unknown key '{where}'.{did_you_mean(part, cls.model_fields)}")
        annotation: Any = cls.model_fields[part].annotation
        rest = path[place + 1 :]
        nested = sections_in(annotation)
        if part == "model" and len(rest) == 1:
            return None  # a switch of the model, which knows what it takes
        if nested and rest:
            cls = nested[0]
        elif rest:
            raise ConfigError(f"Unknown key 'search.{key}': search.{'.'.join(path[: place + 1])} is a single value.")
        elif nested or part == "model":
            raise ConfigError(f"search.{key} holds several values; search one of its keys, such as distraction.state.")
        else:
            return annotation if annotation in (int, float) else object
    raise AssertionError(key)


# ------------------------------------------------------------------------------------------- trying


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that differ from the model's own, the whole search they lead to, the same with the surface scored; and
    once it was tried its figures, from 0 to 1 (``words`` is a length; ``mean`` is that of the three kinds of ROUGE)."""

    settings: Settings
    search: SearchConfig
    scored: SearchConfig
    scores: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """Equal searches have equal keys."""
        return sha256(json.dumps(self.scored.model_dump(mode="json"), sort_keys=True).encode())[:16]

    def as_dict(self) -> dict[str, Any]:
        rounded = {name: round(value, 6) for name, value in self.scores.items()}
        return {"settings": self.settings, **rounded, "seconds": round(self.seconds, 2)}


@dataclass(frozen=True, slots=True)
class TuningResult:
    """All trials, the one of the model's own settings first, and how they were scored."""

    metric: str
    trials: list[Trial]
    signature: str
    encodings: int  # batches encoded by this call
    notes: tuple[str, ...] = ()

    @property
    def present(self) -> Trial:
        """What the model's own settings give."""
        return self.trials[0]

    @property
    def best(self) -> Trial:
        """The first of the highest score."""
        return max(self.trials, key=lambda trial: trial.scores[self.metric])

    def ranked(self) -> list[Trial]:
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
    """A model that encodes one batch once, however often it is decoded.

    What the encoder leaves is kept, once for each value of the switches that may change it (``encoder_switches`` of the
    model).
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._memories: dict[str, Memory] = {}
        self.encodings = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, batch: Batch) -> Memory:
        """The memory of the batch: new with another switch of the encoder."""
        switches = {name: value for name, value in self._model.switches().items() if self.touches(name)}
        key = json.dumps(switches, sort_keys=True, default=str)
        if key not in self._memories:
            self._memories[key] = self._model.encode(batch)
            self.encodings += 1
        return self._memories[key]

    def touches(self, switch: str) -> bool:
        """May this switch change what the encoder leaves?"""
        known = self._model.encoder_switches
        return known is None or switch in known


class TrialLog(Journal):
    """The summaries decoded so far, a line for each trial and batch; ``done`` finds them.

    A file of another model, other data or another batch size is none of this search's: ``digest`` is part of its name.
    """

    def __init__(self, folder: Path | None, digest: str) -> None:
        super().__init__(None if folder is None else folder / f"trials-{digest[:12]}.jsonl")
        self.done = {(line["trial"], line["batch"]): line for line in self.lines}

    def note(self, trial: Trial, batch: int, summaries: Sequence[str], seconds: float) -> None:
        """Keep what one trial made of one batch."""
        found = {"summaries": list(summaries), "seconds": round(seconds, 3)}
        line = {"trial": trial.key, "batch": batch, "settings": trial.settings, **found}
        self.done[trial.key, batch] = line
        self.add([line])


def trials_of(
    system: NeuralSystem,
    settings: Sequence[Settings],
    surface: Surface | None = None,
    say: Callable[[str], object] = print,
) -> list[Trial]:
    """The trials, each search checked against the model before anything is decoded; ``surface`` is what is scored of
    those that do not say it themselves. Values that fit only with others are tried with those, and ``say`` is told.

    Raises:
        ConfigError: a value that does not fit, or a switch that the model does not have.
    """
    trials, refused = [], []
    for values in settings:
        try:
            search = system.options(merge({}, values))
        except ConfigError as error:
            refused.append((values, error))
            continue
        shown = {} if surface is None or "surface" in values else {"surface": surface}
        trials.append(Trial(values, search, search.model_copy(update=shown)))
    tried = [setting for trial in trials for setting in trial.settings.items()]
    for values, reason in refused:
        if any(setting not in tried for setting in values.items()):
            raise reason
    if refused:
        say(f"{len(refused)} of {len(settings)} settings do not fit together and are not tried: {refused[0][1]}")
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
    """Decode all records with every trial, one batch a thread, and score the trials.

    ``progress`` is told the number of records of a trial that are newly done, also of those that ``log`` had.

    Raises:
        DataError: no records, or one without a summary to compare with.
    """
    assert metric in METRICS, metric
    refuse_unscorable(records, "tune on")
    size, noting = options.batch_size or BATCH, Lock()
    batches = batches_of(records, size)

    def decoded(batch: tuple[int, list[int]], go_on: Callable[[], None]) -> int:
        number, indices = batch
        own, model = copy.copy(system), OnceEncoded(system.decoded_by)
        own.decoded_by = model
        for trial in trials:
            go_on()
            started, made = time.perf_counter(), list[Summary]()
            if (trial.key, number) not in log.done:
                made = own.summarize_batch([records[index] for index in indices], explain=False, options=trial.scored)
            with noting:
                if made:
                    log.note(trial, number, [summary.text for summary in made], time.perf_counter() - started)
                progress(len(indices))
        return model.encodings

    # What one trial switches in the model it switches for all threads.
    switching = any(trial.search.model for trial in trials)
    workers = 1 if switching else system.batches_at_once(2 * min(size, len(records)), trials[0].search)
    with closing(system.in_threads(decoded, list(enumerate(batches)), workers)) as encoded:
        encodings = sum(encoded)
    tried, signature, counting = [], "", ""
    for trial in trials:
        texts: dict[int, str] = {}
        seconds = 0.0
        for number, indices in enumerate(batches):
            line = log.done[trial.key, number]
            texts |= dict(zip(indices, line["summaries"], strict=True))
            seconds += line["seconds"]
        lines = [{"summary": texts[index]} for index in range(len(records))]
        found = score("", records, lines, options=replace(options, kinds=KINDS))
        scores = {f"rouge{kind}": found.value(kind) for kind in KINDS}
        scores["mean"] = sum(scores.values()) / len(KINDS)
        scores |= {name: float(found.measures[name]) for name in ("words", "repetition")}
        tried.append(replace(trial, scores=scores, seconds=seconds))
        signature, counting = found.signature, found.counting
    notes = (*_notes(OnceEncoded(system.decoded_by), trials), *filter(None, [counting]))
    return TuningResult(metric, tried, signature, encodings, notes)


def batches_of(records: Sequence[Record], size: int) -> list[list[int]]:
    """Indices of records of similar length, the longest first."""
    return list(batches(sorted(range(len(records)), key=lambda index: -len(records[index].document)), size))


def refuse_fixed(model: str, option: str) -> None:
    """Asked before anything is decoded for ``option``, which would change the model's decoding defaults.

    Raises:
        ConfigError: it is one of the package, was exported (the digests of its files are written down), or is no folder
            that catchline made.
    """
    folder = model_folder(model)
    if model in SHIPPED:
        raise ConfigError(f"{model} is part of the package and stays as it is: leave {option} out.")
    if (folder / MANIFEST).is_file():
        raise ConfigError(f"{folder} was exported: use {option} on the model it came from, and export that again.")
    if not all((folder / name).is_file() for name in (RECIPE, GENERATION)):
        raise ConfigError(f"{folder} was not made by catchline: its decoding settings stay as they are.")


def apply(folder: Path, search: SearchConfig) -> None:
    """Make ``search`` the decoding defaults of a model folder that may change (`refuse_fixed`): its recipe.yaml and
    generation_config.json."""
    recipe, generation = folder / RECIPE, folder / GENERATION
    run = read_run(recipe).model_copy(update={"search": search})
    write_text(recipe, dump_run(run))
    write_json(generation, search.model_dump(mode="json"), indent=2)


def _notes(model: OnceEncoded, trials: Sequence[Trial]) -> tuple[str, ...]:
    values: dict[str, set[str]] = {}
    for trial in trials:
        for name, value in trial.search.model.items():
            values.setdefault(name, set()).add(json.dumps(value, default=str))
    return tuple(
        f"search.model.{name} may change what the encoder leaves, so each batch was encoded for each of its values."
        for name, different in values.items()
        if len(different) > 1 and model.touches(name)
    )
