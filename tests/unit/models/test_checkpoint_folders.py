"""Folders of transformers' BART family: how they decode, what is refused, what is saved of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from catchline.errors import ConfigError, ModelError
from catchline.models.checkpoints import ATTENTION, BartSummarizer
from catchline.models.folder import load_model_folder
from catchline.models.stored import FAMILY
from catchline.search.torch_bridge import decode
from catchline.types import Batch
from json_lines import change
from plain_checkpoints import EOS, PAD, UNK, save_checkpoint
from tiny_bart import architecture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint as transformers writes it; it opens."""
    return save_checkpoint(tmp_path / "bart", "bart")


def test_a_checkpoint_decodes_by_its_generation_config(folder: Path, tmp_path: Path) -> None:
    network, start = AutoModelForSeq2SeqLM.from_pretrained(folder), 9  # not the configuration's
    settings = {"num_beams": 4, "length_penalty": 2.0, "min_length": 4, "no_repeat_ngram_size": 2, "max_length": 9}
    network.generation_config.update(**settings, decoder_start_token_id=start)
    network.save_pretrained(folder)
    loaded = load_model_folder(folder)
    assert loaded.model.decoder_start_id == start
    source = torch.tensor([[5, 9, 7, 12, 20, 3], [11, 6, 10, 21, 8, 3]])
    batch = Batch(source, source, torch.ones_like(source, dtype=torch.bool), loaded.model.vocab_size)
    found = decode(loaded.model, batch, loaded.search, bos_id=start, unk_id=UNK, eos_id=EOS, pad_id=PAD)
    for row, (best, *_) in zip(network.generate(source)[:, 1:].tolist(), found, strict=True):
        assert [*best.ids, EOS][: len(row)] == row[: len(best.ids) + 1]
    loaded.save_pretrained(tmp_path / "ours")
    again = load_model_folder(tmp_path / "ours")
    assert (again.model.decoder_start_id, again.search) == (start, loaded.search)


def test_what_a_checkpoint_asks_for_in_vain_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for key, value in {"do_sample": True, "bad_words_ids": [[5, 6], [7]], "num_beams": 1}.items():
        change(folder / "generation_config.json", key, value=value)
    loaded = load_model_folder(folder)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("catchline")] == [
        "bart asks for do_sample (True), bad_words_ids ([[5, 6], [7]]) in generation_config.json, which"
        " catchline does not follow: summaries may differ from those of transformers' generate."
    ]
    assert [spec["ids"] for spec in loaded.search.scorers] == [[7]]


def test_a_bart_model_saved_as_ours_needs_no_checkpoint_any_more(folder: Path, tmp_path: Path) -> None:
    made = load_model_folder(folder)
    made.save_pretrained(tmp_path / "ours")
    shutil.rmtree(folder)
    loaded = load_model_folder(tmp_path / "ours")
    assert "catchline" in json.loads((tmp_path / "ours" / "config.json").read_text())
    expected = made.model.network.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.model.network.state_dict().items())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder_layers", 10**9),
        ("num_experts", 10**9),
        ("d_model", 0),
        ("pad_token_id", 10**9),
        ("eos_token_id", "x"),
        ("decoder_start_token_id", -1),
        ("attn_implementation", "somebody/kernel"),
        ("dropout", -1),
    ],
)
def test_settings_that_cannot_be(folder: Path, key: str, value: Any) -> None:
    change(folder / "config.json", key, value=value)
    with pytest.raises(ModelError) as caught:
        load_model_folder(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("kind", FAMILY)
def test_checkpoints_that_transformers_saved_attend_as_we_do(tmp_path: Path, kind: str) -> None:
    """Whatever config.json names; code of the hub is refused."""
    options = AutoConfig.for_model(**architecture(kind))
    AutoModelForSeq2SeqLM.from_config(options).save_pretrained(tmp_path)
    written = (tmp_path / "config.json").read_text()
    for key in ("_attn_implementation", "attn_implementation", "_attn_implementation_internal"):
        (tmp_path / "config.json").write_text(written)
        for value in (None, "eager", "sdpa", "evil/kernel", "paged|evil/kernel", 7):
            change(tmp_path / "config.json", key, value=value)
            if value in (None, "eager", "sdpa") or key.endswith("internal"):
                opened = BartSummarizer(BartSummarizer.Config(pretrained=str(tmp_path)))
                assert opened.network.config._attn_implementation == ATTENTION
            else:
                with pytest.raises(ConfigError, match="_attn_implementation"):
                    BartSummarizer(BartSummarizer.Config(pretrained=str(tmp_path)))


def test_no_setting_asks_for_endless_layers() -> None:
    for side in ("encoder", "decoder"):
        spec = architecture("bart") | {f"{side}_layers": 10**8}
        with pytest.raises(ConfigError, match=f"{side}_layers is 100000000, and at most 1,000"):
            BartSummarizer(BartSummarizer.Config(architecture=spec))


def test_a_checkpoint_whose_weights_are_incomplete(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.encoder.layers.0.fc1.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"fc1\.weight would be left untrained"):
        load_model_folder(folder)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-64])
    with pytest.raises(ModelError, match="could not be opened") as caught:
        load_model_folder(folder)
    assert "\n" not in str(caught.value)
