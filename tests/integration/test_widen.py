"""``scripts/widen.py``: a wider network that is the same function, and that can learn to be another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from commands import program
from laconic.errors import ConfigError
from laconic.models.seq2seq import Seq2Seq
from samples import VOCAB, gradients, random_batch, tiny_seq2seq

SIZES = {
    "embedding_size": 5,
    "encoder_hidden": 6,
    "hidden_size": 6,
    "tie_output": True,
    "bridge_activation": ("tanh", "none"),
}


def widened(model: Seq2Seq, hidden: int) -> Seq2Seq:
    wide: Seq2Seq = program("widen").widened(model, hidden)
    return wide


def narrow(**changes: object) -> Seq2Seq:
    attention = {"type": "additive", "size": 6, "coverage": True}
    return tiny_seq2seq(**{**SIZES, "attention": attention, "head": {"type": "pointer"}, **changes})  # type: ignore[arg-type]


def test_it_is_the_same_function_and_learns() -> None:
    model, batch = narrow().eval(), random_batch(vocab_size=VOCAB)
    wide = widened(model, 9)
    assert wide.config.hidden_size == wide.config.encoder_hidden == wide.config.attention["size"] == 9
    output = wide(batch)
    torch.testing.assert_close(output.gold_log_probs, model(batch).gold_log_probs, atol=1e-6, rtol=0)
    (-output.gold_log_probs.sum() + output.coverage_losses.sum()).backward()
    new = gradients(wide)
    for name in ("head.projection.hidden.weight", "decoder.layer.weight_hh_l0", "bridge.layers.0.weight"):
        assert (new[name][:, 6:9].abs().sum(0) > 0).all(), name  # what the new units say can come to count
    assert new["attention.score_vector"][6:].abs().min() > 0


@pytest.mark.parametrize("changes", [{"cell": "gru"}, {"hidden_size": 7}, {"tie_output": False}, {"encoder_hidden": 9}])
def test_other_networks_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="can be widened"):
        widened(narrow(**changes), 9)


def test_a_folder_that_exists_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["widen.py", "oneline", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        program("widen").main()
    assert list(tmp_path.iterdir()) == []
