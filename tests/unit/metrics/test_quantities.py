"""Amounts, however they are written: in words, in digits with a scale, in parts."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from laconic.metrics.quantities import Quantity, amount_key, quantities


def found(text: str) -> list[Quantity]:
    lower = text.lower()
    return sorted(quantities(text, lower, set(re.findall(r"\w+", lower))), key=lambda quantity: quantity.start)


SPELLED = {
    "zero": 0,
    "nineteen": 19,
    "twenty-one": 21,
    "ninety nine": 99,
    "three hundred": 300,
    "one hundred and five": 105,
    "two thousand": 2_000,
    "seven million": 7_000_000,
    "four billion": 4 * 10**9,
    "six trillion": 6 * 10**12,
    "five lakh": 500_000,
    "three crore": 30_000_000,
    "two dozen": 24,
    "half a million": 500_000,
    "two and a half million": 2_500_000,
    "two hundred thousand": 200_000,
    "one million two hundred thousand and six": 1_200_006,
    "nineteen ninety": 1990,
    "twenty twenty": 2020,
    "nineteen ninety-nine": 1999,
    "three quarters": Decimal("0.75"),
}
WRITTEN = {
    "3 million": 3_000_000,
    "2.5 billion": 2_500_000_000,
    "1.2 trillion": 1_200_000_000_000,
    "7 thousand": 7_000,
    "4 lakh": 400_000,
    "9 crore": 90_000_000,
    "6 mln": 6_000_000,
    "6 bln": 6 * 10**9,
    "8bn": 8 * 10**9,
    "5tn": 5 * 10**12,
    "5 trn": 5 * 10**12,
    "12k": 12_000,
    "2m": 2_000_000,
    "2b": 2 * 10**9,
    "2t": 2 * 10**12,
    "2 hundred thousand": 200_000,
    "3½": Decimal("3.5"),
    "1 3/4": Decimal("1.75"),
    "1,234,567": 1_234_567,
    ".5": Decimal("0.5"),
}


@pytest.mark.parametrize(("text", "value"), [*SPELLED.items(), *WRITTEN.items()])
def test_one_amount(text: str, value: int | Decimal) -> None:
    sentence = f"They had {text} left."
    quantities_ = found(sentence)
    assert [sentence[q.start : q.end].strip() for q in quantities_] == [text]
    assert amount_key(value) in quantities_[0].offers


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("one and two", [1, 2]),
        ("five six", [5, 6]),
        ("twenty and thirty", [20, 30]),
        ("two halves and three", [1, 3]),
    ],
)
def test_words_that_are_several_numbers(text: str, values: list[int]) -> None:
    offered = [quantity.offers for quantity in found(text)]
    assert len(offered) == len(values)
    assert all(amount_key(value) in offers for value, offers in zip(values, offered, strict=True))


def test_a_range_lends_its_scale() -> None:
    low, high = found("3 to 5 million people")
    assert {amount_key(3_000_000), amount_key(3)} <= low.offers
    assert amount_key(5_000_000) in high.offers
    assert amount_key(5) not in high.offers


@pytest.mark.parametrize(
    ("text", "unit", "value"), [("5 percent", "%", 5), ("40%", "%", 40), ("the 3rd", "o", 3), ("fifth", "o", 5)]
)
def test_units(text: str, unit: str, value: int) -> None:
    (quantity,) = found(text)
    assert ((unit, Decimal(value)),) in quantity.needs


def test_money() -> None:
    (dollars,) = found("It cost $2.5 million.")
    millions = Decimal(2_500_000).normalize()
    assert dollars.needs == ((("$", "$", millions), ("bare", millions)),)
    (cents,) = found("It cost 50 cents.")
    assert ("$", "$", Decimal("0.5")) in cents.offers
    (euros,) = found("It cost €12.")
    assert ("$", "€", Decimal(12)) in euros.offers


def test_first_and_one_alone_say_no_number_in_particular() -> None:
    assert [quantity.needs for quantity in found("The first one")] == [()] * len(found("The first one"))
    assert found("twenty-one")[0].needs
