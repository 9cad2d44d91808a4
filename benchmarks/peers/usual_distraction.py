"""The distraction model written the straightforward way, with the weights of ours.

Every step makes its energies' (B, S, A) tanh and leaves it to autograd, along with the products of the words; the
logits of all steps are one tensor, and cross-entropy keeps its own. The plainest statement of the function that
`catchline.models.distraction` computes with a two-level decoder, M1 and M2, and torch's GRU.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from catchline.layers.attention.additive import DistractionAttention
from catchline.layers.recurrent import GruCell, Recurrence
from catchline.models.distraction import Distraction, TwoLevelDecoder
from catchline.types import Batch


class UsualDistraction(nn.Module):
    """``forward(batch) -> loss``: the sum over words, the mean over documents. Batches without padding."""

    def __init__(self, model: Distraction) -> None:
        super().__init__()
        model = copy.deepcopy(model)
        if not (isinstance(model.attention, DistractionAttention) and isinstance(model.decoder, TwoLevelDecoder)):
            raise TypeError("the usual distraction model has a two-level decoder and its own type of attention")
        if not isinstance(model.encoder, Recurrence):
            raise TypeError("the usual distraction model has torch's GRU")
        self.embedding, self.encoder, self.initial = model.embedding, model.encoder.layer, model.initial
        self.attention, self.readout, self.output = model.attention, model.readout, model.head.projection
        self.second, self.first = _cell(model.decoder.of_word), _cell(model.decoder.of_content)
        self.bos_id, self.vocab_size = model.bos_id, model.vocab_size

    def forward(self, batch: Batch) -> Tensor:
        """The loss of ``batch``."""
        attention = self.attention
        states, _ = self.encoder(self.embedding(batch.source_ids))
        state = torch.tanh(self.initial(states.mean(dim=1)))
        keys = attention.memory_projection(states)
        history, contents = keys.new_zeros(keys.shape[:2]), torch.zeros_like(states[:, 0])
        logits = []
        for word in batch.target_input_ids.unbind(dim=1):
            embedded = self.embedding(word).masked_fill((word == self.bos_id).unsqueeze(-1), 0.0)
            between = self.second(embedded, state)
            inside = keys + attention.query_projection(between).unsqueeze(1)
            inside = inside - attention.history_vector * history.unsqueeze(-1)
            weights = torch.softmax(torch.tanh(inside) @ attention.score_vector, dim=-1)
            read = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
            content = torch.tanh(attention.content_vector * read - attention.content_history_vector * contents)
            history, contents = history + weights, contents + content
            state = self.first(content, between)
            features = torch.tanh(self.readout(torch.cat([embedded, state, content], dim=-1)))
            logits.append(linear(features, self.output.weight, self.output.bias))
        scores = torch.stack(logits, dim=1).flatten(0, 1)
        return cross_entropy(scores, batch.target_ids.flatten(), reduction="sum") / len(batch.target_ids)


def _cell(ours: GruCell) -> nn.GRUCell:
    cell = nn.GRUCell(ours.weight_ih.shape[1], ours.hidden_size)
    with torch.no_grad():
        for name, value in cell.named_parameters():
            value.copy_(getattr(ours, name))
    return cell
