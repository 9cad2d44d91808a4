"""What `laconic export --check` makes of summaries: which are equal, and ROUGE as the model's run counts it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laconic.export import check
from laconic.metrics.scoring import Scoring, scoring
from laconic.types import Record, Summary

WRITTEN = {"torch": "лифт сломан", "graphs": "лифт"}


class Writes:
    """In place of `Summarizer`: the model called ``name`` writes one line."""

    def __init__(self, system: Any) -> None:
        self.name = system.name

    def summarize(self, records: list[Record], **_: Any) -> list[Summary]:
        return [Summary(WRITTEN[self.name]) for _ in records]


@pytest.mark.parametrize(("way", "expected"), [(Scoring(), [100.0, 66.667]), (scoring("rouge155"), [0.0, 0.0])])
def test_rouge_is_counted_as_the_run_does(way: Scoring, expected: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    model = SimpleNamespace(name="torch", loaded=SimpleNamespace(scoring=way))
    monkeypatch.setattr(check, "Summarizer", Writes)
    monkeypatch.setattr(check.NeuralSystem, "from_pretrained", lambda *_: model)
    monkeypatch.setattr(check.ExportedSystem, "from_pretrained", lambda *_: SimpleNamespace(name="graphs"))
    found = check.compare("model", Path("out"), [Record("лифт сломан да", "лифт сломан")])
    assert [rouge["1"] for rouge in found.rouge] == pytest.approx(expected, abs=1e-3)
    assert (found.equal, len(found.different), found.scored) == (0, 1, 1)
