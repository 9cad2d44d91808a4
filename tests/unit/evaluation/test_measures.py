"""Correct n-grams and over-copied words: a case worked out by hand, loops written anew, the tables that show them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from laconic.cli.main import main
from laconic.evaluation.measures import measure
from laconic.metrics.support import SourceFacts
from laconic.metrics.words import is_stop_word
from laconic.study.tables import Row, copy_table

DOCUMENT = "Anna has crashed into a red Honda. She is not hurt."
SUMMARY = "Anna crashed into a red Honda and she is sad"
REFERENCE = "Anna crashed into a red car"


def test_by_hand() -> None:
    """The document has 'crashed into a red' in a row; of the reference's words 'car' is not in the document."""
    found = measure([DOCUMENT], [SUMMARY], [[REFERENCE]])
    assert found["correct_1"] == pytest.approx(5 / 10)  # anna crashed into a red
    assert found["correct_2"] == pytest.approx(3 / 9)  # not "anna crashed": the document has "has" between
    assert found["correct_3"] == pytest.approx(2 / 8)
    assert found["correct_4"] == pytest.approx(1 / 7)
    assert found["over_copied"] == 3  # honda, she, is
    assert found["over_copied_content"] == 1  # honda


def test_a_piece_of_the_document_is_measured_without_the_rest_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be with it."""
    document = f"{DOCUMENT} The U.S. driver, Bo, saw a red Honda on 5 May and a red car; the red car saw Bo."
    pieces = ["The U.S. driver, Bo,", "Bo", "and a red car; the red car", "a red red"]
    texts = [document, document[: len(DOCUMENT)], *pieces]
    asked = [document] * len(texts), texts, [[REFERENCE, "Bo saw a red car"]] * len(texts)
    found = measure(*asked)
    monkeypatch.setattr(SourceFacts, "has_whole", lambda *_: False)
    assert found == measure(*asked)
    assert found["copy_rate"] == 1.0


def test_any_reference_counts_and_no_ngram_spans_two() -> None:
    document, summary = "the red car stopped", "red car stopped"
    found = measure([document], [summary], [["a red", "car stopped now"]])
    assert found["correct_1"] == 1.0
    assert found["correct_2"] == pytest.approx(1 / 2)  # "car stopped", not "red car" across the two
    assert found["over_copied"] == 0


def rate(document: list[str], summary: list[str], models: list[list[str]], n: int) -> tuple[int, int]:
    def grams(words: list[str]) -> list[str]:
        return [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]

    right = sum(g in grams(document) and any(g in grams(m) for m in models) for g in grams(summary))
    return right, len(grams(summary))


def test_against_loops() -> None:
    rng = random.Random(5)
    words = ["the", "a", "car", "red", "blue", "stops", "goes", "and", "anna"]

    def text(most: int) -> list[str]:
        return [rng.choice(words) for _ in range(rng.randint(0, most))]

    documents, summaries = [text(20) for _ in range(40)], [text(6) for _ in range(40)]
    models = [[text(7) for _ in range(rng.randint(1, 3))] for _ in range(40)]
    found = measure(
        [" ".join(d) for d in documents], [" ".join(s) for s in summaries], [[" ".join(m) for m in g] for g in models]
    )
    for n in (1, 2, 3, 4):
        each = [rate(d, s, m, n) for d, s, m in zip(documents, summaries, models, strict=True)]
        assert found[f"correct_{n}"] == pytest.approx(sum(r for r, _ in each) / sum(size for _, size in each))
        shares = [r / size for r, size in each if size]
        assert found[f"correct_{n}_macro"] == pytest.approx(sum(shares) / len(shares))
    assert found["correct_1"] != pytest.approx(found["correct_1_macro"])
    over = [
        [w for w in s if w in d and not any(w in m for m in group)]
        for d, s, group in zip(documents, summaries, models, strict=True)
    ]
    assert found["over_copied"] == pytest.approx(sum(map(len, over)) / 40)
    content = [[w for w in group if w not in ("the", "a", "and", "goes")] for group in over]
    assert found["over_copied_content"] == pytest.approx(sum(map(len, content)) / 40)


@pytest.mark.parametrize("word", ["the", "don't", "don’t", "can't", "they're", "it's", "isn't", "won't"])
def test_stop_words(word: str) -> None:
    assert is_stop_word(word)


@pytest.mark.parametrize("word", ["honda", "o'hara", "anna's"])
def test_other_words(word: str) -> None:
    assert not is_stop_word(word)


def test_empty_summaries_and_unknown_words() -> None:
    found = measure(["A red car."], [""], [["A car."]])
    assert (found["correct_1"], found["correct_1_macro"], found["over_copied"]) == (0.0, 0.0, 0.0)
    assert measure(["unk red"], ["[UNK] red"], [["red"]], unk_text="[UNK]")["correct_1"] == 1.0


def table_of(**systems: dict[str, float]) -> tuple[list[str], list[list[str]]]:
    return copy_table(Row(name, name, measures=measures) for name, measures in systems.items())


def test_a_column_that_nobody_has_is_left_out() -> None:
    header, rows = table_of(a={"correct_1": 0.5, "over_copied": 2.0}, b={"correct_1": 0.25}, c={})
    assert header == ["system", "correct 1-grams %", "over-copied words"]
    assert rows == [["a", "50.00", "2.00"], ["b", "25.00", ""]]
    assert table_of(a={}, b={"words": 3.0}) == ([], [])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "validation.jsonl"
    path.write_text(json.dumps({"document": f"{DOCUMENT} Nobody came.", "summary": REFERENCE}) + "\n")
    return path


def test_evaluate_says_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quiet", "evaluate", "lead-1", "--data", str(data)]
    assert main([*arguments, "--json"]) == 0
    measures = json.loads(capsys.readouterr().out)["systems"][0]["measures"]
    assert measures["correct_1"] == pytest.approx(5 / 7)  # anna has crashed into a red honda
    assert measures["over_copied"] == 2
    assert measures["over_copied_content"] == 1
    assert main([*arguments, "--copying"]) == 0
    assert "correct 4-grams %" in capsys.readouterr().out


def test_compare_has_a_table_of_it(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["--quiet", "compare", "lead-1", "lead-2", "--data", str(data), "--out", str(out)]
    assert main(arguments) == 0
    assert "over-copied words" in capsys.readouterr().out
    rows = json.loads((out / "compare.json").read_text())["rows"]
    assert rows[0]["measures"]["correct_1"] == pytest.approx(5 / 7)
    assert "## Copying" in (out / "compare.md").read_text()
    assert "71.43" in (out / "compare.md").read_text()
    assert "over-copied words" in (out / "compare.html").read_text()
    assert "correct_1_macro" in (out / "compare.csv").read_text()


def test_evaluate_and_compare_quote_the_same_numbers_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "validation.jsonl"
    records = [
        {"document": f"{DOCUMENT} It was {n} o'clock.", "summary": " ".join(REFERENCE.split()[:n])} for n in (2, 3, 5)
    ]
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["--quiet", "evaluate", "lead-1", "--data", str(data)]) == 0
    one = capsys.readouterr().out
    arguments = ["--quiet", "compare", "lead-1", "--data", str(data), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    other = capsys.readouterr().out
    quoted = [[line for line in text.splitlines() if line.startswith("rouge:")] for text in (one, other)]
    assert quoted[0] == quoted[1]
    assert "ci:95%r1000" in quoted[0][0]
    intervals = [re.findall(r"\d+\.\d\d ±\d+\.\d\d", text) for text in (one, other)]
    assert intervals[0] == intervals[1]
    assert len(intervals[0]) == 3
    assert "±0.00" not in intervals[0][0]
