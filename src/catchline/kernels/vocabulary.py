"""The vocabulary projection of gold words, where most of a summarizer's time goes, with its gradient written out.

In training only the gold tokens' log-probabilities are wanted. Forward and backward need three products of
(M tokens x F x V), and that is the floor. The usual ways cost more: logits kept for the backward pass are M * V numbers
several times over; logits computed again there are a fourth product. Here a chunk of rows is projected, normalised and
turned into its gradient at once, while it is in the cache, so that neither is needed. That takes the loss's derivative
before the loss is known; it is known up to one factor, because the loss is a weighted sum of the rows'
log-probabilities, and where that guess proves wrong the backward pass computes the chunk again and is exact all the
same.

The mixture of generating and copying for one step of decoding, in place, is here too: the same rows of the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from catchline.papers import pointer_generator

Derivative = Callable[[Tensor, slice], Tensor]  # log P_vocab(gold) of some rows -> expected dL/d of it
# Logits made at a time: 64 MiB in float32, four times as much where asking for an operation takes longer than memory
_CHUNK_ON_CPU, _CHUNK_ELSEWHERE = 2**24, 2**26
_ASKED_ON = "cpu"  # where a question about numbers does not make the host wait


def gold_log_probs(
    features: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, derivative: Derivative | None = None
) -> Tensor:
    """`catchline.papers.pointer_generator.gold_log_probs`: (M, F), (V, F), (V,), (M,) -> (M,) in float32 at least.
    ``derivative`` maps the log-probabilities of a slice of rows to the expected derivative of the loss by them, up to
    one factor common to all rows; none means that all rows count alike."""
    if torch.is_autocast_enabled(features.device.type):
        low = torch.get_autocast_dtype(features.device.type)
        weight, features = weight.to(low), features.to(low)
    if not torch.is_grad_enabled():
        return _chunk_by_chunk((features, weight, bias, gold))[0]
    derivative = derivative or (lambda log_probs, _: torch.ones_like(log_probs))
    return _GoldLogProbs.apply(features, weight, bias, gold, derivative)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The type in which log-probabilities of a model of this type are computed."""
    return torch.promote_types(dtype, torch.float32)


def _chunks(num_rows: int, weight: Tensor) -> Iterator[slice]:
    size = max(16, (_CHUNK_ON_CPU if weight.device.type == "cpu" else _CHUNK_ELSEWHERE) // len(weight))
    for begin in range(0, num_rows, size):
        yield slice(begin, min(begin + size, num_rows))


class _Workspace:
    """Chunk-sized buffers used for every chunk: fresh ones would cost more in page faults than the arithmetic
    that fills them."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor) -> None:
        rows = max((part.stop - part.start for part in _chunks(len(features), weight)), default=0)
        self.weight, self.bias = weight, bias
        self.product = features.new_empty(rows, weight.shape[0])
        wide = at_least_float32(bias.dtype)
        self.probs = self.product if features.dtype == wide else bias.new_empty(self.product.shape, dtype=wide)

    def softmax_and_gold(self, features: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of a chunk (m, F), in float32 at least whatever the product was computed in, and
        ``log_softmax(logits)[gold]`` (m,). The probabilities take the place of the logits, and are overwritten by the
        next call. On a CPU the second is the logarithm of the first; where that underflows, from logits made anew.
        Elsewhere the host would have to wait to see whether it does: there it is the logit less the largest one, whose
        probability is one over the sum of the exponentials."""
        logits = self.probs[: len(features)]
        if self.product is self.probs:
            torch.addmm(self.bias, features, self.weight.t(), out=logits)
        else:
            product = torch.mm(features, self.weight.t(), out=self.product[: len(features)])
            torch.add(product, self.bias, out=logits)
        if features.device.type == _ASKED_ON:
            probs = torch.softmax(logits, dim=-1, out=logits)
            return probs, self._gold_of(features, probs, gold)
        above = (logits.gather(-1, gold.unsqueeze(-1)) - logits.amax(dim=-1, keepdim=True)).squeeze(-1)
        probs = torch.softmax(logits, dim=-1, out=logits)
        return probs, above + probs.amax(dim=-1).log()

    def _gold_of(self, features: Tensor, probs: Tensor, gold: Tensor) -> Tensor:
        index = gold.unsqueeze(-1)
        value = probs.gather(-1, index).squeeze(-1)
        tiny = value < torch.finfo(value.dtype).tiny * 1e8
        if not bool(tiny.any()):
            return value.log()
        rows = tiny.nonzero().squeeze(-1)
        value = value.masked_fill(tiny, 1.0).log()
        logits = (features[rows] @ self.weight.t()).to(value.dtype) + self.bias
        value[rows] = torch.log_softmax(logits, dim=-1).gather(-1, index[rows]).squeeze(-1)
        return value


def _chunk_by_chunk(
    saved: tuple[Tensor, ...], needed: tuple[bool, ...] = (False,) * 3, derivative: Derivative | None = None
) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """log P(gold) (M,) of features, weight, bias and gold words; with ``derivative`` what it gives, and the gradients
    that are needed."""
    features, weight, bias, gold = saved
    of_weight = torch.empty_like if weight.dtype == bias.dtype and len(features) else torch.zeros_like
    gradients = [
        torch.empty_like(features) if needed[0] else None,
        of_weight(weight, dtype=bias.dtype) if needed[1] else None,
        torch.zeros_like(bias) if needed[2] else None,
    ]
    result = bias.new_empty(len(features), dtype=at_least_float32(bias.dtype))
    expected = torch.empty_like(result)
    work = _Workspace(features, weight, bias)
    for rows in _chunks(len(features), weight):
        probs, result[rows] = work.softmax_and_gold(features[rows], gold[rows])
        if derivative is not None:
            expected[rows] = derivative(result[rows], rows)
            _add_gradient(rows, probs, expected[rows], saved, gradients)
    return result, expected, gradients


def _add_gradient(
    rows: slice, probs: Tensor, wanted: Tensor, saved: tuple[Tensor, ...], gradients: list[Tensor | None]
) -> None:
    """Add what a chunk sends to features, weight and bias; ``wanted`` is dL/d log P(gold); uses up ``probs``."""
    features, weight, _, gold = saved
    d_features, d_weight, d_bias = gradients
    # d log softmax[gold] / d logits = onehot(gold) - softmax
    probs.mul_(-wanted.unsqueeze(-1))
    probs.scatter_add_(-1, gold[rows].unsqueeze(-1), wanted.to(probs.dtype).unsqueeze(-1))
    low = probs.to(features.dtype)
    if d_features is not None:
        torch.mm(low, weight, out=d_features[rows])
    if d_weight is not None:
        if low.dtype != d_weight.dtype:
            d_weight += low.t() @ features[rows]
        elif rows.start == 0:  # writes what zeros would only be added to
            torch.mm(low.t(), features[rows], out=d_weight)
        else:
            d_weight.addmm_(low.t(), features[rows])
    if d_bias is not None:
        d_bias += probs.sum(dim=0)


class _GoldLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, derivative: Derivative
    ) -> Tensor:
        saved = (features, weight, bias, gold)
        result, ctx.expected, ctx.gradients = _chunk_by_chunk(saved, ctx.needs_input_grad[:3], derivative)
        ctx.save_for_backward(*saved)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        factor = (wanted @ ctx.expected) / (ctx.expected @ ctx.expected).clamp_min(torch.finfo(wanted.dtype).tiny)
        error = (wanted - factor * ctx.expected).abs().max() if wanted.numel() else wanted.sum()
        limit = 64 * torch.finfo(wanted.dtype).eps * (wanted.abs().max() if wanted.numel() else 1)
        if gradients is not None and bool(error <= limit):
            found = [None if g is None else g.mul_(factor.to(g.dtype)) for g in gradients]
        else:
            found = _again(ctx.saved_tensors, wanted, ctx.needs_input_grad[:3])
        if found[1] is not None:
            found[1] = found[1].to(ctx.saved_tensors[1].dtype)
        return (*found, None, None)


def _again(saved: tuple[Tensor, ...], wanted: Tensor, needed: tuple[bool, ...]) -> list[Tensor | None]:
    """The gradients for a derivative that was not foreseen: project every chunk once more."""
    return _chunk_by_chunk(saved, needed, lambda _, rows: wanted[rows])[2]


# --------------------------------------------------------------------------------------------------------- the mixture


def final_distribution(
    vocabulary_logits: Tensor,
    gate: Tensor,
    copy_probs: Tensor,
    source_ids: Tensor,
    extended_vocab_size: int,
    first: Tensor | None = None,
) -> Tensor:
    """`catchline.papers.pointer_generator.final_distribution`: (B, Q, V), (B, Q), (B, Q, S), (B, Q, S) -> (B, Q, X).

    The logits may be X wide, minus infinity beyond V; they are overwritten. ``first`` (B, Q, S) is where each token's
    id occurs first in its document. Under gradients, or without it, this is the plain form.

    All words get log p_gen + log P_vocab(w) in one pass; then the words of the source, and only they, get their copy
    probability added. The result has one (B, Q, X) tensor and nothing else of that size.
    """
    if first is None or torch.is_grad_enabled():
        return pointer_generator.final_distribution(
            vocabulary_logits, gate, copy_probs, source_ids, extended_vocab_size
        )
    batch, queries, columns = vocabulary_logits.shape
    log_gen, log_copy = logsigmoid(gate).unsqueeze(-1), logsigmoid(-gate).unsqueeze(-1)
    # On a CPU a row is read before it is written, so that it can make room for its own log-probabilities.
    place = vocabulary_logits if vocabulary_logits.device.type == "cpu" else None
    log_vocabulary = torch.log_softmax(vocabulary_logits, dim=-1, out=place)
    if columns == extended_vocab_size:  # no words outside V, or room for them is there already
        log_probs = log_vocabulary.add_(log_gen)
    else:
        log_probs = vocabulary_logits.new_empty(batch, queries, extended_vocab_size)
        torch.add(log_vocabulary, log_gen, out=log_probs.narrow(-1, 0, columns))  # a slice too short would grow
        log_probs[..., columns:] = float("-inf")
    # The copy probabilities of a repeated word meet at its first position and are read from there by all
    # its positions, so that the scatter below writes equal values where it writes twice.
    summed = torch.zeros_like(copy_probs).scatter_add_(-1, first, copy_probs).gather(-1, first)
    both = torch.logaddexp(log_probs.gather(-1, source_ids), log_copy + summed.to(log_probs.dtype).log())
    return log_probs.scatter_(-1, source_ids, both)


def first_positions(ids: Tensor, size: int) -> Tensor:
    """Where each id occurs first in its row: (B, S) ids below ``size`` -> (B, S) positions."""
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    table = ids.new_full((ids.shape[0], size), ids.shape[1])
    return table.scatter_reduce_(1, ids, positions, reduce="amin").gather(1, ids)
