"""The same equations as an exported graph wants them: few operations, none of them in place.

`catchline.kernels.dispatch` takes these where ``CATCHLINE_KERNELS`` is ``graph``, which is how a model is exported (see
`catchline.export`). They are for inference: nothing here has a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from catchline.papers import pointer_generator

_LEAST = -3.0e38  # a finite number for minus infinity, which cannot be subtracted from itself


def first_positions(ids: Tensor, size: int) -> Tensor:
    """Where each id occurs first in its row: (B, S) -> (B, S)."""
    return (ids.unsqueeze(2) == ids.unsqueeze(1)).long().argmax(dim=-1)


def final_distribution(
    vocabulary_logits: Tensor,
    gate: Tensor,
    copy_probs: Tensor,
    source_ids: Tensor,
    extended_vocab_size: int,
    first: Tensor | None = None,
) -> Tensor:
    """`catchline.papers.pointer_generator.final_distribution`: (B, Q, V), (B, Q), (B, Q, S), (B, Q, S) -> (B, Q, X).
    The same steps as in `catchline.kernels.vocabulary`, each with its own result."""
    assert first is not None
    log_gen, log_copy = logsigmoid(gate).unsqueeze(-1), logsigmoid(-gate).unsqueeze(-1)
    generated = torch.log_softmax(vocabulary_logits, dim=-1) + log_gen
    outside = extended_vocab_size - vocabulary_logits.shape[-1]
    none = torch.full((*gate.shape, outside), float("-inf"), dtype=gate.dtype)
    log_probs = torch.cat([generated, none], dim=-1)
    summed = torch.zeros_like(copy_probs).scatter_add(-1, first, copy_probs).gather(-1, first)
    parts = torch.stack([log_probs.gather(-1, source_ids), log_copy + summed.log()])
    peak = parts.amax(dim=0).clamp_min(_LEAST)  # what `logaddexp` becomes in a graph does not look for it
    return log_probs.scatter(-1, source_ids, (parts - peak).exp().sum(dim=0).log() + peak)


_SCHEMAS = {  # of operations that are one of a graph; `custom_op` would import torch's compiler, two seconds
    "energies": "(Tensor keys, Tensor queries, Tensor v, Tensor? coverage=None, Tensor? w=None) -> Tensor",
    "recurrence": "(Tensor inputs, Tensor mask, Tensor[] weights, str cell) -> (Tensor, Tensor, Tensor)",
}
for _name, _schema in _SCHEMAS.items():
    torch.library.define(f"catchline::{_name}", _schema)


@torch.library.impl("catchline::energies", "CPU")
def _energies(
    keys: Tensor, queries: Tensor, v: Tensor, coverage: Tensor | None = None, w: Tensor | None = None
) -> Tensor:
    return pointer_generator.attention_scores(keys, queries, v, coverage, w)


attention_scores = torch.ops.catchline.energies  # `catchline.papers.pointer_generator.attention_scores`
ENERGIES, RECURRENCE = torch.ops.catchline.energies.default, torch.ops.catchline.recurrence.default


@torch.library.impl("catchline::recurrence", "CPU")
def _recurrence(inputs: Tensor, mask: Tensor, weights: list[Tensor], cell: str) -> tuple[Tensor, Tensor, Tensor]:
    """One layer over the real tokens, one operation of a graph. ``weights`` hold each direction's input weights,
    state weights and two biases; ``cell`` is ``lstm``, ``gru`` (torch's) or ``paper_gru`` (reset before U)."""
    outputs, hidden, cells = [], [], []
    for number in range(len(weights) // 4):
        own = weights[4 * number : 4 * number + 4]
        state = memory = inputs.new_zeros(inputs.shape[0], own[1].shape[1])
        made: list[Tensor] = [state] * inputs.shape[1]
        order = range(inputs.shape[1]) if number == 0 else reversed(range(inputs.shape[1]))
        for t in order:
            real = mask[:, t : t + 1]
            after, after_memory = _cell(cell, inputs[:, t], state, memory, own)
            state, memory = torch.where(real, after, state), torch.where(real, after_memory, memory)
            made[t] = torch.where(real, state, 0.0)
        outputs.append(torch.stack(made, dim=1))
        hidden.append(state)
        cells.append(memory)
    return torch.cat(outputs, dim=-1), torch.stack(hidden), torch.stack(cells)


@torch.library.register_fake("catchline::energies")
def _(keys: Tensor, queries: Tensor, v: Tensor, coverage: Tensor | None = None, w: Tensor | None = None) -> Tensor:
    return keys.new_empty(keys.shape[0], queries.shape[1], keys.shape[1])


@torch.library.register_fake("catchline::recurrence")
def _(inputs: Tensor, mask: Tensor, weights: list[Tensor], cell: str) -> tuple[Tensor, Tensor, Tensor]:
    directions, width = len(weights) // 4, weights[1].shape[1]
    last = inputs.new_empty(directions, inputs.shape[0], width)
    return inputs.new_empty(*inputs.shape[:2], directions * width), last, torch.empty_like(last)


def _cell(cell: str, inputs: Tensor, state: Tensor, memory: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    if cell == "lstm":
        return torch.lstm_cell(inputs, [state, memory], *weights)
    if cell == "gru":
        return torch.gru_cell(inputs, state, *weights), memory
    width = state.shape[1]
    given = torch.nn.functional.linear(inputs, weights[0], weights[2])
    r, z = torch.sigmoid(given[:, : 2 * width] + state @ weights[1][: 2 * width].t()).chunk(2, dim=-1)
    candidate = torch.tanh(given[:, 2 * width :] + (r * state) @ weights[1][2 * width :].t())
    return torch.lerp(candidate, state, z), memory


def recurrence(inputs: Tensor, mask: Tensor, weights: list[Tensor], cell: str) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(B, S, I) under a (B, S) mask -> outputs (B, S, D), zero at padding, and final states (dirs, B, H)."""
    outputs, hidden, cells = torch.ops.catchline.recurrence(inputs, mask, weights, cell)
    return outputs, (hidden, cells) if cell == "lstm" else (hidden,)
