"""Differences to a baseline with their significance: paired over documents, Holm's correction over the systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from laconic.errors import ConfigError, unknown_choice
from laconic.metrics.significance import (
    TestResult,
    approximate_randomization,
    holm,
    paired_bootstrap,
    paired_t_test,
)

Scores = Mapping[str, Sequence[float]]  # kind -> one score a document

TESTS: Mapping[str, Callable[[Sequence[float], Sequence[float]], TestResult]] = {
    "randomization": approximate_randomization,
    "bootstrap": paired_bootstrap,
    "t": paired_t_test,
}
DESCRIPTIONS = {
    "randomization": "paired approximate randomization over documents",
    "bootstrap": "paired bootstrap over documents",
    "t": "paired t-test over documents",
}
LEVELS = ((0.01, "**"), (0.05, "*"))


@dataclass(frozen=True, slots=True)
class Difference:
    """A system's mean minus the baseline's, its p-value, and that after Holm's correction over the systems."""

    difference: float
    p: float
    p_holm: float

    @property
    def mark(self) -> str:
        """``**`` below 0.01, ``*`` below 0.05 after correction, else nothing."""
        return mark_of(self.p_holm)


def mark_of(p: float) -> str:
    """``**`` below 0.01, ``*`` below 0.05, else nothing."""
    return next((mark for level, mark in LEVELS if p < level), "")


def differences(
    baseline: Scores, systems: Mapping[str, Scores], test: str = "randomization"
) -> dict[str, dict[str, Difference]]:
    """By system and kind, the difference to ``baseline``. Each kind is a family of its own for the correction.

    Raises:
        ConfigError: no such test.
        DataError: the systems were not scored on the same documents.
    """
    run = named_test(test)
    found: dict[str, dict[str, Difference]] = {name: {} for name in systems}
    for kind in baseline:
        results = {name: run(scores[kind], baseline[kind]) for name, scores in systems.items() if kind in scores}
        corrected = holm({name: result.p for name, result in results.items()})
        for name, result in results.items():
            found[name][kind] = Difference(result.difference, result.p, corrected[name])
    return found


def named_test(name: str) -> Callable[[Sequence[float], Sequence[float]], TestResult]:
    """The test called ``name``.

    Raises:
        ConfigError: there is none.
    """
    if name not in TESTS:
        raise ConfigError(unknown_choice("significance test", name, TESTS))
    return TESTS[name]
