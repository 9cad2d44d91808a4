"""The script that makes the model in the box, on three small made-up corpora and the smallest size."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
import safetensors.torch
import torch
from huggingface_hub import ModelCard
from tokenizers import Tokenizer as Pieces
from tokenizers.models import WordPiece
from transformers import BertConfig, BertModel

from boxed import make_stand_in, write_pairs
from catchline.metrics.confidence import SENTENCE
from catchline.models.folder import load_model_folder
from catchline.runtime.eight_bits import NUMBERS
from catchline.summarizer import Summarizer
from catchline.types import Record
from commands import program
from json_lines import read_lines, write_lines


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return program("make_model")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    for seed, name in enumerate(("debian", "docstrings", "readmes")):
        (folder / name).mkdir()
        write_pairs(folder / name / "train.jsonl", 24, seed=10 + seed)
        write_pairs(folder / name / "validation.jsonl", 60, seed=20 + seed)
    licences = {"licences": {"kites": "1.0: MIT"}, "splits": {"train": {"packages": {"kites": 24}}}}
    (folder / "docstrings" / "stats.json").write_text(json.dumps(licences), encoding="utf-8")
    rows = read_lines(write_pairs(folder / "pairs.jsonl", 60, seed=30))
    dump = [
        {"id": f"26.{number}", "title": f"Kites\n  {row['summary']}", "abstract": f"  {row['document']}\n and on.\n"}
        for number, row in enumerate(rows)
    ]
    write_lines(folder / "dump.json", dump)
    return folder


def write_bert(folder: Path, **sizes: int) -> Path:
    """A BERT of the sizes of size `tiny`, as transformers writes it."""
    described = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, **sizes}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=6, **described)).save_pretrained(folder)
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "file", "list"]
    pieces = WordPiece({word: number for number, word in enumerate(known)}, unk_token="[UNK]")
    Pieces(pieces).save(str(folder / "tokenizer.json"))
    return folder


def command(corpora: Path, work: Path, *more: str) -> list[str]:
    named = ["--debian", str(corpora / "debian"), "--docstrings", str(corpora / "docstrings")]
    named += ["--readmes", str(corpora / "readmes")]
    small = ["--size", "tiny", "--set", "training.max_updates=1", "--set", "model.hidden_size=128"]
    return [str(work), *named, *small, "--most-scored", "34", "--into", str(work / "model"), *more]


@pytest.mark.slow
def test_the_model_is_made_and_made_again_for_nothing(
    script: ModuleType,
    corpora: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bert = write_bert(tmp_path / "bert")
    arguments = command(corpora, tmp_path, "--arxiv", str(corpora / "dump.json"), "--arxiv-pairs", "40")
    arguments += ["--bert", str(bert)]
    assert script.main(arguments) == 0
    begun, theirs = (safetensors.torch.load_file(tmp_path / name / "model.safetensors") for name in ("warm", "bert"))
    own = begun["encoder.encoder.layers.0.inner.weight"]
    assert torch.equal(own, theirs["encoder.layer.0.intermediate.dense.weight"])
    assert f"initial_weights: {tmp_path / 'warm'}" in (tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8")
    rows = read_lines(tmp_path / "mix" / "train.jsonl")
    assert {source: sum(row["source"] == source for row in rows) for source in script.SOURCES} == {
        "arxiv": 162,  # each pair three times, as there are few
        "debian": 72,
        "docstrings": 72,
        "readmes": 72,
    }
    assert len({row["id"] for row in rows if row["source"] == "debian"}) == 72
    assert {row["source"] for row in rows[:20]} == set(script.SOURCES)
    paper = next(row for row in rows if row["source"] == "arxiv")
    assert paper["summary"].startswith("Kites ")
    assert "\n" not in paper["summary"] + paper["document"]
    held = read_lines(tmp_path / "mix" / "sources" / "arxiv.jsonl")
    assert not {row["id"] for row in held} & {row["id"] for row in rows if row["source"] == "arxiv"}

    folder = tmp_path / "model"
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    eight_bits = {name for name, tensor in stored.items() if tensor.dtype == torch.uint8}
    assert eight_bits == {name for name in stored if name.endswith(NUMBERS)} != set()
    assert load_model_folder(folder).name == "oneline"
    assert Summarizer.from_pretrained(folder).system.calibration is not None
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| arxiv | abstracts and titles" in card
    assert "| 54 |" in card
    pairs = json.loads((folder / "metrics.json").read_text())["data"]["train"]["pairs"]
    assert (
        f"With arxiv and debian and docstrings and readmes read 3 times these are 378 pairs; the {pairs} above" in card
    )
    assert "names the 1 packages" in card
    assert "| debian (validation), 34 records | ROUGE-1" in card
    assert "## 50 outputs" in card
    assert "MiniLM" not in card  # another encoder was named
    assert "catchline summarize oneline article.txt" in card
    described = json.loads((folder / "data.json").read_text())
    assert described["docstring_packages"] == ["kites"]
    assert described["pairs"] == {"arxiv": 54, "debian": 24, "docstrings": 24, "readmes": 24}
    results = ModelCard(card).data.eval_results
    assert [(r.dataset_name, r.metric_name) for r in results[:2]] == [
        *(("arxiv", "ROUGE-1 F1 x 100"), ("arxiv", "ROUGE-2 F1 x 100"))
    ]

    capsys.readouterr()
    assert script.main(arguments) == 0
    assert "Resuming from" in capsys.readouterr().out
    again = safetensors.torch.load_file(folder / "model.safetensors")
    assert all(torch.equal(again[name], tensor) for name, tensor in stored.items())
    assert script.main([*arguments, "--set", "training.seed=5"]) == 2
    assert "holds a run of other settings" in capsys.readouterr().err


def test_arxiv_has_to_be_given(
    script: ModuleType, corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(command(corpora, tmp_path)) == 2
    assert "arXiv's metadata dump" in capsys.readouterr().err


def test_an_encoder_of_other_sizes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_stand_in(tmp_path, tmp_path)
    wide, deep = write_bert(tmp_path / "wide", intermediate_size=20), write_bert(tmp_path / "fits")
    warm_start = program("warm_start")
    assert warm_start.main([str(model), str(wide), str(tmp_path / "out")]) == 2
    assert "has 2 layers of width, heads and feed-forward size (12, 2, 20); the model has 1 of (12, 2, 24)" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()
    assert warm_start.main([str(model), str(deep), str(tmp_path / "out")]) == 0
    assert load_model_folder(tmp_path / "out").tokenizer.vocab_size == load_model_folder(model).tokenizer.vocab_size


def test_a_sentence_in_which_authors_present_something_counts_less_beside_a_line(script: ModuleType) -> None:
    weights = tuple(map(float, range(len(SENTENCE) + 1)))
    lowered = script.beside_a_line(weights)
    changed = [place for place, (before, now) in enumerate(zip(weights, lowered, strict=True)) if before != now]
    assert changed == [SENTENCE.index("presents")]
    assert lowered[changed[0]] == weights[changed[0]] - script.PRESENTS
    assert script.beside_a_line(()) == ()


def test_ratings_of_sentences_say_where_these_stand(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "ratings.jsonl"
    lines = [
        {"id": "a", "from": 0, "to": 9, "rating": 3},
        {"id": "a", "from": 0, "to": 9, "rating": 2},
        {"id": "b", "from": 0, "to": 9, "rating": 1},
    ]
    write_lines(path, lines)
    assert script.of_sentences(path, [Record("It rains. No, it snows.", id="a")]) == {("a", ("it", "rains")): 2.5}
