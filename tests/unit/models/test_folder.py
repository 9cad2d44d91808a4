"""The model folder: round trips, what it says, how it is replaced, one sentence for each kind of damage; and that it is
data: nothing that it names is imported."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import yaml

import catchline
from catchline import Summarizer
from catchline.cli.main import main
from catchline.config.loading import read_run
from catchline.config.schema import DataConfig, RunConfig, SearchConfig, TextConfig, TrainingConfig
from catchline.errors import CatchlineError, ModelError
from catchline.models import folder as folder_module
from catchline.models import stored
from catchline.models.folder import FORMAT, LoadedModel, load_model_folder, save_model_folder
from catchline.models.seq2seq import Seq2Seq
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Record
from json_lines import change

LATER = {"calibration.json", "card.json"}  # what is found out or said when the model is there
TEXTS = ["a quick fox jumps over the lazy dog", "the small cat sees the quick bird"]


def tokenizer() -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.train(TEXTS)
    return made


def model(seed: int = 0, **changes: Any) -> Seq2Seq:
    torch.manual_seed(seed)
    config = {"embedding_size": 6, "encoder_hidden": 5, "hidden_size": 7} | changes
    return Seq2Seq(Seq2Seq.Config(**config), vocab_size=tokenizer().vocab_size)


def run() -> RunConfig:
    return RunConfig(
        name="headline_writer",
        row="pg",
        description="A pointer-generator.",
        model={"type": "seq2seq"},
        data=DataConfig(train="/home/somebody/corpus/train.jsonl"),
        text=TextConfig(max_source_tokens=30, max_target_tokens=9, pretrained_embeddings="/home/somebody/glove.txt"),
        training=TrainingConfig(max_updates=3, seed=17),
        search=SearchConfig(beam_size=3, max_length=8),
    )


def assert_equal_weights(found: torch.nn.Module, expected: torch.nn.Module) -> None:
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    metrics = {"update": 3, "validation": {"val_loss_tf": 2.5, "rouge1": 0.125}, "signature": "rouge155|n:2"}
    folder = tmp_path_factory.mktemp("made") / "model"
    return save_model_folder(folder, model=model(), tokenizer=tokenizer(), run=run(), metrics=metrics)


@pytest.fixture
def saved(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


def test_what_is_saved_is_what_is_loaded(saved: Path) -> None:
    loaded = load_model_folder(saved)
    assert isinstance(loaded.model, Seq2Seq)
    assert not loaded.model.training
    assert_equal_weights(loaded.model, model())
    assert loaded.model.config == model().config
    assert loaded.tokenizer.encode("the fox").ids == tokenizer().encode("the fox").ids
    assert loaded.search == run().search
    assert loaded.text.max_source_tokens == 30
    assert loaded.run is not None
    assert loaded.run.training == run().training
    assert loaded.metrics["signature"] == "rouge155|n:2"
    assert loaded.model.decoder_start_id == loaded.tokenizer.bos_id


def test_the_folder_holds_what_the_design_names_and_no_pickle(saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == set(folder_module.FILES) - LATER
    config = json.loads((saved / "config.json").read_text())
    assert config["catchline"]["format"] == FORMAT
    assert config["model"]["type"] == "seq2seq"
    card = (saved / "README.md").read_text()
    metadata = huggingface_hub.ModelCard(card).data
    assert metadata.pipeline_tag == "summarization"
    assert "headline-writer" in metadata.tags
    assert "at update 3: val_loss_tf 2.5, rouge1 0.125 (rouge155|n:2)" in card


def test_no_place_on_the_machine_is_told(saved: Path) -> None:
    for path in saved.iterdir():
        text = path.read_bytes()
        assert b"somebody" not in text, path.name
        assert str(Path.home()).encode() + b"/" not in text, path.name
        assert str(saved.parent).encode() not in text, path.name
    environment = json.loads((saved / "environment.json").read_text())
    assert environment["seed"] == 17
    assert environment["torch"]


@pytest.mark.parametrize("changes", [{"tie_output": True}, {"init": "torch"}, {"init": "see"}], ids=str)
def test_however_a_model_starts_it_opens_again(changes: dict[str, Any], tmp_path: Path) -> None:
    """Weights that are tied are stored once, and tied again; switches are kept."""
    made = model(**changes, attention={"type": "additive", "coverage": True})
    made.switch({"coverage": not made.switches()["coverage"]})
    loaded = load_model_folder(save_model_folder(tmp_path / "m", model=made, tokenizer=tokenizer())).model
    assert_equal_weights(loaded, made)
    assert len({p.data_ptr() for p in loaded.parameters()}) == len({p.data_ptr() for p in made.parameters()})
    assert loaded.switches() == made.switches()


def test_weights_of_a_gpu_make_the_same_file(tmp_path: Path) -> None:
    """There those of a recurrent layer are parts of one piece of memory, which safetensors refuses."""
    tied = model(tie_output=True)
    stored.save_weights(tied.state_dict(), tmp_path / "here")
    parts = list(tied.encoder.layer.parameters())
    whole = torch.cat([part.detach().flatten() for part in parts])
    for part, numbers in zip(parts, whole.split([part.numel() for part in parts]), strict=True):
        part.data = numbers.view(part.shape)
    stored.save_weights(tied.state_dict(), tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_a_failure_while_writing_leaves_the_old_folder(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (saved / "model.safetensors").read_bytes()

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "write_card", full)
    with pytest.raises(OSError, match="No space"):
        save_model_folder(saved, model=model(seed=1), tokenizer=tokenizer(), run=run())
    assert (saved / "model.safetensors").read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_crash_between_the_two_renames_is_made_good(saved: Path) -> None:
    saved.rename(saved.with_name(".model.previous"))
    loaded = load_model_folder(saved.parent)  # a run's folder opens its model
    assert loaded.name == "headline_writer-pg"
    assert torch.equal(loaded.model.embedding.weight, model().embedding.weight)
    assert saved.is_dir()


# -------------------------------------------------------------------------------------- damaged folders


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name, said in {
        tmp_path / "nothing": r"no model folder .*nothing",
        tmp_path: r"no config\.json",
        "": "name of the model is empty",
        tmp_path / "file": "is a file",
    }.items():
        with pytest.raises(ModelError, match=said):
            load_model_folder(name)


def test_a_folder_that_is_not_there_asks_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folder_module, "_download", lambda *_: pytest.fail("asked the hub"))
    (tmp_path / "runs").mkdir()
    for name in ("runs/missing", "missing", "./a/b", "/a/b", "a/b/c"):
        with pytest.raises(ModelError, match="There is no model folder"):
            load_model_folder(name)


def test_a_hub_id_of_ours_is_downloaded_and_opened(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(folder_module, "hf_hub_download", lambda *a, **k: str(saved / "config.json"))
    monkeypatch.setattr(folder_module, "snapshot_download", lambda name, **k: asked.append((name, k)) or str(saved))
    assert load_model_folder("owner/name").tokenizer.vocab_size == tokenizer().vocab_size
    assert asked == [("owner/name", {"allow_patterns": list(folder_module.FILES)})]


def damage(path: Path, how: Any) -> None:
    """Cut after so many bytes, replaced by bytes, with one bit turned, changed at keys, or (None) gone."""
    if how is None:
        path.unlink()
    elif isinstance(how, dict):
        for keys, value in how.items():
            change(path, *keys.split("."), value=value)
    else:
        whole = path.read_bytes()
        flipped = whole[:-7] + bytes([whole[-7] ^ 1]) + whole[-6:]
        path.write_bytes(flipped if how == "a bit" else how if isinstance(how, bytes) else whole[:how])


WEIGHTS, CONFIG = "model.safetensors", "config.json"
DAMAGES: dict[str, tuple[str, Any, str]] = {
    "truncated weights": (WEIGHTS, -100, "damaged or truncated"),
    "no weights": (WEIGHTS, None, r"has no model\.safetensors"),
    "weights with one changed bit": (WEIGHTS, "a bit", "has changed since it was saved"),
    "weights of another shape": (CONFIG, {"model.hidden_size": 9}, r"size mismatch for \S+"),
    "weights that lack a part": (CONFIG, {"model.head": {"type": "vocabulary"}}, r"unknown weights head\.gate"),
    "weights elsewhere": (CONFIG, {"model": {"type": "bart", "pretrained": "some/body"}}, r"model\.pretrained"),
    "a newer format": (CONFIG, {"catchline.format": FORMAT + 1}, "model format 2"),
    "no JSON": (CONFIG, 50, "is damaged"),
    "a part is lacking": (CONFIG, {"text": ...}, "'text'"),
    "a model key that this version does not know": (CONFIG, {"model.hiden_size": 9}, r"model\.hidden_size"),
    "another kind of model": (CONFIG, b'{"model_type": "gpt2"}', "type 'gpt2'"),
    "a damaged tokenizer": ("tokenizer.json", 1, "tokenizer"),
    # without them the folder would open with another tokenizer, and say nothing
    "no settings of the tokenizer": ("tokenizer_config.json", None, r"tokenizer_config\.json"),
    "other settings of it": ("tokenizer_config.json", {"catchline.lowercase": False}, r"tokenizer_config\.json"),
    "a size beyond all memory": (CONFIG, {"model.hidden_size": 10**9}, ""),
    "another size of the vocabulary": (CONFIG, {"vocab_size": 5}, ""),
    "a part that is none": (CONFIG, {"model.attention": 3}, ""),
    "an id that is none": (CONFIG, {"special_ids.eos_id": 10**9}, ""),
    "a switch that is none": (CONFIG, {"switches": {"nonsense": True}}, ""),
    "a search that cannot be": ("generation_config.json", {"beam_size": 10**12}, ""),
    "a scorer that is none": ("generation_config.json", {"scorers": [{"type": "nonsense"}]}, ""),
    "a vocabulary of nothing": ("tokenizer.json", {"model.vocab": {}}, ""),
}


@pytest.mark.parametrize(("name", "how", "sentence"), DAMAGES.values(), ids=DAMAGES)
def test_each_kind_of_damage_is_one_sentence(name: str, how: Any, sentence: str, saved: Path) -> None:
    damage(saved / name, how)
    with pytest.raises(ModelError, match=sentence or None) as caught:
        load_model_folder(saved)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------- folders are data

EVIL = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
from catchline.models.seq2seq import Seq2Seq as Model
from catchline.search.scorers import ForbidTokens as Scorer
from catchline.text.tokenizer import WordTokenizer as Tokenizer
"""


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
