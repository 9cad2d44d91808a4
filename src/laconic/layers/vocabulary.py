"""The vocabulary projection: ``softmax(W_o x + b_o)``, where most of a summarizer's time goes.

In training only the gold tokens' log-probabilities are wanted. Forward and backward need three products
of (M tokens x F x V), and that is the floor. The usual ways cost more: logits kept for the backward pass
are M * V numbers several times over; logits computed again there are a fourth product. Here a chunk of
rows is projected, normalised and turned into its gradient at once, while it is in the cache, so that
neither is needed. That takes the loss's derivative before the loss is known; it is known up to one
factor, because the loss is a weighted sum of the rows' log-probabilities (see `gold_log_probs`), and where
that guess proves wrong the backward pass computes the chunk again and is exact all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Derivative = Callable[[Tensor, slice], Tensor]  # log P_vocab(gold) of some rows -> expected dL/d of it
_WORTH_PACKING = 2**20  # weights below this are in the cache anyway
_CHUNK_ELEMENTS = 2**24  # logits made at a time: 64 MiB in float32


class VocabularyProjection(nn.Module):
    """One linear layer (the paper), two without nonlinearity (See et al.), or tied to the embedding.

    ``layers`` 2 puts a linear layer ``hidden_size`` wide before the output layer. ``tied`` is an embedding
    matrix (V, E) used as W_o; the layer before it then leads to E. Without ``bias`` b_o is zero and not trained.
    """

    def __init__(
        self, input_size: int, vocab_size: int, *, hidden_size: int | None = None, tied: Any = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.hidden = None if hidden_size is None else nn.Linear(input_size, hidden_size)
        width = input_size if hidden_size is None else hidden_size
        self.weight = nn.Parameter(torch.empty(vocab_size, width)) if tied is None else tied
        self.bias: Tensor
        if bias:
            self.bias = nn.Parameter(torch.empty(vocab_size))
        else:
            self.register_buffer("bias", torch.zeros(vocab_size), persistent=False)
        if tied is None:
            nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)
        if bias:
            nn.init.uniform_(self.bias, -(width**-0.5), width**-0.5)

    @property
    def vocab_size(self) -> int:
        return int(self.weight.shape[0])

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of one decoding step: (..., F) -> (..., V)."""
        features = inputs if self.hidden is None else self.hidden(inputs)
        return nn.functional.linear(features, self.weight, self.bias)

    def for_decoding(self, columns: int | None = None) -> Callable[[Tensor], Tensor]:
        """`forward` for the many steps of one search: (..., F) -> (..., V), without gradients.

        A step multiplies few rows by the whole matrix. On a CPU oneDNN does that several times faster from a
        packed copy of the weights; packing costs about as much as one or two steps, so it is done anew for
        each search and can never be out of date. Then the result has ``columns`` columns (V if not given),
        those beyond V minus infinity: room for the words outside V, without a copy. Elsewhere this is the
        module itself.
        """
        packable = self.weight.device.type == "cpu" and self.weight.dtype == torch.float32
        if torch.is_grad_enabled() or not packable or self.weight.numel() < _WORTH_PACKING or not _can_pack():
            return self
        return _Packed(self, max(columns or 0, self.vocab_size))

    def gold_log_probs(self, inputs: Tensor, gold: Tensor, derivative: Derivative | None = None) -> Tensor:
        """``log softmax(W_o x + b_o)[gold]`` for M rows: (M, F), (M,) -> (M,) in float32 at least.

        ``gold`` must be below V (callers clamp extended ids and mask the value). ``derivative`` maps the
        log-probabilities of a slice of rows to the expected derivative of the loss by them, up to one
        factor common to all rows; none means that all rows count alike.
        """
        features = inputs if self.hidden is None else self.hidden(inputs)
        if torch.is_autocast_enabled(features.device.type):
            low = torch.get_autocast_dtype(features.device.type)
            weight, features = self.weight.to(low), features.to(low)
        else:
            weight = self.weight
        if not torch.is_grad_enabled():
            return _without_gradient(features, weight, self.bias, gold)
        return _GoldLogProbs.apply(features, weight, self.bias, gold, derivative or _all_alike)

    def smoothed(self, log_probs: Tensor, inputs: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        """``(1 - eps) log P(gold) + eps / V sum_v log P(v)`` over all V words, from `gold_log_probs`: (M,) -> (M,).

        With logits l_v = W_v x + b_v this is ``log P(gold) + eps (mean_v l_v - l_gold)``: the normaliser cancels
        from the correction and the mean is one product with W's mean row, so that smoothing needs no second look
        at the (M, V) logits and its gradient is one more row added to each of W's.
        """
        features = inputs if self.hidden is None else self.hidden(inputs)
        features = features.to(log_probs.dtype)
        difference = self.weight.mean(dim=0) - nn.functional.embedding(gold, self.weight)  # (M, F)
        gap = (features * difference).sum(dim=-1) + self.bias.mean() - self.bias[gold]
        return log_probs + smoothing * gap


class BorrowedProjection(VocabularyProjection):
    """The output layer of another module, which keeps the parameters: this one has none, and adds none to a checkpoint.

    ``owner`` has ``lm_head.weight`` (V, F), trained, and ``final_logits_bias`` (1, V), which is not. Both are looked up
    anew each time: a buffer is another tensor after the module has moved or changed its type.
    """

    def __init__(self, owner: Any) -> None:
        nn.Module.__init__(self)
        self.hidden = None
        self._owner = (owner,)  # in a tuple: not a submodule

    @property
    def weight(self) -> Any:  # type: ignore[override]
        return self._owner[0].lm_head.weight

    @property
    def bias(self) -> Any:  # type: ignore[override]
        return self._owner[0].final_logits_bias[0]


class _Packed:
    """The output layer with its weights in oneDNN's own order."""

    def __init__(self, projection: VocabularyProjection, columns: int) -> None:
        extra, weight = (0, columns - projection.vocab_size), projection.weight.detach()
        if columns > projection.vocab_size:  # padding copies, also where there is nothing to add
            weight = nn.functional.pad(weight, (0, 0, *extra))
        self._hidden = projection.hidden
        self._bias = nn.functional.pad(projection.bias.detach(), extra, value=float("-inf"))
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)

    def __call__(self, inputs: Tensor) -> Tensor:
        features = inputs if self._hidden is None else self._hidden(inputs)
        flat = features.reshape(-1, features.shape[-1])
        logits = torch.ops.mkldnn._linear_pointwise(flat, self._weight, self._bias, "none", [], "")
        return logits.view(*features.shape[:-1], -1)


def _can_pack() -> bool:
    """Has this build of torch the oneDNN operators (they carry an underscore, so they may go)?"""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in names)


def _all_alike(log_probs: Tensor, rows: slice) -> Tensor:
    return torch.ones_like(log_probs)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The type in which log-probabilities of a model of this type are computed."""
    return torch.promote_types(dtype, torch.float32)


def _chunks(num_rows: int, vocab_size: int) -> Iterator[slice]:
    size = max(16, _CHUNK_ELEMENTS // vocab_size)
    for begin in range(0, num_rows, size):
        yield slice(begin, min(begin + size, num_rows))


class _Workspace:
    """Chunk-sized buffers used for every chunk: fresh ones would cost more in page faults than the arithmetic
    that fills them."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor, num_rows: int) -> None:
        rows = max((part.stop - part.start for part in _chunks(num_rows, weight.shape[0])), default=0)
        self.weight, self.bias = weight, bias
        self.product = features.new_empty(rows, weight.shape[0])
        wide = at_least_float32(bias.dtype)
        self.probs = self.product if features.dtype == wide else bias.new_empty(self.product.shape, dtype=wide)

    def softmax(self, features: Tensor) -> Tensor:
        """Probabilities of a chunk (m, F), in float32 at least whatever the product was computed in.

        They take the place of the logits, and are overwritten by the next call.
        """
        m = features.shape[0]
        probs = self.probs[:m]
        if self.product is self.probs:
            torch.addmm(self.bias, features, self.weight.t(), out=probs)
        else:
            torch.mm(features, self.weight.t(), out=self.product[:m])
            torch.add(self.product[:m], self.bias, out=probs)
        return torch.softmax(probs, dim=-1, out=probs)

    def gold_of(self, features: Tensor, probs: Tensor, gold: Tensor) -> Tensor:
        """``log_softmax(logits)[gold]``: the logarithm of the softmax; where that underflows, from logits made anew."""
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


def _without_gradient(features: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> Tensor:
    with torch.no_grad():
        work = _Workspace(features, weight, bias, features.shape[0])
        result = bias.new_empty(features.shape[0], dtype=at_least_float32(bias.dtype))
        for rows in _chunks(features.shape[0], weight.shape[0]):
            result[rows] = work.gold_of(features[rows], work.softmax(features[rows]), gold[rows])
    return result


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


def _empty_gradients(features: Tensor, weight: Tensor, bias: Tensor, needed: tuple[bool, ...]) -> list[Tensor | None]:
    return [
        torch.empty_like(features) if needed[0] else None,
        (torch.empty_like if weight.dtype == bias.dtype and len(features) else torch.zeros_like)(
            weight, dtype=bias.dtype
        )
        if needed[1]
        else None,
        torch.zeros_like(bias) if needed[2] else None,
    ]


class _GoldLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, derivative: Derivative
    ) -> Tensor:
        gradients = _empty_gradients(features, weight, bias, ctx.needs_input_grad[:3])
        result = bias.new_empty(features.shape[0], dtype=at_least_float32(bias.dtype))
        expected = torch.empty_like(result)
        saved = (features, weight, bias, gold)
        work = _Workspace(features, weight, bias, features.shape[0])
        for rows in _chunks(features.shape[0], weight.shape[0]):
            probs = work.softmax(features[rows])
            result[rows] = work.gold_of(features[rows], probs, gold[rows])
            expected[rows] = derivative(result[rows], rows)
            _add_gradient(rows, probs, expected[rows], saved, gradients)
        ctx.save_for_backward(*saved)
        ctx.expected, ctx.gradients = expected, gradients
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        factor = (wanted @ ctx.expected) / (ctx.expected @ ctx.expected).clamp_min(torch.finfo(wanted.dtype).tiny)
        error = (wanted - factor * ctx.expected).abs().max() if wanted.numel() else wanted.sum()
        limit = 64 * torch.finfo(wanted.dtype).eps * (wanted.abs().max() if wanted.numel() else 1)
        if gradients is not None and bool(error <= limit):
            scaled = [None if g is None else g.mul_(factor.to(g.dtype)) for g in gradients]
            if scaled[1] is not None:
                scaled[1] = scaled[1].to(ctx.saved_tensors[1].dtype)
            return (*scaled, None, None)
        return (*_again(ctx.saved_tensors, wanted, ctx.needs_input_grad[:3]), None, None)


def _again(saved: tuple[Tensor, ...], wanted: Tensor, needed: tuple[bool, ...]) -> list[Tensor | None]:
    """The gradients for a derivative that was not foreseen: project every chunk once more."""
    features, weight, bias, _ = saved
    gradients = _empty_gradients(features, weight, bias, needed)
    work = _Workspace(features, weight, bias, features.shape[0])
    for rows in _chunks(features.shape[0], weight.shape[0]):
        probs = work.softmax(features[rows])
        _add_gradient(rows, probs, wanted[rows], saved, gradients)
    if gradients[1] is not None:
        gradients[1] = gradients[1].to(weight.dtype)
    return gradients
