"""Starting from a model that exists: what is taken, what stays as drawn, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import quiet

from catchline.config.loading import merge
from catchline.config.schema import RunConfig
from catchline.errors import ConfigError, ModelError
from catchline.models.folder import load_model_folder
from catchline.text.tokenizer import BpeTokenizer, PretrainedTokenizer, Tokenizer
from catchline.training.checkpoint import seed_everything
from catchline.training.log import Callbacks
from catchline.training.loop import Trainer
from catchline.training.prepare import Prepared, adopted_tokenizer, prepare, take_weights
from catchline.training.run import train
from catchline.training.step import join_processes

TRANSFORMER = {
    "type": "transformer",
    "encoder_layers": 1,
    "decoder_layers": 2,
    "hidden_size": 8,
    "num_heads": 2,
    "feed_forward_size": 12,
    "head": {"type": "vocabulary"},
}
OPPONENT = {"type": "max", "layer": 1, "head": 1}


@pytest.fixture(scope="module")
def base(make_run: Any) -> RunConfig:
    """A Transformer without an opponent."""
    run: RunConfig = make_run()
    return run.model_copy(update={"model": TRANSFORMER, "objectives": ({"type": "nll"},)})


@pytest.fixture(scope="module")
def trained(base: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of it, which no test changes."""
    return Path(train(base, tmp_path_factory.mktemp("trained") / "base", on_message=quiet).folder)


def with_opponent(run: RunConfig) -> RunConfig:
    objectives = ({"type": "nll"}, {"type": "opponent", "weight": 0.2})
    return run.model_copy(update={"model": {**run.model, "opponent": OPPONENT}, "objectives": objectives})


def short(run: RunConfig) -> RunConfig:
    return run.model_copy(update={"training": run.training.model_copy(update={"max_updates": 1})})


def starting_from(run: RunConfig, place: str | Path, **changes: Any) -> RunConfig:
    training = run.training.model_copy(update={"initial_weights": str(place), **changes})
    return run.model_copy(update={"training": training})


def drawn(run: RunConfig, out: Path, start: str | Path | None = None) -> Prepared:
    out.mkdir(exist_ok=True)
    seed_everything(run.training.seed)
    place = None if start is None else str(start)
    return prepare(run, out, join_processes((), out), Callbacks().show, start=place)


@pytest.mark.parametrize("inside", ["", "model"])
def test_the_base_is_taken_and_the_new_branch_is_as_drawn(
    base: RunConfig, trained: Path, tmp_path: Path, inside: str
) -> None:
    run = with_opponent(starting_from(base, trained / inside))
    started = drawn(run, tmp_path / "started", trained / inside)
    scratch = drawn(with_opponent(base), tmp_path / "scratch")
    theirs = load_model_folder(trained).model.state_dict()
    own, new = started.model.state_dict(), scratch.model.state_dict()
    branch = [name for name in own if name not in theirs]
    assert branch
    assert all(name.startswith("opponent.") for name in branch)
    assert all(torch.equal(own[name], new[name]) for name in branch)
    assert all(torch.equal(own[name], theirs[name]) for name in theirs)
    assert any(not torch.equal(new[name], theirs[name]) for name in theirs)
    note = started.notes[-1]
    assert f"{len(theirs)} tensors taken" in note
    assert f"{len(branch)} that it lacks start as drawn ({branch[0]}" in note


def test_the_run_takes_the_tokenizer_and_trains(base: RunConfig, trained: Path, tmp_path: Path) -> None:
    """On other texts, whose own vocabulary would be another one."""
    other = tmp_path / "other.jsonl"
    lines = [{"document": f"word1 word{i} strange{i} tree", "summary": f"word{i} tree"} for i in range(16)]
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = starting_from(base, trained)
    run = run.model_copy(update={"data": run.data.model_copy(update={"train": str(other)})})
    said: list[str] = []
    result = train(run, tmp_path / "second", on_message=said.append)
    vocabularies = [list(Tokenizer.load(folder / "tokenizer").vocabulary) for folder in (trained, tmp_path / "second")]
    assert vocabularies[0] == vocabularies[1]
    assert any("tensors taken" in line for line in said)
    assert len(vocabularies[0]) == 24  # twenty words and the special ones
    assert result.updates == 6


def test_names_are_learnt_with_the_tokenizer_and_by_further_training(
    base: RunConfig, trained: Path, tmp_path: Path
) -> None:
    def with_pairs(run: RunConfig, name: str, like: str) -> RunConfig:
        path = tmp_path / f"{name}.jsonl"
        line = {"document": f"word1 in {name} tree. It is word2 of {name} tree.", "summary": like}
        path.write_text("".join(json.dumps(line) + "\n" for _ in range(8)))
        return run.model_copy(update={"data": run.data.model_copy(update={"train": str(path)})})

    first = drawn(with_pairs(base, "PyTree", "Tree of word1"), tmp_path / "first").tokenizer.casing
    assert (first.forms["pytree"][0], "tree" in first.forms, first.capitals) == ("PyTree", False, "sentence")
    start = Path(shutil.copytree(trained, tmp_path / "start"))
    first.save(start / "model")
    run = with_pairs(starting_from(base, start), "GNUtool", "tree of word1")
    second = drawn(run, tmp_path / "second", start).tokenizer.casing
    assert (second.forms["pytree"][0], second.forms["gnutool"][0], second.capitals) == ("PyTree", "GNUtool", "lower")
    assert (tmp_path / "second" / "tokenizer" / "casing.json").is_file()


def test_a_resumed_run_no_longer_needs_the_folder(base: RunConfig, trained: Path, tmp_path: Path) -> None:
    start = Path(shutil.copytree(trained, tmp_path / "start"))
    whole = starting_from(base, start)
    train(whole, tmp_path / "whole", on_message=quiet)
    train(starting_from(base, start, max_updates=3), tmp_path / "cut", on_message=quiet)
    shutil.rmtree(start)
    train(whole, tmp_path / "cut", resume=True, on_message=quiet)
    weights = [load_model_folder(tmp_path / name).model.state_dict() for name in ("whole", "cut")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    with pytest.raises(ModelError, match="no model folder"):
        train(whole, tmp_path / "third", on_message=quiet)


def test_a_model_without_a_tensor_of_ours_is_refused(trained: Path) -> None:
    initial = load_model_folder(trained)
    with pytest.raises(ConfigError, match=r"a Transformer, and this run's Linear differ in every tensor"):
        take_weights(torch.nn.Linear(2, 2), initial, initial.tokenizer, str(trained))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"type": "seq2seq"}}, r"a Transformer, and this run's Seq2Seq differ in embedding"),
        ({"model.feed_forward_size": 16}, r"\[12, 8\] and \[16, 8\].*below 'model'"),
        ({"text.tokenizer.min_frequency": 2}, r"min_frequency: 1 there, 2 now.*--set 'text.tokeni"),
        ({"text.tokenizer": {"type": "character"}}, 'type: "word" there, "character" now'),
        ({"text.sentence_separator": "<EOS>"}, 'text.sentence_separator: null there, "<EOS>" now'),
    ],
)
def test_other_sizes_and_another_tokenizer_are_refused(
    base: RunConfig, trained: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    run = RunConfig(**merge(base.model_dump(), changes, revive=True))
    with pytest.raises(ConfigError, match=said):
        train(starting_from(run, trained), tmp_path / "other", on_message=quiet)


def of_other_words() -> Tokenizer:
    tokenizer = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=30))
    tokenizer.train(["a few other words"])
    return tokenizer


def test_weights_never_meet_another_vocabulary(base: RunConfig, trained: Path, tmp_path: Path) -> None:
    """A run folder that has a tokenizer already, and a model of other words."""
    of_other_words().save(tmp_path / "tokenizer")
    with pytest.raises(ConfigError, match="mean other words"):
        drawn(starting_from(base, trained), tmp_path, trained)


def test_a_tied_tensor_cannot_be_two(base: RunConfig, tmp_path: Path) -> None:
    untied = base.model_copy(update={"model": {**TRANSFORMER, "share_embeddings": False}})
    tied = base.model_copy(update={"model": {**TRANSFORMER, "share_embeddings": True}})
    two = train(short(untied), tmp_path / "two", on_message=quiet).folder
    one = train(short(tied), tmp_path / "one", on_message=quiet).folder
    with pytest.raises(ConfigError, match="one tensor for what"):
        drawn(starting_from(tied, two), tmp_path / "a", two)
    own = drawn(starting_from(untied, one), tmp_path / "b", one).model.state_dict()
    theirs = load_model_folder(one).model.state_dict()
    assert all(torch.equal(own[name], value) for name, value in theirs.items() if name in own)


def test_the_first_update_is_of_the_taken_weights(base: RunConfig, trained: Path, tmp_path: Path) -> None:
    """Nothing between preparing and training draws them anew."""
    parts = drawn(starting_from(base, trained), tmp_path / "run", trained)
    before = {name: value.clone() for name, value in parts.model.state_dict().items()}
    trainer = Trainer(base, tmp_path / "run", parts, join_processes((), tmp_path / "run"), Callbacks())
    assert all(torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())


def test_weights_of_a_checkpoint_of_somebody_else(base: RunConfig, trained: Path, tmp_path: Path) -> None:
    """A recipe that names the checkpoint's own folder, here or on a machine where it lay elsewhere; and a wrong one."""
    for path in (str(trained / "tokenizer"), "elsewhere/tokenizer"):
        text = base.text.model_copy(update={"tokenizer": {"type": "pretrained", "path": path}})
        initial = load_model_folder(trained)
        initial.tokenizer = PretrainedTokenizer(PretrainedTokenizer.Config(path=str(trained / "tokenizer")))
        assert adopted_tokenizer(initial, text, "there") is initial.tokenizer
    of_other_words().save(tmp_path / "other")
    text = base.text.model_copy(update={"tokenizer": {"type": "pretrained", "path": str(tmp_path / "other")}})
    with pytest.raises(ConfigError, match="other is another one"):
        adopted_tokenizer(initial, text, "there")
