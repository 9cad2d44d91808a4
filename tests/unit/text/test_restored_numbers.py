"""Numbers of the document in the place of ``##`` (contrastive c.36)."""

from __future__ import annotations

import pytest

from laconic.text.numbers import restore_numbers

DOCUMENT = "On 12 May 1998, 3.5 percent of 77 towns and a 10-year-old boy paid $1,250."


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("## towns", "77 towns"),  # the last number of that length
        ("#### now", "1998 now"),
        ("#.# percent", "3.5 percent"),
        ("a ##-year-old", "a 10-year-old"),
        ("paid $#,###.", "paid $1,250."),
        ("##,", "77,"),
        ("###### and #", "###### and #"),  # no number of that length
        ("no sign", "no sign"),
        ("c## ab#", "c## ab#"),  # within a word
    ],
)
def test_by_length(written: str, expected: str) -> None:
    assert restore_numbers(written, DOCUMENT) == expected


def test_nothing_to_restore_from() -> None:
    assert restore_numbers("## and ##", "no number, ## only") == "## and ##"
