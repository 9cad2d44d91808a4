"""The loss that training builds is the one the vocabulary projection foresees, so nothing is projected twice."""

from __future__ import annotations

from typing import Any

import pytest

from laconic.kernels import vocabulary
from laconic.objectives.likelihood import NegativeLogLikelihood
from laconic.types import PLAIN_PASS
from samples import random_batch, tiny_seq2seq


@pytest.mark.parametrize("unk_loss", ["count", "ignore"])
@pytest.mark.parametrize("reduction", ["token", "example", "sentence", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("head", ["pointer", "vocabulary"])
def test_no_second_projection(
    head: str, smoothing: float, reduction: Any, unk_loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (reduction, unk_loss) == ("example", "ignore"):
        pytest.skip("which tokens an example divides by is known only after the pass; it projects again, exactly")

    def refuse(*_: Any) -> None:
        raise AssertionError("projected again")

    monkeypatch.setattr(vocabulary, "_again", refuse)
    model = tiny_seq2seq(head={"type": head}, unk_loss=unk_loss).float()
    objective = NegativeLogLikelihood(NegativeLogLikelihood.Config(reduction=reduction, label_smoothing=smoothing))
    batch = random_batch()
    batch.target_ids[0, 0] = model.unk_id
    context = objective.wants(batch, PLAIN_PASS)
    term = objective(model(batch, context=context), batch, context)
    (term.sum / term.count).backward()
