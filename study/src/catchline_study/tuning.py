"""Search for decoding settings on validation data, with optuna.

    dims = [parse_grid("beam_size=4,5,8"), parse_range("distraction.context=0.05:10:log")]
    trials, _ = tune(measure, dims, metric="mean", trials=30, file=folder / "trials.log")
    ranked(trials, "mean")[0].settings

The trials are in a journal file, where the same call continues. Grids alone are tried in full; with ranges optuna's
TPE sampler (Bergstra et al. 2011) chooses.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from catchline.config.base import merge, validate
from catchline.config.loading import dump_run, parse_yaml, read_run
from catchline.config.names import SHIPPED
from catchline.config.schema import SearchConfig
from catchline.errors import ConfigError, unknown_choice
from catchline.evaluation.run import model_folder
from catchline.files import write_json, write_text
from catchline.runtime.folder import MANIFEST

METRICS = ("rouge1", "rouge2", "rougeL", "mean")
FLAGS = ("log", "both-signs")
RECIPE, GENERATION = "recipe.yaml", "generation_config.json"
DIGITS = 4  # significant digits of a number, so that what is printed is what was tried
Settings = dict[str, Any]  # dotted key below ``search`` -> value
Scores = Mapping[str, float]

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of a key to try; of ``scorers`` each is a list."""

    key: str
    values: tuple[Any, ...]

    def suggest(self, trial: optuna.Trial) -> Any:
        return self.values[trial.suggest_categorical(self.key, range(len(self.values)))]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, whole ones if ``integer``; either sign with ``both_signs``."""

    key: str
    low: float
    high: float
    log: bool = False
    both_signs: bool = False
    integer: bool = False

    def suggest(self, trial: optuna.Trial) -> float | int:
        sign = trial.suggest_categorical(f"{self.key}, sign", (1, -1)) if self.both_signs else 1
        if self.integer:
            return sign * trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        return sign * float(f"{trial.suggest_float(self.key, self.low, self.high, log=self.log):.{DIGITS}g}")


def parse_grid(text: str) -> Grid:
    """``key=a,b,c``. Raises ConfigError: not of this form."""
    key, values = _split(text, "--grid", "beam_size=4,5,8")
    listed = parse_yaml(f"[{values}]", f"--grid '{text[:100]}'")
    if any(
        value is None or isinstance(value, dict) or isinstance(value, list) != (key == "scorers") for value in listed
    ):
        kind = "lists of scorers" if key == "scorers" else "single values"
        raise ConfigError(f"--grid '{text}': give {kind} between commas, for example beam_size=4,5,8.")
    return Grid(key, tuple(value for place, value in enumerate(listed) if value not in listed[:place]))


def parse_range(text: str) -> Range:
    """``key=low:high[:log][:both-signs]``; of whole numbers where both ends are written without a point. Raises
    ConfigError: ends that are no numbers or the wrong way round, or an unknown flag."""
    example = "distraction.context=0.05:10:log:both-signs"
    key, rest = _split(text, "--random", example)
    parts = rest.split(":")
    try:
        low, high = (float(part) for part in parts[:2])
    except ValueError:
        raise ConfigError(f"--random '{text}': give two numbers low:high, for example {example}.") from None
    if unknown := [flag for flag in parts[2:] if flag not in FLAGS]:
        raise ConfigError(f"--random '{text}': {unknown_choice('flag', unknown[0], FLAGS)}")
    log, both_signs = "log" in parts[2:], "both-signs" in parts[2:]
    if not (math.isfinite(low) and math.isfinite(high)) or low > high or (log and low <= 0) or (both_signs and low < 0):
        raise ConfigError(f"--random '{text}': low must be at most high, above 0 with log, at least 0 with both-signs.")
    return Range(key, low, high, log, both_signs, all(part.strip().isdecimal() for part in parts[:2]))


def _split(text: str, option: str, example: str) -> tuple[str, str]:
    key, equals, rest = text.partition("=")
    key = key.strip().removeprefix("search.")
    if not equals or not key or not rest.strip():
        raise ConfigError(f"{option} '{text}' is not of the form key=..., for example {example}.")
    return key, rest.strip()


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that differ from the model's own, and their figures from 0 to 1 (``words`` is a length)."""

    settings: Settings
    scores: Scores

    def as_dict(self) -> dict[str, Any]:
        return {"settings": self.settings, **{name: round(value, 6) for name, value in self.scores.items()}}


def ranked(trials: Sequence[Trial], metric: str) -> list[Trial]:
    """Best first; of equals the earlier."""
    return sorted(trials, key=lambda trial: -trial.scores[metric])


def tune(
    measure: Callable[[Settings], Scores],
    dims: Sequence[Grid | Range],
    *,
    metric: str = "mean",
    trials: int = 20,
    seed: int = 1,
    file: Path | None = None,
    about: str = "",
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[list[Trial], list[str]]:
    """The trials, that of the model's own settings first, and why settings did not fit together.

    At most ``trials`` are made where there are ranges. ``file`` keeps them for the same call later; ``about`` names
    what else the figures depend on: model, records, scoring. Raises ConfigError: nothing to search, a key that is named
    twice, or settings of which none fit the model.
    """
    if not dims:
        raise ConfigError("Say what to search: --grid beam_size=4,5,8 or --random distraction.context=0.05:10:log.")
    keys = [dim.key for dim in dims]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"search.{twice[0]} is searched twice; name it once.")
    asked = json.dumps([about, metric, [asdict(dim) for dim in dims]])
    study = optuna.create_study(
        study_name=hashlib.sha256(asked.encode()).hexdigest()[:16],
        direction="maximize",
        storage=None if file is None else JournalStorage(JournalFileBackend(str(file))),
        load_if_exists=True,
    )
    done = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))
    study.sampler = TPESampler(seed=seed + done)
    if "present" not in study.user_attrs:
        study.set_user_attr("present", dict(measure({})))
    progress(1 + done)
    grids = [dim for dim in dims if isinstance(dim, Grid)]
    if len(grids) == len(dims):
        places = list(product(*(range(len(grid.values)) for grid in grids)))
        trials = len(places)
        for place in places:
            study.enqueue_trial(dict(zip(keys, place, strict=True)), skip_if_exists=True)

    def objective(trial: optuna.Trial) -> float:
        settings = {dim.key: dim.suggest(trial) for dim in dims}
        try:
            scores = measure(settings)
        except ConfigError as error:
            trial.set_user_attr("refused", str(error))
            raise optuna.TrialPruned from error
        trial.set_user_attr("tried", {"settings": settings, "scores": dict(scores)})
        progress(1)
        return scores[metric]

    if trials > done:
        study.optimize(objective, n_trials=trials - done)
    noted = [trial.user_attrs for trial in study.get_trials(deepcopy=False)]
    tried = [Trial(**one["tried"]) for one in noted if "tried" in one]
    refused = [one["refused"] for one in noted if "refused" in one]
    if not tried:
        raise ConfigError(refused[0])
    return [Trial({}, study.user_attrs["present"]), *tried], refused


# ------------------------------------------------------------------------------------- the model's defaults


def refuse_fixed(model: str, option: str) -> None:
    """Asked before anything is decoded for ``option``, which would change the model's decoding defaults. Raises
    ConfigError: the model is one of the package, was exported, or is no folder that catchline made."""
    folder = model_folder(model)
    if model in SHIPPED:
        raise ConfigError(f"{model} is part of the package and stays as it is: leave {option} out.")
    if (folder / MANIFEST).is_file():
        raise ConfigError(f"{folder} was exported: use {option} on the model it came from, and export that again.")
    if not all((folder / name).is_file() for name in (RECIPE, GENERATION)):
        raise ConfigError(f"{folder} was not made by catchline: its decoding settings stay as they are.")


def apply(folder: Path, settings: Settings) -> SearchConfig:
    """Make ``settings`` decoding defaults of a model folder (see `refuse_fixed`); returns all of these."""
    own = json.loads((folder / GENERATION).read_text(encoding="utf-8"))
    search = validate(SearchConfig, merge(own, settings, revive=True), where="search")
    write_text(folder / RECIPE, dump_run(read_run(folder / RECIPE).model_copy(update={"search": search})))
    write_json(folder / GENERATION, search.model_dump(mode="json"), indent=2)
    return search
