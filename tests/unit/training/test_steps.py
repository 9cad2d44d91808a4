"""An update in one process and in several: gradients, counts, what is not finite, batches of processes."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from runs import collate, gradients, quiet, weights
from torch import nn

from catchline.config.names import OBJECTIVES, build
from catchline.config.schema import TrainingConfig
from catchline.errors import ConfigError, TrainingError
from catchline.training.checkpoint import checkpoint_folders, read_checkpoint
from catchline.training.log import read_log
from catchline.training.run import train
from catchline.training.step import UpdateStep, join_processes
from catchline.types import Term
from killing import finish, start
from samples import TRANSFORMER

TOKEN, EXAMPLE = {"type": "nll", "reduction": "token"}, {"type": "coverage", "reduction": "example", "weight": 0.7}


OPPONENT = {"model": TRANSFORMER | {"opponent": {"type": "max", "layer": 1, "head": 0}}, "text.source_specials": "end"}


@pytest.mark.parametrize(
    ("objectives", "changes", "passes"),
    [
        *(([TOKEN], {}, 4), ([TOKEN, EXAMPLE], {}, 7), ([TOKEN | {"reduction": "example"}], {}, 4)),
        ([TOKEN, {"type": "opponent", "weight": 0.2}], OPPONENT, 4),  # both have one count: no pass to find it out
    ],
)
def test_accumulation_equals_one_big_batch(
    make_trainer: Any, objectives: list[Any], changes: dict[str, Any], passes: int
) -> None:
    """In pieces of different size: averaging their means would give another gradient."""
    trainer = make_trainer(objectives=objectives, **changes)
    calls = list[int]()
    trainer.model.double().register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.mul_(3)  # far from an even guess
    whole, figures = gradients(trainer, range(0, 12), update=3)
    pieces, again = gradients(trainer, range(0, 2), range(2, 9), range(9, 12), update=3)
    assert any(bool(value.abs().max() > 1e-4) for value in whole.values())
    assert whole.keys() == pieces.keys() == dict(trainer.model.named_parameters()).keys()
    assert again.values == pytest.approx(figures.values, rel=1e-5)
    torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-8)
    assert passes == len(calls)


COARSE = {"type": "coarse_to_fine", "embedding_size": 6, "hidden_size": 6, "chunks": None, "chunk_words": 2}
REINFORCED = [{"type": "nll", "reduction": "sentence"}, {"type": "reinforce"}]


@pytest.mark.parametrize(
    ("objectives", "model"),
    [
        ([TOKEN | {"reduction": "sum"}], {}),
        (REINFORCED, {}),
        (REINFORCED, {"alternate": 0.5}),
        (REINFORCED, {"alternate": 0.5, "alternate_unit": "step", "dropout": 0.3}),
        *(
            ([REINFORCED[0], REINFORCED[1] | options], {"alternate": 0.5})
            for options in (
                {"baseline_order": "subtract_first"},
                {"baseline_mean": "all", "baseline_of": "return"},
                {"baseline_init": "first_batch"},
                {"baseline_update": "hard_only"},
            )
        ),
    ],
    ids=str,
)
def test_an_update_is_one_minibatch_however_it_is_split(make_trainer: Any, objectives: list[Any], model: Any) -> None:
    """Draws, dropout of the chunks, coins, baseline: three updates in a row, whole and in pieces."""
    forcing = {"training.teacher_forcing": {"ratio": 0.5, "scope": "example_step"}}
    trainer = make_trainer(objectives=objectives, model=COARSE | {"dropout": 0.0} | model, **forcing)
    found = []
    for groups in ([range(0, 12)], [range(0, 2), range(2, 9), range(9, 12)]):
        for objective in trainer.step.active:
            for remembered in objective.buffers():  # as if there had been no update
                remembered.zero_()
        for update in range(3):
            tensors, figures = gradients(trainer, *groups, update=update)
            state = {name: value.clone() for o in trainer.step.active for name, value in o.state_dict().items()}
            found.append((tensors | state, figures.values))
    for (whole, values), (pieces, same) in zip(found[:3], found[3:], strict=True):
        assert same == pytest.approx(values, rel=1e-4, abs=1e-6)
        torch.testing.assert_close(pieces, whole, rtol=1e-3, atol=1e-6)


def test_gradient_loss_and_values_are_those_of_the_plain_formula(make_trainer: Any) -> None:
    trainer = make_trainer(objectives=[TOKEN, EXAMPLE])
    (batch,) = collate(trainer, range(0, 12))
    got, _ = gradients(trainer, range(0, 12))
    trainer.model.zero_grad(set_to_none=True)
    output = trainer.model(batch)
    mask = batch.target_mask
    nll = -(output.gold_log_probs * mask).sum() / mask.sum()
    coverage = ((output.coverage_losses * mask).sum(1) / mask.sum(1)).mean()
    (nll + 0.7 * coverage).backward()
    expected = {name: parameter.grad for name, parameter in trainer.model.named_parameters()}
    torch.testing.assert_close(got, expected, rtol=2e-4, atol=1e-7)
    figures = trainer.step(collate(trainer, range(0, 3), range(3, 12)), 0, [1.0, 0.0], trainer.out)
    assert figures.values == pytest.approx({"nll": nll.item(), "coverage": coverage.item()}, rel=1e-5)
    assert figures.loss == pytest.approx((nll + 0.7 * coverage).item(), rel=1e-5)
    assert (figures.tokens, figures.flags) == (int(mask.sum()), [1.0, 0.0])


def test_clipping_keeps_the_direction_and_reports_the_norm_before(make_trainer: Any) -> None:
    free = make_trainer()
    batches = collate(free, range(0, 8))
    norm = free.step(batches, 0, [], free.out).grad_norm
    before = torch.cat([p.grad.flatten() for p in free.model.parameters()])
    clipped = make_trainer(**{"training.clip_norm": norm / 3})
    clipped.model.load_state_dict(free.model.state_dict())
    assert clipped.step(batches, 0, [], clipped.out).grad_norm == pytest.approx(norm, rel=1e-5)
    after = torch.cat([p.grad.flatten() for p in clipped.model.parameters()])
    torch.testing.assert_close(after, before / 3, rtol=1e-4, atol=1e-8)


def spoil(trainer: Any, record: str, gradient_only: bool = False) -> None:
    """Make an objective's value, or its gradient alone, not finite for one record."""
    objective = trainer.step.active[0]
    usual = objective.forward

    def forward(output: Any, batch: Any, context: Any) -> Term:
        term = usual(output, batch, context)
        if record in batch.record_ids:
            endless = (output.gold_log_probs.sum() * 0.0).clamp_min(0.0).sqrt()  # 0, with an infinite slope
            term.sum = term.sum + (endless if gradient_only else float("nan"))
        return term

    objective.forward = forward


@pytest.mark.parametrize("gradient_only", [False, True])
def test_what_is_not_finite_stops_before_the_step(make_trainer: Any, gradient_only: bool) -> None:
    trainer = make_trainer(**{"training.accumulation": 2, "training.checkpoint.every_updates": 1})
    spoil(trainer, "train17", gradient_only)
    with pytest.raises(TrainingError) as caught:
        trainer.fit()
    message = str(caught.value)
    assert "not finite" in message
    assert "gradient norm" in message if gradient_only else "loss (nan)" in message
    assert re.search(r"\btrain17\b", message)
    assert all(bool(p.isfinite().all()) for p in trainer.model.parameters())
    update = int(re.search(r"of update (\d+)", message)[1])  # type: ignore[index]
    good = trainer.out / f"checkpoint-{update - 1}"
    assert good.is_dir() == (update > 1)
    assert (str(good) if update > 1 else "No checkpoint") in message


def test_only_the_guilty_micro_batch_is_named(make_trainer: Any) -> None:
    trainer = make_trainer()
    spoil(trainer, "train4")
    with pytest.raises(TrainingError, match=r"train4, train5, train6, train7\."):
        trainer.step(collate(trainer, range(0, 4), range(4, 8)), 0, [], trainer.out)


def test_objectives_of_weight_0_are_not_computed(make_trainer: Any) -> None:
    trainer = make_trainer(objectives=[TOKEN, EXAMPLE | {"weight": 0}])
    assert [objective.name for objective in trainer.step.active] == ["nll"]
    with pytest.raises(ConfigError, match="nothing to train"):
        make_trainer(objectives=[TOKEN | {"weight": 0}, EXAMPLE | {"weight": 0}])


def test_bf16_is_close_to_fp32(make_trainer: Any) -> None:
    exact = make_trainer()
    batches = collate(exact, range(0, 8))
    low = make_trainer(**{"training.precision": "bf16"})
    low.model.load_state_dict(exact.model.state_dict())
    a, b = exact.step(batches, 0, [], exact.out), low.step(batches, 0, [], low.out)
    assert b.loss == pytest.approx(a.loss, rel=0.02)
    assert b.loss != a.loss
    assert all(p.grad.dtype == torch.float32 for p in low.model.parameters())


def test_what_an_objective_remembers_is_where_the_model_is() -> None:
    """The baseline of REINFORCE meets rewards of the device."""
    objective = build("objective", OBJECTIVES, {"type": "reinforce"})
    device = SimpleNamespace(device=torch.device("meta"))
    UpdateStep(TrainingConfig(max_updates=1), nn.Linear(1, 1), [objective], device)  # type: ignore[arg-type]
    assert {buffer.device.type for buffer in objective.buffers()} == {"meta"}


SGD = {"type": "sgd", "learning_rate": 0.5}  # it shows a wrong factor that Adam would hide


FOUR = pytest.param(4, ["nll", "coverage"], marks=pytest.mark.slow)


@pytest.mark.parametrize(("count", "objectives"), [(2, ["nll"]), (2, ["nll", "coverage"]), FOUR])
def test_several_processes_equal_one_with_the_same_global_batch(
    make_run: Any, tmp_path: Path, count: int, objectives: list[str]
) -> None:
    # a reduction per token and one per example: their counts differ between processes, and from each other
    changes = {
        "objectives": [{"nll": TOKEN, "coverage": EXAMPLE}[name] for name in objectives],
        "training": {"batch_size": 8 // count, "max_epochs": 1, "max_updates": None, "log_every": 1, "optimizer": SGD},
        # another parameter has no gradient at all (coverage off): it must be left alone
        "model.attention.coverage_from_start": "coverage" in objectives,
    }
    train(make_run(**changes, **{"training.batch_size": 8}), tmp_path / "one", on_message=quiet)
    finish(start(make_run(**changes).model_dump(mode="json"), tmp_path / "several", count))
    logs = [read_log(tmp_path / name / "log.jsonl") for name in ("one", "several")]
    assert len(logs[0]) == len(logs[1]) >= 6
    for single, several in zip(*logs, strict=True):
        assert single.keys() == several.keys()
        for key, value in single.items():
            assert several[key] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), key
    folders = (checkpoint_folders(tmp_path / name)[0] for name in ("one", "several"))
    one, several = (read_checkpoint(folder).tensors["model"] for folder in folders)
    torch.testing.assert_close(several, one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_continue_exactly(make_run: Any, tmp_path: Path, count: int) -> None:
    changes = {"model.dropout": 0.3, "training.checkpoint": {"every_updates": 4, "keep": 9}}
    changes |= {"training.batch_size": 3, "training.accumulation": 2}
    for out, updates in (("whole", 7), ("parts", 5), ("parts", 7)):  # stopped within an epoch, by its own end
        run = make_run(**changes, **{"training.max_updates": updates})
        finish(start(run.model_dump(mode="json"), tmp_path / out, count))
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_training_leaves_apples_gpu_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has no float64, in which validation sums losses; accelerate would take it unasked."""
    asked: dict[str, Any] = {}

    def made(**options: Any) -> Any:
        asked.update(options)
        return SimpleNamespace(num_processes=1, distributed_type=DistributedType.NO)

    monkeypatch.setattr("catchline.training.step.Accelerator", made)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    for apple in (False, True):
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda apple=apple: apple)
        join_processes([], tmp_path)
        assert asked["cpu"] is apple
