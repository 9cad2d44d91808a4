"""``catchline calibrate``: find out how confident a model may be, so that it says so and declines where it had
better."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import print_result, progress, records_of
from catchline.cli.options import AsJson, MaxRecords, MostAtOnce, ReadingOptions, Split, TrustCode
from catchline.config.names import SHIPPED
from catchline.data.records import split_of
from catchline.errors import ConfigError, ModelError
from catchline.evaluation.run import model_folder
from catchline.models.card import card_follows
from catchline.summarizer.extractive import is_method


def command(
    model: Annotated[str, Argument(metavar="MODEL", help="Model or run folder.")],
    data: Annotated[str, Option(help="Pairs outside the training data: a file, or a folder with splits.")],
    ratings: Annotated[
        Path, Option(help="Ratings of its lines: JSON lines with id, summary and rating (`catchline judge`).")
    ],
    split: Split = "validation",
    accept: Annotated[float | None, Option(help="Accept ratings from this one on (default: the highest).")] = None,
    threshold: Annotated[float, Option(min=0.0, max=1.0, help="Decline below this confidence.")] = 0.5,
    *,
    reading: ReadingOptions,
    max_records: MaxRecords = None,
    batch_size: MostAtOnce = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model's confidence to readers' ratings of its lines and store it in its folder.

    Its summaries then carry a confidence. Where that is below the threshold, or the text is out of the model's domain,
    the answer is the first prose sentence of the text (--always-write gives the model's line anyway).
    """
    from catchline.summarizer import Summarizer
    from catchline_study import calibration as study

    folder = _folder(model)
    rated = study.Ratings.read(ratings, accept)
    records = records_of(split_of(data, split), reading.options(), max_records)
    how: dict[str, Any] = {"threshold": threshold, "batch_size": batch_size}
    with progress("Summarizing", total=len(records)) as bar:
        model_ = Summarizer.from_pretrained(str(folder))
        calibration, found = study.calibrate(model_, records, rated, progress=bar.advance, **how)
    with card_follows(folder):
        calibration.save(folder)
    told = [*study.describe(calibration, found), f"Stored in {folder}."]
    bins = [{"confidence": said, "accepted": came, "records": count} for said, came, count in found.bins]
    figures = {"calibration_error": found.error, "brier": found.brier, "auc": found.auc, "accepted": found.base_rate}
    print_result(
        as_json, figures | {"bins": bins, "threshold": calibration.threshold, "records": len(records)}, "\n".join(told)
    )


def _folder(model: str) -> Path:
    """The folder of a model that can be calibrated."""
    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: it copies sentences and has no confidence to calibrate.")
    if model in SHIPPED:
        raise ConfigError(
            f"{model} is part of the package and stays as it is: `catchline export {model} --out DIR` makes a copy, "
            "`catchline calibrate DIR` calibrates that."
        )
    folder = model_folder(model)
    if not (folder / "config.json").is_file():
        raise ModelError(f"There is no model folder {model}; give one made by `catchline train`.")
    return folder
