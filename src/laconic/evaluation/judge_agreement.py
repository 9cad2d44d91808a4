"""Krippendorff's alpha: do annotators agree more than chance would have it?

alpha = 1 - D_o / D_e, the observed over the expected disagreement (Krippendorff 2011, "Computing Krippendorff's
Alpha-Reliability"). Units that fewer than two annotators rated do not count; missing ratings are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from laconic.errors import ConfigError, unknown_choice

Level = Literal["interval", "ordinal", "nominal"]


def krippendorff_alpha(ratings: Sequence[Sequence[float | None]], level: str = "interval") -> float | None:
    """Alpha of ``ratings[annotator][unit]``, where None is missing.

    None where it is not defined: no unit with two ratings, or all ratings that can be paired are equal.

    Raises:
        ConfigError: no such level of measurement.
    """
    units = [[value for value in unit if value is not None] for unit in zip(*ratings, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    values = sorted({value for unit in units for value in unit})
    if len(values) < 2:
        return None
    coincidences = _coincidences(units, values)
    totals = coincidences.sum(axis=1)
    distance = _distances(level, np.array(values), totals)
    observed = float((coincidences * distance).sum())
    expected = float((np.outer(totals, totals) * distance).sum()) / (float(totals.sum()) - 1.0)
    return 1.0 - observed / expected


def _coincidences(units: Sequence[Sequence[float]], values: Sequence[float]) -> np.ndarray:
    """(values, values): how often two values meet in a unit, each unit of m ratings weighted by 1 / (m - 1)."""
    place = {value: index for index, value in enumerate(values)}
    table = np.zeros((len(values), len(values)))
    for unit in units:
        counts = np.bincount([place[value] for value in unit], minlength=len(values)).astype(float)
        table += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    return table


def _distances(level: str, values: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """(values, values): the squared difference of two values at a level of measurement."""
    if level == "nominal":
        return 1.0 - np.eye(len(values))
    if level == "interval":
        return np.square(values[:, None] - values[None, :])
    if level != "ordinal":
        raise ConfigError(unknown_choice("level of measurement", level, ["interval", "nominal", "ordinal"]))
    # The number of ratings from one value to the other, of the two end values the half: differences of mid-ranks.
    ranks = np.cumsum(totals) - totals / 2.0
    return np.square(ranks[:, None] - ranks[None, :])
