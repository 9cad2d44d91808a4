"""Systems of the papers from the command line: coarse-to-fine reading, CoCoNet, and the opponent explained."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from catchline.cli.main import main
from catchline.config.loading import load_recipe, resolve_run
from catchline.errors import DataError
from catchline.models.coarse_to_fine import CoarseToFine
from catchline.search import decode as decoding
from catchline.summarizer import Summarizer
from catchline.summarizer import decoding as systems
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.training.run import stage_of
from catchline.types import Hypothesis, Record
from commands import Capture, Patch, run
from json_lines import write_lines
from tiny_models import DOCUMENTS, save_case

WORDS = [a + b for a in ("sto", "ri", "ma", "bel", "tan", "ko") for b in ("rm", "ver", "yor", "dge", "k")]


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=5)) + "." for _ in range(count)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for split, count in (("train", 24), ("validation", 6)):
        texts = [sentences(4, number) for number in range(count)]
        write_lines(
            folder / f"{split}.jsonl", [{"document": " ".join(text), "summary": text[0][:-1]} for text in texts]
        )
    return folder


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out, settings = tmp_path_factory.mktemp("runs"), ("training.max_updates=4", "search.min_length=3")
    more = [part for one in (*settings, "search.beam_size=2") for part in ("--set", one)]
    return trained_by_command("coarse_to_fine", data, out, "--row", "c2f-multi2", "--size", "tiny", *more) / "model"


def trained_by_command(recipe: str, data: Path, out: Path, *more: str) -> Path:
    assert main(["--quiet", "train", recipe, "--data", str(data), "--out", str(out / "run"), *more]) == 0
    return out / "run"


def test_a_summary_says_what_was_read(model: Path, tmp_path: Path, capsys: Capture) -> None:
    text = tmp_path / "article.txt"
    text.write_text(" ".join(sentences(3, 99)))
    lazily = ["--set", "model={encode: lazy}"]
    line = json.loads(run(capsys, "summarize", model, text, "--json", *lazily))
    reading = line["reading"]
    assert reading["chunks"] == 4
    assert 1 <= reading["chunks_chosen"] <= reading["chunks_read"] <= 4
    assert 0 < reading["words_read"] <= reading["words"] == line["tokens_read"]
    assert 0 <= reading["coarse_entropy"] <= math.log(4)
    everything = json.loads(run(capsys, "summarize", model, text, "--json", "--set", "model={encode: full}"))
    assert everything["reading"]["chunks_read"] == 4
    assert everything["summary"] == line["summary"]
    explained = json.loads(run(capsys, "summarize", model, text, "--json", "--explain"))
    assert len(explained["chunks"]) == 4
    for number in range(len(explained["words"])):
        assert sum(chunk["weights"][number] for chunk in explained["chunks"]) == pytest.approx(1, abs=1e-3)
        assert 1 <= sum(number in chunk["read"] for chunk in explained["chunks"]) <= 2
    assert "chunks (" in run(capsys, "explain", model, text)


def test_a_document_beside_a_very_long_one_is_as_alone(model: Path, monkeypatch: Patch) -> None:
    summarizer = Summarizer.from_pretrained(model, surface="raw", distraction={"context": -1.0})
    monkeypatch.setattr(summarizer.system, "attended_tokens", 12)
    monkeypatch.setattr(CoarseToFine, "attended_tokens", 12)
    short, long = sentences(2, 7), " ".join(sentences(3, 8))
    together = summarizer.summarize([short[0], long, short[1]], explain=True, batch_size=3)
    alone = [summarizer.explain(text) for text in (short[0], long, short[1])]
    for one, other in zip(together, alone, strict=True):
        assert (one.text, one.source_offsets) == (other.text, other.source_offsets)
        assert [word.sources for word in one.words] == [word.sources for word in other.words]
    attending: dict[str, Any] = {"distraction": {"attention": 0.5}}
    with pytest.raises(DataError, match=r"^Document 2 has more than 12 tokens, and above that this model shows"):
        summarizer.summarize([short[0], long], **attending)
    assert summarizer.summarize([short[0], long], on_error="skip", **attending)[1] is None
    shown: list[tuple[int, str]] = []
    records, options = [Record(long), Record(short[0])], summarizer.system.options({"beam_size": 1})
    summaries = summarizer.system.summarize_batch(
        records, explain=False, options=options, on_text=lambda *of: shown.append(of)
    )
    assert [dict(shown)[row] for row in (0, 1)] == [summary.text for summary in summaries]


# ------------------------------------------------------------------------------------- a book


NAMES, THINGS, VERBS = ("Anna", "Bob", "Carla", "Dan"), ("keys", "car", "phone", "lunch"), ("lost", "sold", "needs")


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dialogues of two turns and what became of somebody's thing."""
    folder, rng = tmp_path_factory.mktemp("talk"), random.Random(1)
    for split, count in (("train", 40), ("validation", 4)):
        drawn = [(*rng.sample(NAMES, 2), rng.choice(THINGS), rng.choice(VERBS)) for _ in range(count)]
        rows = [
            {"document": f"{one}: I {verb} my {thing}\n{two}: oh no, really", "summary": f"{one} {verb} the {thing}."}
            for one, two, thing, verb in drawn
        ]
        write_lines(folder / f"{split}.jsonl", rows)
    return folder


@pytest.fixture(scope="module", params=["tiny", "tiny-bart"])
def trained(request: pytest.FixtureRequest, talk: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_by_command("coconet", talk, tmp_path_factory.mktemp("runs"), "--size", request.param)


def test_each_token_of_a_summary_is_explained(trained: Path, talk: Path, capsys: Capture) -> None:
    arguments = ["explain", trained, talk / "validation.jsonl", "--max-records", 1, "--raw"]
    record = json.loads(run(capsys, *arguments, "--json"))
    size = len(record["source_offsets"])
    specials = any(end <= start for start, end in record["source_offsets"])
    for word in record["words"]:
        assert set(word["maps"]) == {"p_co", "p_final"}
        assert all(len(weights) == size for weights in word["maps"].values())
        assert sum(word["maps"]["p_final"]) == pytest.approx(1.0, abs=1e-3)
    tokens = [token for word in record["words"] for token in word["tokens"]]
    assert tokens
    for number, token in enumerate(tokens):
        figures = token["figures"]
        assert 0 < figures["copy_attention_gate"] <= 1
        assert 0 < figures["copy_semantic_gate"] < 1
        assert 0 <= figures["copied_from_specials"] < (1 if specials else 1e-9)
        assert bool(token["sources"]["p_co"]) == (number > 0)  # nothing was copied before the first word
        assert len(token["sources"]["p_final"]) == 3


def test_the_stage_ends_where_it_should(talk: Path) -> None:
    """What the stage does not name it takes from the training, whose end is another."""
    for size, ends in (("paper", (1_000_000, None)), ("small", (None, 4))):
        run = resolve_run(load_recipe("coconet"), "coconet-pretraining", size, {"pretraining": {"data": str(talk)}})
        training = stage_of(run).training
        assert (training.max_updates, training.max_epochs, training.validation.metric) == (*ends, "val_loss_tf")
        assert training.initial_weights == run.training.initial_weights


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> NeuralSystem:
    return NeuralSystem.from_pretrained(save_case(tmp_path_factory.mktemp("model"), "contrastive-average"), "cpu")


RECORDS = [Record(text) for text in DOCUMENTS[:2]]


@pytest.mark.parametrize("longest", [3, 10])
def test_they_add_up_to_what_the_search_counted(system: NeuralSystem, monkeypatch: Patch, longest: int) -> None:
    """J = log P_c + lambda log P_o; the search kept the sums of J and of log P_c, the pass behind it log P_o."""
    kept: list[Hypothesis] = []

    def decode(*arguments: Any, **named: Any) -> Any:
        found = decoding.decode(*arguments, **named)
        kept.extend(hypotheses[0] for hypotheses in found)
        return found

    monkeypatch.setattr(systems, "decode", decode)
    weight = 0.3
    options = {"max_length": longest, "no_repeat_ngram": 1, "surface": "raw", "model": {"lambda_decode": weight}}
    summaries = system.summarize_batch(RECORDS, explain=True, options=system.options(options))
    for hypothesis, summary in zip(kept, summaries, strict=True):
        values = hypothesis.details["opponent_log_prob"]
        assert len(values) == len(hypothesis.ids) + hypothesis.finished
        expected = (hypothesis.terms["model"] - hypothesis.log_prob) / weight
        assert float(values.sum()) == pytest.approx(expected, rel=1e-4)
        assert summary.words
        assert all("opponent_attention" in word.maps for word in summary.words)
        written = len(hypothesis.ids)
        total = sum(word.figures["opponent_log_prob"] for word in summary.words)
        assert total == pytest.approx(float(values[:written].sum()), rel=1e-4)
