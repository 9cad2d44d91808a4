"""What changes over updates: optimizers, the learning rate, phases, and the averaged weights.

All optimizers but Adadelta, which has none, run torch's fused kernels: with 50,000 words on a CPU a fused Adam step
takes 13 ms against 62 (foreach) and 120 (plain). Embedding gradients are dense here; TensorFlow's sparse ones, on which
See et al. measured their norm, are not merged over repeated rows, so its clipping is not exactly this one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from catchline.config.schema import OptimizerConfig, PhaseConfig, ScheduleConfig, TextConfig, TrainingConfig
from catchline.errors import ConfigError
from catchline.models.base import SummarizationModel


def build_optimizer(config: OptimizerConfig, parameters: nn.Module | Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that ``config`` describes, over a model's parameters or some of them. Frozen parameters may be
    among them: without a gradient they are left alone, and are trained once a phase thaws them.

    Each group has ``names``, the parameters' names in its order, and ``factor``, by which its rate is multiplied.

    Raises:
        ConfigError: a pattern of ``config.rates`` matches no parameter.
    """
    eps, fused = {"eps": config.epsilon}, {"fused": True}
    kinds: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
        "adam": (torch.optim.Adam, {"betas": config.betas, **eps, **fused}),
        "adamw": (torch.optim.AdamW, {"betas": config.betas, **eps, **fused}),
        "adagrad": (torch.optim.Adagrad, {"initial_accumulator_value": 0.1, **eps, **fused}),
        # without a fused kernel; many small operations at once
        "adadelta": (torch.optim.Adadelta, {"rho": 0.95, **eps, "foreach": True}),
        "sgd": (torch.optim.SGD, fused),
    }
    kind, options = kinds[config.type]
    groups = _groups(config, parameters)
    return _light(kind)(groups, lr=config.learning_rate, weight_decay=config.weight_decay, **options)


def _light(optimizer: type[torch.optim.Optimizer]) -> Any:
    """The same without torch's compiler, a second to import, which the first calls of its methods import for nothing
    but to keep it out of them."""
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        method = inspect.unwrap(getattr(optimizer, name))
        method.__dynamo_disable = method
    return type(optimizer.__name__, (optimizer,), {"step": torch.no_grad()(inspect.unwrap(optimizer.step))})


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set every group's rate: ``rate`` times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def parameter_names(optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of the parameters in the order in which the optimizer counts them."""
    return [name for group in optimizer.param_groups for name in group["names"]]


def _groups(config: OptimizerConfig, parameters: nn.Module | Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """One group for each pattern of ``config.rates`` (the first that matches counts), and one for the rest."""
    own = parameters.named_parameters() if isinstance(parameters, nn.Module) else enumerate(parameters)
    left = {str(name): parameter for name, parameter in own}
    known, groups = list(left), list[dict[str, Any]]()
    for rate in config.rates:
        names = [name for name in left if fnmatchcase(name, rate.match)]
        if not names:
            there = ", ".join(known)
            if any(fnmatchcase(name, rate.match) for name in known):
                there = f"none that the patterns before '{rate.match}' do not match too"
            raise ConfigError(
                f"training.optimizer.rates: the pattern '{rate.match}' matches no parameter; there are: {there}."
            )
        groups.append({"params": [left.pop(name) for name in names], "names": names, "factor": rate.factor})
    if left:
        groups.append({"params": list(left.values()), "names": list(left), "factor": 1.0})
    return groups


def total_updates(config: TrainingConfig, end_of_pass: Callable[[int], int]) -> int | None:
    """How many updates the run will make, as far as its settings say; None if only the clock ends it."""
    limits = [config.max_updates, config.max_epochs and end_of_pass(config.max_epochs)]
    return min((limit for limit in limits if limit), default=None)


def schedule_factor(config: ScheduleConfig, update: int, total: int | None, plateau_factor: float = 1.0) -> float:
    """What the base learning rate is multiplied with in the update after ``update`` completed ones.

    The warm-up rises linearly from ``warmup_start`` and reaches 1 at update ``warmup_updates``. Then ``linear`` and
    ``cosine`` fall from 1 to 0 at ``total``; ``inverse_sqrt`` is sqrt(warmup / update); ``plateau`` and
    ``sticky`` are ``plateau_factor``, which validation lowers.

    Raises:
        ConfigError: ``linear`` or ``cosine`` without a known end.
    """
    warmup, count = config.warmup_updates, update + 1
    if count <= warmup:
        return config.warmup_start + (1.0 - config.warmup_start) * count / warmup
    if config.type == "inverse_sqrt":
        return math.sqrt(max(warmup, 1) / count)
    if config.type in ("plateau", "sticky"):
        return plateau_factor
    if config.type == "constant":
        return 1.0
    if total is None:
        raise ConfigError(
            f"The schedule '{config.type}' needs to know the end: set training.max_updates or training.max_epochs "
            "besides max_minutes, or choose the schedule 'constant' or 'inverse_sqrt'."
        )
    done = min(max(count - warmup, 0) / max(total - warmup, 1), 1.0)
    return 1.0 - done if config.type == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


# ------------------------------------------------------------------------------------------- phases

Limits = tuple[int, int]


def limits_of(phase: PhaseConfig) -> Limits:
    """The limits of a phase whose values are all settled."""
    return phase.max_source_tokens or 0, phase.max_target_tokens or 0


class Phases:
    """The phases of a run. ``updates(limits)`` says how many make a pass over texts cut so; a pass that other limits
    cut short counts as one.

    Raises:
        ConfigError: the ends do not rise, a phase after an endless one, or limits above the text's own.
    """

    def __init__(self, training: TrainingConfig, text: TextConfig, updates: Callable[[Limits], int]) -> None:
        self._settings, self._ends = _fold(training, text), list[int | None]()
        limits, update = limits_of(self._settings[0]), 0
        size, origin = updates(limits), 0  # pass n begins with update ``origin + n * size``
        self._passes = [(size, origin)]
        for index, phase in enumerate(training.phases):
            if phase.until is not None and phase.until_epoch is not None:
                raise ConfigError(f"Phase '{phase.name}' has both 'until' and 'until_epoch'; give one.")
            if limits != (limits := limits_of(self._settings[index])):
                begun, size = -(-(update - origin) // size), updates(limits)
                origin = update - begun * size
            self._passes[index:] = [(size, origin)]
            end = phase.until if phase.until_epoch is None else origin + phase.until_epoch * size
            self._ends.append(end)
            update = update if end is None else end
        for earlier, later in zip(self._ends, self._ends[1:], strict=False):
            if earlier is None or (later is not None and later <= earlier):
                raise ConfigError(
                    "training.phases: each phase but the last needs 'until', and each 'until' must be larger than "
                    f"the one before (given: {self._ends})."
                )

    def end_of_pass(self, number: int) -> int:
        """The update with which this many passes over the data are done."""
        ends = [origin + number * size for size, origin in self._passes]
        return next((end for end, last in zip(ends, self._ends, strict=False) if last is None or end <= last), ends[-1])

    def at(self, update: int) -> int:
        """The number of the phase of the update after ``update`` completed ones."""
        last = len(self._settings) - 1
        return next((number for number, end in enumerate(self._ends) if end is None or update < end), last)

    def __getitem__(self, number: int) -> PhaseConfig:
        return self._settings[number]

    def try_on(
        self, model: SummarizationModel, weigh: Callable[[dict[str, float]], object], trainable: frozenset[str]
    ) -> None:
        """Refuse before the training what would stop it when a phase begins; the model is left as it was.

        Raises:
            ConfigError: a switch, an objective or a pattern of a phase does not exist.
        """
        before = model.switches()
        for phase in self._settings:
            model.switch(phase.model)
            weigh(phase.objective_weights)
            freeze(model, phase.freeze, trainable)
        model.switch(before)
        freeze(model, (), trainable)


def _fold(training: TrainingConfig, text: TextConfig) -> list[PhaseConfig]:
    """Each phase with what the phases before it leave."""
    limits: dict[str, Any] = {name: getattr(text, name) for name in ("max_source_tokens", "max_target_tokens")}
    now = PhaseConfig(name="", **limits, learning_rate=training.optimizer.learning_rate)
    settings: list[PhaseConfig] = []
    for phase in training.phases:
        for name, most in limits.items():
            if (asked := getattr(phase, name)) is not None and asked > most:
                raise ConfigError(
                    f"Phase '{phase.name}' asks for {name} {asked}, but the texts are cut to "
                    f"text.{name} = {most}; raise that."
                )
        left = {name: getattr(phase, name) or getattr(now, name) for name in (*limits, "learning_rate")}
        left |= {name: getattr(now, name) | getattr(phase, name) for name in ("model", "objective_weights")}
        settings.append(now := phase.model_copy(update=left))
    return settings or [now]


def freeze(model: nn.Module, patterns: tuple[str, ...], trainable: frozenset[str]) -> None:
    """Train exactly the parameters of ``trainable`` whose name matches no pattern.

    Raises:
        ConfigError: a pattern matches no parameter, or nothing is left to train.
    """
    parameters = dict(model.named_parameters())
    frozen: set[str] = set()
    for pattern in patterns:
        found = {name for name in parameters if fnmatchcase(name, pattern)}
        if not found:
            known = ", ".join(parameters)
            raise ConfigError(f"The pattern '{pattern}' of 'freeze' matches no parameter; there are: {known}.")
        frozen |= found
    if trainable <= frozen:
        raise ConfigError(f"The patterns {', '.join(patterns)} of 'freeze' match every parameter: nothing would learn.")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in trainable and name not in frozen)


# ------------------------------------------------------------------------------------------- averages


class WeightAverage:
    """A running average of the parameters of ``model``, used for validation and for the exported model.

    With ``horizon`` n (``training.average_last``) it is the plain mean of the weights after each of the first n updates
    and from then on an exponential average: ``mean += (weights - mean) / min(n, updates)``. One copy of the weights is
    all it stores, so it resumes exactly; a mean over the last n checkpoints would store n. Buffers are not averaged;
    with horizon 0 nothing is.
    """

    def __init__(self, model: nn.Module, horizon: int) -> None:
        self.horizon = horizon
        self.updates = 0
        self._live = dict(model.named_parameters())
        self.mean: dict[str, Tensor] = {name: p.detach().clone() for name, p in self._live.items() if horizon}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights; called after every optimizer step."""
        if not self.horizon:
            return
        self.updates += 1
        weight = 1.0 / min(self.horizon, self.updates)
        torch._foreach_lerp_(list(self.mean.values()), list(self._live.values()), weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model holds the averaged weights inside, its own again afterwards (also after an error)."""
        if not self.updates:
            yield
            return
        own = {name: p.detach().clone() for name, p in self._live.items()}
        self._copy(self.mean)
        try:
            yield
        finally:
            self._copy(own)

    def load(self, mean: dict[str, Tensor], updates: int) -> None:
        """Restore what a checkpoint stored."""
        for name, value in self.mean.items():
            value.copy_(mean[name])
        self.updates = updates

    @torch.no_grad()
    def _copy(self, values: dict[str, Tensor]) -> None:
        for name, parameter in self._live.items():
            parameter.copy_(values[name])
