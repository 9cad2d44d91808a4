"""Several models as one: the mean of their probabilities at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.types import Batch, Memory, StepOutput


class Ensemble:
    """Models with the same ids, behind ``encode``, ``start`` and ``step``.

    Scores and log-probabilities are ``log(mean(exp(.)))`` over the members, attention and the details that
    all members give are means. The state is the list of the members' states.
    """

    def __init__(self, models: Sequence[Any]):
        if not models:
            raise ConfigError("An ensemble needs at least one model.")
        self.models = list(models)

    def encode(self, batch: Batch) -> Memory:
        """Each model's memory; what search reads is that of the first.

        Raises:
            ConfigError: the models do not agree on the extended vocabulary.
        """
        memories = [model.encode(batch) for model in self.models]
        first = memories[0]
        if any(memory.extended_vocab_size != first.extended_vocab_size for memory in memories):
            sizes = sorted({memory.extended_vocab_size for memory in memories})
            raise ConfigError(f"An ensemble's models must share one vocabulary, but theirs have {sizes} entries.")
        return Memory(
            states=first.states,
            mask=first.mask,
            extended_ids=first.extended_ids,
            extended_vocab_size=first.extended_vocab_size,
            extra={"members": memories},
        )

    def start(self, memory: Memory) -> list[Any]:
        """Each model's first state."""
        return [model.start(part) for model, part in zip(self.models, memory.extra["members"], strict=True)]

    def step(self, last_ids: Tensor, state: list[Any]) -> tuple[StepOutput, list[Any]]:
        """One step of every model, and their mean."""
        outputs, states = [], []
        for model, part in zip(self.models, state, strict=True):
            output, part = model.step(last_ids, part)
            outputs.append(output)
            states.append(part)
        attentions = [output.attention for output in outputs if output.attention is not None]
        details = {
            name: _mean([output.details[name] for output in outputs])
            for name, value in outputs[0].details.items()
            if all(name in o.details and o.details[name].shape == value.shape for o in outputs)
            and value.is_floating_point()
        }
        log_probs = _log_mean([output.log_probs for output in outputs])
        same = all(output.scores is output.log_probs for output in outputs)
        mean = StepOutput(
            scores=log_probs if same else _log_mean([output.scores for output in outputs]),
            log_probs=log_probs,
            attention=_mean(attentions) if len(attentions) == len(outputs) else None,
            details=details,
        )
        return mean, states


def _log_mean(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = torch.logaddexp(total, part)
    return total - math.log(len(parts))


def _mean(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).mean(0) if len(parts) > 1 else parts[0]
