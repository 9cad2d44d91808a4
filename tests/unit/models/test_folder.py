"""The model folder: round trips, what it says, how it is replaced, and one sentence for each kind of damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from catchline.config.schema import DataConfig, RunConfig, SearchConfig, TextConfig, TrainingConfig
from catchline.errors import ModelError
from catchline.models import folder as folder_module
from catchline.models import stored
from catchline.models.checkpoints import BartSummarizer
from catchline.models.folder import FORMAT, load_model_folder, save_model_folder
from catchline.models.seq2seq import Seq2Seq
from catchline.search.torch_bridge import decode
from catchline.text.tokenizer import BpeTokenizer, WordTokenizer
from catchline.types import Batch
from json_lines import change
from samples import BART

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


def reopened(made: Seq2Seq, path: Path) -> Any:
    """The model as it comes back from a folder."""
    return load_model_folder(save_model_folder(path, model=made, tokenizer=tokenizer(), run=run())).model


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
    loaded = reopened(made, tmp_path / "m")
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


# ------------------------------------------------------------------------------------- the BART family


def bart_folder(path: Path) -> BartSummarizer:
    """A folder as transformers writes it, with a tokenizer trained here."""
    words = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=60, min_frequency=1))
    words.train(TEXTS)
    torch.manual_seed(0)
    architecture = BART | {"vocab_size": words.vocab_size, "max_position_embeddings": 24}
    architecture |= {"pad_token_id": words.pad_id, "bos_token_id": words.bos_id, "eos_token_id": words.eos_id}
    architecture |= {"decoder_start_token_id": words.eos_id, "forced_eos_token_id": words.eos_id}
    made = BartSummarizer(BartSummarizer.Config(architecture=architecture))
    made.network.generation_config.update(num_beams=4, max_length=20)
    made.network.save_pretrained(path)
    words.save(path)
    change(path / "tokenizer_config.json", "catchline", value=...)
    return made


def test_a_checkpoint_decodes_by_its_generation_config(tmp_path: Path) -> None:
    bart_folder(tmp_path)
    network = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    settings = network.generation_config
    start = 9  # not the configuration's
    settings.update(
        length_penalty=2.0, min_length=4, no_repeat_ngram_size=2, max_length=9, decoder_start_token_id=start
    )
    network.save_pretrained(tmp_path)
    loaded = load_model_folder(tmp_path)
    assert loaded.model.decoder_start_id == start
    source = torch.tensor([[5, 9, 7, 12, 30, 3], [11, 6, 40, 21, 8, 3]])
    batch = Batch(source, source, torch.ones_like(source, dtype=torch.bool), loaded.model.vocab_size)
    names = ("unk_id", "eos_id", "pad_id")
    ids = {name: getattr(loaded.tokenizer, name) for name in names}
    found = decode(loaded.model, batch, loaded.search, bos_id=loaded.model.decoder_start_id, **ids)
    for row, (best, *_) in zip(network.generate(source)[:, 1:].tolist(), found, strict=True):
        assert [*best.ids, ids["eos_id"]][: len(row)] == row[: len(best.ids) + 1]
    loaded.save_pretrained(tmp_path / "ours")
    again = load_model_folder(tmp_path / "ours")
    assert (again.model.decoder_start_id, again.search) == (start, loaded.search)


def test_what_a_checkpoint_asks_for_in_vain_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bart_folder(tmp_path)
    path = tmp_path / "generation_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"do_sample": True, "bad_words_ids": [[5, 6], [7]], "num_beams": 1}))
    loaded = load_model_folder(tmp_path)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("catchline")] == [
        f"{tmp_path.name} asks for do_sample (True), bad_words_ids ([[5, 6], [7]]) in generation_config.json, which"
        " catchline does not follow: summaries may differ from those of transformers' generate."
    ]
    assert [spec["ids"] for spec in loaded.search.scorers] == [[7]]


def test_a_bart_model_saved_as_ours_needs_no_checkpoint_any_more(tmp_path: Path) -> None:
    made = bart_folder(tmp_path / "hub")
    load_model_folder(tmp_path / "hub").save_pretrained(tmp_path / "ours")
    shutil.rmtree(tmp_path / "hub")
    loaded = load_model_folder(tmp_path / "ours")
    assert "catchline" in json.loads((tmp_path / "ours" / "config.json").read_text())
    assert_equal_weights(loaded.model.network, made.network)
    assert loaded.model.decoder_start_id == made.decoder_start_id
