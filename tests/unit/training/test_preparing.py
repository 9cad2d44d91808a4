"""What training makes of its data: word vectors, pairs left out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from catchline.errors import ConfigError, DataError
from catchline.objectives.base import Objective
from catchline.training.run import train
from catchline.types import ModelOutput, TrainingBatch, UpdateContext


def test_training_starts_from_them(make_run: Any, make_trainer: Any, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("word3 " + " ".join(["0.25"] * 6) + "\n")
    trainer = make_trainer(**{"text.pretrained_embeddings": str(path)})
    place = trainer.parts.tokenizer.token_id("word3")
    assert trainer.model.embedding.weight[place].tolist() == [0.25] * 6
    (tmp_path / "wide.txt").write_text("word3 1 2 3\n")
    run = make_run(**{"text.pretrained_embeddings": str(tmp_path / "wide.txt")})
    with pytest.raises(ConfigError, match="embedding_size"):
        train(run, tmp_path / "other", on_message=lambda message: None)


def test_pairs_that_the_document_does_not_support_are_left_out(make_run: Any, make_trainer: Any) -> None:
    everything = make_trainer(**{"data.min_supported": 0.0})
    some = make_trainer(**{"data.min_supported": 0.99, "text.max_source_tokens": 1})
    assert 0 < len(some.parts.train_set) < len(everything.parts.train_set)
    assert any("left out" in note for note in some.parts.notes)


SIZES = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "d_model": 8}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 60}
WIDE = {"type": "bart", "architecture": {"model_type": "bart", "vocab_size": 40, **SIZES, **HEADS}}
LACKING = {"text.tokenizer": {"type": "word", "min_frequency": 1, "max_vocabulary": 15}}


@pytest.mark.parametrize("head", [{}, {"head": {"type": "pointer"}}])
def test_words_that_the_vocabulary_lacks_stand_behind_spare_rows(
    make_trainer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: dict[str, Any]
) -> None:
    monkeypatch.setenv("CATCHLINE_CACHE", str(tmp_path / "cache"))
    parts = make_trainer(model=WIDE | head, objectives=[{"type": "nll"}]).parts
    assert (parts.tokenizer.vocab_size, len(parts.tokenizer.vocabulary)) == (40, 24)
    assert parts.collator([parts.train_set[0]]).extended_vocab_size == 40  # spare rows are no words of documents
    shutil.rmtree(tmp_path / "run")
    assert make_trainer(**LACKING).parts.train_set[0].source_extended_ids.max() < 40  # kept, for another model
    trainer = make_trainer(model=WIDE | head, objectives=[{"type": "nll"}], **LACKING)
    parts = trainer.parts
    examples = [parts.train_set[number] for number in range(40)]
    ids = np.unique(np.concatenate([example.source_extended_ids for example in examples]))
    most = max(len(example.oov_words) for example in examples)
    assert ids[ids >= len(parts.tokenizer.vocabulary)].tolist() == [*range(40, 40 + most)]
    assert 0 < trainer.fit().metrics["val_loss_tf"] < 20


def test_a_start_that_failed_on_its_data_does_not_block_the_folder(make_run: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(DataError):
        train(make_run(**{"data.train": str(tmp_path / "bad.jsonl")}), tmp_path / "run", on_message=lambda _: None)
    train(make_run(**{"training.max_updates": 1}), tmp_path / "run", on_message=lambda _: None)
    with pytest.raises(ConfigError, match="already holds a run"):
        train(make_run(**{"training.max_updates": 1}), tmp_path / "run", on_message=lambda _: None)


class Scaled(Objective):
    """One's own, without a name and with a parameter of its own."""

    def __init__(self, config: Objective.Config) -> None:
        super().__init__(config)
        self.scale = nn.Parameter(torch.ones(()))


class Looking(Objective):
    """One's own without a name."""

    def values(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Tensor:
        return -output.gold_log_probs


def test_parameters_that_nothing_would_train_are_refused(make_trainer: Any) -> None:
    with pytest.raises(ConfigError, match=r"objective 'Scaled' has 1 parameters which no optimizer changes"):
        make_trainer(objectives=[{"type": "nll"}, {"type": f"{__name__}:Scaled"}])


def test_an_objective_without_a_name_has_that_of_its_class(make_trainer: Any) -> None:
    trainer = make_trainer(objectives=[{"type": "nll"}, {"type": f"{__name__}:Looking"}])
    assert trainer.fit().metrics["val_loss_tf_Looking"] > 0
    assert not trainer._learner.objective_state(), "the model is saved once"


def test_a_coverage_loss_is_in_the_log(make_trainer: Any) -> None:
    attention = {"type": "additive", "coverage": True}
    objectives = [{"type": "nll"}, {"type": "coverage"}]
    trainer = make_trainer(model={"type": "seq2seq", "attention": attention}, objectives=objectives)
    assert trainer.fit().metrics["val_loss_tf_coverage"] > 0
