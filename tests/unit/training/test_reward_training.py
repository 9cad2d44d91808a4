"""Training on the reward of what the model writes, also over an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import continues_exactly, gradients, quiet

from catchline.errors import ConfigError
from catchline.training.logging import read_log
from catchline.training.run import train

RISK, CRITICAL = {"type": "minimum_risk", "candidates": 3}, {"type": "self_critical", "samples": 2}
SENTENCE = {"type": "nll", "reduction": "sentence", "weight": 0.1}


@pytest.mark.parametrize("objectives", [[SENTENCE, CRITICAL], pytest.param([RISK], marks=pytest.mark.slow)])
def test_an_interrupted_run_continues_exactly(make_run: Any, tmp_path: Path, objectives: list[Any]) -> None:
    settings = {"accumulation": 2, "max_updates": 7, "log_every": 1}
    settings |= {"validation": {"every_updates": 5}, "checkpoint": {"every_updates": 6}}
    run = make_run(objectives=objectives, training=settings, **{"model.dropout": 0.3})
    log = read_log(continues_exactly(run, tmp_path) / "log.jsonl")
    kind = objectives[-1]["type"]
    line = next(entry for entry in log if f"{kind}_reward" in entry)
    assert -1.5 < line[f"{kind}_reward"] < 1
    assert any(entry.get("val_loss_tf", -1) >= 0 for entry in log)


def test_bf16_asks_the_model_again_under_autocast(make_trainer: Any) -> None:
    trainer = make_trainer(objectives=[RISK], **{"training.precision": "bf16"})
    assert gradients(trainer, range(0, 8), update=3)[1].values["minimum_risk"] > 0


def test_a_model_that_cannot_is_refused_before_training(make_run: Any, tmp_path: Path) -> None:
    model = {"type": "coarse_to_fine", "hidden_size": 4, "embedding_size": 4}
    with pytest.raises(ConfigError, match=r"set model\.type to seq2seq"):
        train(make_run(model=model, objectives=[RISK]), tmp_path / "run", on_message=quiet)
