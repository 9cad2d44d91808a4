"""What a summary is worth."""

from __future__ import annotations

import pytest

from laconic import rouge
from laconic.objectives.risk import RewardConfig, SummaryReward, repeated_words, unsupported_words

GOLD = "library for reading audio files"
DOCUMENT = "This package holds a library that reads 12 kinds of audio files from disks."


def worth(summary: str, **weights: float) -> float:
    return SummaryReward(RewardConfig(**weights))(summary, GOLD, DOCUMENT)


def test_without_penalties_it_is_the_mean_of_the_three_scores() -> None:
    summary = "library that reads zebra audio audio files"
    found = rouge([summary], [GOLD], kinds=("1", "2", "L"), profile="unicode").mean
    expected = sum(score.f for score in found.values()) / 3
    assert worth(summary, repetition=0, support=0) == pytest.approx(expected)
    assert 0 < expected < 1
    assert worth(GOLD) == 1
    assert worth("") == 0


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("tool for the audio of the files", 0),  # function words may come again
        ("tool for the the audio", 1),  # but not one after the other
        ("audio tool for audio", 1),
        ("audio audio audio", 2),
        ("files for files of files", 1),  # as often as the gold summary says it: twice
    ],
)
def test_words_said_again(words: str, count: int) -> None:
    assert repeated_words(words.split(), ["files", "and", "files"]) == count


def test_words_that_nobody_gave() -> None:
    given = ["a", "library", "that", "reads", "12", "kinds", "of", "audio", "files"]
    assert unsupported_words(["reading", "the", "audio", "file"], given) == 0  # other forms of the same words
    assert unsupported_words(["reading", "13", "video", "files", "with", "a", "library"], given) == 2


def test_each_penalty_is_a_share_of_the_words() -> None:
    plain = worth("library of audio files files", repetition=0, support=0)
    assert worth("library of audio files files", repetition=0.7, support=9) == pytest.approx(plain - 0.7 / 5)
    plain = worth("zebra audio 14 files", repetition=0, support=0)
    assert worth("zebra audio 14 files", repetition=9, support=0.6) == pytest.approx(plain - 0.6 * 2 / 4)
