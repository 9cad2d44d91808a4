"""The blocks against torch's own Transformer layers, and the whole model against one that is written from them.

The embedding, the positions and the output are written out here, from docs/contrastive.md: word vectors times
sqrt(D) plus sinusoids, the first real token at index pad + 1, one matrix for source, target and output.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from catchline.config.names import MODELS, build
from catchline.models.seq2seq import Seq2Seq
from catchline.types import Batch
from samples import EOS, IDS, PAD, TRANSFORMER, UNK, VOCAB, random_batch, randomise, tiny_seq2seq

SIZE, HEADS, INNER = 12, 3, 20
EXACT = {"atol": 1e-12, "rtol": 0}
NAMES = {
    "self_attn.in_proj_weight": "self_attention.in_proj.weight",
    "self_attn.in_proj_bias": "self_attention.in_proj.bias",
    "self_attn.out_proj": "self_attention.out_proj",
    "multihead_attn.in_proj_weight": "cross_attention.in_proj.weight",
    "multihead_attn.in_proj_bias": "cross_attention.in_proj.bias",
    "multihead_attn.out_proj": "cross_attention.out_proj",
    "linear1": "inner",
    "linear2": "outer",
}
ENCODER_NORMS = {"norm1": "after_self_attention.norm", "norm2": "after_feed_forward.norm"}
DECODER_NORMS = {
    "norm1": "after_self_attention.norm",
    "norm2": "after_cross_attention.norm",
    "norm3": "after_feed_forward.norm",
}


def renamed(name: str, norms: dict[str, str]) -> str:
    """torch's parameter name in ours; layers are numbered alike."""
    for theirs, own in (NAMES | norms).items():
        if theirs in name:
            return name.replace(theirs, own)
    return name


def theirs_of(kind: str, num_layers: int) -> nn.Module:
    options: dict[str, Any] = {"dropout": 0.0, "batch_first": True}
    if kind == "encoder":
        layer = nn.TransformerEncoderLayer(SIZE, HEADS, INNER, **options)
        return nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False).double()
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(SIZE, HEADS, INNER, **options), num_layers).double()


def copied(own: nn.Module, theirs: nn.Module, norms: dict[str, str]) -> dict[str, str]:
    """Give torch's stack our weights; returns the names that belong together."""
    state = own.state_dict()
    names = {name: renamed(name, norms) for name in theirs.state_dict()}
    assert set(names.values()) == set(state)
    theirs.load_state_dict({name: state[mine] for name, mine in names.items()})
    return names


# ------------------------------------------------------------------------------------ whole model


class Reference(nn.Module):
    """The documented model on torch's stacks, log-probabilities of all words: (B, T, V)."""

    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.matrix = nn.Parameter(own.embedding.weight.detach().clone())
        self.encoder, self.decoder = theirs_of("encoder", 2), theirs_of("decoder", 2)
        self.encoder_names = copied(own.encoder, self.encoder, ENCODER_NORMS)
        self.decoder_names = copied(own.decoder, self.decoder, DECODER_NORMS)

    def embedded(self, ids: Tensor, mask: Tensor) -> Tensor:
        rows = []
        for b in range(len(ids)):
            index, row = PAD, []
            for s in range(ids.shape[1]):
                index += int(mask[b, s])
                row.append(self.matrix[ids[b, s]] * math.sqrt(SIZE) + position(index) * mask[b, s])
            rows.append(torch.stack(row))
        return torch.stack(rows)

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encoder(
            self.embedded(batch.source_ids, batch.source_mask), src_key_padding_mask=~batch.source_mask
        )
        gold = batch.target_ids.masked_fill(batch.target_ids >= VOCAB, UNK)
        words = torch.cat([torch.full_like(gold[:, :1], EOS), gold[:, :-1]], dim=1)
        causal = torch.ones(words.shape[1], words.shape[1], dtype=torch.bool).triu(1)
        hidden = self.decoder(
            self.embedded(words, batch.target_mask), memory, tgt_mask=causal, memory_key_padding_mask=~batch.source_mask
        )
        return torch.log_softmax(hidden @ self.matrix.T, dim=-1)


def position(index: int) -> Tensor:
    speeds = [math.exp(-i * math.log(10000) / (SIZE // 2 - 1)) for i in range(SIZE // 2)]
    values = [math.sin(index * w) for w in speeds] + [math.cos(index * w) for w in speeds]
    return torch.tensor(values, dtype=torch.float64)


def test_the_model_is_the_documented_one() -> None:
    sizes = {"hidden_size": SIZE, "num_heads": HEADS, "feed_forward_size": INNER}
    own = randomise(build("model", MODELS, TRANSFORMER | sizes, vocab_size=VOCAB, **IDS).double())
    reference, batch = Reference(own), random_batch()
    log_probs = reference(batch)
    gold = batch.target_ids.masked_fill(batch.target_ids >= VOCAB, UNK)
    expected = log_probs.gather(-1, gold.unsqueeze(-1)).squeeze(-1) * batch.target_mask
    found = own(batch).gold_log_probs
    torch.testing.assert_close(found, expected, **EXACT)
    found.sum().backward()
    expected.sum().backward()
    for stack in ("encoder", "decoder"):
        for name, mine in getattr(reference, f"{stack}_names").items():
            actual, wanted = own.get_parameter(f"{stack}.{mine}").grad, reference.get_parameter(f"{stack}.{name}").grad
            torch.testing.assert_close(actual, wanted, atol=1e-11, rtol=0)
    # the words of padding get no gradient from the embedding, and do not count in the loss
    torch.testing.assert_close(own.embedding.weight.grad[1:], reference.matrix.grad[1:], atol=1e-11, rtol=0)


def warm(model: Seq2Seq, bert: dict[str, torch.Tensor]) -> None:
    """Put BERT's layers into ``model``'s encoder."""
    encoder, new = model.encoder, {}
    new["positions.weight"] = (
        bert["embeddings.position_embeddings.weight"] + bert["embeddings.token_type_embeddings.weight"][0]
    )[: len(encoder.positions.weight)]
    for kind in ("weight", "bias"):
        new[f"norm.{kind}"] = bert[f"embeddings.LayerNorm.{kind}"]
        for n in range(len(encoder.encoder.layers)):
            theirs, ours = f"encoder.layer.{n}.", f"encoder.layers.{n}."
            heads = [bert[f"{theirs}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            new[f"{ours}self_attention.in_proj.{kind}"] = torch.cat(heads)
            for mine, name in {
                "self_attention.out_proj": "attention.output.dense",
                "after_self_attention.norm": "attention.output.LayerNorm",
                "inner": "intermediate.dense",
                "outer": "output.dense",
                "after_feed_forward.norm": "output.LayerNorm",
            }.items():
                new[f"{ours}{mine}.{kind}"] = bert[f"{theirs}{name}.{kind}"]
    encoder.load_state_dict(new)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_states_are_those_of_bert(cell: str) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24, "max_position_embeddings": 20}
    described = BertConfig(vocab_size=VOCAB, num_hidden_layers=2, layer_norm_eps=1e-5, **sizes)
    ours = {"layers": 2, "num_heads": 4, "feed_forward_size": 24, "max_positions": 16}
    bert = BertModel(described).double().eval()
    model = tiny_seq2seq(cell=cell, embedding_size=16, hidden_size=8, bert=ours).eval()
    warm(model, bert.state_dict())
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    ids = torch.randint(4, VOCAB, (2, 9)) * mask
    with torch.no_grad():
        embedded = model.embedding(ids)
        states, (mean,) = model.encoder.over_real_tokens(embedded, mask)
        expected = bert(inputs_embeds=embedded, attention_mask=mask.long()).last_hidden_state
        memory = model.encode(Batch(ids, ids, mask, VOCAB))
    torch.testing.assert_close(states[mask], expected[mask])
    assert not states[~mask].any()
    torch.testing.assert_close(mean[0, 1], expected[1, :5].mean(dim=0))
    assert [tuple(part.shape) for part in memory.final] == [(2, 8)] * (2 if cell == "lstm" else 1)
