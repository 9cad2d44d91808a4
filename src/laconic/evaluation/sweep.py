"""The same extractive method at several sizes: which k of lead-k, which N of the first N words, is best."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from laconic.config.names import EXTRACTIVE, resolve
from laconic.errors import ConfigError
from laconic.evaluation.run import EvaluationResult

_SPEC = re.compile(r"(?P<method>[a-z_]+):(?P<first>\d+)-(?P<last>\d+)(?::(?P<step>\d+))?\Z")
_SIZES = ("characters", "words", "sentences")  # what a method counts: the first of these settings that it has


def sweep_names(spec: str) -> list[str]:
    """``lead:1-5`` -> ``lead-1`` to ``lead-5``; ``first_words:10-50:10`` -> ``first_words:words=10``, ``...=20``, ...

    Raises:
        ConfigError: not of this form, an unknown method, or no size in the range.
    """
    parts = _SPEC.fullmatch(spec)
    if parts is None:
        raise ConfigError(
            f"--sweep '{spec}' is not of the form METHOD:FROM-TO, for example lead:1-5 (step: :10 behind)."
        )
    fields = resolve("extractive method", EXTRACTIVE, parts["method"]).Config.model_fields
    setting = next(name for name in _SIZES if name in fields)
    first, last, step = int(parts["first"]), int(parts["last"]), int(parts["step"] or 1)
    sizes = range(first, last + 1, step) if step else range(0)
    if first < 1 or not sizes:
        raise ConfigError(f"--sweep '{spec}' holds no size; write the smaller number, at least 1, first.")
    dash = setting == "sentences"
    return [f"{parts['method']}-{size}" if dash else f"{parts['method']}:{setting}={size}" for size in sizes]


def best_of(results: Sequence[EvaluationResult]) -> dict[str, str]:
    """By kind of ROUGE, and for their mean, the system with the highest figure; of equals the first."""
    best = {kind: max(results, key=lambda result: result.value(kind)) for kind in results[0].rouge}
    best["mean"] = max(results, key=lambda result: sum(map(result.value, result.rouge)))
    return {kind: result.system for kind, result in best.items()}


def best_lines(best: Mapping[str, Mapping[str, str]], results: Mapping[str, EvaluationResult]) -> list[str]:
    """One line a sweep: the best size by each kind."""
    lines = []
    for spec, winners in best.items():
        shown: dict[str, list[str]] = {}
        for kind, system in winners.items():
            value = "" if kind == "mean" else f" {100 * results[system].value(kind):.2f}"
            shown.setdefault(system, []).append(f"{kind if kind == 'mean' else f'ROUGE-{kind}'}{value}")
        lines.append(f"{spec}: best " + "; ".join(f"{system} ({', '.join(by)})" for system, by in shown.items()))
    return lines


def sweep_dicts(best: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """JSON-ready."""
    return [{"sweep": spec, "best": dict(winners)} for spec, winners in best.items()]
