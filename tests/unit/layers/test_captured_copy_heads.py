"""The copy heads of Transformers: extreme gates, what is refused, first weights and precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.config.names import COPY_HEADS, build, parse
from catchline.errors import ConfigError
from catchline.kernels.dispatch import first_positions as places
from catchline.layers.copying.pointer import (
    CopyHead,
    CopySource,
    EncoderFeatures,
    GoldTokens,
    HeadInput,
    build_copy_head,
)
from catchline.layers.transformer import CapturedAttention, mean_attention
from catchline.layers.vocabulary import VocabularyProjection
from catchline.papers.pointer_generator import attention_weights
from samples import UNK, rand, randomise

B, T, S, H, D, V, X = 3, 4, 6, 2, 4, 9, 11
WIDE = H * D
IDS = torch.tensor([[9, 4, 9, 10, 4, 3], [2, 5, 5, 3, 0, 0], [7, 0, 0, 0, 0, 0]])
MASK = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] + [0] * 5]).bool()
EXACT = {"atol": 1e-12, "rtol": 0}


def head_of(name: str = "correlational", *, scale: float = 0.7, specials: tuple[int, ...] = (), **options: Any) -> Any:
    context = {"projection": VocabularyProjection(WIDE, V), "gate_size": 5, "unk_id": UNK, "special_ids": specials}
    head = build_copy_head({"type": name, **options}, captured=True, **context).double()
    randomise(head, scale=scale)
    return head


def side_of() -> EncoderFeatures:
    states = rand(B, S, WIDE, seed=1).masked_fill(~MASK.unsqueeze(-1), 0.0)
    queries, keys, values = (rand(B, S, H, D, seed=seed) for seed in (2, 3, 4))
    return EncoderFeatures(states, 2 * queries, keys, values, MASK, IDS)


def inputs_of() -> HeadInput:
    side = side_of()
    queries, keys = 2 * rand(B, T, H, D, seed=6), rand(B, S, H, D, seed=7)
    tap = CapturedAttention(queries, keys, side.values, MASK)
    return HeadInput(rand(B, T, WIDE, seed=8), rand(B, T, 5), None, tap, mean_attention(tap))


def source_of(head: CopyHead) -> CopySource:
    return CopySource(IDS, MASK, X, places(IDS, X), head.precompute(side_of()))


def weighed(head: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """alpha and P_final of all steps, and the details."""
    precomputed = head.precompute(side_of())
    weights = head._weights(inputs_of(), precomputed)
    return weights, *head.weigh_all(inputs_of(), weights, precomputed)


def gold_of(smoothing: float = 0.0) -> GoldTokens:
    rows, steps = torch.ones(B, T).bool().nonzero(as_tuple=True)
    words = torch.tensor([9, 4, 5, 3, 5, 2, 8, 3, 7, 7, 3, 6])
    return GoldTokens(words, rows, None, smoothing, steps)


def trained(head: CopyHead, smoothing: float = 0.0) -> tuple[Tensor, dict[str, Tensor]]:
    inputs, gold = inputs_of(), gold_of(smoothing)
    at = (gold.rows, gold.steps)
    picked = replace(inputs, hidden=inputs.hidden[at], gate_features=inputs.gate_features[at])
    return head.gold_log_probs(picked, None, source_of(head), gold)


# ------------------------------------------------------------------------------------------------ options


@torch.no_grad()
def test_special_tokens_may_be_excluded() -> None:
    """No mass on them, in alpha, s or p; a document that has nothing else keeps them."""
    head = head_of(exclude_special_from_copy=True, specials=(2, 3, 7))
    alpha, final, _ = weighed(head)
    special = torch.isin(IDS, torch.tensor([2, 3])) & MASK
    assert special.any()
    for rows in (alpha, final):
        assert rows.transpose(1, 2)[special].eq(0).all()
        torch.testing.assert_close(rows.sum(-1), torch.ones(B, T).double(), **EXACT)
    matrix = head.precompute(side_of()).extra.matrix
    assert matrix.unflatten(1, (2, S)).movedim(3, 1)[special].eq(0).all()
    assert trained(head)[0].isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_semantic": False, "use_positional": False}, "attentional"),
        ({"context_heads": "per_head", "values": "encoder_states"}, "v_proj"),
        ({"preset": "no_such"}, "preset"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse("copy head", COPY_HEADS, {"type": "correlational", **options})


# ------------------------------------------------------------------------------------------------- beginning


def test_first_weights() -> None:
    """Gates N(0, 0.02) with the biases asked for; the global generator goes on as if there were no head."""
    torch.manual_seed(0)
    expected = (VocabularyProjection(600, V).weight, torch.rand(3))
    torch.manual_seed(0)
    projection = VocabularyProjection(600, V)
    spec = {"type": "correlational", "lambda_bias_init": 2.0, "sigma_bias_init": -4.0}
    head = build("copy head", COPY_HEADS, spec, projection=projection, gate_size=1, unk_id=UNK)
    assert torch.equal(projection.weight, expected[0])
    assert torch.equal(torch.rand(3), expected[1])
    gates = [head.generation, head.semantic_gate, head.attention_gate, head.spread]
    assert [each.bias.item() for each in gates] == [2.0, 0.0, 0.0, -4.0]
    assert all(float(each.weight.std()) == pytest.approx(0.02, rel=0.1) for each in gates)
    assert sum(p.numel() for p in head.parameters()) == 4 * 601 + (V * 600 + V)
    guided = build("copy head", COPY_HEADS, {"type": "guided"}, projection=projection, gate_size=1, unk_id=1)
    assert float(guided.guide) == 0


@torch.no_grad()
def test_an_alpha_that_is_all_elsewhere() -> None:
    """All of alpha on excluded tokens: what is left of nothing is spread evenly."""
    head = head_of("attentional", exclude_special_from_copy=True, specials=(3,))
    weights = torch.zeros(B, T, S).double()
    weights[0, :, 5], weights[1, :, 3], weights[2, :, 0] = 1.0, 1.0, 1.0
    found = head._weights(replace(inputs_of(), weights=weights), head.precompute(side_of()))
    torch.testing.assert_close(found.sum(-1), torch.ones(B, T).double(), **EXACT)
    assert attention_weights(torch.zeros(1, S).double(), MASK[:1] & (IDS[:1] != 3)).allclose(found[0, 0])
