"""``catchline align``: tables, sheets, pictures and pages from the command line, and what it says about mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from catchline.cli.main import main
from catchline.config.names import MODELS, build
from catchline.config.schema import RunConfig, SearchConfig, TextConfig, TrainingConfig
from catchline.models.folder import save_model_folder
from catchline.text.tokenizer import BpeTokenizer
from commands import refused, run
from json_lines import write_lines

ROWS = [
    {"id": "foxes", "document": "The quick brown foxes jumped over lazy dogs.", "summary": "Foxes jumped over dogs"},
    {"id": "rain", "document": "Rain fell on the town and nobody went out.", "summary": "Rain fell"},
    {"id": "vote", "document": "A parliament voted against foxes on Monday.", "summary": "Parliament voted on foxes"},
]
SHAPE = {"encoder_layers": 1, "decoder_layers": 2, "hidden_size": 16, "num_heads": 4, "feed_forward_size": 16}
OPPONENT = {"opponent": {"type": "max", "layer": 1, "head": 2}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("data") / "pairs.jsonl", ROWS)


def saved(folder: Path, name: str, options: dict[str, Any]) -> str:
    torch.manual_seed(3)
    tokenizer = BpeTokenizer(BpeTokenizer.Config(vocab_size=60, min_frequency=1))
    tokenizer.train([row[key] for row in ROWS for key in ("document", "summary")])
    spec = {"type": "transformer", **SHAPE, **options}
    model = build("model", MODELS, spec, vocab_size=tokenizer.vocab_size)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=1.0)
    run = RunConfig(
        name=name,
        model=spec,
        training=TrainingConfig(max_updates=1),
        text=TextConfig(max_source_tokens=60, max_target_tokens=30, source_specials=True, oov_copy="unk"),
        search=SearchConfig(beam_size=2, max_length=8, min_length=3),
    )
    return str(save_model_folder(folder / name, model=model, tokenizer=tokenizer, run=run))


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("models"), "baseline", {})


@pytest.fixture(scope="module")
def contrastive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("models"), "contrastive", OPPONENT)


def values(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(run(capsys, "align", *arguments, "--json"))


def test_table(baseline: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = values(capsys, baseline, "--data", str(data))
    assert found["pairs"] == 3
    assert found["linked_words"] == 10
    assert [len(row) for row in found["aer"]] == [4, 4]
    best = found["best"]
    assert best["aer"] == min(min(row) for row in found["aer"]) == found["aer"][best["layer"]][best["head"]]
    assert found["worst"]["aer"] == max(max(row) for row in found["aer"])

    text = run(capsys, "align", baseline, "--data", data)
    assert text.splitlines()[0].split() == ["AER", *(f"{w}" for h in range(4) for w in ("head", h))]
    assert text.count("*") == 2  # the mark and its key
    assert best["set"] in text

    printed = run(capsys, "align", baseline, "--data", data, "--set-head")
    assert printed == f"--set model.opponent.layer={best['layer']} --set model.opponent.head={best['head']}\n"
    assert len({rate for row in found["aer"] for rate in row}) > 1, "the toy heads should not be all alike"
    shifted = values(capsys, baseline, "--data", str(data), "--shift")
    assert shifted["shift"]
    assert shifted["aer"] != found["aer"]


def test_sheet_goes_round(baseline: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = tmp_path / "sheet.txt"
    made = values(capsys, "--data", str(data), "--sample", "2", "--out", str(sheet))
    assert made == {"sheet": str(sheet), "pairs": 2, "of": 3, "seed": 1}
    first = sheet.read_text()
    refused(capsys, 2, "may be filled already", "align", "--data", data, "--sample", "2", "--out", sheet)

    sheet.write_text(first.replace('"links": ""', '"links": "1-0 2?1"', 1))
    assert main(["align", baseline, "--data", str(data), "--alignments", str(sheet), "--json"]) == 0
    captured = capsys.readouterr()
    assert "aligns 1 of the 3 pairs" in captured.err
    assert json.loads(captured.out)["linked_words"] == 2


def test_maps_of_a_pair(contrastive: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    png = tmp_path / "new" / "map.png"
    maps = [item for name in ("1:2", "layer-mean:1", "opponent", "mean") for item in ("--heatmap", name)]
    arguments = ["align", contrastive, "--data", str(data), "--pair-id", "#3", *maps]
    assert main([*arguments, "--png", str(png)]) == 0
    captured = capsys.readouterr()
    assert "opponent: entropy" in captured.out
    assert png.read_bytes().startswith(b"\x89PNG")

    found = values(capsys, *arguments[1:])
    assert found["summary_words"] == ["Parliament", "voted", "on", "foxes"]
    by_name = {one["map"]: one for one in found["maps"]}
    assert by_name["opponent"]["entropy"] > by_name["1:2"]["entropy"]
    assert 0.85 * by_name["opponent"]["uniform"] < by_name["opponent"]["entropy"] <= by_name["opponent"]["uniform"]

    assert run(capsys, *arguments).startswith("summary: Parliament voted on foxes\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "Give a model"),
        (["{model}"], 2, "--data FILE"),
        (["lexrank", "--data", "{data}"], 2, "extractive method"),
        (
            ["{model}", "--data", "{data}", "--pair-id", "rain", "--heatmap", "5:0"],
            2,
            "the model has 2 layers of 4 heads",
        ),
        (["{model}", "--data", "{data}", "--pair-id", "rain", "--heatmap", "opponent"], 2, "has no opponent attention"),
        (["{model}", "--data", "{data}", "--pair-id", "rain", "--heatmap", "best"], 2, "'best' is no attention map"),
        (["{model}", "--data", "{data}", "--alignments", "lexicl"], 2, "Did you mean 'lexical'?"),
        (["{model}", "--data", "{data}", "--alignments", "/absent/links.txt"], 3, "cannot be read as a file of links"),
        (["{model}", "--data", "{data}", "--pair-id", "foxen"], 3, "Did you mean 'foxes'?"),
        (["{model}", "--data", "{data}", "--png", "x.png"], 2, "Say what to draw"),
        (["{model}", "--text", "x", "--pair-id", "y"], 2, "not both"),
        (["{model}", "--data", "{data}", "--heatmap", "mean", "--summary", "x"], 2, "Say what to draw"),
        (["/absent", "--data", "{data}"], 4, "There is no model folder"),
    ],
)
def test_mistakes(
    arguments: list[str], code: int, said: str, baseline: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(model=baseline, data=data) for argument in arguments]
    refused(capsys, code, said, "align", *given)
