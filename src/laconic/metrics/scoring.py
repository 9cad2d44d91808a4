"""How a data set's papers score: profile of ROUGE, limits, references, and which figure of it is quoted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from laconic.errors import ConfigError, unknown_choice
from laconic.metrics.rouge_text import TEXTS

Shown = Literal["f", "recall"]


@dataclass(frozen=True, slots=True)
class Scoring:
    """``rouge`` are options of `laconic.rouge`; ``shown`` is the figure that tables print (``f`` or ``recall``);
    ``flags`` says in words, or in flags of ROUGE-1.5.5, what was counted."""

    rouge: Mapping[str, Any] = field(default_factory=dict)
    shown: Shown = "f"
    flags: str = ""


# Specification contrastive f (the flags of the data's authors), distraction e (the scorer of the release).
PROFILES: dict[str, Scoring] = {
    "gigaword": Scoring(
        {"profile": "rouge155", "stem": True, "multi": "average"},
        flags="ROUGE-1.5.5 -m -n 2 -w 1.2 -a -f A, full-length",
    ),
    "duc2004": Scoring(
        {"profile": "rouge155", "stem": True, "multi": "average", "max_bytes": 75},
        shown="recall",
        flags="ROUGE-1.5.5 -m -b 75 -n 2 -w 1.2 -a -f A, recall at 75 bytes over all references",
    ),
    "lcsts": Scoring(
        {"profile": "characters", "multi": "average"},
        flags="ROUGE-1.5.5 -n 2 -w 1.2 -a -f A on numbered characters, every character one",
    ),
    "cnn-plain": Scoring(
        {"profile": "plain"}, flags="blank-separated words with their case and signs, LCS of whole summaries"
    ),
}


def scoring(profile: str | None = None, rouge: Mapping[str, Any] | None = None) -> Scoring:
    """The way of scoring called ``profile``: a data set's, or a profile of ROUGE; ``rouge`` changes single options.

    Raises:
        ConfigError: there is no such profile.
    """
    changes = dict(rouge or {})
    if profile is None:
        return Scoring(changes)
    if profile in TEXTS:
        return Scoring({"profile": profile, **changes})
    if profile not in PROFILES:
        raise ConfigError(unknown_choice("ROUGE profile", profile, [*PROFILES, *TEXTS]))
    found = PROFILES[profile]
    options = {**found.rouge, **changes}
    changed = [f"{name}={value}" for name, value in changes.items() if found.rouge.get(name) != value]
    return Scoring(options, found.shown, f"{found.flags}; changed: {', '.join(changed)}" if changed else found.flags)
