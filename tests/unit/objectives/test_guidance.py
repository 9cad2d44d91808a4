"""The guidance loss by hand: which steps and positions count, and what the sum is divided by."""

from __future__ import annotations

import math

import pytest
import torch

from laconic.config.names import OBJECTIVES, build
from laconic.objectives.attention import guidance_divergence
from laconic.types import ModelOutput, TrainingBatch

ATTENTION = torch.tensor([[[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]], [[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]]])
CENTRALITY = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
STEPS = torch.tensor([[True, False], [True, True]])
SOURCE = torch.tensor([[True, True, True], [True, True, False]])


def kl(weights: list[float]) -> float:
    return sum(a * math.log(a / c) for a, c in zip(weights, (0.5, 0.3, 0.2), strict=False))


@pytest.mark.parametrize(("over", "second"), [("mean", [0.625, 0.1875]), ("max", [0.75, 0.25])])
def test_only_real_steps_and_positions_count(over: str, second: list[float]) -> None:
    found = guidance_divergence(ATTENTION, CENTRALITY, STEPS, SOURCE, over)
    assert found.tolist() == pytest.approx([kl([0.5, 0.25, 0.25]), kl(second)], abs=1e-6)


@pytest.mark.parametrize(("reduction", "count"), [("token", 3), ("example", 2), ("sentence", 2), ("sum", 1)])
def test_what_the_sum_is_divided_by(reduction: str, count: int) -> None:
    ids = torch.zeros(2, 3, dtype=torch.int64)
    batch = TrainingBatch(ids, ids, SOURCE, 5, target_input_ids=ids, target_ids=ids, target_mask=STEPS)
    output = ModelOutput(torch.zeros(2, 2), attention=ATTENTION, details={"centrality": CENTRALITY})
    term = build("objective", OBJECTIVES, {"type": "guidance", "reduction": reduction, "weight": 3.0})(output, batch)
    assert (float(term.count), term.weight) == (count, 3.0)
    assert float(term.sum) == pytest.approx(kl([0.5, 0.25, 0.25]) + kl([0.625, 0.1875]), abs=1e-6)
