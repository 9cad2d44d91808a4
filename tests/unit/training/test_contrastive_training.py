"""The contrastive objective in the loop: the log, exact continuation, and the variant that has to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from runs import collate, continues_exactly, quiet

from catchline.errors import ConfigError, TrainingError
from catchline.layers.opponent import own_seed
from catchline.training.checkpoint import read_checkpoint
from catchline.training.log import read_log
from catchline.training.run import train

MODEL: dict[str, Any] = {
    "type": "transformer",
    "encoder_layers": 1,
    "decoder_layers": 2,
    "hidden_size": 8,
    "num_heads": 2,
    "feed_forward_size": 8,
    "dropout": 0.2,
    "opponent": {"type": "max", "layer": 1, "head": 0},
}
OBJECTIVES = [{"type": "nll", "label_smoothing": 0.1}, {"type": "opponent", "weight": 0.2, "label_smoothing": 0.1}]
FIGURES = {"alpha_max", "alpha_entropy", "masked_positions", "nothing_left", "masked_end"}


@pytest.fixture
def make_contrastive(make_run: Any) -> Any:
    def make(**changes: Any) -> Any:
        base = {"model": MODEL, "objectives": OBJECTIVES, "text.source_specials": "end"}
        return make_run(**(base | changes))

    return make


def test_the_log_has_both_terms_and_what_the_opponent_does(make_contrastive: Any, tmp_path: Path) -> None:
    train(make_contrastive(), tmp_path / "run", on_message=quiet)
    lines = read_log(tmp_path / "run" / "log.jsonl")
    trained = [line for line in lines if line["kind"] == "train"]
    assert [line["update"] for line in trained] == [2, 4, 6]
    for line in trained:
        figures = {name.removeprefix("opponent_") for name in line if name.startswith("opponent_")}
        assert figures == FIGURES | {"plain"}
        assert line["loss"] == pytest.approx(line["nll"] + 0.2 * line["opponent"], rel=1e-6)
        assert line["perplexity"] == pytest.approx(torch.tensor(line["nll_plain"]).exp().item(), rel=1e-4)
        assert line["nll_plain"] != line["nll"]
        assert 0 < line["opponent_alpha_max"] <= 1
        assert line["opponent_masked_positions"] >= 1
    (validation,) = [line for line in lines if line["kind"] == "validation" and line["update"] == 6]
    total = validation["val_loss_tf_nll"] + 0.2 * validation["val_loss_tf_opponent"]
    assert validation["val_loss_tf"] == pytest.approx(total, rel=1e-6)


def test_a_run_without_smoothing_logs_no_second_figures(make_contrastive: Any, tmp_path: Path) -> None:
    run = make_contrastive(objectives=[{"type": "nll"}, {"type": "opponent"}], **{"training.max_updates": 2})
    train(run, tmp_path / "run", on_message=quiet)
    line = read_log(tmp_path / "run" / "log.jsonl")[0]
    assert not {"nll_plain", "opponent_plain", "perplexity"} & line.keys()


def test_what_does_not_fit_is_refused_before_the_training(make_contrastive: Any, tmp_path: Path) -> None:
    short = {"model": MODEL | {"max_positions": 24}, "text.max_target_tokens": 20, "search.max_length": 24}
    with pytest.raises(ConfigError, match=r"search\.max_length 24 is more than this model's 24 positions hold"):
        train(make_contrastive(**short), tmp_path / "run", on_message=quiet)
    with pytest.raises(ConfigError, match="needs an opponent attention"):
        train(make_contrastive(model=MODEL | {"opponent": None}), tmp_path / "a", on_message=quiet)


def test_an_interrupted_run_continues_exactly(make_contrastive: Any, tmp_path: Path) -> None:
    """With dropout in the branch, whose generator is stored nowhere."""
    continues_exactly(make_contrastive(**{"training.log_every": 1}), tmp_path)


def test_weight_zero_is_the_baselines_training(make_contrastive: Any, tmp_path: Path) -> None:
    """Through the loop: lambda 0 gives the base parameters the updates of the run without an opponent."""
    nothing = make_contrastive(objectives=[OBJECTIVES[0], OBJECTIVES[1] | {"weight": 0.0}])
    baseline = make_contrastive(model=MODEL | {"opponent": None}, objectives=OBJECTIVES[:1])
    found = []
    for name, run in (("nothing", nothing), ("baseline", baseline)):
        train(run, tmp_path / name, on_message=quiet)
        found.append(read_checkpoint(tmp_path / name / "checkpoint-6").tensors["model"])
    with_one, without = found
    assert all(torch.equal(with_one[name], value) for name, value in without.items())


def test_every_micro_batch_has_noise_of_its_own(make_trainer: Any, make_contrastive: Any) -> None:
    """One seed an update; the branch's dropout adds the first example's number to it."""
    trainer = make_trainer(run=make_contrastive())
    batches = collate(trainer, range(4), range(4, 8))
    ready = [[trainer.step._ready(batch, update, last=True) for batch in batches] for update in range(3)]
    assert [one.noise_seed == other.noise_seed for (_, one), (_, other) in ready] == [True] * 3
    seeds = [own_seed(batch, context.noise_seed) for update in ready for batch, context in update]
    assert len(set(seeds)) == len(seeds)
    batch, context = trainer.step._ready(batches[1], 2, last=True)
    assert own_seed(batch, context.noise_seed) == seeds[-1]


def test_the_variant_of_footnote_3_stops_with_a_sentence(
    make_contrastive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catchline.objectives.likelihood.LOWEST_MEAN", -12.0)
    opponent = MODEL["opponent"] | {"output": "softmax", "lambda_decode": -0.2}
    run = make_contrastive(
        model=MODEL | {"opponent": opponent},
        objectives=[{"type": "nll"}, {"type": "minus_softmax", "weight": 0.5}],
        training={"max_updates": 3000, "optimizer": {"learning_rate": 0.03}, "validation": {"every_updates": 999}},
    )
    with pytest.raises(TrainingError, match="expected to end so"):
        train(run, tmp_path / "run", on_message=quiet)
    values = [line["minus_softmax"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "train"]
    assert values[-1] < values[0]
