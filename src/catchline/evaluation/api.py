"""`catchline.evaluate`: what systems write for a data set, scored, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from catchline.config.base import validate
from catchline.config.names import trusting
from catchline.config.schema import EvaluationConfig
from catchline.data.places import split_of
from catchline.data.readers import Pairs, read_records
from catchline.errors import ConfigError
from catchline.evaluation.run import EvaluationResult, options_of
from catchline.evaluation.run import evaluate as evaluate_one
from catchline.evaluation.systems import Contender
from catchline.summarizer.extractive import is_method


def evaluate(
    systems: str | Path | Sequence[str | Path],
    data: Pairs,
    *,
    split: str = "test",
    max_records: int | None = None,
    profile: str | None = None,
    decoding: Mapping[str, Any] | None = None,
    device: str = "cpu",
    trust_code: bool = False,
) -> dict[str, EvaluationResult]:
    """Score systems on a data set, as ``catchline evaluate`` does.

    ::

        scores = catchline.evaluate(["lead-1", "runs/mine"], "my_pairs/")
        print(scores["runs/mine"].rouge["L"].f)

    Args:
        systems: run or model folders, hub ids, extractive methods; one or several.
        data: a folder with splits, or pairs in a file or in memory (`catchline.read_records`).
        split: which split of a folder.
        max_records: only so many, the first.
        profile: how ROUGE is computed (`catchline evaluate --help` lists the profiles); none: by the default one, or by
            ``unicode`` where most references are of another script than Latin.
        decoding: settings of the models' search, such as ``{"beam_size": 8}``.
        device: where models run.
        trust_code: run Python classes that the folders name, which can do anything.

    Returns:
        The result of each system by its name, in the order given.

    Raises:
        DataError: the data cannot be read, is empty, or has records without a summary.
        ModelError: there is no such model or method, or one names code that is not trusted.
        ConfigError: ``max_records`` or ``profile`` does not fit.
    """
    config = validate(EvaluationConfig, {"profile": profile, "max_records": max_records}, where="")
    names = [systems] if isinstance(systems, str) or not isinstance(systems, Iterable) else list(systems)
    for other in (one for one in names if not isinstance(one, str | Path)):
        raise ConfigError(f"A system is a folder, a hub id or an extractive method by name, no {type(other).__name__}.")
    source = split_of(data, split) if isinstance(data, str | Path) else data
    records = list(islice(read_records(source), config.max_records))
    options = options_of(config)
    with trusting(trust_code):
        return {
            name: evaluate_one(
                Contender(name, settings={} if is_method(name) else decoding, device=device), records, options=options
            )
            for name in map(str, names)
        }
