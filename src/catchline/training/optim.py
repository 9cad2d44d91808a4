"""What changes over updates: optimizers, the learning rate, phases, and the averaged weights.

All optimizers but Adadelta, which has none, run torch's fused kernels: with 50,000 words on a CPU a fused Adam step
takes 13 ms against 62 (foreach) and 120 (plain). Embedding gradients are dense here; TensorFlow's sparse ones, on which
See et al. measured their norm, are not merged over repeated rows, so its clipping is not exactly this one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from catchline.config.schema import OptimizerConfig, PhaseConfig, ScheduleConfig, TrainingConfig
from catchline.errors import ConfigError


def build_optimizer(config: OptimizerConfig, parameters: nn.Module | Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that ``config`` describes, over a model's parameters or some of them. Frozen parameters may be
    among them: without a gradient they are left alone, and are trained once a phase thaws them.

    Each group has ``names``, the parameters' names in its order, and ``factor``, by which its rate is multiplied."""
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
    groups = list[dict[str, Any]]()
    for pattern, factor in config.rates:
        names = [name for name in left if fnmatchcase(name, pattern)]
        if not names:
            others = ", ".join(left)
            raise ConfigError(f"training.optimizer.rates: '{pattern}' matches no parameter; others: {others}.")
        groups.append({"params": [left.pop(name) for name in names], "names": names, "factor": factor})
    if left:
        groups.append({"params": list(left.values()), "names": list(left), "factor": 1.0})
    return groups


def total_updates(config: TrainingConfig, size: int) -> int | None:
    """How many updates the run makes by its settings, ``size`` of them a pass; None if only the clock ends it."""
    limits = [config.max_updates, config.max_epochs and config.max_epochs * size]
    return min((limit for limit in limits if limit), default=None)


def schedule_factor(config: ScheduleConfig, update: int, total: int | None, plateau_factor: float = 1.0) -> float:
    """What the base learning rate is multiplied with in the update after ``update`` completed ones.

    The warm-up rises linearly from ``warmup_start`` and reaches 1 at update ``warmup_updates``. Then ``linear`` falls
    from 1 to 0 at ``total``; ``inverse_sqrt`` is sqrt(warmup / update); ``plateau`` and ``sticky`` are
    ``plateau_factor``, which validation lowers."""
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
            "The schedule 'linear' needs an end: set training.max_updates or training.max_epochs besides "
            "max_minutes, or choose the schedule 'constant' or 'inverse_sqrt'."
        )
    return 1.0 - min(max(count - warmup, 0) / max(total - warmup, 1), 1.0)


# ------------------------------------------------------------------------------------------- phases


class Phases:
    """The phases of a run, each with what the phases before it leave; ``size`` updates make a pass over the data."""

    def __init__(self, phases: Sequence[PhaseConfig], size: int) -> None:
        now = PhaseConfig(name="")
        self._settings, self._ends = list[PhaseConfig](), list[int | None]()
        for phase in phases or (now,):
            kept = {
                name: getattr(phase, name) or getattr(now, name) for name in ("max_source_tokens", "max_target_tokens")
            }
            self._settings.append(now := phase.model_copy(update=kept | {"model": now.model | phase.model}))
            self._ends.append(phase.until if phase.until_epoch is None else phase.until_epoch * size)
        if any(end is None or (later is not None and later <= end) for end, later in pairwise(self._ends)):
            raise ConfigError(
                "training.phases: each phase but the last needs 'until' or 'until_epoch', and ends behind the one "
                f"before (given: {self._ends})."
            )

    def at(self, update: int) -> int:
        """The number of the phase of the update after ``update`` completed ones."""
        last = len(self._settings) - 1
        return next((number for number, end in enumerate(self._ends) if end is None or update < end), last)

    def __getitem__(self, number: int) -> PhaseConfig:
        return self._settings[number]


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
        copy_into(self._live, self.mean)
        try:
            yield
        finally:
            copy_into(self._live, own)

    def load(self, mean: dict[str, Tensor], updates: int) -> None:
        """Restore what a checkpoint stored."""
        copy_into(self.mean, mean)
        self.updates = updates


@torch.no_grad()
def copy_into(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Give each of the tensors the value of its name."""
    for name, tensor in tensors.items():
        tensor.copy_(values[name])
