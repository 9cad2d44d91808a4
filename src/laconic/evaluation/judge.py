"""Blinded sheets for human evaluation: what annotators see, and the key that says which system wrote what.

The specification is section f of the CoCoNet paper's: items sampled with a seed, the systems of an item in shuffled
order under letters, one sheet an annotator, ratings from 1 to 5 for readability and informativeness. The order is
shuffled for each item and annotator anew. The key is kept out of the folder that annotators get::

    DIR/sheets/annotator-1.csv, ..., README.txt      to give away
    DIR/key.json                                     to keep
"""

from __future__ import annotations

import csv
import io
import json
import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, DataError
from laconic.files import write_json, write_text
from laconic.types import Record, references_of

KEY, SHEETS = "key.json", "sheets"
REFERENCE = "reference"
MAX_CELL = 32_000  # characters; a spreadsheet cuts cells at 32,767
_FORMULA = ("=", "+", "-", "@", "\t")  # what a spreadsheet would compute


@dataclass(frozen=True, slots=True)
class SheetOptions:
    """``sample`` items (all if there are fewer) and ``annotators`` sheets, drawn with ``seed``.

    Ratings are whole numbers from ``lowest`` to ``highest`` for each of ``criteria``. With ``reference`` the first
    human summary takes part as one more system.
    """

    sample: int = 100
    seed: int = 1
    annotators: int = 3
    criteria: tuple[str, ...] = ("readability", "informativeness")
    lowest: int = 1
    highest: int = 5
    reference: bool = False


def read_predictions(path: Path, records: Sequence[Record]) -> list[str]:
    """The summaries of a file of predictions in the order of ``records``: by id where both have ids, else by line.

    Raises:
        DataError: not JSON lines with a ``summary``, or they do not fit the records.
    """
    lines = _read_lines(path)
    ids = [str(line.get("id", "")) for line in lines]
    wanted = [record.id for record in records]
    if all(ids) and all(wanted) and len(set(wanted)) == len(wanted):
        by_id = dict(zip(ids, lines, strict=True))
        missing = [record for record in wanted if record not in by_id]
        if missing:
            raise DataError(f"{path} has no summary for record '{missing[0]}' ({len(missing)} of {len(wanted)} lack).")
        return [str(by_id[record]["summary"]) for record in wanted]
    if len(lines) != len(records):
        raise DataError(f"{path} has {len(lines)} summaries for {len(records)} records, and ids do not match them.")
    return [str(line["summary"]) for line in lines]


def make_sheets(
    systems: Mapping[str, Sequence[str]], records: Sequence[Record], out: Path, options: SheetOptions | None = None
) -> dict[str, Any]:
    """Write the sheets and the key below ``out``; return the key.

    ``systems`` maps a name to its summaries, in the order of ``records``.

    Raises:
        ConfigError: no or too many systems, options that do not fit, or ``out`` holds sheets already.
        DataError: not one summary a record.
    """
    options = options or SheetOptions()
    everything = dict(systems)
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
    key = {
        "version": 1,
        "seed": options.seed,
        "criteria": list(options.criteria),
        "lowest": options.lowest,
        "highest": options.highest,
        "systems": list(everything),
        "items": [{"item": item, "id": records[index].id, "index": index} for item, index in enumerate(chosen, 1)],
        "order": order,
    }
    (out / SHEETS).mkdir(parents=True, exist_ok=True)
    for annotator, places in order.items():
        text = _sheet(everything, [(index, records[index]) for index in chosen], places, options)
        write_text(out / SHEETS / f"{annotator}.csv", "\ufeff" + text)  # the mark tells spreadsheets that it is UTF-8
    write_text(out / SHEETS / "README.txt", _instructions(options))
    write_json(out / KEY, key, indent=1)
    return key


def _sheet(
    systems: Mapping[str, Sequence[str]],
    items: Sequence[tuple[int, Record]],
    order: Sequence[Mapping[str, str]],
    options: SheetOptions,
) -> str:
    """One line a summary; the document stands beside the first summary of its item."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["item", "summary", "document", "text", *options.criteria, "comment"])
    for item, ((index, record), places) in enumerate(zip(items, order, strict=True), 1):
        for number, (letter, system) in enumerate(places.items()):
            document = _cell(record.document) if not number else ""
            blanks = [""] * len(options.criteria)
            writer.writerow([item, letter, document, _cell(systems[system][index]), *blanks, ""])
    return out.getvalue()


def _cell(text: str) -> str:
    """A text as a spreadsheet shows it unchanged: no formula, not longer than a cell."""
    shown = text if len(text) <= MAX_CELL else text[:MAX_CELL] + " [...]"
    return "'" + shown if shown.startswith(_FORMULA) else shown


def _instructions(options: SheetOptions) -> str:
    criteria = "\n".join(f"  {name}" for name in options.criteria)
    return (
        "Each item is a document with several summaries, lettered A, B, ... in an order of its own.\n"
        "Read the document, which stands beside the first summary of its item, then rate every summary\n"
        f"with a whole number from {options.lowest} (worst) to {options.highest} (best) in the columns\n\n"
        f"{criteria}\n\n"
        "Leave a cell empty if you cannot judge. Do not change the columns item and summary. The comment\n"
        "column is yours. Save as CSV, under the same name.\n"
    )


def _check(systems: Mapping[str, Sequence[str]], records: Sequence[Record], options: SheetOptions, out: Path) -> None:
    if not 1 <= len(systems) <= len(string.ascii_uppercase):
        raise ConfigError(f"Sheets take 1 to {len(string.ascii_uppercase)} systems, not {len(systems)}.")
    if not options.criteria or len(set(options.criteria)) < len(options.criteria):
        raise ConfigError("Name at least one criterion, each once, for example --criteria readability,informativeness.")
    if taken := {"item", "summary", "document", "text", "comment"} & set(options.criteria):
        raise ConfigError(f"'{min(taken)}' is a column of the sheets already; call the criterion something else.")
    if options.lowest >= options.highest:
        raise ConfigError(f"The scale from {options.lowest} to {options.highest} has no steps.")
    for name, summaries in systems.items():
        if len(summaries) != len(records):
            raise DataError(f"'{name}' has {len(summaries)} summaries for {len(records)} records.")
    if not records:
        raise DataError("There is nothing to judge: the data has no records.")
    if (out / KEY).exists() or (out / SHEETS).exists():
        raise ConfigError(f"{out} holds sheets already; choose another --out, so that no ratings are lost.")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    lines = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, 1):
                if not text.strip():
                    continue
                line = json.loads(text)
                if not isinstance(line, dict) or "summary" not in line:
                    raise DataError(f"{path}:{number} is no prediction: it has no 'summary'.")
                lines.append(line)
    except FileNotFoundError:
        raise DataError(
            f"There is no file {path}; `laconic evaluate --output` and `laconic compare` make such."
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text.") from None
    except json.JSONDecodeError:
        raise DataError(f"{path}:{number} is not JSON; predictions are JSON lines with a 'summary'.") from None
    return lines
