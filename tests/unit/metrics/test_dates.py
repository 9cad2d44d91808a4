"""Dates, week days and times, however they are written: what of a text is read as one, and what it is worth."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from catchline.metrics.dates import dates, takes
from catchline.metrics.quantities import Key, Quantity, amount_key


def found(text: str) -> list[Quantity]:
    lower = text.lower()
    return sorted(dates(text, lower, set(re.findall(r"[\w'’]+", lower))), key=lambda quantity: quantity.start)


# A text with what is read as a date in brackets, and what the source must have for each, separated by commas.
WORDED = {
    "[14 May]": "md 5 14",
    "[May 14-16]": "md 5 14 + md 5 16",
    "[May 14th, 2001], [May 14 and 15]": "md 5 14 + y 2001, md 5 14 + md 5 15",
    "the [1st to 3rd of June, '99]": "md 6 1 + md 6 3 + y 1999",
    "[11, 12, 13, 14 and 15 of May]": "md 5 11 + md 5 12 + md 5 13 + md 5 14 + md 5 15",
    "[May 2001]": "m 5 + y 2001",
    "[Sept. 5] and [Sept.] alone": "md 9 5, m 9",
    "[Sep 31], [Oct. 1]": "md 9 31, md 10 1",
    "[September] . [September 3] at 5": "m 9, md 9 3",
    "end of [May]. Then": "m 5",
    "We may go and march and dismay 5": "",
    "May Smith came": "",
    "You met\nMassachusetts May Lee. May be": "",
    "it was [May] when the [June] issue": "m 5, m 6",
    "since Massachusetts [May] issue": "m 5",
    "last [march] we left in [may]": "m 3, m 5",
    "on [Tue.], [Tuesday's] talk, all [mondays]": "wd 1, wd 1, wd 0",
    "he sat down on [sat]": "wd 5",
    "by [Fri], see you [Wed] at 5": "wd 4, wd 2",
    "Li Sun spoke to the SAT. Sun is hot. Fri is": "",
    "the [sat]/[sun] paper": "wd 5, wd 6",
    "a [Sat] walk, [Sat.] morning": "wd 5, wd 5",
    "they Wed Ann, their [Wed] off": "wd 2",
    "O'May 5, x-Monday, sunny maybe": "",
    "open [Monday]-[Friday], [Mon]-[Fri]": "wd 0, wd 4, wd 0, wd 4",
    "2 3/4 cups of 1 1/2 spoons": "",
    "on day 2 [4/3] it rained, page 12 of [5/14]": "md 4 3, md 5 14",
}
TIMES = {
    "[4:30]": "t12 270",
    "[4:30 pm]": "t 990",
    "[4.30 p.m.]": "t 990",
    "[16:30]": "t 990",
    "[0:30], [24:00]": "t 30, t 0",
    "[12:15 am], [12:15 pm]": "t 15, t 735",
    "[4]-[5:30 pm]": "t 960, t 1050",
    "[10] to [11:30 am]": "t 600, t 690",
    "[14]-[15:30]": "t 840, t 930",
    "[9:00]-[10:00]": "t12 540, t12 600",
    "9-[10:00]": "t12 600",
    "[4 o'clock], at 4, $4:30, 4:60, 1:4:30 pm, 123:45": "t12 240",
    "[noon], [midday], [midnight]": "t 720, t 720, t 0",
}
NUMERIC = {
    "[5/14/01]": "md 5 14 + y 2001",
    "[14.5.2001]": "md 5 14 + y 2001",
    "[2001-05-14]": "md 5 14 + y 2001",
    "[٥/١٤/٢٠٠١]": "md 5 14 + y 2001",
    "[12/2001], [1/1900], [12/2099]": "m 12 + y 2001, m 1 + y 1900, m 12 + y 2099",
    "13/2001, 0/2001, 12/1899, 12/2100, 32/12, 0/5, 5/0, 2001-13-01, 99-01-02, $5/14, 5/14.2, 5.4, 20015/14/01": "",
}


def bracketed(text: str) -> tuple[str, list[str]]:
    return re.sub(r"[\[\]]", "", text), re.findall(r"\[(.*?)\]", text)


def key_of(written: str) -> Key:
    name, *values = written.split()
    return name, *map(int, values)


@pytest.mark.parametrize(("text", "needs"), [*WORDED.items(), *TIMES.items(), *NUMERIC.items()])
def test_what_is_read_and_what_it_needs(text: str, needs: str) -> None:
    plain, pieces = bracketed(text)
    read = found(plain)
    assert [plain[quantity.start : quantity.end] for quantity in read] == pieces
    wanted = [[key_of(key) for key in one.split(" + ")] for one in needs.split(", ") if one]
    assert [[group[0] if group[0][0] != "w" else group[1] for group in quantity.needs] for quantity in read] == wanted
    for quantity in read:  # a date supports itself
        assert all(quantity.offers.intersection(group) for group in quantity.needs)


def day(*numbers: int) -> set[Key]:
    return {(name, Decimal(number).normalize()) for number in numbers for name in ("n", "o")}


OFFERS = {
    "14 May 2001": {("m", 5), ("md", 5, 14), ("y", 2001), amount_key(2001)} | day(14),
    "5/14/01": {("m", 5), ("md", 5, 14), ("y", 2001), amount_key(2001), ("w", "5/14/01")} | day(14),
    "2/3": {("m", 2), ("m", 3), ("md", 2, 3), ("md", 3, 2), amount_key(Decimal(2) / 3), ("w", "2/3")} | day(2, 3),
    "12/2001": {("m", 12), ("y", 2001), amount_key(2001)},
    "Monday": {("wd", 0)},
    "4:30": {("t12", 270), ("t", 270), ("t", 990)},
    "12:00": {("t12", 0), ("t", 0), ("t", 720), amount_key(12)},
    "4 pm": {("t12", 240), ("t", 960), amount_key(4)},
    "noon": {("t", 720), ("t12", 0)},
}


@pytest.mark.parametrize(("text", "offers"), OFFERS.items())
def test_what_a_date_supports(text: str, offers: set[Key]) -> None:
    (quantity,) = found(text)
    assert quantity.offers == offers
    assert quantity.kind == "date"


def test_what_is_taken_is_taken_once() -> None:
    busy = bytearray(9)
    assert [takes(busy, *span) for span in ((2, 5), (4, 6), (5, 6))] == [True, False, True]


def test_an_hour_is_supported_by_the_number_alone() -> None:
    """ "At 4" says no time of its own, but a summary may make "4 pm" of it; the minute must be there."""
    assert [quantity.needs for quantity in found("4 pm, 4:30 pm")] == [((("t", 960), ("hour", 4)),), ((("t", 990),),)]


def test_month_before_day_is_looked_for_first() -> None:
    """In this order in every process: sets of words are not."""
    for text, (month, day) in {"5/6": (5, 6), "6/5/01": (6, 5), "3/12": (3, 12), "12/3": (12, 3)}.items():
        [quantity] = found(text)
        assert quantity.needs[0][:2] == (("md", month, day), ("md", day, month))
