"""Phases: coverage switch-on, curricula, freezing, soft-attention pre-training.

Which phase holds is a pure function of the number of completed updates. What a phase does not name keeps the
value of the phase before (limits, learning rate, switches, weights); ``freeze`` is each phase's own list, so an
empty one thaws everything. After the last ``until`` the last phase stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from catchline.config.schema import TextConfig, TrainingConfig
from catchline.errors import ConfigError
from catchline.models.base import SummarizationModel

Limits = tuple[int, int]


@dataclass(frozen=True)
class PhaseSettings:
    """Everything a phase settles, the values kept from earlier phases included."""

    index: int
    name: str
    max_source_tokens: int
    max_target_tokens: int
    learning_rate: float
    model: dict[str, Any] = field(default_factory=dict)
    objective_weights: dict[str, float] = field(default_factory=dict)
    freeze: tuple[str, ...] = ()
    reset_optimizer: bool = False

    @property
    def limits(self) -> Limits:
        return self.max_source_tokens, self.max_target_tokens


class Phases:
    """The phases of a run. ``updates(limits)`` says how many make a pass over texts cut so; a pass that other limits
    cut short counts as one.

    Raises:
        ConfigError: the ends do not rise, a phase after an endless one, or limits above the text's own.
    """

    def __init__(self, training: TrainingConfig, text: TextConfig, updates: Callable[[Limits], int]) -> None:
        self._settings, self._ends = _fold(training, text), list[int | None]()
        limits, update = self._settings[0].limits, 0
        size, origin = updates(limits), 0  # pass n begins with update ``origin + n * size``
        self._passes = [(size, origin)]
        for phase, settings in zip(training.phases, self._settings, strict=False):
            if phase.until is not None and phase.until_epoch is not None:
                raise ConfigError(f"Phase '{phase.name}' has both 'until' and 'until_epoch'; give one.")
            if settings.limits != limits:
                begun = -(-(update - origin) // size)
                limits, size = settings.limits, updates(settings.limits)
                origin = update - begun * size
            self._passes[settings.index :] = [(size, origin)]
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
        """The update with which so many passes over the data are done."""
        ends = [origin + number * size for size, origin in self._passes]
        return next((end for end, last in zip(ends, self._ends, strict=False) if last is None or end <= last), ends[-1])

    def at(self, update: int) -> PhaseSettings:
        """The settings for the update after ``update`` completed ones."""
        phases = zip(self._settings, self._ends, strict=False)
        return next((phase for phase, end in phases if end is None or update < end), self._settings[-1])

    def __getitem__(self, index: int) -> PhaseSettings:
        return self._settings[min(index, len(self._settings) - 1)]  # of a recipe that was changed, perhaps

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


def _fold(training: TrainingConfig, text: TextConfig) -> list[PhaseSettings]:
    """Each phase's settings, with what the phases before it leave."""
    now = PhaseSettings(0, "", text.max_source_tokens, text.max_target_tokens, training.optimizer.learning_rate)
    settings: list[PhaseSettings] = []
    for index, phase in enumerate(training.phases):
        limits = phase.model_dump(include={"max_source_tokens", "max_target_tokens"}, exclude_none=True)
        for name, asked in limits.items():
            if asked > (most := getattr(text, name)):
                raise ConfigError(
                    f"Phase '{phase.name}' asks for {name} {asked}, but the texts are cut to "
                    f"text.{name} = {most}; raise that."
                )
        now = replace(
            now,
            index=index,
            name=phase.name,
            learning_rate=phase.learning_rate or now.learning_rate,
            model=now.model | phase.model,
            objective_weights=now.objective_weights | phase.objective_weights,
            freeze=phase.freeze,
            reset_optimizer=phase.reset_optimizer,
            **limits,
        )
        settings.append(now)
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
