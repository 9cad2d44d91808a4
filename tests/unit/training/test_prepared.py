"""From data and settings to a training: vectors, filters, separators, objectives, contrastive runs."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import collate, quiet
from torch import Tensor, nn

from catchline.errors import ConfigError, DataError, TrainingError
from catchline.models.folder import load_model_folder
from catchline.models.transformer import own_seed
from catchline.objectives.base import Objective
from catchline.summarizer import Summarizer
from catchline.training.checkpoint import read_checkpoint
from catchline.training.log import read_log
from catchline.training.prepare import plan
from catchline.training.run import train
from catchline.types import ModelOutput, TrainingBatch, UpdateContext
from json_lines import read_lines, write_lines
from samples import TRANSFORMER


def test_training_starts_from_them(make_run: Any, make_trainer: Any, tmp_path: Path) -> None:
    path, key = tmp_path / "vectors.txt", "text.pretrained_embeddings"
    path.write_text("word3 " + " ".join(["0.25"] * 6) + "\n")
    trainer = make_trainer(**{key: str(path)})
    place = trainer.parts.tokenizer.token_id("word3")
    assert trainer.model.embedding.weight[place].tolist() == [0.25] * 6
    path.write_text("word3 1 2 3\n")
    with pytest.raises(ConfigError, match="embedding_size"):
        train(make_run(**{key: str(path)}), tmp_path / "other", on_message=quiet)


BAD = [{"document": "", "summary": "a"}, {"document": "a b", "summary": " "}, {"document": "b", "summary": ""}]


def test_which_pairs_are_left_out_and_what_is_said(make_trainer: Any, pairs: Path, tmp_path: Path) -> None:
    lengths = [len(row["document"].split()) for row in read_lines(pairs / "train.jsonl")]
    short = [length for length in lengths if length <= 6]
    data = write_lines(tmp_path / "train.jsonl", [*read_lines(pairs / "train.jsonl"), *BAD])
    for changes, kept, said in (
        ({"data.max_document_tokens": 6}, short, f"training data: {40 - len(short)} of 40 pairs .* 6 tokens"),
        ({"data.train": str(data), "data.skip_bad": True}, lengths, "3 records skipped: 2 empty summary, 1 empty doc"),
        ({"data.min_supported": 0.99, "text.max_source_tokens": 1}, None, "left out"),
    ):
        parts = make_trainer(**changes).parts
        assert kept is None or parts.train_set.source_lengths.tolist() == kept
        assert (0 < len(parts.train_set) < 40) == ("skip_bad" not in str(changes))
        assert any(re.search(said, note) for note in parts.notes)


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
    run = make_run(**{"training.max_updates": 1})
    for data, error in ((tmp_path / "bad.jsonl", DataError), (run.data.train, None), (run.data.train, ConfigError)):
        with pytest.raises(error) if error else nullcontext():
            train(make_run(**{"data.train": str(data), "training.max_updates": 1}), tmp_path / "run", on_message=quiet)


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
    with pytest.raises(ConfigError, match=r"objective 'Scaled' has parameters which no optimizer changes"):
        make_trainer(objectives=[{"type": "nll"}, {"type": f"{__name__}:Scaled"}])


def test_an_objective_without_a_name_has_that_of_its_class(make_trainer: Any) -> None:
    trainer = make_trainer(objectives=[{"type": "nll"}, {"type": f"{__name__}:Looking"}])
    assert trainer.fit().metrics["val_loss_tf_Looking"] > 0
    assert not trainer._learner.objective_state(), "the model is saved once"


def test_batches_hold_as_many_tokens_as_asked_for(make_trainer: Any) -> None:
    trainer = make_trainer(**{"training.batch_tokens": 30})
    stream = trainer.stream
    batches = [batch for position in range(stream.batches_per_epoch) for batch in stream.take(0, position)]
    assert max(max(batch.source_ids.numel(), batch.target_ids.numel()) for batch in batches) <= 30
    assert sorted(index for batch in batches for index in batch.indices) == list(range(40))
    assert "30 tokens" in "\n".join(plan(trainer.run, trainer.parts, trainer.accelerator))


@pytest.mark.parametrize(("side", "words"), [("both", "alpha beta gamma"), ("documents", "alpha beta")])
def test_the_vocabulary_of_documents_only(make_trainer: Any, tmp_path: Path, side: str, words: str) -> None:
    data = write_lines(tmp_path / "some.jsonl", [{"document": "alpha beta", "summary": "alpha gamma"}])
    made = make_trainer(**{"data.train": str(data), "text.vocabulary_from": side}).parts.tokenizer.vocabulary
    assert set(made[4:]) == set(words.split())


def test_a_model_reads_and_writes_separators(make_run: Any, tmp_path: Path) -> None:
    """From training through the exported folder to summaries: no separator is ever shown."""
    row = {"document": "alpha beta. gamma delta.", "summary": "alpha.\ngamma."}
    pairs = write_lines(tmp_path / "pairs.jsonl", [row] * 12)
    run = make_run(
        **{"data.train": str(pairs), "data.validation": str(pairs), "text.sentence_separator": "<EOS>"},
        **{"training.max_updates": 50, "training.optimizer.learning_rate": 0.05, "training.log_every": 50},
        **{"training.validation": {"decode_records": 4, "metric": "rouge1", "every_updates": 25}},
        **{"text.max_target_tokens": 8, "search.max_length": 8, "training.batch_size": 6},
    )
    result = train(run, tmp_path / "run", on_message=quiet)
    loaded = load_model_folder(result.model_folder)
    assert loaded.tokenizer.separator_id == 4
    assert result.metrics["rouge1"] == 1.0  # as decoded for validation: without the separator
    summary = Summarizer.from_pretrained(result.model_folder).explain(row["document"])
    assert summary.text == "alpha.\ngamma."
    assert [word.text for word in summary.words] == ["alpha", ".", "gamma", "."]
    assert all(summary.text[word.start : word.end] == word.text for word in summary.words)
    assert summary.tokens_read == summary.tokens_given == 7


MODEL = TRANSFORMER | {"dropout": 0.2, "opponent": {"type": "max", "layer": 1, "head": 0}}
OBJECTIVES = [{"type": "nll", "label_smoothing": 0.1}, {"type": "opponent", "weight": 0.2, "label_smoothing": 0.1}]
FIGURES = {"alpha_max", "alpha_entropy", "masked_positions", "nothing_left", "masked_end"}


@pytest.fixture
def make_contrastive(make_run: Any) -> Any:
    base = {"model": MODEL, "objectives": OBJECTIVES, "text.source_specials": "end"}
    return lambda **changes: make_run(**(base | changes))


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
    monkeypatch.setattr("catchline.objectives.losses.LOWEST_MEAN", -12.0)
    opponent = MODEL["opponent"] | {"output": "softmax", "lambda_decode": -0.2}
    run = make_contrastive(
        model=MODEL | {"opponent": opponent},
        objectives=[{"type": "nll"}, {"type": "minus_softmax", "weight": 0.5}],
        training={"max_updates": 3000, "optimizer": {"learning_rate": 0.03}, "validation": {"every_updates": 999}},
    )
    with pytest.raises(TrainingError, match="has no bound and diverges"):
        train(run, tmp_path / "run", on_message=quiet)
    values = [line["minus_softmax"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "train"]
    assert values[-1] < values[0]
