"""``scripts/mean.py``: the mean of the weights of models that have the same parts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from catchline.errors import ConfigError
from catchline.models.folder import load_model_folder, save_model_folder
from catchline.text.tokenizer import WordTokenizer
from commands import program
from samples import tiny_seq2seq


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return program("mean")


def saved(folder: Path, words: str, seed: int) -> Path:
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([words])
    torch.manual_seed(seed)
    save_model_folder(folder, model=tiny_seq2seq(vocab_size=tokenizer.vocab_size), tokenizer=tokenizer)
    return folder


def test_every_weight_is_the_mean(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [saved(tmp_path / str(seed), "the river rose", seed) for seed in range(3)]
    monkeypatch.setattr(sys, "argv", ["mean", str(tmp_path / "out"), *map(str, folders)])
    script.main()
    given = [load_model_folder(folder).model.state_dict() for folder in folders]
    found = load_model_folder(tmp_path / "out").model.state_dict()
    assert found.keys() == given[0].keys()
    for name, value in found.items():
        torch.testing.assert_close(value, sum(one[name] for one in given) / 3, msg=name)


def test_nothing_is_replaced(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [saved(tmp_path / str(seed), "the river rose", seed) for seed in range(2)]
    before = (folders[0] / "model.safetensors").read_bytes()
    for arguments, said in (([*folders], "0 is there already"), ([tmp_path / "new", tmp_path / "none"], "none")):
        monkeypatch.setattr(sys, "argv", ["mean", *map(str, arguments)])
        with pytest.raises(SystemExit):
            script.main()
        assert said in capsys.readouterr().err
    assert (folders[0] / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("words", ["the river fell", "the river rose again"])
def test_models_with_other_words_have_no_mean(script: ModuleType, tmp_path: Path, words: str) -> None:
    models = [load_model_folder(saved(tmp_path / said, said, 1)) for said in ("the river rose", words)]
    with pytest.raises(ConfigError, match="same tokenizer"):
        script.mean(models)
