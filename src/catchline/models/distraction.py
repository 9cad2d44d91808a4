"""The distraction-based summarizer: Chen, Zhu, Ling, Wei and Jiang, IJCAI 2016.

The rows of its tables from Uni-GRU to M2 are settings of this one model; UNK replacement and M3 belong to search.
A step of the two-level decoder (equations 8 to 14):

    (10)          s'_t = GRU_2(s_{t-1}, e(y_{t-1}))      the word comes first
    (11) to (14)  e_t, alpha_t, c'_t, c_t                layers/attention/additive.py, read with s'_t
    (9)           s_t  = GRU_1(s'_t, c_t)                the content second
    (8)           p_t  = softmax(W_o tanh(V_o e(y_{t-1}) + U_o s_t + C_o c_t))

The one-level decoder, which the paper names but does not define, is the usual one: attention reads s_{t-1}, and
s_t = GRU(s_{t-1}, [e(y_{t-1}); c_t]).

| paper | here |
| --- | --- |
| E | ``embedding`` (V, E), of encoder and decoder; the output is not tied to it |
| h_i | ``encoder``: a GRU, or one in each direction with H units each |
| s_0 = tanh(W_i mean_i h_i + b_i) | ``initial`` (the release; the paper is silent) |
| GRU_2, GRU_1 | ``decoder.of_word``, ``decoder.of_content`` |
| V_o, U_o, C_o | ``readout``, the columns of [e; s; c] in this order |
| W_o | ``head.projection`` |
| y_0 | the zero vector: what the decoder reads for BOS |

Before the loop: the encoder, U_a h, and the products of GRU_2 with all words. After it: the readout and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from catchline.config.names import ATTENTIONS, build
from catchline.layers.attention.additive import AdditiveEnergies, Attention, Switchable
from catchline.layers.copying.pointer import CopyHead, HeadInput, VocabularyProjection, build_copy_head
from catchline.layers.recurrent import GruCell, PaperGruCell, PaperRecurrence, Recurrence
from catchline.models.base import RecurrentConfig, RecurrentModel, Spec, Steps
from catchline.papers.distraction import readout
from catchline.types import AttentionOutput, Batch, Memory, Shared, StepOutput

_OWN_START = {"history_vector", "content_vector", "content_history_vector"}  # as ``m1_init`` says


class DistractionConfig(RecurrentConfig):
    """Numbers are rows of the table "Options" in ``docs/distraction.md``. ``hidden_size`` is of the decoder, and of
    each direction of the encoder (20). ``attention`` holds M1 (``content``) and M2 (``history``)."""

    bidirectional: bool = True  # (15)
    decoder: Literal["two-level", "one-level"] = "two-level"  # (14)
    gru: Literal["torch", "paper"] = "torch"  # (2)
    bias: bool = True  # (3), and in the energy (6)
    readout_size: int | None = Field(None, ge=1, le=65_536)  # none: hidden_size (4)
    attention: Spec = Field(default_factory=lambda: {"type": "distraction", "size": 100})  # (5)
    head: Spec = Field(default_factory=lambda: {"type": "vocabulary"})
    init: Literal["gaussian", "torch"] = "gaussian"


class TwoLevelDecoder(nn.Module):
    """Equations (9) to (14): GRU_2 reads the word, attention its state, GRU_1 the content. Word products are (N, 3H),
    states (N, H)."""

    def __init__(self, cell: type[GruCell], word_size: int, content_size: int, size: int, *, bias: bool) -> None:
        super().__init__()
        self.of_word = cell(word_size, size, bias=bias)
        self.of_content = cell(content_size, size, bias=bias)

    def word_products(self, embedded: Tensor) -> Tensor:
        """GRU_2's input products, (..., E) -> (..., 3H)."""
        return self.of_word.project(embedded)

    def query(self, words: Tensor, state: Tensor) -> Tensor:
        """What attention reads, s'_t = GRU_2(s_{t-1}, e)."""
        return self.of_word.step(words, state)

    def following(self, words: Tensor, query: Tensor, context: Tensor) -> Tensor:
        """The next state, s_t = GRU_1(s'_t, c_t)."""
        return self.of_content.step(self.of_content.project(context), query)


class OneLevelDecoder(nn.Module):
    """Attention reads s_{t-1}; one GRU reads [e(y_{t-1}); c_t]."""

    def __init__(self, cell: type[GruCell], word_size: int, content_size: int, size: int, *, bias: bool) -> None:
        super().__init__()
        self.word_size = word_size
        self.cell = cell(word_size + content_size, size, bias=bias)

    def word_products(self, embedded: Tensor) -> Tensor:
        """The word's share of the GRU's input products, (..., E) -> (..., 3H)."""
        return self.cell.project(embedded, slice(0, self.word_size))

    def query(self, words: Tensor, state: Tensor) -> Tensor:
        """What attention reads, s_{t-1}."""
        return state

    def following(self, words: Tensor, query: Tensor, context: Tensor) -> Tensor:
        """The next state, s_t = GRU(s_{t-1}, [e; c_t])."""
        of_content = nn.functional.linear(context, self.cell.weight_ih[:, self.word_size :])
        return self.cell.step(words + of_content, query)


class Distraction(RecurrentModel):
    """See the file's docstring; ``Class(config, vocab_size=V, pad_id=, unk_id=, bos_id=, eos_id=)``."""

    Config = DistractionConfig
    config: DistractionConfig

    def __init__(self, config: DistractionConfig, **ids: int) -> None:
        super().__init__(config, **ids)
        words, size, bias = config.embedding_size, config.hidden_size, config.bias
        memory_size = size * (1 + config.bidirectional)
        self.embedding = nn.Embedding(self.vocab_size, words, padding_idx=self.pad_id)
        self.dropout = nn.Dropout(config.dropout)
        encoder: Any = PaperRecurrence if config.gru == "paper" else partial(Recurrence, "gru")
        self.encoder = encoder(words, size, bidirectional=config.bidirectional, bias=bias)
        self.initial = nn.Linear(memory_size, size, bias=bias)
        sizes = {"memory_size": memory_size, "query_size": size}
        self.attention: Attention = build("attention", ATTENTIONS, config.attention, **sizes)
        if not bias and isinstance(self.attention, AdditiveEnergies):
            self.attention.query_projection.register_parameter("bias", None)
        level = TwoLevelDecoder if config.decoder == "two-level" else OneLevelDecoder
        cell = PaperGruCell if config.gru == "paper" else GruCell
        self.decoder: TwoLevelDecoder | OneLevelDecoder = level(cell, words, memory_size, size, bias=bias)
        readout, gate_size = config.readout_size or size, words + size + memory_size
        self.readout = nn.Linear(gate_size, readout, bias=bias)
        projection = VocabularyProjection(readout, self.vocab_size, bias=bias)
        self.head: CopyHead = build_copy_head(
            config.head, projection=projection, gate_size=gate_size, unk_id=self.unk_id
        )
        if config.init == "gaussian" and not self.embedding.weight.is_meta:
            gaussian_start(self)

    # ------------------------------------------------------------------ encode, start, step

    def encode(self, batch: Batch) -> Memory:
        """``h_i`` (B, S, D) over real tokens only; ``final`` is s_0 (B, H)."""
        with torch.autocast(batch.source_ids.device.type, enabled=False):  # only the vocabulary is worth it
            embedded = self.dropout(self.embedding(batch.source_ids))
            states, _ = self.encoder.over_real_tokens(embedded, batch.source_mask)
            mean = states.sum(dim=1) / batch.source_mask.sum(dim=1, keepdim=True).clamp_min(1)  # zero at padding
            return self._memory(batch, states, torch.tanh(self.initial(mean)))

    def _first_state(self, memory: Memory) -> dict[str, Any]:
        """s_0, empty histories."""
        return {"state": memory.final, "attention": self.attention.init_state(memory), "mask": Shared(memory.mask)}

    def _step_output(
        self, inputs: HeadInput, attention: AttentionOutput | None, hidden: Tensor, state: dict[str, Any]
    ) -> tuple[StepOutput, dict[str, Any]]:
        """With the attention's scores, of which search takes exact logarithms."""
        output, state = super()._step_output(inputs, attention, hidden, state)
        if attention is not None and attention.scores is not None:
            output.attention_scores = attention.scores.flatten(0, 1)
        return output, state

    def _force(self, embedded: Tensor, state: dict[str, Any], trace: Steps) -> None:
        """The words' products are made for all steps at once."""
        trace.embedded = [embedded]
        for products in self.decoder.word_products(embedded).unbind(dim=1):
            state = self._advance(products, state, trace)

    # --------------------------------------------------------------------------- one step

    def _traced(self, embedded: Tensor, state: dict[str, Any], trace: Steps) -> dict[str, Any]:
        trace.embedded.append(embedded.unsqueeze(1))
        return self._advance(self.decoder.word_products(embedded), state, trace)

    def _advance(self, products: Tensor, state: dict[str, Any], trace: Steps) -> dict[str, Any]:
        """One step on the words' products (N, 3H); appends to ``trace`` and returns the next state."""
        query = self.decoder.query(products, state["state"])
        documents = state["mask"].tree.shape[0]
        reading, attention = self.attention(query.unflatten(0, (documents, -1)), state["attention"])
        following = self.decoder.following(products, query, reading.context.flatten(0, 1))
        trace.outputs.append(following.unsqueeze(1))
        trace.remember(reading)
        return state | {"state": following, "attention": attention}

    def _embed(self, ids: Tensor) -> Tensor:
        """Decoder inputs (...,) -> (..., E); extended ids as UNK, BOS as the zero vector y_0."""
        return self.dropout(self.embedding(self._known(ids)).masked_fill((ids == self.bos_id).unsqueeze(-1), 0.0))

    def _head_inputs(self, trace: Steps, pick: Callable[[list[Tensor]], Tensor]) -> HeadInput:
        """Equation (8) up to W_o; the gate of a head that copies reads [c; s; e], as the pointer-generator's does."""
        embedded, state, context = pick(trace.embedded), pick(trace.outputs), pick(trace.contexts)
        features = torch.cat([embedded, state, context], dim=-1)
        hidden = readout(features, self.readout.weight, self.readout.bias)
        gate = torch.cat([context, state, embedded], dim=-1) if self.head.copies else features
        return HeadInput(hidden, gate)

    def _word_tables(self) -> Sequence[nn.Embedding]:
        return (self.embedding,)

    def _parts(self) -> Sequence[Switchable | None]:
        return (self.attention,)


def gaussian_start(model: nn.Module) -> None:
    """Recurrent matrices orthogonal gate by gate, biases zero, everything else 0.01 times N(0, 1). Orthogonal for each
    (H, H) block: an orthogonal (3H, H) matrix would have blocks that are not. Vectors of the distraction mechanisms
    keep the start that ``m1_init`` gave them."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            leaf = name.rpartition(".")[2]
            if leaf.startswith("weight_hh"):
                for gate in parameter.split(parameter.shape[1]):
                    nn.init.orthogonal_(gate)
            elif leaf.startswith("bias"):
                nn.init.zeros_(parameter)
            elif leaf not in _OWN_START:
                nn.init.normal_(parameter, std=0.01)
        for module in model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0
