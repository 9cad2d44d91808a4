"""What filled sheets say: means per system and criterion, agreement of the annotators, paired tests of systems."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from laconic.errors import DataError
from laconic.evaluation.compare_significance import mark_of, named_test
from laconic.evaluation.judge import KEY, SHEETS
from laconic.evaluation.judge_agreement import krippendorff_alpha
from laconic.metrics.significance import bootstrap_interval, holm

LEVELS = ("interval", "ordinal")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab"}


@dataclass(frozen=True, slots=True)
class Mean:
    """A system's mean over items (of the mean over annotators), its 95% interval, and the number of items."""

    system: str
    criterion: str
    mean: float
    low: float
    high: float
    items: int


@dataclass(frozen=True, slots=True)
class Pair:
    """``first`` minus ``second`` on the items where both were rated; ``p_holm`` corrects over a criterion's pairs."""

    criterion: str
    first: str
    second: str
    difference: float
    p: float
    p_holm: float
    items: int
    statistic: float | None

    @property
    def mark(self) -> str:
        """``**`` below 0.01, ``*`` below 0.05 after correction, else nothing."""
        return mark_of(self.p_holm)


@dataclass(frozen=True, slots=True)
class Analysis:
    """``alpha[criterion][level]`` is None where it is not defined; ``missing`` counts cells left empty."""

    annotators: tuple[str, ...]
    items: int
    test: str
    means: tuple[Mean, ...]
    alpha: Mapping[str, Mapping[str, float | None]]
    pairs: tuple[Pair, ...]
    missing: int
    absent: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "annotators": list(self.annotators),
            "absent": list(self.absent),
            "items": self.items,
            "missing": self.missing,
            "test": self.test,
            "means": [{name: getattr(mean, name) for name in Mean.__slots__} for mean in self.means],
            "alpha": {criterion: dict(levels) for criterion, levels in self.alpha.items()},
            "pairs": [{name: getattr(pair, name) for name in Pair.__slots__} for pair in self.pairs],
        }


Ratings = dict[str, dict[tuple[int, str], dict[str, int | None]]]  # annotator -> (item, system) -> criterion -> rating


def analyse(folder: Path, test: str = "t") -> Analysis:
    """Read the key and the filled sheets below ``folder``.

    Raises:
        DataError: no key or no filled sheet, or a cell that is no rating (file, row and column are named).
        ConfigError: no such test.
    """
    named_test(test)
    key = _read_key(folder)
    ratings: Ratings = {}
    absent = []
    for annotator in key["order"]:
        path = folder / SHEETS / f"{annotator}.csv"
        found = _read_sheet(path, key, key["order"][annotator]) if path.is_file() else {}
        if any(value is not None for values in found.values() for value in values.values()):
            ratings[annotator] = found
        else:
            absent.append(annotator)
    if not ratings:
        raise DataError(f"No sheet in {folder / SHEETS} has a rating yet.")
    units = [(entry["item"], system) for entry in key["items"] for system in key["systems"]]
    means, pairs, alpha = [], [], {}
    for criterion in key["criteria"]:
        scores = _means_over_annotators(ratings, units, criterion)
        means += [_mean(system, criterion, scores) for system in key["systems"]]
        pairs += _pairs(key["systems"], criterion, scores, test)
        table = [[found.get(unit, {}).get(criterion) for unit in units] for found in ratings.values()]
        alpha[criterion] = {level: krippendorff_alpha(table, level) for level in LEVELS}
    cells = len(ratings) * len(units) * len(key["criteria"])
    given = sum(v is not None for found in ratings.values() for values in found.values() for v in values.values())
    return Analysis(
        tuple(ratings), len(key["items"]), test, tuple(means), alpha, tuple(pairs), cells - given, tuple(absent)
    )


def _means_over_annotators(
    ratings: Ratings, units: Sequence[tuple[int, str]], criterion: str
) -> dict[tuple[int, str], float]:
    found = {}
    for unit in units:
        given = [value for own in ratings.values() if (value := own.get(unit, {}).get(criterion)) is not None]
        if given:
            found[unit] = fmean(given)
    return found


def _mean(system: str, criterion: str, scores: Mapping[tuple[int, str], float]) -> Mean:
    mine = [value for (_, name), value in scores.items() if name == system]
    if not mine:
        raise DataError(f"Nobody rated the {criterion} of '{system}'.")
    low, high = bootstrap_interval(mine)
    return Mean(system, criterion, fmean(mine), low, high, len(mine))


def _pairs(systems: Sequence[str], criterion: str, scores: Mapping[tuple[int, str], float], test: str) -> list[Pair]:
    results = {}
    for first, second in combinations(systems, 2):
        items = [item for item, name in scores if name == first and (item, second) in scores]
        if len(items) > 1:
            results[first, second] = named_test(test)(
                [scores[item, first] for item in items], [scores[item, second] for item in items]
            )
    corrected = holm({"\0".join(names): result.p for names, result in results.items()})
    return [
        Pair(criterion, *names, r.difference, r.p, corrected["\0".join(names)], r.n, r.statistic)
        for names, r in results.items()
    ]


# ------------------------------------------------------------------------------------------ reading


def _read_key(folder: Path) -> dict[str, Any]:
    path = folder / KEY
    try:
        key = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder} has no {KEY}; give the folder that `laconic judge make` wrote.") from None
    except ValueError:
        raise DataError(f"{path} is not JSON; it must stay as `laconic judge make` wrote it.") from None
    if not isinstance(key, dict) or not {"criteria", "systems", "items", "order"} <= set(key):
        raise DataError(f"{path} is not a key of sheets.")
    return key


def _read_sheet(
    path: Path, key: Mapping[str, Any], order: Sequence[Mapping[str, str]]
) -> dict[tuple[int, str], dict[str, int | None]]:
    """The ratings of one annotator. Whatever a spreadsheet does to a CSV file when it saves it is undone: another
    separator or encoding, sorted lines, moved, added or empty columns, ``4,0`` for 4."""
    rows = _rows(path)
    header = [name.strip().lower() for name in rows[0]] if rows else []
    columns = {}
    for name in ("item", "summary", *key["criteria"]):
        places = [place for place, heading in enumerate(header) if heading == name.lower()]
        if len(places) != 1:
            count = "several columns are" if places else "no column is"
            raise DataError(f"{path}, row 1: {count} named '{name}'; the first row must name the columns.")
        columns[name] = places[0]
    found: dict[tuple[int, str], dict[str, int | None]] = {}
    for number, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        cells = {name: row[place].strip() if place < len(row) else "" for name, place in columns.items()}
        item = _item(cells["item"], len(order), f"{path}, row {number}, column 'item'")
        letter = cells["summary"].upper()
        if letter not in order[item - 1]:
            known = ", ".join(order[item - 1])
            raise DataError(f"{path}, row {number}, column 'summary': '{cells['summary']}' is none of {known}.")
        unit = (item, order[item - 1][letter])
        if unit in found:
            raise DataError(f"{path}, row {number}, column 'summary': item {item} {letter} is there twice.")
        found[unit] = {
            name: _rating(cells[name], key, f"{path}, row {number}, column '{name}'") for name in key["criteria"]
        }
    return found


def _rows(path: Path) -> list[list[str]]:
    raw = path.read_bytes()
    if raw.startswith(b"PK"):
        raise DataError(f"{path} is a workbook with the name of a CSV file; save the sheet as CSV.")
    text = re.sub(r"\Asep=.\r?\n", "", _decoded(raw))  # a line of Excel's that it does not show
    first = text.split("\n", 1)[0]
    separator = max(_NAMES, key=first.count)
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))


def _decoded(raw: bytes) -> str:
    """UTF-8, UTF-16 where it begins with its mark, else the code page of western Windows."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def _item(text: str, most: int, where: str) -> int:
    number = _number(text)
    if number is None or number not in range(1, most + 1):
        raise DataError(f"{where}: '{text}' is not the number of an item from 1 to {most}.")
    return int(number)


def _rating(text: str, key: Mapping[str, Any], where: str) -> int | None:
    if not text or text in {"-", "–"}:
        return None
    number = _number(text)
    lowest, highest = key["lowest"], key["highest"]
    if number is None or number not in range(lowest, highest + 1):
        raise DataError(f"{where}: '{text}' is not a whole number from {lowest} to {highest}; leave it empty to skip.")
    return int(number)
