"""The vocabulary projection: ``softmax(W_o x + b_o)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from catchline.kernels.dispatch import gold_log_probs, packed_output
from catchline.kernels.vocabulary import Derivative


class VocabularyProjection(nn.Module):
    """One linear layer (the paper), two without nonlinearity (See et al.), or tied to the embedding. ``hidden_size``
    puts a linear layer of that width before the output layer. ``tied`` is an embedding matrix (V, E) used as W_o; the
    layer before it then leads to E. Without ``bias`` b_o is zero and not trained."""

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
        """`forward` for the many steps of one search: (..., F) -> (..., V), without gradients. On a CPU from packed
        weights (`catchline.kernels.packed`). Then the result has ``columns`` columns (V if not given), those beyond V
        minus infinity: room for the words outside V, without a copy. Elsewhere this is the module itself."""
        width = max(columns or 0, self.vocab_size)
        return packed_output(self.hidden, self.weight, self.bias, width) or self

    def gold_log_probs(self, inputs: Tensor, gold: Tensor, derivative: Derivative | None = None) -> Tensor:
        """``log softmax(W_o x + b_o)[gold]`` for M rows: (M, F), (M,) -> (M,) in float32 at least. ``gold`` must be
        below V (callers clamp extended ids and mask the value); ``derivative`` as in
        `catchline.kernels.vocabulary.gold_log_probs`."""
        features = inputs if self.hidden is None else self.hidden(inputs)
        return gold_log_probs(features, self.weight, self.bias, gold, derivative)

    def smoothed(self, log_probs: Tensor, inputs: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        """``(1 - eps) log P(gold) + eps / V sum_v log P(v)`` over all V words, from `gold_log_probs`: (M,) -> (M,).
        With logits l_v = W_v x + b_v this is ``log P(gold) + eps (mean_v l_v - l_gold)``: the normaliser cancels from
        the correction and the mean is one product with W's mean row, so that smoothing needs no second look at the (M,
        V) logits and its gradient is one more row added to each of W's."""
        features = inputs if self.hidden is None else self.hidden(inputs)
        features = features.to(log_probs.dtype)
        difference = self.weight.mean(dim=0) - nn.functional.embedding(gold, self.weight)  # (M, F)
        gap = (features * difference).sum(dim=-1) + self.bias.mean() - self.bias[gold]
        return log_probs + smoothing * gap


class BorrowedProjection(VocabularyProjection):
    """The output layer of another module, which keeps the parameters: this one has none, and adds none to a checkpoint.
    ``owner`` has ``lm_head.weight`` (V, F), trained, and ``final_logits_bias`` (1, V), which is not. Both are looked up
    anew each time: a buffer is another tensor after the module has moved or changed its type."""

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
