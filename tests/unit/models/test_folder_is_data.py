"""Folders are data: nothing that a folder names is imported, and whatever its files say there is one sentence."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM

import catchline
from catchline import Summarizer
from catchline.cli.main import main
from catchline.config.loading import read_run
from catchline.config.schema import RunConfig, TrainingConfig
from catchline.errors import CatchlineError, ConfigError, ModelError
from catchline.models.checkpoints import ATTENTION, BartSummarizer
from catchline.models.folder import LoadedModel, load_model_folder, save_model_folder
from catchline.models.seq2seq import Seq2Seq
from catchline.models.stored import FAMILY
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Record
from json_lines import change
from tiny_bart import architecture

EVIL = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
from catchline.models.seq2seq import Seq2Seq as Model
from catchline.search.scorers import ForbidTokens as Scorer
from catchline.text.tokenizer import WordTokenizer as Tokenizer
"""


def tokenizer_of_words() -> WordTokenizer:
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train(["a quick fox jumps over the lazy dog", "the small cat sees the quick bird"])
    return tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer, folder = tokenizer_of_words(), tmp_path_factory.mktemp("made") / "model"
    config = Seq2Seq.Config(embedding_size=6, encoder_hidden=5, hidden_size=7)
    torch.manual_seed(0)
    model = Seq2Seq(config, vocab_size=tokenizer.vocab_size)
    run = RunConfig(name="tiny", model={"type": "seq2seq"}, training=TrainingConfig(max_updates=3))
    return save_model_folder(folder, model=model, tokenizer=tokenizer, run=run, metrics={"rouge1": 1.0})


@pytest.fixture
def saved(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"document": "the quick dog sees", "summary": "the dog"}\n')
    return path


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """An importable module ``evil``; the value says whether it has been imported."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "evil.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(place))
    yield (place / "imported").exists
    sys.modules.pop("evil", None)


PLACES: list[tuple[str, tuple[str, ...], Any]] = [
    ("config.json", ("model", "type"), "evil:Model"),
    ("config.json", ("model", "attention"), {"type": "evil:Model"}),
    ("config.json", ("text", "tokenizer"), {"type": "evil:Tokenizer"}),
    ("generation_config.json", ("scorers",), [{"type": "evil:Scorer", "ids": [9]}]),
    ("tokenizer_config.json", ("catchline", "type"), "evil:Tokenizer"),
    ("recipe.yaml", ("model", "type"), "evil:Model"),
    ("recipe.yaml", ("objectives",), [{"type": "evil:Model"}]),
    ("recipe.yaml", ("pretraining", "set"), {"text.tokenizer.type": "evil:Tokenizer"}),
]


@pytest.mark.parametrize(("name", "keys", "value"), PLACES, ids=lambda value: str(value)[:40])
def test_code_that_a_folder_names_is_not_imported(
    saved: Path, imported: Callable[[], bool], name: str, keys: tuple[str, ...], value: Any
) -> None:
    change(saved / name, *keys, value=value)
    for opened in (load_model_folder, LoadedModel.from_pretrained, Summarizer.from_pretrained):
        with pytest.raises(ModelError, match=r"names Python code.*'evil:.*--trust-code"):
            opened(saved)
    assert not imported()


def test_code_runs_when_it_is_trusted_and_for_that_call_only(saved: Path, imported: Callable[[], bool]) -> None:
    change(saved / "config.json", "model", "type", value="evil:Model")
    change(saved / "generation_config.json", "scorers", value=[{"type": "evil:Scorer", "ids": [9]}])
    records = [Record("the quick dog sees", "the dog")]
    with pytest.raises(CatchlineError, match="trust_code=True in Python"):
        catchline.evaluate(saved, records)
    assert not imported()
    assert catchline.evaluate(saved, records, trust_code=True)[str(saved)].rouge
    assert imported()
    assert Summarizer.from_pretrained(saved, trust_code=True).summarize("the quick dog").tokens_read == 3
    assert LoadedModel.from_pretrained(saved, trust_code=True).model
    with pytest.raises(ModelError, match="--trust-code"):
        Summarizer.from_pretrained(saved)


def test_the_commands_that_open_folders(
    saved: Path, imported: Callable[[], bool], tmp_path: Path, pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(saved / "config.json", "model", "type", value="evil:Model")
    text = tmp_path / "text.txt"
    text.write_text("the quick dog sees the cat")
    run = tmp_path / "run"
    run.mkdir()
    made = read_run(saved / "recipe.yaml").model_dump(mode="json")
    made["model"] = {"type": "evil:Model"}
    (run / "recipe.yaml").write_text(yaml.safe_dump(made))
    commands = [
        ["summarize", str(saved), str(text)],
        ["explain", str(saved), str(text)],
        ["evaluate", str(saved), "--data", str(pairs)],
        ["compare", str(saved), "--data", str(pairs), "--out", str(tmp_path / "comparison")],
        ["serve", str(saved)],
        ["resume", str(run)],
    ]
    for command in commands:
        assert main(command) in (1, 2, 4), command
        said = capsys.readouterr()
        assert "--trust-code" in said.out + said.err, command
    assert not imported()
    assert main([*commands[0], "--trust-code"]) == 0
    assert imported()
    assert main(commands[0]) == 4


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as transformers writes it; it opens."""
    tokenizer, folder = tokenizer_of_words(), tmp_path_factory.mktemp("checkpoint") / "marian"
    spec = architecture("marian") | {"vocab_size": tokenizer.vocab_size, "pad_token_id": 0}
    BartSummarizer(BartSummarizer.Config(architecture=spec)).network.save_pretrained(folder)
    tokenizer.save(folder)
    assert load_model_folder(folder).model.vocab_size == tokenizer.vocab_size
    return folder


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder_layers", 10**9),
        ("d_model", 0),
        ("pad_token_id", 10**9),
        ("eos_token_id", "x"),
        ("decoder_start_token_id", -1),
        ("attn_implementation", "somebody/kernel"),
        ("dropout", -1),
    ],
)
def test_checkpoints_of_transformers(tmp_path: Path, marian: Path, key: str, value: Any) -> None:
    folder = Path(shutil.copytree(marian, tmp_path / "marian"))
    change(folder / "config.json", key, value=value)
    with pytest.raises(ModelError) as caught:
        load_model_folder(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("kind", FAMILY)
def test_checkpoints_that_transformers_saved_attend_as_we_do(tmp_path: Path, kind: str) -> None:
    """Whatever config.json names; code of the hub is refused."""
    layers = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1}
    sizes = {"vocab_size": 50, "d_model": 16, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 32}
    options = AutoConfig.for_model(kind, **layers, **ids, **sizes)
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


def test_a_checkpoint_whose_weights_are_incomplete(tmp_path: Path, marian: Path) -> None:
    folder = Path(shutil.copytree(marian, tmp_path / "marian"))
    weights = load_file(folder / "model.safetensors")
    del weights["model.encoder.layers.0.fc1.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"fc1\.weight would be left untrained"):
        load_model_folder(folder)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-64])
    with pytest.raises(ModelError, match="could not be opened") as caught:
        load_model_folder(folder)
    assert "\n" not in str(caught.value)
