"""What `catchline export --check` makes of summaries: which are equal, and ROUGE as the model's run counts it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catchline.cli.export import command
from catchline.cli.options import ReadingOptions
from catchline.export import apart
from catchline.metrics.scoring import Scoring, scoring
from catchline.types import Record, Summary

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
    monkeypatch.setattr(apart, "Summarizer", Writes)
    monkeypatch.setattr(apart.NeuralSystem, "from_pretrained", lambda *_: model)
    monkeypatch.setattr(apart.ExportedSystem, "from_pretrained", lambda *_: SimpleNamespace(name="graphs"))
    found = apart.compare("model", Path("out"), [Record("лифт сломан да", "лифт сломан")])
    assert [rouge["1"] for rouge in found.rouge] == pytest.approx(expected, abs=1e-3)
    assert (found.equal, len(found.different), found.scored) == (0, 1, 1)


def test_records_without_summaries_are_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apart, "export_apart", lambda model, out, **_: out.mkdir())
    monkeypatch.setattr(apart, "compare", lambda model, out, records, **_: apart.Agreement(len(records)))
    (tmp_path / "texts.jsonl").write_text('{"document": "a b"}\n', encoding="utf-8")
    command("model", tmp_path / "out", str(tmp_path / "texts.jsonl"), reading=ReadingOptions())
    assert "0 of 1 summaries" in capsys.readouterr().out
