"""log P_o of each written word, and alpha_o, stand in the explanation of a contrastive model's summary."""

from __future__ import annotations

from typing import Any

import pytest

from catchline.explain.record import to_dict
from catchline.search import decode as decoding
from catchline.summarizer import decoding as systems
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.types import Hypothesis, Record
from exports import save_case
from tiny_models import DOCUMENTS


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> NeuralSystem:
    return NeuralSystem.from_pretrained(save_case(tmp_path_factory.mktemp("model"), "contrastive-average"), "cpu")


RECORDS = [Record(text) for text in DOCUMENTS[:2]]


@pytest.mark.parametrize("longest", [3, 10])
def test_they_add_up_to_what_the_search_counted(
    system: NeuralSystem, monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
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
        shown = to_dict(summary, attention=True)["words"]
        assert shown
        assert all("opponent_attention" in word["maps"] for word in shown)
        assert all(sum(word["attention"]) == pytest.approx(1.0, abs=1e-3) for word in shown)
        spans = [span for word in shown for span in word["sources"]]
        assert all(summary.document[span["start"] : span["end"]] == span["text"] for span in spans)
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
