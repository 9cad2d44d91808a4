"""log P_o of each written word, and alpha_o, stand in the explanation of a contrastive model's summary."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch

from laconic.config.loading import load_recipe, resolve_run
from laconic.explain.record import to_dict
from laconic.search import decode as decoding
from laconic.systems import decoding as systems
from laconic.systems.neural import NeuralSystem
from laconic.training.run import train
from laconic.types import Hypothesis, Record


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> NeuralSystem:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("contrastive")
    rng = random.Random(4)
    with open(folder / "train.jsonl", "w", encoding="utf-8") as file:
        for _ in range(40):
            words = [f"word{rng.randrange(12)}" for _ in range(8)]
            file.write(json.dumps({"document": " ".join(words), "summary": " ".join(words[:3])}) + "\n")
    changes = [f"data.train={folder / 'train.jsonl'}", "training.max_epochs=3"]
    run = resolve_run(load_recipe("contrastive"), "contrastive", "tiny", changes)
    train(run, folder / "run", on_message=lambda message: None)
    return NeuralSystem.from_pretrained(folder / "run", "cpu")


RECORDS = [Record("word1 word2 word3 word4 word5"), Record("word7 word7 word2 word9 word1 word0 word3 word4")]


@pytest.mark.parametrize("longest", [3, 10])
def test_they_add_up_to_what_the_search_counted(
    system: NeuralSystem, monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    """J = log P_c + lambda log P_o; the search kept the sums of J and of log P_c, the pass behind it log P_o."""
    kept: list[Hypothesis] = []

    def decode(*arguments: Any, **options: Any) -> Any:
        found = decoding.decode(*arguments, **options)
        kept.extend(hypotheses[0] for hypotheses in found)
        return found

    monkeypatch.setattr(systems, "decode", decode)
    summaries = system.summarize_batch(RECORDS, explain=True, options=system.options({"max_length": longest}))
    weight = system.model.config.opponent["lambda_decode"]  # type: ignore[attr-defined]
    for hypothesis, summary in zip(kept, summaries, strict=True):
        values = hypothesis.details["opponent_log_prob"]
        assert len(values) == len(hypothesis.ids) + hypothesis.finished
        expected = (hypothesis.terms["model"] - hypothesis.log_prob) / weight
        assert float(values.sum()) == pytest.approx(expected, rel=1e-4)
        shown = to_dict(summary, attention=True)["words"]
        assert shown
        assert all("opponent_attention" in word["maps"] for word in shown)
        written = len(hypothesis.ids)
        total = sum(word.figures["opponent_log_prob"] for word in summary.words)
        assert total == pytest.approx(float(values[:written].sum()), rel=1e-4)


def test_it_is_not_computed_where_nobody_asks_or_the_branch_is_off(
    system: NeuralSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system.model, "forward", lambda batch: pytest.fail("a pass for nothing"))
    system.summarize_batch(RECORDS, explain=False, options=system.options({}))
    options = system.options({"model": {"decode_score": "pc"}})
    words = system.summarize_batch(RECORDS, explain=True, options=options)[0].words
    assert words
    assert all("opponent_log_prob" not in word.figures for word in words)
