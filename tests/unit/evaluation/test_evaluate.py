"""Scoring a split: measures, intervals, several references, and the resumable file of predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catchline.config.names import trusting
from catchline.config.schema import EvaluationConfig
from catchline.errors import ConfigError, DataError
from catchline.evaluation.run import evaluate_system, file_name, identity, open_system, predict, score
from catchline.evaluation.table import table_of_results
from catchline.metrics.rouge import rouge
from catchline.summarizer.extractive import is_method, method_spec
from catchline.types import Record, Summary, SummaryWord

RECORDS = [
    Record(f"The {animal} sat on the mat. It was {colour}. Nobody saw it.", f"{animal} on mat", id=str(number))
    for number, (animal, colour) in enumerate([("cat", "red"), ("dog", "blue"), ("owl", "grey"), ("fox", "white")])
]


@pytest.fixture(autouse=True)
def one_batch_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchline.evaluation.run.WINDOW_BATCHES", 1)


class FirstWords:
    """A system that notes what it is asked and can be told to stop."""

    name, system = "first words", SimpleNamespace(unk_text="<unk>", batch=16)

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked: list[str] = []
        self._stop_after = stop_after

    def summarize(
        self, records: Sequence[Record], *, batch_size: int, progress: Callable[[int], object], **_: Any
    ) -> list[Summary]:
        if progress:
            progress(len(records))
        if self._stop_after is not None and len(self.asked) >= self._stop_after:
            raise KeyboardInterrupt
        self.asked += [record.id for record in records]
        word = SummaryWord("x", 0, 1, 0.5, True, 0.6, 0.25, (), ())
        return [Summary(" ".join(record.document.split()[:4]), id=record.id, words=(word,)) for record in records]


def picked(name: str, record: Record) -> str:
    return open_system(name).summarize(record).text


def test_scores_are_those_of_rouge_itself() -> None:
    result = evaluate_system(FirstWords(), RECORDS)
    hypotheses = [" ".join(record.document.split()[:4]) for record in RECORDS]
    expected = rouge(hypotheses, [record.summary for record in RECORDS], interval=True)
    for kind in ("1", "2", "L"):
        assert result.rouge[kind].f == expected.mean[kind].f
        assert result.rouge[kind].low == expected.interval[kind].low.f
        assert result.per_document[kind] == tuple(score.f for score in expected.per_document[kind])
    assert result.signature == expected.signature
    assert result.measures["p_gen"] == 0.25
    assert result.records == 4
    json.dumps(result.as_dict())


def test_words_of_other_scripts_count_where_no_profile_is_chosen() -> None:
    records = [Record(f"{word} не включается. Помогите.", f"{word} не включается") for word in ("лифт", "замок")]
    lead = open_system("lead-1")
    result = evaluate_system(lead, records)
    assert (result.value("L"), result.signature.partition("|")[0]) == (1.0, "rouge:unicode")
    assert "profile unicode" in result.flags
    chosen = evaluate_system(lead, records, config=EvaluationConfig(profile="rouge155"))
    assert chosen.value("L") == 0.0
    assert "2 of 2 documents have a reference without a word that this profile counts" in chosen.flags
    assert evaluate_system(lead, RECORDS).flags == ""


def test_every_reference_counts() -> None:
    record = Record("one two three", "one", references=("one", "three four"))
    best = EvaluationConfig(rouge={"multi": "max"})
    assert score("x", [record], [{"summary": "three four"}], config=best).rouge["1"].f == 1.0
    assert score("x", [record], [{"summary": ""}], config=best).rouge["1"].f == 0.0


# ------------------------------------------------------------------------------- the file


def test_predictions_are_written_in_order(tmp_path: Path) -> None:
    out = tmp_path / "deep" / f"{file_name('runs/' + 'ä' * 300)}.jsonl"  # whatever the system is called
    predict(FirstWords(), RECORDS, batch_size=3, out=out)  # type: ignore[arg-type]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["0", "1", "2", "3"]
    assert lines[1]["summary"] == "The dog sat on"
    assert lines[1]["references"] == ["dog on mat"]
    assert list(out.parent.iterdir()) == [out]


def interrupted(folder: Path, after: int) -> Path:
    """The file of predictions of an evaluation that is stopped after so many records."""
    out = folder / "predictions.jsonl"
    with pytest.raises(KeyboardInterrupt):
        predict(FirstWords(stop_after=after), RECORDS, batch_size=1, out=out)
    assert not out.exists()
    return out


def test_an_interrupted_evaluation_continues(tmp_path: Path) -> None:
    """What was decoded is not decoded again."""
    out = interrupted(tmp_path, 2)
    second, counted = FirstWords(), []
    lines, seconds = predict(second, RECORDS, batch_size=1, out=out, progress=counted.append)
    assert (second.asked, seconds) == (["2", "3"], 0.0)
    assert sum(counted) == len(out.read_text().splitlines()) == 4
    assert lines == predict(FirstWords(), RECORDS)[0]


@pytest.mark.parametrize("change", ["system", "records", "sentences"])
def test_another_system_or_other_records_start_over(change: str, tmp_path: Path) -> None:
    out, system, records = interrupted(tmp_path, 2), FirstWords(), list(RECORDS)
    if change == "records":
        records[3] = Record("Another document.", "another")
    elif change == "sentences":
        records[3] = replace(records[3], sentences=tuple(records[3].document.split()))
    predict(system, records, batch_size=1, out=out, about="another" if change == "system" else "")
    assert len(system.asked) == 4


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(DataError, match="there are 4 and 2"):
        table_of_results([evaluate_system(FirstWords(), RECORDS[:n], name=str(n)) for n in (2, 4)])
    with pytest.raises(DataError, match="no records"):
        evaluate_system(FirstWords(), [])
    with pytest.raises(DataError, match=r"x\.jsonl:3 has no summary"):
        evaluate_system(FirstWords(), [Record("a b", "", origin="x.jsonl:3")])


# ------------------------------------------------------------------- systems, splits, tables


def test_extractive_methods_by_name() -> None:
    for name, settings in (
        ("lead", {"type": "lead"}),
        ("lead-2", {"type": "lead", "sentences": 2}),
        ("my.own:Ends-2:language=de", {"type": "my.own:Ends", "sentences": 2, "language": "de"}),
        ("lead:sentences=2,language=de", {"type": "lead", "sentences": 2, "language": "de"}),
    ):
        assert method_spec(name) == settings
    assert all(map(is_method, ("mine:Ends", "lead-1")))
    assert not any(map(is_method, ("runs/a", "C:Models", "hub:Owner", "mine:ends/1", "a=b:Ends")))
    for name, says in (("lead-" + "1" * 5000, "a number of 5,000 digits"), ("lead-1:", "no setting after the colon")):
        with pytest.raises(ConfigError, match=says):
            method_spec(name)
    assert len({identity(open_system(name), name) for name in ("lead-1", "lead-2")}) == 2


def test_a_system_is_another_when_ones_own_code_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "picks_of_mine.py"
    code.write_text("from catchline.extractive.baselines import Lead\n")
    monkeypatch.syspath_prepend(tmp_path)

    def identities() -> list[str]:
        mine = open_system("mine", {"type": "picks_of_mine:Lead"})
        model: Any = SimpleNamespace(system=None, decoding=lambda: {"scorers": [{"type": "picks_of_mine:Scorer"}]})
        with trusting({"picks_of_mine:Scorer"}):
            return [identity(system, "picks_of_mine:Lead") for system in (mine, model)]

    before = identities()
    assert identities() == before
    code.write_text("from catchline.extractive.baselines import Longest as Lead\n")
    assert not set(identities()) & set(before)


OTHER = Record("a b. c d.", "a", sentences=("A B . C", "D ."))  # of another writing of the text
OFTEN = Record("Hi. Hi. Hi. This is the text of it.", "a")  # sentences that are there again count too


@pytest.mark.parametrize(
    ("name", "record", "text"),
    [
        ("lead-1", Record("a b. c d.", "a", sentences=("a b. c d.",)), "a b. c d."),
        ("oracle-1", Record("One two three. Cats sat on mats. Four five.", "the cats sat"), "Cats sat on mats."),
        ("lead-1", OTHER, "A B . C"),
        ("first_words:words=2", OTHER, "A B"),
        ("first_characters:characters=2", OTHER, "A B"),
        ("first_words:words=4", OFTEN, "Hi. Hi. Hi. This"),
        ("first_characters:characters=9", OFTEN, "Hi. Hi. Hi."),
    ],
)
def test_sentences_of_the_record_are_used(name: str, record: Record, text: str) -> None:
    assert picked(name, record) == text


def test_recall_is_what_counts_where_the_profile_says_so() -> None:
    records = [Record("x", "a b c d"), Record("x", "a")]
    lines = [{"summary": "a b"}, {"summary": "a b c"}]
    result = score("x", records, lines, config=EvaluationConfig(profile="duc2004"))
    expected = rouge(["a b", "a b c"], ["a b c d", "a"], interval=True, max_bytes=75)
    assert result.shown == "recall"
    assert result.value("1") == result.rouge["1"].recall == pytest.approx(0.75)
    assert result.per_document["1"] == (0.5, 1.0)
    assert result.rouge["1"].low == expected.interval["1"].low.recall
    assert result.rouge["1"].f != result.rouge["1"].recall


def test_numbers_are_restored_for_scoring_only() -> None:
    records, lines = [Record("He paid 12 pounds.", "12 pounds")], [{"summary": "## pounds"}]
    off = score("x", records, lines)
    on = score("x", records, lines, config=EvaluationConfig(restore_numbers=True))
    assert off.rouge["1"].recall == 0.5
    assert on.rouge["1"].f == 1.0
    assert lines == [{"summary": "## pounds"}]
