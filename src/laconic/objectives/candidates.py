"""Summaries that a model writes while it is trained, and what it then thinks of them.

The encoder runs once: candidates are searched or drawn from the memory of the training pass, without gradients and
with the decoder's dropout off; then they are further targets of the same documents in one teacher-forced pass, which
has gradients, dropout, and that memory too.

What is drawn for a document is a function of (seed of the update, number of the example, number of the sample,
step) and of nothing else: not of the other documents of the batch, and no generator's state is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.config.base import ConfigBase
from laconic.config.schema import RunConfig, SearchConfig
from laconic.decoding import search_memory
from laconic.layers.noise import ExampleNoise, bits, mixed
from laconic.search.decode import switched
from laconic.search.scorers import HypothesesView, Scorer, SpecialIds
from laconic.search.state import select
from laconic.types import Batch, Hypothesis, Memory, ModelOutput, TrainingBatch, UpdateContext

_SAMPLES = 11  # the key of this use of the examples' noise


class Draw(Scorer):
    """Samples: leaves each row the one token that it draws with the probability the scores give it.

    ``keys`` (N,) are the rows' keys of noise; rows where ``drawn`` (N,) is false are left as they are.
    """

    name: ClassVar[str] = "draw"

    def __init__(self, keys: Tensor, drawn: Tensor, specials: SpecialIds) -> None:
        super().__init__(ConfigBase(), specials=specials)
        self.keys, self.drawn = keys, drawn

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        """Where the row's uniform number falls among the cumulated probabilities, found where the keys are."""
        sums = torch.from_numpy(scores).to(self.keys.device).double().softmax(dim=-1).cumsum(dim=-1)
        uniform = bits(mixed_rows(self.keys, view.length), 1).double() / 2**32
        found = torch.searchsorted(sums, uniform * sums[:, -1:], right=True).clamp_max(scores.shape[1] - 1)
        rows = self.drawn.nonzero().squeeze(-1).cpu().numpy()
        chosen = found.squeeze(-1).cpu().numpy()[rows]
        kept = scores[rows, chosen]
        scores[rows] = -np.inf
        scores[rows, chosen] = kept
        return scores


def mixed_rows(keys: Tensor, number: int) -> Tensor:
    """The keys (N,) of step ``number``."""
    return mixed(0, keys, torch.full_like(keys, number))


def specials_of(model: Any) -> SpecialIds:
    """The model's special ids."""
    return SpecialIds(model.unk_id, model.decoder_start_id, model.eos_id, model.pad_id)


def beam_config(run: RunConfig, beam_size: int) -> SearchConfig:
    """The run's own search with ``beam_size`` hypotheses, all of them returned and as long as the training's
    summaries; without blocking of repeated n-grams and without a least length beyond one word, so that what the model
    does of itself is seen."""
    changes = {"beam_size": beam_size, "num_return": beam_size, "diverse_groups": 1, "shrink_beam": False}
    length = {"max_length": run.text.max_target_tokens, "min_length": min(1, run.search.min_length)}
    return run.search.model_copy(update={**changes, **length, "no_repeat_ngram": 0})


@torch.no_grad()
def search_candidates(model: Any, memory: Memory, config: SearchConfig) -> list[list[Hypothesis]]:
    """The hypotheses of a beam search, best first; fewer than asked for where there are no more."""
    with _decoding(model), switched(model, config.model):
        return search_memory(model, memory, config, specials_of(model))


@torch.no_grad()
def draw_candidates(
    model: Any, memory: Memory, batch: Batch, context: UpdateContext, *, samples: int, max_length: int
) -> list[list[Hypothesis]]:
    """Of each document the greedy summary and then ``samples`` drawn from the model's distribution, UNK left out."""
    specials, count = specials_of(model), samples + 1
    config = SearchConfig(max_length=max_length, length_normalisation="none", forbid_unk=True)
    number = torch.arange(count, device=memory.mask.device)
    keys = mixed_keys(ExampleNoise.of(batch, context.noise_seed).examples, number)
    draw = Draw(keys, (number > 0).repeat(memory.batch_size), specials)
    with _decoding(model):
        found = search_memory(model, widened(memory, count), config, specials, [draw])
    # What is cut has no probability of going on: at full length EOS is not asked for, whether it came or not.
    flat = [replace(h, finished=h.finished and len(h.ids) < max_length) for (h,) in found]
    return [flat[first : first + count] for first in range(0, len(flat), count)]


def mixed_keys(examples: Tensor, numbers: Tensor) -> Tensor:
    """A key for every sample of every example: (B,), (n,) -> (B * n,)."""
    examples, numbers = torch.broadcast_tensors(examples.unsqueeze(1), numbers.unsqueeze(0))
    return mixed(_SAMPLES, examples.flatten(), numbers.flatten())


def widened(memory: Memory, count: int | Sequence[int]) -> Memory:
    """The memory with each document ``count`` times over (or as often as its own number says), with gradients."""
    device = memory.mask.device
    counts = torch.as_tensor(count, device=device).expand(memory.batch_size)
    rows = torch.arange(memory.batch_size, device=device).repeat_interleave(counts)
    wide: Memory = select(memory, rows)
    return wide


def score_candidates(
    model: Any,
    output: ModelOutput,
    batch: Batch,
    context: UpdateContext,
    candidates: Sequence[Sequence[Hypothesis]],
    weights: Sequence[float],
) -> Tensor:
    """The model's log-probability of every candidate, documents one after the other: (R,), with gradients.

    ``weights`` (R) are what each will weigh in the loss, as far as that is known: a hint (`GoldTokens`).
    """
    assert output.memory is not None, "the model leaves its memory"
    counts = [len(own) for own in candidates]
    rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(batch.source_ids.device)
    targets = _targets(model, [hypothesis for own in candidates for hypothesis in own], batch, rows)
    hint = torch.tensor(weights, device=rows.device, dtype=torch.float32)
    asked = UpdateContext(
        token_weights=hint.unsqueeze(1) * targets.target_mask if weights else None, noise_seed=context.noise_seed
    )
    return model(targets, widened(output.memory, counts), asked).gold_log_probs.sum(dim=1)


def _targets(model: Any, hypotheses: Sequence[Hypothesis], batch: Batch, rows: Tensor) -> TrainingBatch:
    """The documents ``rows`` (R,) of ``batch`` with the hypotheses as targets (R, T), with EOS where they end."""
    ids = [torch.tensor([*h.ids, model.eos_id] if h.finished else h.ids, dtype=torch.int64) for h in hypotheses]
    lengths = torch.tensor([len(row) for row in ids])
    mask = torch.arange(max(1, int(lengths.max()))) < lengths.unsqueeze(1)
    target = torch.full(mask.shape, model.pad_id).masked_scatter(mask, torch.cat(ids))
    known = target.masked_fill(target >= model.vocab_size, model.unk_id)
    read = torch.cat([torch.full_like(known[:, :1], model.decoder_start_id), known[:, :-1]], dim=1)
    device = batch.source_ids.device
    return TrainingBatch(
        source_ids=batch.source_ids[rows],
        source_extended_ids=batch.source_extended_ids[rows],
        source_mask=batch.source_mask[rows],
        extended_vocab_size=batch.extended_vocab_size,
        target_ids=target.to(device),
        target_input_ids=read.masked_fill(~mask, model.pad_id).to(device),
        target_mask=mask.to(device),
    )


@contextmanager
def _decoding(model: Any) -> Iterator[None]:
    """The model as it decodes, inside only."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)
