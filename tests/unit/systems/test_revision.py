"""Lines that are written again without what their documents do not support."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from catchline.metrics.consensus import expected_utilities
from catchline.metrics.faithfulness import SourceFacts, check_support
from catchline.metrics.words import is_stop_word, words
from catchline.summarizer import Summarizer, revision
from catchline.summarizer.revision import faults, revised, spelt_out
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Hypothesis

DOCUMENT = "Kites of paper fly over Lisbon when the wind is fair, and 12 of them came down on a self-aware roof."


class Writer:
    """Instead of a search: the first of some lines that has none of the forbidden words, or more of them."""

    def __init__(self, *lines: str, beam: int = 1) -> None:
        self.beam = beam
        self.lines = [line.split() for line in lines]
        self.tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
        self.tokenizer.train([" ".join(line) for line in self.lines])
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, forbidden: Sequence[int] = ()) -> list[Hypothesis]:
        banned = {self.tokenizer.token(id_) for id_ in forbidden}
        self.asked.append(tuple(sorted(banned)))
        lines = [line for line in self.lines if banned.isdisjoint(line)][: self.beam]
        every = [[self.tokenizer.token_id(word) for word in line] for line in lines]
        return [Hypothesis(ids, 0.0, 0.0, [0.0] * len(ids), finished=True) for ids in every]

    def text(self, hypothesis: Hypothesis) -> str:
        return " ".join(self.tokenizer.token(id_) for id_ in hypothesis.ids).capitalize()

    def revised(self, rounds: int = 2) -> str:
        best = revised(self(), self, self.text, DOCUMENT, self.tokenizer, [], rounds)
        return self.text(best[0])


def test_a_faultless_line_is_not_searched_again() -> None:
    writer = Writer("kites over lisbon")
    assert writer.revised() == "Kites over lisbon"
    assert writer.asked == [()]


def test_an_unsupported_name_is_avoided() -> None:
    writer = Writer("perl kites over lisbon", "kites fly over lisbon")
    assert check_support("Perl kites over lisbon", DOCUMENT).unsupported
    assert writer.revised() == "Kites fly over lisbon"
    assert writer.asked == [(), ("perl",)]


def test_the_next_best_line_without_fault_is_taken_before_another_search() -> None:
    writer = Writer("perl kites over java", "perl kites", "kites over lisbon", "kites fly", beam=4)
    found = revised(writer(), writer, writer.text, DOCUMENT, writer.tokenizer, [], 2)
    assert [writer.text(one) for one in found] == [
        "Kites over lisbon", "Perl kites over java", "Perl kites", "Kites fly",
    ]  # fmt: skip
    assert writer.asked == [()]
    assert Writer("perl kites over java", "perl kites", "kites over lisbon", beam=2).revised() == "Kites over lisbon"


def test_what_was_avoided_once_stays_avoided() -> None:
    writer = Writer("perl kites", "debian kites", "kites over lisbon")
    assert writer.revised() == "Kites over lisbon"
    assert writer.asked == [(), ("perl",), ("debian", "perl")]


def test_the_fewest_faults_win_when_none_is_free_of_them() -> None:
    writer = Writer("perl kites", "debian kites of 99 over java", "kites of 77")
    assert writer.revised(rounds=1) == "Perl kites"


SPELT_OUT = [
    ("Paper kite flight (PKF) is new.", "pkf over paper kites flight", set()),  # of a name only as it is written
    ("Paper kite flight (PKF) is new.", "PKF over paper kite flights", {"pkf"}),
    ("Paper kites (PKs) and the kite of paper (KP).", "PKs of paper and of kites: KP-paper", set()),
    ("Paper kites (PKs) and the kite of paper (KoP).", "PK for paper kites", {"pk"}),
    ("Paper kites (PKs) and the kite of paper (KP).", "KP-like kite of paper", {"kp"}),
    ("Paper kites (PK).", "Paper kites (PK) of Lisbon", set()),
    ("Paper kites (PK).", "PK (paper kites) of Lisbon", set()),
    ("Paper kites (PK).", "PK: paper kites of Lisbon", set()),
    ("Paper kites (PK).", "PK-12: paper kites of Lisbon", set()),
    ("Kites (PK), of paper.", "PK kites of paper", set()),  # not behind its long form
    ("Large language-model kites (LLMKs) fly.", "LLMKs of large language model kites", {"llmks"}),
]


@pytest.mark.parametrize(("document", "line", "short"), SPELT_OUT)
def test_an_abbreviation_beside_its_long_form_is_a_fault(document: str, line: str, short: set[str]) -> None:
    assert spelt_out(line, document) == short
    wrong, count = faults(line, SourceFacts(document))
    assert count >= bool(short)
    assert short <= {part for word in wrong for part in word.split("-")}


def test_an_abbreviation_is_not_written_again() -> None:
    document = "Paper kites (PK) fly over Lisbon."
    writer = Writer("pk over paper kites", "paper kites fly")
    best = revised(
        writer(), writer, lambda one: writer.text(one).replace("Pk", "PK"), document, writer.tokenizer, [], 1
    )
    assert writer.text(best[0]) == "Paper kites fly"
    assert writer.asked == [(), ("pk",)]


def test_only_abbreviations_of_the_line_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(revision, "_long_form", lambda before, short: looked_at.append(f"{before}|{short}") or "")
    spelt_out("PK of kites", "x" * 500 + " (PK) (ABC) and (QK)")
    assert looked_at == ["x" * 199 + " |pk"]


@pytest.mark.parametrize("line", ["kites with 13 tails", "kites come down in march"])
def test_numbers_and_dates_too(line: str) -> None:
    assert Writer(line, "kites over lisbon").revised() == "Kites over lisbon"


def test_of_a_word_said_twice_the_first_stays() -> None:
    writer = Writer("aware of self-aware kites", "aware kites over lisbon")
    assert faults("Aware of self-aware kites", SourceFacts(DOCUMENT)) == (frozenset({"aware"}), 1)
    assert writer.revised() == "Aware kites over lisbon"
    assert writer.asked == [(), ("self-aware",)]


TEXT = "Tidepool is a small library that draws curves of the tide for harbours with a gauge in them."


@pytest.fixture(scope="module")
def model() -> Summarizer:
    return Summarizer()


@pytest.mark.parametrize("rounds", [0, 2])
def test_a_model_writes_again_without_the_words_at_fault(
    model: Summarizer, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = model.summarize(TEXT, always_write=True, revisions=0).text
    said = [word for word in words(plain) if not is_stop_word(word)][:2]
    assert len(said) == 2

    def disliked(summary: str, source: SourceFacts) -> tuple[frozenset[str], int]:
        found = frozenset(said).intersection(words(summary))
        return found, len(found)

    monkeypatch.setattr(revision, "faults", disliked)
    line = model.summarize(TEXT, always_write=True, revisions=rounds).text
    assert frozenset(said).isdisjoint(words(line)) == bool(rounds)
    assert line


def test_lines_are_judged_alike_whatever_is_shown(model: Summarizer, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: dict[str, list[str]] = {"clean": [], "raw": []}
    for surface, lines in judged.items():
        monkeypatch.setattr(revision, "faults", lambda line, _, lines=lines: (lines.append(line) or frozenset(), 1))
        model.summarize(TEXT, always_write=True, revisions=1, surface=surface)
    assert judged["raw"] == judged["clean"] != []


@pytest.mark.parametrize("choose", ["mbr", "rerank"])
def test_a_text_without_blanks_that_is_copied_as_one_word_is_compared_with_nothing(
    model: Summarizer, choose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a summary has tens of thousands of numbers; all pairs of a beam took the model's worker a minute."""
    seen: list[int] = []

    def watched(texts: Sequence[str], scores: Sequence[float]) -> list[float]:
        seen.extend(map(len, texts))
        return expected_utilities(texts, scores)

    def counted(summary: str, source: SourceFacts) -> tuple[frozenset[str], int]:
        seen.append(len(summary))
        return faults(summary, source)

    monkeypatch.setattr("catchline.metrics.consensus.expected_utilities", watched)
    monkeypatch.setattr(revision, "faults", counted)
    assert model.summarize("1_" * 10_000, choose=choose).text.startswith("1_1_1_")
    assert max(seen, default=0) <= 10_000
    assert model.summarize("A library that reads maps. " * 3, choose=choose).text
    assert seen
