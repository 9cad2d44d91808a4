"""The loop as a whole: log, validation, best model, stopping, interruption, exact continuation."""

from __future__ import annotations

import math
import signal
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import MakeRun, bits, quiet, stop_at

from catchline.config.loading import load_run
from catchline.data.records import read_records
from catchline.errors import ConfigError, DataError
from catchline.metrics.rouge import rouge
from catchline.models.folder import load_model_folder
from catchline.summarizer import Summarizer
from catchline.training.checkpoint import checkpoint_folders, read_checkpoint
from catchline.training.data import pairs_of
from catchline.training.log import read_log
from catchline.training.run import train
from catchline.training.step import is_best
from catchline.types import TrainingBatch, UpdateContext
from samples import TRANSFORMER


def every_pair(trainer: Any) -> TrainingBatch:
    """The validation set as one batch."""
    data = trainer.parts.validation_set
    return pairs_of(trainer.parts.collator, [data[index] for index in range(len(data))])


def test_a_run_learns_logs_and_exports(make_run: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    entries: list[dict[str, Any]] = []
    run = make_run(**{"training.max_updates": 20, "training.optimizer.learning_rate": 0.04})
    result = train(run, out, on_log=entries.append, on_message=quiet)
    assert entries == read_log(out / "log.jsonl")
    lines = [entry for entry in entries if entry["kind"] == "train"]
    assert [line["update"] for line in lines] == list(range(2, 21, 2))
    assert lines[-1]["nll"] < lines[0]["nll"] - 0.3
    assert lines[0].keys() == {
        "kind", "update", "epoch", "phase", "lr", "loss", "nll", "coverage", "grad_norm", "tokens",
    }  # fmt: skip
    # 40 records in batches of 8 make 5 updates an epoch, each epoch ends with a validation
    validations = [entry for entry in entries if entry["kind"] == "validation"]
    assert [entry["update"] for entry in validations] == list(range(5, 21, 5))
    assert (result.updates, result.stopped) == (20, "max_updates")
    best = min(validations, key=lambda entry: entry["val_loss_tf"])
    assert (result.best_update, result.best_metric) == (best["update"], best["val_loss_tf"])
    assert not any("seconds" in key for entry in entries for key in entry)
    loaded = load_model_folder(result.model_folder)
    assert loaded.metrics["update"] == best["update"]
    stored = read_checkpoint(out / f"checkpoint-{best['update']}").tensors["model"]
    torch.testing.assert_close(loaded.model.state_dict(), stored, rtol=0, atol=0)


def test_validation_loss_is_the_mean_over_all_tokens(make_trainer: Any) -> None:
    trainer = make_trainer(**{"training.batch_size": 3, "training.validation.metric": "val_loss_free"})
    batch = every_pair(trainer)
    trainer.model.eval()
    with torch.no_grad():
        forced = trainer.model(batch)
        free = trainer.model(batch, context=UpdateContext(forced_mask=torch.zeros_like(batch.target_mask)))
    trainer.model.train()
    values = trainer.validator()
    assert trainer.model.training
    count = batch.target_mask.sum()
    for name, output in (("tf", forced), ("free", free)):
        nll, coverage = -output.gold_log_probs.sum() / count, output.coverage_losses.sum() / count
        assert values[f"val_loss_{name}_nll"] == pytest.approx(float(nll), rel=1e-5)
        assert values[f"val_loss_{name}_coverage"] == pytest.approx(float(coverage), rel=1e-5)
        assert values[f"val_loss_{name}"] == pytest.approx(float(nll + coverage), rel=1e-5)
    assert values["val_loss_tf"] != values["val_loss_free"]


def test_validation_rouge_is_that_of_the_exported_model(make_run: Any, tmp_path: Path) -> None:
    run = make_run(
        **{"training.validation": {"decode_records": 7, "metric": "rouge1"}, "search.surface": "raw"},
        **{"search.max_length": 4, "training.max_updates": 10, "training.optimizer.learning_rate": 0.02},
    )
    result = train(run, tmp_path / "run", on_message=quiet)
    assert result.best_metric == result.metrics["rouge1"]
    records = list(read_records(run.data.validation))[:7]
    summarizer = Summarizer.from_pretrained(result.model_folder)
    texts = [summarizer.summarize(record.document).text for record in records]
    expected = rouge(texts, [record.summary for record in records])
    assert result.metrics["rouge1"] == pytest.approx(expected.mean["1"].f)
    assert result.metrics["rougeL"] == pytest.approx(expected.mean["L"].f)


def test_documents_too_long_for_attention_are_apart(make_trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    validator = make_trainer(**{"training.batch_size": 4}).validator
    whole, lengths = list(validator._mine(10)), validator.dataset.source_lengths
    monkeypatch.setattr(type(validator.step.model), "attended_tokens", 6)
    parts = list(validator._mine(10))
    assert [*chain(*parts)] == [*chain(*whole)]
    assert {len({lengths[index] > 6 for index in batch}) for batch in parts} == {1}
    assert {len({lengths[index] > 6 for index in batch}) for batch in whole} == {1, 2}


def test_validation_counts_words_of_other_scripts(make_trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(**{"training.validation": {"decode_records": 4}})
    monkeypatch.setattr(trainer.validator, "_decode", lambda indices: ["лифт сломан" for _ in indices])
    monkeypatch.setattr(trainer.validator.dataset, "references", [("лифт сломан",)] * 10)
    assert trainer.validator()["rouge1"] == 1.0
    assert trainer.validator.signature.startswith("rouge:unicode|")


def test_early_stopping_and_best_checkpoint(make_run: Any, tmp_path: Path) -> None:
    """With a learning rate that ruins the model: the first validation stays the best."""
    changes = {"optimizer": {"type": "sgd", "learning_rate": 30.0}, "clip_norm": 1.0, "early_stopping": 3}
    changes |= {"validation": {"every_updates": 1}, "max_updates": 200, "checkpoint": {"keep": 1}}
    result = train(make_run(training=changes), tmp_path / "run", on_message=quiet)
    assert result.stopped == "early_stopping"
    assert result.best_update is not None
    assert result.updates == result.best_update + 3
    assert [path.name for path in checkpoint_folders(tmp_path / "run")] == [f"checkpoint-{result.updates}"]


SCHEDULES = {  # the rate's factor after validations of 5, 4, 4, 4.5, 1, 0.5; equal is not worse
    "sticky": [1.0, 1.0, 1.0, 0.5, 0.25, 0.125],  # better ones do not stop it
    "plateau": [1.0, 1.0, 1.0, 0.5, 0.5, 0.5],
    "constant": [1.0] * 6,
}


@pytest.mark.parametrize(("metric", "sign"), [("val_loss_tf", 1.0), ("rouge1", -1.0)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_that_watch_validation(make_trainer: Any, schedule: str, metric: str, sign: float) -> None:
    validation = {"metric": metric, "decode_records": 1}
    trainer = make_trainer(**{"training.validation": validation, "training.schedule": {"type": schedule}})
    factors = []
    for value in (5.0, 4.0, 4.0, 4.5, 1.0, 0.5):
        is_best(trainer.state, sign * value, trainer.run.training)
        factors.append(trainer.state.plateau_factor)
    assert factors == SCHEDULES[schedule]
    assert trainer._learning_rate() == pytest.approx(factors[-1] * trainer.run.training.optimizer.learning_rate)


def test_what_counts_as_better(make_trainer: Any) -> None:
    """Whatever is lower, and what is no number never does."""
    trainer = make_trainer(**{"training.early_stopping": 2, "training.max_updates": 99})
    judged = []
    for update, value in enumerate((5.0, 5.0, 5.5, 4.4, float("nan"), 3.0, 9.0, 9.0)):
        trainer.state.update = update
        judged.append((is_best(trainer.state, value, trainer.run.training), trainer._stop_reason()))
    assert [best for best, _ in judged] == [True, False, False, True, False, True, False, False]
    assert [place for place, (_, reason) in enumerate(judged) if reason == "early_stopping"] == [2, 7]
    assert (trainer.state.best_metric, trainer.state.best_update) == (3.0, 5)


def test_time_limit_ends_with_validation_and_checkpoint(make_run: Any, tmp_path: Path) -> None:
    run = make_run(**{"training.max_updates": 100_000, "training.max_minutes": 0.005})
    result = train(run, tmp_path / "run", on_message=quiet)
    assert result.stopped == "max_minutes"
    validations = [line for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "validation"]
    assert validations[-1]["update"] == result.updates
    assert checkpoint_folders(tmp_path / "run")[0].name == f"checkpoint-{result.updates}"
    # the time is used up: resuming makes no further update
    again = train(run, tmp_path / "run", resume=True, on_message=quiet)
    assert again.updates == result.updates


@pytest.mark.parametrize(
    ("changes", "group"), [({"data.validation": None}, "model"), ({"training.average_last": 3}, "average")]
)
def test_which_weights_are_exported(make_run: Any, tmp_path: Path, changes: dict[str, Any], group: str) -> None:
    result = train(make_run(**changes), tmp_path / "run", on_message=quiet)
    assert (result.best_update is None) == (group == "model")
    tensors = read_checkpoint(tmp_path / "run" / f"checkpoint-{result.best_update or 6}").tensors
    exported = load_model_folder(result.model_folder).model.state_dict()
    assert tensors[group]
    assert all(torch.equal(exported[name], value) for name, value in tensors[group].items())
    assert any(not torch.equal(exported[name], tensors["model"][name]) for name in exported) == (group == "average")


def test_paths_are_stored_absolute(make_run: Any, tmp_path: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pairs)
    run = make_run(**{"data": {"train": "train.jsonl", "validation": None}, "training.max_updates": 1})
    train(run, tmp_path / "run", on_message=quiet)
    assert load_run(tmp_path / "run" / "recipe.yaml").data.train == str(pairs / "train.jsonl")


FEW_POSITIONS = {"model": TRANSFORMER | {"max_positions": 7}, "objectives": [{"type": "nll"}], "search.max_length": 5}
FEW_POSITIONS |= {"training.max_updates": 1, "text.max_source_tokens": 7}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data.train": "empty.jsonl"}, "empty.jsonl"),
        ({"data.train": None}, "--data"),
        ({"training.validation.metric": "rouge2"}, "decode_records"),
        ({"training.trackers": ["aim"]}, "aim is not installed"),
        ({"search.max_length": 7}, r"search\.max_length 7 is more than the model's 7 positions"),
        ({"objectives": [{"type": "nll"}, {"type": "opponent"}]}, "needs an opponent attention"),
        ({"text.max_source_tokens": 9}, "has 9 tokens, the model 7 positions: set text.max_source_tokens to 7"),
        ({}, None),
    ],
)
def test_what_cannot_be_trained_is_refused(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").touch()
    with pytest.raises((ConfigError, DataError), match=said) if said else nullcontext():
        train(make_run(**FEW_POSITIONS | changes), tmp_path / "run", on_message=quiet)


STATEFUL = {
    "model.dropout": 0.3,
    "training": {
        "accumulation": 2,
        "max_updates": 17,
        "average_last": 4,
        "log_every": 4,
        "teacher_forcing": {"ratio": 0.5, "scope": "example_step", "feed": "sample"},
        "validation": {"every_updates": 5},
        "checkpoint": {"every_updates": 6},
    },
}


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({}, signal.SIGINT),
        ({"training.batch_tokens": 30}, signal.SIGTERM),
        pytest.param({"training.batching": "sorted"}, signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_continues_exactly(make_run: Any, tmp_path: Path, changes: Any, number: int) -> None:
    run, out = make_run(**STATEFUL, **changes), tmp_path / "stopped"
    before, whole = signal.getsignal(number), train(run, tmp_path / "whole", on_message=quiet)
    # answered after update 5, which is validated only by the resumed run
    assert f"catchline resume {out}" in stop_at(run, out, 4, number)
    assert signal.getsignal(number) is before
    assert [path.name for path in checkpoint_folders(out)] == ["checkpoint-5"]
    resumed = train(run, out, resume=True, on_message=quiet)
    assert bits(out) == bits(Path(whole.folder))
    assert (resumed.best_metric, resumed.epochs) == (whole.best_metric, whole.epochs)


@pytest.mark.parametrize("reduction", ["token", "sentence", "sum"])
def test_perplexity_is_of_the_words_that_count(make_trainer: Any, reduction: str) -> None:
    changes = {"objectives": [{"type": "nll", "reduction": reduction}], "text.tokenizer.max_vocabulary": 10}
    trainer = make_trainer(**changes, **{"model.unk_loss": "ignore", "model.head": {"type": "vocabulary"}})
    batch = every_pair(trainer)
    trainer.model.eval()
    with torch.no_grad():
        output = trainer.model(batch)
    counted = output.counted(batch)
    assert counted.sum() < batch.target_mask.sum()
    expected = math.exp(-float(output.gold_log_probs[counted].mean()))
    assert trainer.validator()["val_ppl"] == pytest.approx(expected, rel=1e-4)
