"""What every summarization model offers: encode once, then start and step, or a teacher-forced pass.

Search sees `step` only. A decoder state is a nested structure (dict, tuple, list, dataclass) of tensors
with N = B * K decoder rows in front; what belongs to the document is wrapped in `Shared` and keeps B in
front, so that beams never copy the encoder's memory. Row ``b * K + k`` belongs to document ``b``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from laconic.config.base import ConfigBase
from laconic.config.names import Table
from laconic.errors import ConfigError, did_you_mean
from laconic.types import Batch, Memory, ModelOutput, StepOutput


class SummarizationModel(nn.Module):
    """Base class of the models. ``Class(config, vocab_size=V, pad_id=..., unk_id=..., bos_id=..., eos_id=...)``."""

    Config: type[ConfigBase] = ConfigBase  # options of the model, as they stand below ``model`` in a recipe
    parts: ClassVar[Mapping[str, tuple[str, Table]]] = {}  # options that hold components
    config: ConfigBase
    vocab_size: int
    pad_id: int
    unk_id: int
    bos_id: int
    eos_id: int
    decoder_start_id: int  # what the decoder reads first
    max_source_tokens: int | None = None  # the longest document that it can read; none: any
    max_target_tokens: int | None = None  # the longest summary that it can write; none: any
    encoder_switches: frozenset[str] | None = None  # switches that change what `encode` leaves; none: any may
    shares_memory: ClassVar[bool] = False  # does `forward` take up a memory, and leave its own?

    @abstractmethod
    def encode(self, batch: Batch) -> Memory:
        """Read the source: ``source_ids``, ``source_mask``, ``source_extended_ids`` of ``batch``."""

    @abstractmethod
    def start(self, memory: Memory) -> Any:
        """The decoder state before the first step, one row a document (K = 1)."""

    @abstractmethod
    def step(self, last_ids: Tensor, state: Any) -> tuple[StepOutput, Any]:
        """One step for N rows. ``last_ids`` (N,) may hold extended ids; they are embedded as UNK."""

    @abstractmethod
    def forward(self, batch: Batch, memory: Memory | None = None) -> ModelOutput:
        """Teacher-forced pass; where ``batch.forced_mask`` is false the model reads its own prediction.

        ``memory`` is what the encoder left of these documents in an earlier pass, to models with ``shares_memory``.
        """

    def cross_attentions(self, batch: Batch) -> Tensor:
        """How each layer and head reads the source in a teacher-forced pass: (L, H, B, T, S).

        Row t is the step that predicts ``target_ids[:, t]``. Models with one attention have L = H = 1.

        Raises:
            ConfigError: the model reads its source without attention.
        """
        attention = self(batch).attention
        if attention is None:
            raise ConfigError(f"This {type(self).__name__} has no attention over the source to look at.")
        return attention[None, None]

    def opponent_attention(self, batch: Batch) -> Tensor:
        """Contrastive attention's alpha_o in a teacher-forced pass: (B, T, S), rows as in `cross_attentions`.

        Raises:
            ConfigError: the model has no opponent.
        """
        raise ConfigError(f"This {type(self).__name__} has no opponent attention; rows of the contrastive recipe do.")

    def read_figures(self, memory: Memory) -> list[dict[str, int]]:
        """What was read of each document so far: ``chunks``, ``chunks_read``, ``words``, ``words_read``.

        Empty of models that do not read in chunks.
        """
        return []

    def chunk_tokens(self, memory: Memory) -> list[np.ndarray]:
        """Of each document the source tokens ``[first, last)`` of its chunks, (C, 2); empty as `read_figures`."""
        return []

    def load_embeddings(self, matrix: Tensor) -> None:
        """Replace the word embeddings (V, E) before training; models without any refuse."""
        raise ConfigError(f"{type(self).__name__} does not take pre-trained word embeddings.")

    def switch(self, options: Mapping[str, Any]) -> None:
        """Apply a training phase's model switches, for example ``{"coverage": True}``.

        Switching changes neither parameters nor optimizer state. Unknown names are refused.
        """
        known = self.switches()
        for name, value in options.items():
            if name not in known:
                raise ConfigError(
                    f"The model has no switch '{name}'.{did_you_mean(name, known)} Known: {sorted(known) or 'none'}."
                )
            self._set_switch(name, value)

    def switches(self) -> dict[str, Any]:
        """The switches and their present values (stored in checkpoints and in config.json)."""
        return {}

    def _set_switch(self, name: str, value: Any) -> None:
        raise AssertionError(name)
