"""The encoder of BERT's form against transformers' BERT, and what a model with it does."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertModel

from catchline.models.seq2seq import Seq2Seq
from catchline.types import Batch

SIZES = {"layers": 2, "num_heads": 4, "feed_forward_size": 24, "max_positions": 16}


def batch(ids: torch.Tensor, mask: torch.Tensor) -> Batch[torch.Tensor]:
    return Batch(source_ids=ids, source_extended_ids=ids, source_mask=mask, extended_vocab_size=30)


def small(**settings: object) -> Seq2Seq:
    config = Seq2Seq.Config.model_validate({"embedding_size": 16, "hidden_size": 8, "bert": SIZES, **settings})
    return Seq2Seq(config, vocab_size=30, pad_id=0, unk_id=1, bos_id=2, eos_id=3).eval()


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
def test_states_are_those_of_berts_lowest_layers(cell: str) -> None:
    torch.manual_seed(0)
    described = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=20,
        layer_norm_eps=1e-5,
    )
    bert, model = BertModel(described).eval(), small(cell=cell)
    theirs = BertModel(BertConfig(**described.to_dict() | {"num_hidden_layers": 2})).eval()
    theirs.load_state_dict(bert.state_dict(), strict=False)
    warm(model, bert.state_dict())
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    ids = torch.randint(4, 30, (2, 9)) * mask
    with torch.no_grad():
        embedded = model.embedding(ids)
        states, (mean,) = model.encoder.over_real_tokens(embedded, mask)
        expected = theirs(inputs_embeds=embedded, attention_mask=mask.long()).last_hidden_state
        memory = model.encode(batch(ids, mask))
    torch.testing.assert_close(states[mask], expected[mask])
    assert not states[~mask].any()
    torch.testing.assert_close(mean[0, 1], expected[1, :5].mean(dim=0))
    assert [tuple(part.shape) for part in memory.final] == [(2, 8)] * (2 if cell == "lstm" else 1)
