"""``catchline judge``: sheets for human evaluation, and what the filled ones say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import aligned, check_output, note, print_result, records_of
from catchline.cli.options import AsJson, Commands, ReadingOptions
from catchline.errors import ConfigError
from catchline.evaluation.table import mark_of
from catchline.files import write_text
from catchline_study import judge
from catchline_study.judge import KEY, LEVELS, SHEETS, SheetOptions, make_sheets, read_predictions

command = Commands("Make blinded sheets for human evaluation and analyse the filled ones.", no_args_is_help=True)


@command.command("make")
def make(
    predictions: Annotated[
        list[str], Argument(metavar="[NAME=]FILE...", help="Predictions, as `catchline evaluate --output` writes.")
    ],
    data: Annotated[Path, Option(help="The summarized records.")],
    out: Annotated[Path, Option(help="Write the sheets and the key to this folder.")],
    *,
    sheets: SheetOptions,
    reading: ReadingOptions,
    as_json: AsJson = False,
) -> None:
    """Draw documents, shuffle the systems under letters, and write one CSV file per annotator.

    Send out DIR/sheets; keep DIR/key.json.
    """
    records = records_of(str(data), reading.options())
    systems = {name: read_predictions(path, records) for name, path in _named(predictions).items()}
    key = make_sheets(systems, records, out, sheets)
    made = {"sheets": [f"{out}/{SHEETS}/{name}.csv" for name in key["order"]], "key": f"{out}/key.json"}
    told = (
        f"{len(key['order'])} sheets of {len(key['items'])} documents and {len(key['systems'])} systems: {out}/{SHEETS}"
        f"\nKeep {out}/key.json to yourself. When the sheets are filled: catchline judge analyse {quote(str(out))}"
    )
    print_result(as_json, made, told, indent=None)


@command.command("analyse")
def analyse(
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder that `catchline judge make` wrote.")],
    test: Annotated[str, Option(help="Choose the paired test: t, randomization or bootstrap.")] = "t",
    lines: Annotated[
        Path | None, Option(help="Write each rated line with its mean rating, for `catchline calibrate --ratings`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print means, the annotators' agreement (Krippendorff's alpha) and paired tests with Holm's correction."""
    check_output("--lines", lines, [folder / KEY, *(folder / SHEETS).glob("*")])
    found = judge.analyse(folder, test)
    if lines is not None:
        write_text(lines, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in judge.rated_lines(folder)))
    if found["absent"]:
        note(f"No ratings yet from: {', '.join(found['absent'])}.")
    print_result(as_json, found, _text(found))


def _named(given: list[str]) -> dict[str, Path]:
    """``NAME=FILE``, or the file's name without its endings."""
    named: dict[str, Path] = {}
    for text in given:
        name, equals, place = text.partition("=")
        if not equals or Path(text).exists():
            name, place = re.sub(r"(\.predictions)?\.jsonl?$", "", Path(text).name), text
        if not name:
            raise ConfigError(f"'{text}' gives the system no name; write NAME={place}.")
        if name in named:
            raise ConfigError(f"Two systems are called '{name}'; name them: first={named[name]} second={place}.")
        named[name] = Path(place)
    return named


def _text(found: dict[str, Any]) -> str:
    alpha = found["alpha"]
    told = {(m["system"], m["criterion"]): f"{m['mean']:.2f} ±{(m['high'] - m['low']) / 2:.2f}" for m in found["means"]}
    systems = dict.fromkeys(mean["system"] for mean in found["means"])
    levels = [
        [f"alpha, {level}", *("" if (a := alpha[c][level]) is None else f"{a:.3f}" for c in alpha)] for level in LEVELS
    ]
    parts = [
        aligned(["system", *alpha], [[system, *(told[system, name] for name in alpha)] for system in systems]),
        aligned(["agreement", *alpha], levels),
    ]
    pairs = [
        [
            f"{pair['first']} - {pair['second']}",
            pair["criterion"],
            f"{pair['difference']:+.2f}{mark_of(pair['p_holm']):<2}",
            "" if pair["statistic"] is None else f"{pair['statistic']:.2f}",
            *(f"{pair[name]:.4f}" for name in ("p", "p_holm")),
            str(pair["items"]),
        ]
        for pair in found["pairs"]
    ]
    if pairs:
        parts.append(aligned(["pair", "criterion", "difference", "t", "p", "p (Holm)", "n"], pairs, left=2))
    missing = f" {found['missing']} cells are empty." if found["missing"] else ""
    parts.append(
        f"{found['items']} documents, {len(found['annotators'])} annotators.{missing} ±: half of the 95% bootstrap "
        f"interval over documents.\n** p < 0.01, * p < 0.05 (paired test '{found['test']}' over documents, Holm's "
        "correction over the pairs of a criterion)."
    )
    return "\n\n".join(parts)
