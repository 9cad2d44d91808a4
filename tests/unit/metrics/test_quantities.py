"""Amounts, however they are written: in words, in digits with a scale, in parts."""

from __future__ import annotations

import random
import re
from decimal import Decimal

import pytest

from catchline.metrics import quantities as module
from catchline.metrics.quantities import Quantity, amount, amount_key, quantities


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


# A text with what is read as a quantity in brackets; of each, what must be offered, "|" between what may stand for it.
READ = {
    "[Q3] and [2q], [4th quarter], [third quarter]": "q 3, q 2, q 4, q 3",
    "the [1990s], ['80s], ['98], [FY04], [cal 06]": "decade 1990, decade 1980, y 1998, y 2004, y 2006",
    "call [713-853-4111] or [(713) 853-4111] or [853-4111]": "w 7138534111, w 7138534111, w 8534111",
    "[F-16], [B2B], [a747s] and phase-[2], 3D": "code f16, code b2b, code a747s, n 2",
    "[1,234.5] [1.234,5] [12,5]": "n 1234.5|w 1,234.5, n 1234.5|w 1.234,5, n 12.5",
    "[1.234.567] v[2.0] version [1.10]": "v 1.234.567|w 1.234.567, v 2.0|w 2.0, v 1.10|w 1.10",
    "Windows [3.1] rose [3.5]": "v 3.1|w 3.1, n 3.5|w 3.5",
    "[1 000 000] [1'000] [12,34,567]": "n 1000000, n 1000, n 1234567",
    "[$5] [US$5] [HK$5] [NZ$6] [A$7] [C$8]": "$ $ 5, $ $ 5, $ HK$ 5, $ NZ$ 6, $ A$ 7, $ C$ 8",
    "[€5] [£5] [¥5] [₹5] [usd 5] [gbp 7]": "$ € 5, $ £ 5, $ ¥ 5, $ ₹ 5, $ $ 5, $ £ 7",
    "[5 dollars], [7 bucks], [8 euros], [9 pounds], [6 rupees], [7€]": "$ $ 5, $ $ 7, $ € 8, $ £ 9, $ ₹ 6, $ € 7",
    "[$3m] [£2bn] [5 cents]": "$ $ 3000000|bare 3000000, $ £ 2000000000|bare 2000000000, $ $ 0.05",
    "[$999] [$1,000] [$1.5]": "$ $ 999, $ $ 1000|bare 1000, $ $ 1.5|bare 1.5",
    "[3m] [3mm] [4k] walk, [5mm$]": "n 3000000|x 3 m, n 3000000|x 3 mm, n 4000|x 4 k, $ $ 5000000|bare 5000000",
    "[$3]-[5 million], [3]-[5m]": "$ $ 3000000|bare 3000000, n 5000000, n 3000000|x 3 m, n 5000000|x 5 m",
    "[5]-[3 million], [3 million]-[5], [3] to [5 percent]": "n 5, n 3000000, n 3000000, n 5, % 3, % 5",
    "[3]-[3 million]": "n 3, n 3000000",
    "[2 hundred thousand dollars] or [two dozen dollars]": "$ $ 200000|bare 200000, $ $ 24",
    "[5 per cent], [5pct], [22nd], [1999], [5]lb, [7]hrs, 8xyz": "% 5, % 5, o 22, n 1999|y 1999, n 5, n 7",
    "[twenty five cents], [thirty-third], [twenty first]": "$ $ 0.25, o 33, o 21",
    "[twenty-one hundred], [sixteen fifty], [nine] [eleven]": "n 2100, n 1650, n 9, n 11",
    "[one hundred and five] and [six], [fifty]-[fifty]": "n 105, n 6, n 50, n 50",
    "[one] and [two], [five] [six], [twenty] and [thirty]": ", n 2, n 5, n 6, n 20, n 30",
    "in their quarters, [twenty] quarters": "n 20",
    "[two halves] and [three], [5 percent], [40%], [fifth]": "n 1, n 3, % 5, % 40, o 5",
    "It cost [$2.5 million], or [50 cents], or [€12].": "$ $ 2500000|bare 2500000, $ $ 0.5, $ € 12",
}


@pytest.mark.parametrize(("text", "needs"), READ.items())
def test_what_is_read_and_what_it_needs(text: str, needs: str) -> None:
    plain = re.sub(r"[\[\]]", "", text)
    read = found(plain)
    assert [plain[quantity.start : quantity.end] for quantity in read] == re.findall(r"\[(.*?)\]", text)
    written = [" + ".join("|".join(map(key_written, group)) for group in quantity.needs) for quantity in read]
    assert ", ".join(written) == needs
    assert all(quantity.offers.intersection(group) for quantity in read for group in quantity.needs)


def key_written(key: tuple) -> str:
    return " ".join(format(part, "f") if isinstance(part, Decimal) else str(part) for part in key)


def test_hours_are_small_and_follow_what_tells_an_hour() -> None:
    offered = [
        ("hour", int(q.needs[0][0][1])) in q.offers for q in found("at 4, until 12, around 5, at 13, the 6, at 1999")
    ]
    assert offered == [True, True, True, False, False, False]


def test_a_range_lends_its_scale() -> None:
    low, high = found("3 to 5 million people")
    assert {amount_key(3_000_000), amount_key(3)} <= low.offers
    assert amount_key(5_000_000) in high.offers
    assert amount_key(5) not in high.offers
    assert found("3 to 5 percent")[0].offers == {("%", Decimal(3))}


def test_what_is_looked_for_first_stands_in_all_that_is_found() -> None:
    generator = random.Random(5)
    pieces = [*"aqv01259 .,'’-s/:\u0663", *("q3", "4q", "first quarter", "2nd qtr", "1990's", "’80s", "fy ", "cal-")]
    pieces.append("555-1234")
    seen = set()
    for _ in range(2000):
        text = "".join(generator.choice(pieces) for _ in range(12))
        for name in ("QUARTER", "DECADE", "SHORT_YEAR", "CODE", "NAMED"):
            if getattr(module, f"_{name}").search(text):
                seen.add(name)
                assert getattr(module, f"_{name}_SIGN").search(text), (name, text)
        places = [match.span() for match in module._NUMBER.finditer(text)]
        assert [match.span() for match in module._written(text)] == places, text
    assert len(seen) == 5


def test_of_a_long_row_of_digits_the_first_sixty_count() -> None:
    assert amount("7" * 59) < amount("7" * 60) == amount("7" * 61) == amount("7" * 5000)


def test_sections_are_no_malformed_numbers() -> None:
    assert [("w", "1,2.3.4") in one.offers for one in found("See 1,2.3.4 there.")] == [True]


def test_first_and_one_alone_say_no_number_in_particular() -> None:
    assert [quantity.needs for quantity in found("The first one")] == [()] * len(found("The first one"))
    assert found("twenty-one")[0].needs
