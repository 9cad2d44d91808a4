"""Coarse-to-fine attention for document summarization (Ling and Rush 2017).

The three systems are one encoder-decoder with one of three attentions (`catchline.layers.attention.chunked`):

    STANDARD   attends to every word of the document
    HIER       attends to every chunk, and within each to every word
    C2F        chooses k chunks a step and reads those alone; trained with REINFORCE

A step: ``h_t`` = LSTM([E(y_{t-1}); c_{t-1}]),  c~ = attention(h_t),  **c_t = tanh(W_2 [c~; h_t])**,
``p(y_t) = softmax(W_g c_t + b_g)``. All decoder states start at zero: the document reaches the decoder only through
attention. What c_t feeds (output and next input) is what dropout left of it.

Conditional computation (`encode`): ``full`` reads all chunks first, ``lazy`` a chunk when it is first chosen,
``replay`` (training) chooses in a pass without gradients and then reads the chosen ones in one call. All three give
the same numbers, noise included, because noise is a function of (seed, example, chunk or step).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from catchline.config.base import ConfigBase
from catchline.config.names import CHUNK_ATTENTIONS, COARSE_ENCODERS, Table, build
from catchline.errors import ConfigError
from catchline.layers.attention.chunked import ChunkAttention, ChunkFeatures, ChunkSampling, log_of
from catchline.layers.chunks import (
    STREAMS,
    ChunkStates,
    CoarseEncoder,
    ExampleNoise,
    Grid,
    WordEncoder,
    dropout_mask,
    make_grid,
    mixed,
)
from catchline.layers.copying.pointer import HeadInput, VocabularyHead, VocabularyProjection
from catchline.models.base import RecurrentConfig, Spec, SummarizationModel
from catchline.papers.coarse_to_fine import entropy, final_context, policy_log_prob
from catchline.types import (
    PLAIN_PASS,
    AttentionOutput,
    Batch,
    Memory,
    ModelOutput,
    Shared,
    StepOutput,
    TrainingBatch,
    UpdateContext,
)

# What noise is for: each use has its own stream.
_DRAW, _FEED, _WORDS = range(1, 4)
_MODES = ("auto", "full", "lazy", "replay")
_EXPLAINS = ("coarse", "sampled", "shares", "fine")
_FEW_CHUNKS = 12  # reading this many rows at once costs about as much as reading one


class CoarseToFineConfig(RecurrentConfig):
    """Numbers are rows of the table "Options" of the page on this system. ``separator_id`` is the token that ends a
    sentence, for ``chunking: sentence``; a training takes the tokenizer's."""

    attention: Spec = Field(default_factory=lambda: {"type": "coarse_to_fine"})
    coarse: Spec = Field(default_factory=lambda: {"type": "convolution"})
    chunking: Literal["grid", "sentence"] = "grid"  # (1)
    chunks: int | None = Field(10, ge=1, le=65_536)  # C; none: as many as the document needs
    chunk_words: int = Field(40, ge=1, le=65_536)  # W
    separator_id: int | None = None
    position_size: int = Field(0, ge=0, le=65_536)  # +POS: 25
    position_rows: int | None = Field(None, ge=1, le=65_536)  # (21) chunks beyond the last share its vector
    layers: int = Field(2, ge=1, le=1000)
    freeze_words: bool = False  # (11) the word encoder's table
    mask_padding: bool = False  # (14)
    alternate: float = Field(0.0, ge=0, le=1)  # +ALTERNATE: the share of minibatches with soft attention
    alternate_unit: Literal["minibatch", "step"] = "minibatch"  # (30)
    encode: Literal["auto", "full", "lazy", "replay"] = "auto"  # (48)
    init_range: float = Field(0.1, gt=0)


@dataclass(slots=True)
class _Trace:
    """What the steps leave; T entries."""

    features: list[Tensor] = field(default_factory=list)  # c_t (B, H)
    sampled: list[Tensor] = field(default_factory=list)  # (B, k)
    policy: list[Tensor] = field(default_factory=list)  # (B,) sum_i n_i log alpha^s_i
    entropies: list[Tensor] = field(default_factory=list)  # (B,)
    weights: list[Tensor] = field(default_factory=list)  # (B, 1, S), where they are shown

    def remember(self, features: Tensor, output: AttentionOutput, *, drawn: bool) -> None:
        """Append a step; ``drawn``: its chunks were drawn, so the policy wants their log-probability."""
        self.features.append(features)
        log_coarse = output.aux["log_coarse"] if "log_coarse" in output.aux else log_of(output.aux["coarse"])
        self.entropies.append(entropy(log_coarse).squeeze(1))
        if "sampled" not in output.aux:
            return
        self.sampled.append(output.aux["sampled"].squeeze(1))
        if drawn:
            self.policy.append(policy_log_prob(log_coarse, output.aux["sampled"]).squeeze(1))


class CoarseToFine(SummarizationModel):
    """See the file's docstring; ``Class(config, vocab_size=V, pad_id=, unk_id=, bos_id=, eos_id=)``."""

    Config = CoarseToFineConfig
    parts: ClassVar[Mapping[str, tuple[str, Table]]] = {
        "attention": ("chunk attention", CHUNK_ATTENTIONS),
        "coarse": ("coarse encoder", COARSE_ENCODERS),
    }
    config: CoarseToFineConfig
    encoder_switches = None  # any may
    attended_tokens = 8192  # up to here a step's weights are also laid out over the whole document

    def __init__(self, config: CoarseToFineConfig, **ids: int) -> None:
        super().__init__(config, **ids)
        self.encode_mode: str = config.encode
        size, hidden = config.embedding_size, config.hidden_size
        self.embedding = nn.Embedding(self.vocab_size, size, padding_idx=self.pad_id)
        self.target_embedding = nn.Embedding(self.vocab_size, size, padding_idx=self.pad_id)
        self.encoder = WordEncoder(size, hidden, num_layers=config.layers, dropout=config.dropout)
        self.decoder = WordEncoder(size + hidden, hidden, num_layers=config.layers, dropout=config.dropout)
        context: dict[str, Any] = {"hidden_size": hidden, "coarse_size": 0}
        attention = build("chunk attention", CHUNK_ATTENTIONS, config.attention, hidden_size=1, coarse_size=1)
        self.coarse: CoarseEncoder | None = None
        self.positions: nn.Embedding | None = None
        if attention.needs_coarse:
            self.coarse = build(
                "coarse encoder", COARSE_ENCODERS, config.coarse, embedding=self.embedding, pad_id=self.pad_id
            )
            context["coarse_size"] = self.coarse.size + config.position_size
            if config.position_size:
                rows = config.position_rows or config.chunks
                if rows is None:
                    raise ConfigError("model.position_size needs model.position_rows when model.chunks is not set.")
                self.positions = nn.Embedding(rows, config.position_size)
        self.attention: ChunkAttention = build("chunk attention", CHUNK_ATTENTIONS, config.attention, **context)
        self.merge = nn.Linear(2 * hidden, hidden, bias=False)
        projection = VocabularyProjection(hidden, self.vocab_size)
        self.head = VocabularyHead(ConfigBase(), projection=projection, gate_size=hidden, unk_id=self.unk_id)
        if config.chunking == "sentence" and config.separator_id is None:
            raise ConfigError("model.chunking 'sentence' needs model.separator_id, the id of the sentence separator.")
        self._initialise()

    # ------------------------------------------------------------------ encode, start, step

    def encode(self, batch: Batch) -> Memory:
        """The grid, its coarse vectors and, where attention is soft, all word states; else a reader of chunks."""
        grid = self._grid(batch)
        return self._encoded(batch, grid, None, self._mode(grid, 0, soft=False))

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One step for N = B * Q rows. Details: ``coarse`` (N, C) and, of C2F, ``sampled``, ``shares`` (N, k) and
        ``fine`` (N, k, W). ``attention`` (N, S) adds up to less than one where padding was attended."""
        embedded = self.target_embedding(self._known(last_ids))
        cells, hidden = self.decoder.step(torch.cat([embedded, state["feed"]], dim=-1), state["cells"])
        documents, mask = state["documents"].tree
        output = self.attention(hidden.unflatten(0, (documents.shape[0], -1)), state["attention"])
        context = output.context.flatten(0, 1)
        features = final_context(context, hidden, self.merge)
        result, state = self._step_output(self._head_input(features, state), None, hidden, state)
        result.details |= {name: output.aux[name].flatten(0, 1) for name in _EXPLAINS if name in output.aux}
        result.context = context
        if mask.shape[1] <= self.attended_tokens:
            grid = state["features"].states.grid.part(documents)
            result.attention = (grid.flat(laid_out(output, grid), mask.shape[1]) * mask.unsqueeze(1)).flatten(0, 1)
        return result, state | {"cells": cells, "feed": features}

    def read_figures(self, memory: Memory) -> list[tuple[dict[str, int], np.ndarray]]:
        states: ChunkStates = memory.extra["features"].states
        grid, words = states.grid, states.grid.words.sum(dim=2)
        read = states.slots >= 0 if memory.extra["features"].flat is None else grid.chunks
        figures = torch.stack([grid.chunks.sum(1), read.sum(1), words.sum(1), (words * read).sum(1)], dim=1).tolist()
        names, ranges = ("chunks", "chunks_read", "words", "words_read"), grid.token_ranges().cpu().numpy()
        return [(dict(zip(names, row, strict=True)), of[: row[0]]) for row, of in zip(figures, ranges, strict=True)]

    # ---------------------------------------------------------------------------- training

    def forward(self, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> ModelOutput:
        """Teacher-forced pass. Details (B, T): ``coarse_entropy`` in nats and, where chunks were drawn,
        ``policy_log_prob``, the log-probability of the step's draws."""
        grid = self._grid(batch)
        noise_of = ExampleNoise.of(batch, context.noise_seed) if self.training else None
        soft = self._soft_steps(noise_of, batch.target_ids.shape[1])
        keys = None if noise_of is None else noise_of.examples
        mode = self._mode(grid, batch.target_ids.shape[1] if self.training else 0, soft=any(soft))
        sampled = chosen = None
        with torch.autocast(batch.source_ids.device.type, enabled=False):  # only the vocabulary is worth it
            if mode == "replay":
                with torch.no_grad():
                    memory = self._encoded(batch, grid, keys, "lazy")
                    sampled = self._run(batch, memory, keys, soft, context.forced_mask).sampled
                chunks = torch.stack(sampled, dim=1)[batch.target_mask]  # (M, k) where the target is still going
                documents = batch.target_mask.nonzero()[:, :1].expand_as(chunks)
                chosen = torch.stack([documents, chunks], dim=-1).flatten(0, 1).unique(dim=0).unbind(dim=1)
            memory = self._encoded(batch, grid, keys, mode, chosen)
            trace = self._run(batch, memory, keys, soft, context.forced_mask, sampled)
        return self._project(trace, batch, memory, soft, context)

    def _run(
        self,
        batch: TrainingBatch,
        memory: Memory,
        keys: Tensor | None,
        soft: list[bool],
        forced: Tensor | None,
        sampled: list[Tensor] | None = None,
    ) -> _Trace:
        """All steps. With ``sampled`` those chunks are read; else they are drawn (with ``keys``) or the best."""
        trace = _Trace()
        states = {flag: self._first_state(memory, soft=flag)["attention"] for flag in set(soft)}
        state = self._first_state(memory, soft=soft[0])
        state["source"], feed = Shared(self._source(memory)), state["feed"]
        forced = torch.ones_like(batch.target_mask) if forced is None else forced
        grid, num_tokens = memory.extra["features"].states.grid, batch.source_ids.shape[1]
        shows = not self.training and num_tokens <= self.attended_tokens

        def log_probs() -> Tensor:
            return self._words(self._head_input(trace.features[-1], state), None, state)[0]

        for t, words in enumerate(self._input_words(batch.target_input_ids, batch, forced, log_probs)):
            is_soft = soft[t]
            inputs = torch.cat([self.target_embedding(words), feed], dim=-1)
            state["cells"], hidden = self.decoder.step(inputs, state["cells"], keys, t)
            sampling = ChunkSampling(alive=batch.target_mask[:, t])
            if sampled is not None and not is_soft:
                sampling.sampled = sampled[t].unsqueeze(1)
            elif keys is not None:
                sampling.keys = mixed(_DRAW + STREAMS * t, keys)
            output = self.attention(hidden.unsqueeze(1), states[is_soft], sampling)
            feed = final_context(output.context.squeeze(1), hidden, self.merge)
            if keys is not None and self.config.dropout:
                of_step = mixed(_FEED + STREAMS * t, keys)
                feed = feed * dropout_mask(of_step, feed.shape[1], dropout=self.config.dropout, dtype=feed.dtype)
            trace.remember(feed, output, drawn=keys is not None and not is_soft)
            if shows:
                trace.weights.append(grid.flat(laid_out(output, grid), num_tokens))
        return trace

    def _project(
        self, trace: _Trace, batch: TrainingBatch, memory: Memory, soft: list[bool], context: UpdateContext
    ) -> ModelOutput:
        """The vocabulary, once, on real target tokens."""
        gold, mask = self._gold(batch, context), batch.target_mask
        features = gold.at(torch.stack(trace.features, dim=1))
        output = self._likelihood(HeadInput(features, features), None, gold, memory)
        output.details["coarse_entropy"] = entropies = torch.stack(trace.entropies, dim=1) * mask
        if context.observe or not self.training:
            output.figures["coarse_entropy"] = entropies.detach().sum() / mask.sum()
        if trace.policy:
            drawn = iter(trace.policy)  # zero where attention was soft or the target had ended
            policy = [torch.zeros_like(trace.policy[0]) if flag else next(drawn) for flag in soft]
            output.details["policy_log_prob"] = torch.stack(policy, dim=1) * mask
            output.details["draws"] = torch.tensor(float(trace.sampled[0].shape[1]))
        if trace.weights:
            output.attention = torch.cat(trace.weights, dim=1) * batch.source_mask.unsqueeze(1)
        return output

    def _head_input(self, features: Tensor, state: dict[str, Any]) -> HeadInput:
        """What the head reads, c_t (N, H), as Q rows a document."""
        features = features.unflatten(0, (state["documents"].tree[0].shape[0], -1))
        return HeadInput(features, features)

    # -------------------------------------------------------------------------------- reading

    def _grid(self, batch: Batch) -> Grid:
        c = self.config
        sizes: dict[str, Any] = {"chunk_words": c.chunk_words, "num_chunks": c.chunks, "pad_id": self.pad_id}
        separator = c.separator_id if c.chunking == "sentence" else None
        return make_grid(batch.source_ids, batch.source_mask, separator_id=separator, **sizes)

    def _mode(self, grid: Grid, draws: int, *, soft: bool) -> str:
        """How the word states come about: what was asked for, where there is a choice. ``draws`` is the number of
        steps that draw chunks, 0 where the best are read; only what was drawn can be replayed."""
        if soft or not self.attention.chooses:
            return "full"
        if self.encode_mode == "replay" and not draws:
            return "lazy"
        if self.encode_mode != "auto":
            return self.encode_mode
        if draws:
            return "full" if grid.num_chunks <= 2 * draws else "replay"
        return "full" if grid.num_chunks <= _FEW_CHUNKS else "lazy"

    def _encoded(
        self, batch: Batch, grid: Grid, keys: Tensor | None, mode: str, chosen: tuple[Tensor, ...] | None = None
    ) -> Memory:
        """``chosen`` (documents and chunks, (P,) each) are read at once where ``mode`` is to replay them."""
        seeds = None if keys is None else mixed(_WORDS, keys)
        flat = self._flat_states(grid, seeds)
        if mode == "full" and flat is None:
            chosen = grid.chunks.nonzero(as_tuple=True)
        states = ChunkStates(self.encoder, self.embedding, grid, seeds, chosen)
        features = ChunkFeatures(states, self._attendable(grid), self._coarse(batch, grid), flat)
        nothing = self.embedding.weight.new_zeros(grid.ids.shape[0], 0, self.config.hidden_size)
        return self._memory(batch, nothing, features=features)

    def _flat_states(self, grid: Grid, seeds: Tensor | None) -> Tensor | None:
        """STANDARD: one pass over the whole document, (B, C W, H); grid padding may lie between words only in
        sentence chunks, so those are read without it."""
        if not self.attention.reads_flat:
            return None
        words = grid.words.flatten(1)
        order = (~words).long().argsort(dim=1, stable=True)  # real words first, in their order
        ids = grid.ids.flatten(1).gather(1, order)
        read = self.encoder(self.embedding(ids), words.gather(1, order), seeds)
        return torch.zeros_like(read).scatter(1, order.unsqueeze(2).expand_as(read), read)

    def _attendable(self, grid: Grid) -> Tensor:
        """(B, C, W): the document's own rows, padding included (14); with ``mask_padding`` real words only."""
        if not self.config.mask_padding:
            return grid.chunks.unsqueeze(2).expand_as(grid.words)
        attendable = grid.words.clone()
        attendable[~grid.words.flatten(1).any(1), 0, 0] = True  # an empty document has something to attend, too
        return attendable

    def _coarse(self, batch: Batch, grid: Grid) -> Tensor | None:
        """S (B, C, D_s): the chunk vectors, with +POS their places."""
        if self.coarse is None:
            return None
        vectors = self.coarse(grid)
        if self.positions is None:
            return vectors
        places = torch.arange(grid.num_chunks, device=vectors.device).clamp_max(self.positions.num_embeddings - 1)
        return torch.cat([vectors, self.positions(places).expand(vectors.shape[0], -1, -1)], dim=2)

    # ---------------------------------------------------------------------------------- parts

    def _first_state(self, memory: Memory, *, soft: bool = False) -> dict[str, Any]:
        """Zero states, zero first context."""
        features: ChunkFeatures = memory.extra["features"]
        size, hidden = memory.mask.shape[0], self.config.hidden_size
        zero = self.embedding.weight.new_zeros(size, hidden)
        documents = torch.arange(size, device=zero.device)
        return {
            "cells": [(zero, zero) for _ in range(self.config.layers)],
            "feed": zero,
            "attention": self.attention.open(features, soft=soft),
            "documents": Shared((documents, memory.mask)),
            "features": features,
        }

    def _soft_steps(self, noise_of: ExampleNoise | None, steps: int) -> list[bool]:
        """+ALTERNATE: which steps attend softly; all or none of a minibatch, or each by its own coin (30)."""
        always = not self.attention.chooses
        if always or noise_of is None or not self.config.alternate:
            return [always] * steps
        by_step = self.config.alternate_unit == "step"
        return [noise_of.coin(t if by_step else 0) < self.config.alternate for t in range(steps)]

    def _initialise(self) -> None:
        """U(-0.1, 0.1) for everything, biases included; padding rows zero (section 5, "Training")."""
        limit = self.config.init_range
        with torch.no_grad():
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -limit, limit)
            own = None if self.coarse is None else self.coarse.own
            if own is not None and own.weight.shape == self.embedding.weight.shape:
                own.weight.copy_(self.embedding.weight)
            for module in self.modules():
                if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                    module.weight[module.padding_idx] = 0
        self.embedding.weight.requires_grad_(not self.config.freeze_words)

    def _word_tables(self) -> Sequence[nn.Embedding]:
        """The chunks' own included."""
        own = None if self.coarse is None else self.coarse.own
        return self.embedding, self.target_embedding, *([] if own is None else [own])

    def switches(self) -> dict[str, Any]:
        return {"encode": self.encode_mode} | self.attention.switches()

    def _set_switch(self, name: str, value: Any) -> None:
        if name == "encode":
            if value not in _MODES:
                raise ConfigError(f"The model can encode {', '.join(_MODES)}; not '{value}'.")
            self.encode_mode = value
        else:
            self.attention.switch({name: value})


def laid_out(output: AttentionOutput, grid: Grid) -> Tensor:
    """The weights of all cells, (B, Q, C, W): those of the chunks read, zero elsewhere, if chunks were chosen."""
    if "sampled" not in output.aux:
        return output.weights.unflatten(2, grid.ids.shape[1:])
    sampled, shares, fine = (output.aux[name] for name in ("sampled", "shares", "fine"))
    laid = fine.new_zeros(*sampled.shape[:2], *grid.ids.shape[1:])
    index = sampled.unsqueeze(-1).expand_as(fine)
    return laid.scatter_add(2, index, shares.unsqueeze(-1) * fine)
