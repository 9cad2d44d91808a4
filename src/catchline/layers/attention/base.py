"""The interface of attention mechanisms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.errors import ConfigError
from catchline.types import AttentionOutput, Memory


class Switchable(nn.Module):
    """A part of a model with switches of its own: an attention, an opponent."""

    def switches(self) -> dict[str, Any]:
        """What a training phase or a search may switch, and the present values."""
        return {}

    def switch(self, options: Mapping[str, Any]) -> None:
        """Set switches (names are checked by the model)."""


class Attention(Switchable):
    """Reads the encoder's memory. ``Class(config, memory_size=D, query_size=Q)``.

    A state goes in and comes out; nothing about a batch is kept on the module. Tensors of the state
    have N = B * Q rows in front, what belongs to the document is `Shared`.
    """

    Config: type[ConfigBase] = ConfigBase
    config: ConfigBase
    recurrent: bool = False  # does a reading depend on the readings before it (now, with present switches)?

    @abstractmethod
    def init_state(self, memory: Memory) -> Any:
        """Project the keys once; return the state before the first reading, one row a document."""

    @abstractmethod
    def forward(self, query: Tensor, state: Any) -> tuple[AttentionOutput, Any]:
        """Read with queries (B, Q, query_size). A recurrent mechanism carries Q rows a document through
        the state: Q are then beams of one step, never the steps of a sequence."""


def flag(options: Mapping[str, Any], name: str, now: bool) -> bool:
    """The switch among ``options``, or what it is now. Raises: ConfigError: it is neither true nor false."""
    value = options.get(name, now)
    if not isinstance(value, bool):
        raise ConfigError(f"The switch '{name}' is true or false, not '{value}'.")
    return value
