"""Starting from a model that exists: what is taken, what stays as drawn, what is refused."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import MakeRun, quiet, weights

from catchline.config.schema import RunConfig
from catchline.errors import ConfigError, ModelError
from catchline.models.folder import load_model_folder
from catchline.text.tokenizer import BpeTokenizer, PretrainedTokenizer, Tokenizer
from catchline.text.truecase import Casing
from catchline.training.checkpoint import seed_everything
from catchline.training.log import Callbacks
from catchline.training.prepare import Prepared, adopted_tokenizer, prepare, take_weights
from catchline.training.run import train
from catchline.training.step import join_processes
from json_lines import write_lines

TRANSFORMER = {
    "type": "transformer",
    "encoder_layers": 1,
    "decoder_layers": 2,
    "hidden_size": 8,
    "num_heads": 2,
    "feed_forward_size": 12,
    "head": {"type": "vocabulary"},
}
OPPOSED: dict[str, Any] = {
    "model": TRANSFORMER | {"opponent": {"type": "max", "layer": 1, "head": 1}},
    "objectives": [{"type": "nll"}, {"type": "opponent", "weight": 0.2}],
}
START = "training.initial_weights"


@pytest.fixture(scope="module")
def base(make_run: MakeRun) -> MakeRun:
    """A Transformer without an opponent, with changes."""
    return lambda **changes: make_run(**{"model": TRANSFORMER, "objectives": [{"type": "nll"}]} | changes)


@pytest.fixture(scope="module")
def trained(base: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of it, which no test changes."""
    return Path(train(base(), tmp_path_factory.mktemp("trained") / "base", on_message=quiet).folder)


def drawn(run: RunConfig, out: Path) -> Prepared:
    out.mkdir(exist_ok=True)
    seed_everything(run.training.seed)
    return prepare(run, out, join_processes((), out), Callbacks().show, start=run.training.initial_weights)


@pytest.mark.parametrize("inside", ["", "model"])
def test_the_base_is_taken_and_the_new_branch_is_as_drawn(
    base: MakeRun, trained: Path, tmp_path: Path, inside: str
) -> None:
    started = drawn(base(**OPPOSED, **{START: str(trained / inside)}), tmp_path / "started")
    theirs = load_model_folder(trained).model.state_dict()
    own, new = started.model.state_dict(), drawn(base(**OPPOSED), tmp_path / "scratch").model.state_dict()
    branch = [name for name in own if name not in theirs]
    assert branch
    assert all(name.startswith("opponent.") for name in branch)
    assert all(torch.equal(own[name], (theirs if name in theirs else new)[name]) for name in own)
    assert any(not torch.equal(new[name], theirs[name]) for name in theirs)
    note = started.notes[-1]
    assert f"{len(theirs)} tensors taken" in note
    assert f"{len(branch)} that it lacks start as drawn ({branch[0]}" in note


def test_the_run_takes_the_tokenizer_and_trains(base: MakeRun, trained: Path, tmp_path: Path) -> None:
    """On other texts, whose own vocabulary would be another one."""
    lines = [{"document": f"word1 word{i} strange{i} tree", "summary": f"word{i} tree"} for i in range(16)]
    other, said = write_lines(tmp_path / "other.jsonl", lines), list[str]()
    result = train(base(**{START: str(trained), "data.train": str(other)}), tmp_path / "second", on_message=said.append)
    vocabularies = [list(Tokenizer.load(folder / "tokenizer").vocabulary) for folder in (trained, tmp_path / "second")]
    assert vocabularies[0] == vocabularies[1]
    assert any("tensors taken" in line for line in said)
    assert len(vocabularies[0]) == 24  # twenty words and the special ones
    assert result.updates == 6


def test_names_are_learnt_with_the_tokenizer_and_by_further_training(
    base: MakeRun, trained: Path, tmp_path: Path
) -> None:
    def learnt(name: str, like: str, **changes: Any) -> Casing:
        line = {"document": f"word1 in {name} tree. It is word2 of {name} tree.", "summary": like}
        data = write_lines(tmp_path / f"{name}.jsonl", [line] * 8)
        return drawn(base(**{"data.train": str(data)}, **changes), tmp_path / name).tokenizer.casing

    first = learnt("PyTree", "Tree of word1")
    assert (first.forms["pytree"][0], "tree" in first.forms, first.capitals) == ("PyTree", False, "sentence")
    start = Path(shutil.copytree(trained, tmp_path / "start"))
    first.save(start / "model")
    second = learnt("GNUtool", "tree of word1", **{START: str(start)})
    assert (second.forms["pytree"][0], second.forms["gnutool"][0], second.capitals) == ("PyTree", "GNUtool", "lower")
    assert (tmp_path / "GNUtool" / "tokenizer" / "casing.json").is_file()


def test_a_resumed_run_no_longer_needs_the_folder(base: MakeRun, trained: Path, tmp_path: Path) -> None:
    start = shutil.copytree(trained, tmp_path / "start")
    whole = base(**{START: str(start)})
    train(whole, tmp_path / "whole", on_message=quiet)
    train(base(**{START: str(start), "training.max_updates": 3}), tmp_path / "cut", on_message=quiet)
    shutil.rmtree(start)
    train(whole, tmp_path / "cut", resume=True, on_message=quiet)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
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
    base: MakeRun, trained: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        train(base(**{START: str(trained)} | changes), tmp_path / "other", on_message=quiet)


def of_other_words() -> Tokenizer:
    tokenizer = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=30))
    tokenizer.train(["a few other words"])
    return tokenizer


def test_weights_never_meet_another_vocabulary(base: MakeRun, trained: Path, tmp_path: Path) -> None:
    """A run folder that has a tokenizer already, and a model of other words."""
    of_other_words().save(tmp_path / "tokenizer")
    with pytest.raises(ConfigError, match="mean other words"):
        drawn(base(**{START: str(trained)}), tmp_path)


def test_a_tied_tensor_cannot_be_two(base: MakeRun, tmp_path: Path) -> None:
    untied, tied = ({"model": TRANSFORMER | {"share_embeddings": shared}} for shared in (False, True))
    two, one = (
        train(base(**how, **{"training.max_updates": 1}), tmp_path / name, on_message=quiet).folder
        for name, how in (("two", untied), ("one", tied))
    )
    with pytest.raises(ConfigError, match="one tensor for what"):
        drawn(base(**tied, **{START: two}), tmp_path / "a")
    own = drawn(base(**untied, **{START: one}), tmp_path / "b").model.state_dict()
    theirs = load_model_folder(one).model.state_dict()
    assert all(torch.equal(own[name], value) for name, value in theirs.items() if name in own)


def test_weights_of_a_checkpoint_of_somebody_else(base: MakeRun, trained: Path, tmp_path: Path) -> None:
    """A recipe that names the checkpoint's own folder, here or on a machine where it lay elsewhere; and a wrong one."""
    of_other_words().save(tmp_path / "other")
    for path in (str(trained / "tokenizer"), "elsewhere/tokenizer", str(tmp_path / "other")):
        text = base(**{"text.tokenizer": {"type": "pretrained", "path": path}}).text
        initial = load_model_folder(trained)
        initial.tokenizer = PretrainedTokenizer(PretrainedTokenizer.Config(path=str(trained / "tokenizer")))
        wrong = (
            pytest.raises(ConfigError, match="other is another one") if "other" in Path(path).name else nullcontext()
        )
        with wrong:
            assert adopted_tokenizer(initial, text, "there") is initial.tokenizer
