"""A running average of the weights, used for validation and for the exported model.

``average_last: n`` is the plain mean of the weights after each of the first n updates and from then on an
exponential average with horizon n: ``mean += (weights - mean) / min(n, updates)``. One copy of the weights is
all it stores, so it resumes exactly; a mean over the last n checkpoints would store n.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """The averaged parameters of ``model``; buffers are not averaged."""

    def __init__(self, model: nn.Module, horizon: int) -> None:
        self.horizon = horizon
        self.updates = 0
        self._live = dict(model.named_parameters())
        self.mean: dict[str, Tensor] = {name: p.detach().clone() for name, p in self._live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights; called after every optimizer step."""
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
