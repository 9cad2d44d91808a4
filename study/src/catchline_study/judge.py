"""Human evaluation: blinded sheets, the key that says which system wrote what, and what filled sheets say.

As Li et al. (2021) did it: items sampled with a seed, the systems of an item in shuffled order under letters, one sheet
an annotator, ratings from 1 to 5 for readability and informativeness. The order is shuffled for each item and annotator
anew::

    DIR/sheets/annotator-1.csv, ..., README.txt      to give away
    DIR/key.json                                     to keep

Filled sheets give means, paired tests of systems, and the annotators' agreement, Krippendorff's alpha = 1 - D_o / D_e:
observed over expected disagreement (2011, "Computing Krippendorff's Alpha-Reliability"). Ratings may be missing.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from typer import Option

from catchline.errors import ConfigError, DataError
from catchline.evaluation.table import named_test
from catchline.files import replacing_folder, write_json, write_text
from catchline.metrics.significance import bootstrap_interval, holm
from catchline.types import Record, references_of

KEY, SHEETS = "key.json", "sheets"
REFERENCE = "reference"
MAX_CELL = 32_000  # characters; a spreadsheet cuts cells at 32,767
LEVELS = ("interval", "ordinal")
_SEPARATORS = (",", ";", "\t")
_NO_RATING = ("", "-", "–")
_FORMULA = ("=", "+", "-", "@", "\t")  # what a spreadsheet would compute


@dataclass(frozen=True)
class SheetOptions:
    """How sheets are made."""

    sample: Annotated[int, Option(min=1, help="Judge this many documents, or all if there are fewer.")] = 100
    seed: Annotated[int, Option(help="Set the seed of the sample and the order.")] = 1
    annotators: Annotated[int, Option(min=1, help="Write this many sheets.")] = 3
    criteria: Annotated[str, Option(help="Rate these criteria, separated by commas.")] = "readability,informativeness"
    scale: Annotated[str, Option(help="Set the lowest and highest rating.")] = "1-5"
    reference: Annotated[bool, Option("--reference", help="Also judge the human summary, blinded.")] = False

    @property
    def rated(self) -> list[str]:
        """The criteria."""
        return [name.strip() for name in self.criteria.split(",") if name.strip()]

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest rating. Raises ConfigError: ``scale`` does not have that form, or no steps."""
        found = re.fullmatch(r"\s*(-?\d{1,9})\s*-\s*(-?\d{1,9})\s*", self.scale)
        if found is None or int(found[1]) >= int(found[2]):
            raise ConfigError(f"--scale '{self.scale}' is not of the form LOWEST-HIGHEST, for example 1-5.")
        return int(found[1]), int(found[2])


def read_predictions(path: Path, records: Sequence[Record]) -> list[str]:
    """The summaries of a file of predictions in the order of ``records``: by id where both have ids, else by line.
    Raises DataError: not JSON lines with a ``summary``, or they do not fit the records."""
    lines = read_lines(path)
    ids, wanted = [str(line.get("id", "")) for line in lines], [record.id for record in records]
    if all(ids) and all(wanted) and len(set(wanted)) == len(wanted):
        by_id = dict(zip(ids, lines, strict=True))
        if missing := [record for record in wanted if record not in by_id]:
            raise DataError(f"{path} has no summary for record '{missing[0]}' ({len(missing)} of {len(wanted)} lack).")
        lines = [by_id[record] for record in wanted]
    elif len(lines) != len(records):
        raise DataError(f"{path} has {len(lines)} summaries for {len(records)} records, and ids do not match them.")
    for record, line in zip(records, lines, strict=True):  # without ids a record's id is its line
        if record.summary and not set(line.get("references") or references_of(record)) & {*references_of(record)}:
            raise DataError(f"{path} is of other records ('{record.id}'); name with --data what was summarized.")
    return [line["summary"] for line in lines]


def read_lines(path: Path, made_by: str = "`catchline evaluate --output`") -> list[dict[str, Any]]:
    """JSON lines with a ``summary`` each, as the command ``made_by`` writes them. Raises DataError: there is no such
    file, or a line is something else."""
    if not path.exists():
        raise DataError(f"There is no file {path}; {made_by} makes such.")
    lines = []
    for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if text.strip():
            try:
                lines.append(json.loads(text))
                assert isinstance(lines[-1]["summary"], str)
            except (ValueError, RecursionError, TypeError, KeyError, AssertionError):
                raise DataError(f"{path}:{number} is no JSON object with a text as its 'summary'.") from None
    return lines


def make_sheets(
    systems: Mapping[str, Sequence[str]], records: Sequence[Record], out: Path, options: SheetOptions
) -> dict[str, Any]:
    """Write the sheets and the key below ``out``; return the key. ``systems`` maps a name to its summaries, in the
    order of ``records``. Raises ConfigError: no or too many systems, options that do not fit, or ``out`` holds sheets
    already; DataError: there are no records."""
    everything = dict(systems)
    if options.reference and REFERENCE in systems:
        raise ConfigError(f"A system is called '{REFERENCE}' already; give it another name: name=FILE.")
    if options.reference:
        everything[REFERENCE] = [references_of(record)[0] for record in records]
    _check(everything, records, options, out)
    generator = random.Random(options.seed)
    chosen = sorted(generator.sample(range(len(records)), min(options.sample, len(records))))
    generator.shuffle(chosen)
    letters = string.ascii_uppercase[: len(everything)]
    order: dict[str, list[dict[str, str]]] = {}
    for number in range(1, options.annotators + 1):
        own = random.Random(f"{options.seed}/{number}")
        order[f"annotator-{number}"] = [
            dict(zip(letters, own.sample(list(everything), len(everything)), strict=True)) for _ in chosen
        ]
    lowest, highest = options.bounds
    key = asdict(options) | {"criteria": options.rated, "lowest": lowest, "highest": highest}
    key |= {
        "systems": list(everything),
        "items": [
            {"item": item, "id": records[i].id, "index": i, "lines": {name: t[i] for name, t in everything.items()}}
            for item, i in enumerate(chosen, 1)
        ],
        "order": order,
    }
    with replacing_folder(out / SHEETS) as draft:  # never sheets without their key
        for annotator, places in order.items():
            text = _sheet(key, records, places)
            write_text(draft / f"{annotator}.csv", "\ufeff" + text)  # the mark tells spreadsheets that it is UTF-8
        write_text(draft / "README.txt", _instructions(options))
        write_json(out / KEY, key, indent=1)
    return key


def _sheet(key: Mapping[str, Any], records: Sequence[Record], order: Sequence[Mapping[str, str]]) -> str:
    """One line a summary; the document stands beside the first summary of its item."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["item", "summary", "document", "text", *key["criteria"], "comment"])
    for entry, places in zip(key["items"], order, strict=True):
        document = records[entry["index"]].document
        for letter, system in places.items():
            blanks = [""] * (len(key["criteria"]) + 1)
            writer.writerow([entry["item"], letter, _cell(document), _cell(entry["lines"][system]), *blanks])
            document = ""
    return out.getvalue()


def _cell(text: str) -> str:
    """A text as a spreadsheet shows it unchanged: no formula, not longer than a cell."""
    shown = text if len(text) <= MAX_CELL else text[:MAX_CELL] + " [...]"
    return "'" + shown if shown.startswith(_FORMULA) else shown


def _instructions(options: SheetOptions) -> str:
    criteria, (lowest, highest) = "\n".join(f"  {name}" for name in options.rated), options.bounds
    return (
        "Read each document, which stands beside the first of its summaries A, B, ..., then rate every summary\n"
        f"with a whole number from {lowest} (worst) to {highest} (best) in the columns\n\n"
        f"{criteria}\n\n"
        "Leave a cell empty if you cannot judge. Do not change the other columns. Save as CSV, under the same name.\n"
    )


def _check(systems: Mapping[str, Sequence[str]], records: Sequence[Record], options: SheetOptions, out: Path) -> None:
    if not 1 <= len(systems) <= len(string.ascii_uppercase):
        raise ConfigError(f"Sheets take 1 to {len(string.ascii_uppercase)} systems, not {len(systems)}.")
    criteria = [name.lower() for name in options.rated]  # as the columns of filled sheets are compared
    if not criteria or len(set(criteria)) < len(criteria):
        raise ConfigError("Name at least one criterion, each once, for example --criteria readability,informativeness.")
    if taken := {"item", "summary", "document", "text", "comment"}.intersection(criteria):
        raise ConfigError(f"'{min(taken)}' is a column of the sheets already; call the criterion something else.")
    if not records:
        raise DataError("There is nothing to judge: the data has no records.")
    if (out / KEY).exists() or (out / SHEETS).exists():
        raise ConfigError(f"{out} holds sheets already; choose another --out, so that no ratings are lost.")


# ------------------------------------------------------------------------------------- what filled sheets say


SheetRatings = dict[tuple[int, str, str], int]  # an annotator's, by item, system and criterion


def analyse(folder: Path, test: str = "t") -> dict[str, Any]:
    """What the filled sheets below ``folder`` say, JSON-ready.

    ``means``: of each system and criterion the mean over items (of the mean over annotators), its 95% interval and the
    number of items. ``alpha`` by criterion and level, None where it is not defined. ``pairs``: the first minus the
    second on the items where both were rated; ``p_holm`` corrects over a criterion's pairs. ``missing`` counts cells
    left empty, ``absent`` names annotators without ratings. Raises DataError: no key or no filled sheet, or a cell that
    is no rating (file, row and column are named); ConfigError: no such test.
    """
    named_test(test)
    key = _read_key(folder)
    ratings = _filled(folder, key)
    units = [(entry["item"], system) for entry in key["items"] for system in key["systems"]]
    means, pairs, alpha = list[dict[str, Any]](), list[dict[str, Any]](), dict[str, dict[str, float | None]]()
    for criterion in key["criteria"]:
        table = [[own.get((*unit, criterion)) for unit in units] for own in ratings.values()]
        alpha[criterion] = {level: krippendorff_alpha(table, level) for level in LEVELS}
        given = {unit: [one for one in of if one is not None] for unit, *of in zip(units, *table, strict=True)}
        scores = {unit: fmean(values) for unit, values in given.items() if values}
        for system in key["systems"]:
            mine = [score for (_, name), score in scores.items() if name == system]
            if not mine:
                raise DataError(f"Nobody rated the {criterion} of '{system}'.")
            low, high = map(float, bootstrap_interval(mine))
            about = {"system": system, "criterion": criterion, "items": len(mine)}
            means.append(about | {"mean": fmean(mine), "low": low, "high": high})
        pairs += _pairs(key["systems"], criterion, scores, test)
    missing = len(ratings) * len(units) * len(key["criteria"]) - sum(map(len, ratings.values()))
    found = {"annotators": [*ratings], "items": len(key["items"]), "test": test, "means": means, "alpha": alpha}
    absent = [annotator for annotator in key["order"] if annotator not in ratings]
    return found | {"pairs": pairs, "missing": missing, "absent": absent}


def rated_lines(folder: Path) -> list[dict[str, Any]]:
    """Each line that was rated: ``id`` of its record, ``system``, ``summary`` and ``rating``, the mean over annotators
    and criteria: what `catchline calibrate` takes as ratings. Raises DataError: as `analyse`; or the records have no
    ids."""
    key = _read_key(folder)
    filled = _filled(folder, key).values()
    found = []
    for entry in key["items"]:
        if not entry["id"]:
            raise DataError(f"The sheets of {folder} do not say which lines they are about: the records had no ids.")
        for system, line in entry["lines"].items():
            places = [(entry["item"], system, criterion) for criterion in key["criteria"]]
            if given := [own[place] for own in filled for place in places if place in own]:
                found.append({"id": entry["id"], "system": system, "summary": line, "rating": fmean(given)})
    return found


def _filled(folder: Path, key: Mapping[str, Any]) -> dict[str, SheetRatings]:
    """The annotators' ratings, of those who gave any."""
    ratings: dict[str, SheetRatings] = {}
    for annotator, order in key["order"].items():
        path = folder / SHEETS / f"{annotator}.csv"
        if path.is_file() and (found := _read_sheet(path, key, order)):
            ratings[annotator] = found
    if not ratings:
        raise DataError(f"No sheet in {folder / SHEETS} has a rating yet.")
    return ratings


def _pairs(
    systems: Sequence[str], criterion: str, scores: Mapping[tuple[int, str], float], test: str
) -> list[dict[str, Any]]:
    results = {}
    for first, second in combinations(systems, 2):
        items = [item for item, name in scores if name == first and (item, second) in scores]
        if len(items) > 1:
            mine, theirs = ([scores[item, name] for item in items] for name in (first, second))
            results[first, second] = named_test(test)(mine, theirs)
    corrected = holm({names: result.p for names, result in results.items()})
    found = []
    for (first, second), r in results.items():
        about: dict[str, Any] = {"criterion": criterion, "first": first, "second": second, "items": r.n}
        about |= {"difference": r.difference, "p": r.p, "p_holm": corrected[first, second]}
        finite = r.statistic is not None and math.isfinite(r.statistic)  # JSON has no others
        found.append(about | {"statistic": r.statistic if finite else None})
    return found


# ------------------------------------------------------------------------------------------ reading


def _read_key(folder: Path) -> dict[str, Any]:
    path = folder / KEY
    try:
        key = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder} has no {KEY}; give the folder that `catchline judge make` wrote.") from None
    except ValueError:
        key = None
    if not isinstance(key, dict) or not {"criteria", "systems", "items", "order", "lowest", "highest"} <= set(key):
        raise DataError(f"{path} is not a key of sheets; restore the file that `catchline judge make` wrote.")
    return key


def _read_sheet(path: Path, key: Mapping[str, Any], order: Sequence[Mapping[str, str]]) -> SheetRatings:
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
    found: SheetRatings = {}
    seen = set()
    for number, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        where = f"{path}, row {number}, column"
        cells = {name: row[place].strip() if place < len(row) else "" for name, place in columns.items()}
        item = _whole(cells["item"], 1, len(order), f"{where} 'item'", "the number of an item")
        letter = cells["summary"].upper()
        if letter not in order[item - 1]:
            raise DataError(f"{where} 'summary': '{cells['summary']}' is none of {', '.join(order[item - 1])}.")
        if (item, letter) in seen:
            raise DataError(f"{where} 'summary': item {item} {letter} is there twice.")
        seen.add((item, letter))
        for name in key["criteria"]:
            if cells[name] not in _NO_RATING:
                bounds, advice = (key["lowest"], key["highest"]), "; leave it empty to skip"
                rating = _whole(cells[name], *bounds, f"{where} '{name}'", "a whole number", advice)
                found[item, order[item - 1][letter], name] = rating
    return found


def _rows(path: Path) -> list[list[str]]:
    """UTF-8, else the code page of western Windows; the separator is the one that the first row has most of."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
    separator = max(_SEPARATORS, key=text.partition("\n")[0].count)
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise DataError(f"{path} cannot be read ({error}); save the sheet as CSV again.") from None


_NUMBER = re.compile(r"[+-]?\d{1,9}(?:[.,]0*)?")


def _whole(text: str, lowest: int, highest: int, where: str, what: str, advice: str = "") -> int:
    """The number that a cell holds, ``4,0`` for 4."""
    if _NUMBER.fullmatch(text) and (number := float(text.replace(",", "."))) in range(lowest, highest + 1):
        return int(number)
    raise DataError(f"{where}: '{text}' is not {what} from {lowest} to {highest}{advice}.")


# ---------------------------------------------------------------------------------------------- agreement


def krippendorff_alpha(ratings: Sequence[Sequence[float | None]], level: str = "interval") -> float | None:
    """Alpha of ``ratings[annotator][unit]``, where None is missing, at one of `LEVELS`. None where it is not defined:
    no unit with two ratings, or all ratings that can be paired are equal."""
    units = [[value for value in unit if value is not None] for unit in zip(*ratings, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    values = sorted({value for unit in units for value in unit})
    if len(values) < 2:
        return None
    place = {value: index for index, value in enumerate(values)}
    coincidences = np.zeros((len(values), len(values)))  # how often two meet in a unit, each of m by 1 / (m - 1)
    for unit in units:
        counts = np.bincount([place[value] for value in unit], minlength=len(values)).astype(float)
        coincidences += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    totals = coincidences.sum(axis=1)
    # Ordinal: the number of ratings from one value to the other, of the end values the half: differences of mid-ranks.
    scales = {"interval": np.array(values), "ordinal": np.cumsum(totals) - totals / 2.0}
    distance = np.square(scales[level][:, None] - scales[level][None, :])
    observed = float((coincidences * distance).sum())
    expected = float((np.outer(totals, totals) * distance).sum()) / (float(totals.sum()) - 1.0)
    return 1.0 - observed / expected
