"""A pointer-generator written the usual way, with the weights of ours: the distribution is written out.

At every decoding step: attention over all source positions, softmax over the vocabulary, equation (5) as a
tensor (B, X) with the attention scatter-added, the gold word gathered from it, log. Plain autograd keeps what
it needs of all that for the backward pass. This is how the public implementations of See et al. 2017 do it, and
it is the plainest statement of the function that `catchline.models.seq2seq` computes, in size `cnndm`.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from catchline.layers.attention.additive import AdditiveAttention
from catchline.layers.copying.pointer import PointerHead
from catchline.models.seq2seq import Seq2Seq
from catchline.types import Batch


class UsualPointerGenerator(nn.Module):
    """``forward(batch) -> loss``: mean negative log-likelihood plus mean coverage loss over target tokens."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        model = copy.deepcopy(model)
        attention, head = model.attention, model.head
        if not (isinstance(attention, AdditiveAttention) and isinstance(head, PointerHead) and model.merge is not None):
            raise TypeError("the usual pointer-generator has additive attention, a pointer and linear input feeding")
        self.embedding, self.encoder, self.bridge = model.embedding, model.encoder.layer, model.bridge.layers
        self.merge, self.cell = model.merge, nn.LSTMCell(model.config.embedding_size, model.config.hidden_size)
        with torch.no_grad():
            for name, value in self.cell.named_parameters():
                value.copy_(getattr(model.decoder.layer, f"{name}_l0"))
        self.cell.bias_hh.requires_grad_(model.config.two_biases)
        self.attention, self.gate = attention, head.gate
        self.vocab_size, projection = model.vocab_size, head.projection
        self.hidden, self.output_weight, self.output_bias = projection.hidden, projection.weight, projection.bias

    def forward(self, batch: Batch) -> Tensor:
        """A batch whose targets are all real tokens, sources under their mask -> the loss."""
        memory, (h, c) = self.encoder(self.embedding(batch.source_ids))
        h, c = (
            torch.relu(layer(torch.cat(tuple(part), dim=-1))) for layer, part in zip(self.bridge, (h, c), strict=True)
        )
        keys = self.attention.memory_projection(memory)
        coverage = memory.new_zeros(memory.shape[:2])
        context = memory.new_zeros(len(memory), memory.shape[2])
        losses, coverage_losses = [], []
        for inputs, gold in zip(batch.target_input_ids.unbind(1), batch.target_ids.unbind(1), strict=True):
            merged = self.merge(torch.cat([self.embedding(inputs), context], dim=-1))
            h, c = self.cell(merged, (h, c))
            state = torch.cat([c, h], dim=-1)
            weights = self._attend(keys, state, coverage, batch.source_mask)
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            features = torch.cat([h, context], dim=-1)
            if self.hidden is not None:
                features = self.hidden(features)
            vocabulary = torch.softmax(linear(features, self.output_weight, self.output_bias), dim=-1)
            p_gen = torch.sigmoid(self.gate(torch.cat([context, state, merged], dim=-1)))
            words = vocabulary.new_zeros(len(memory), batch.extended_vocab_size - self.vocab_size)
            final = torch.cat([p_gen * vocabulary, words], dim=-1)
            final = final.scatter_add(1, batch.source_extended_ids, (1 - p_gen) * weights)
            losses.append(-final.gather(1, gold.unsqueeze(1)).squeeze(1).log())
            coverage_losses.append(torch.minimum(weights, coverage).sum(dim=-1))
            coverage = coverage + weights
        return torch.stack(losses).mean() + torch.stack(coverage_losses).mean()

    def _attend(self, keys: Tensor, state: Tensor, coverage: Tensor, mask: Tensor) -> Tensor:
        """Equations (1), (2) and (7): the weights a^t (B, S)."""
        features = keys + self.attention.query_projection(state).unsqueeze(1)
        features = features + coverage.unsqueeze(-1) * self.attention.coverage_vector
        scores = torch.tanh(features) @ self.attention.score_vector
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
