"""What a ROUGE score depends on: kinds, profile, flags; and the one line that says so."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from laconic.errors import ConfigError, did_you_mean, unknown_choice
from laconic.metrics.rouge_text import TEXTS

MULTI = ("average", "best", "max", "jackknife", "jackknife-average")
BETTER = ("well", "good")
REVISION = 1  # part of the signature: raised when a number could change

# Where a profile's defaults differ from RougeOptions' own.
_PROFILE_DEFAULTS: dict[str, dict[str, Any]] = {
    "characters": {"stem": False, "exceptions": False},
    "google": {"exceptions": False, "multi": "max"},
    "plain": {"stem": False, "exceptions": False, "multi": "max"},
    "rouge155": {},
    "unicode": {"stem": False, "exceptions": False},
}
_BOUNDS = {
    "max_bytes": (1, 10**9),
    "max_words": (1, 10**9),
    "samples": (2, 10**6),
    "processes": (1, 256),
    "skip_distance": (-(10**9), 10**9),
}
_KIND = re.compile(r"(?:rouge)?[-_]?(?:(?P<n>[1-9])|(?P<name>Lsum|L|W|SU|S)(?P<number>\*|\d+(?:\.\d+)?)?)$", re.I)
_NAMES = {"lsum": "Lsum", "l": "L", "w": "W", "su": "SU", "s": "S"}


@dataclass(frozen=True, slots=True)
class RougeOptions:
    """The flags. Each default is what ROUGE-1.5.5 does when run with ``-m``; profiles change some (below).

    Attributes:
        stem: Porter stemming of words longer than three characters (``-m``). Off in ``characters``,
            ``plain`` and ``unicode``.
        exceptions: look words up in WordNet's exception lists before stemming, as the tool with its data does.
            Installations whose ``WordNet-2.0.exc.db`` was rebuilt with the usual three-argument recipe hold an
            empty table; ``exceptions=False`` gives their numbers. Off in every profile but ``rouge155``.
        better: what "better" and "best" are in these lists, where an adverb and an adjective have them: ``well``, as in
            the tool's database, which takes the adverbs last, or ``good``, as in one that takes the adjectives last.
        remove_stop_words: drop SMART stop words (``-s``).
        max_bytes, max_words: cut hypothesis and references alike (``-b``, ``-l``).
        multi: several references: ``average`` sums matches and lengths over them (``-f A``), ``best`` takes the
            one with the best recall (``-f B``), ``max`` the one with the best F (rouge-score), ``jackknife`` the
            mean over leave-one-out sets of ``best`` (Lin 2004), ``jackknife-average`` the same of ``average``.
        alpha: weight of precision in F (``-p``).
        weight: the exponent of ROUGE-W (``-w``).
        skip_distance: words that may stand between those of a skip-bigram (``-2``); negative: any number.
        interval: also compute the tool's bootstrap interval. ``confidence`` in percent, ``samples`` resamplings.
        processes: worker processes; 1 computes in this one.
    """

    stem: bool = True
    exceptions: bool = True
    better: str = "well"
    remove_stop_words: bool = False
    max_bytes: int | None = None
    max_words: int | None = None
    multi: str = "average"
    alpha: float = 0.5
    weight: float = 1.2
    skip_distance: int = 4
    interval: bool = False
    confidence: float = 95.0
    samples: int = 1000
    processes: int = 1

    def __post_init__(self) -> None:
        if self.multi not in MULTI:
            raise ConfigError(unknown_choice("way to combine references (multi)", self.multi, MULTI))
        if self.better not in BETTER:
            raise ConfigError(unknown_choice("base of 'better' (better)", self.better, BETTER))
        if self.max_bytes is not None and self.max_words is not None:
            raise ConfigError("ROUGE takes a limit in bytes or in words, not both; drop max_bytes or max_words.")
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"ROUGE option '{name}' is {value}; it must be from {least} to {most:,}.")
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"ROUGE option 'alpha' is {self.alpha}; it must lie between 0 and 1.")
        if not 0 < self.weight <= 100:
            raise ConfigError(f"ROUGE option 'weight' is {self.weight}; it must be more than 0 and at most 100.")
        if not 0 < self.confidence < 100:
            raise ConfigError(f"ROUGE option 'confidence' is {self.confidence}; it is a percentage, for example 95.")


_CHECKS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in get_type_hints(RougeOptions).items()}


def make_options(profile: str, given: dict[str, Any]) -> RougeOptions:
    """The profile's defaults, changed by what the caller gave (None means: not given).

    Raises:
        ConfigError: unknown profile, unknown option or a value that does not fit.
    """
    if profile not in TEXTS:
        raise ConfigError(unknown_choice("ROUGE profile", profile, TEXTS))
    known = {field.name for field in fields(RougeOptions)}
    for name in given:
        if name not in known:
            raise ConfigError(
                f"Unknown ROUGE option '{name}'.{did_you_mean(name, known)} Known: {', '.join(sorted(known))}."
            )
    chosen = _PROFILE_DEFAULTS[profile] | {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        try:
            _CHECKS[name].validate_python(value, strict=True)
        except ValidationError as error:
            said = error.errors()[0]["msg"]
            raise ConfigError(f"ROUGE option '{name}': {said[:1].lower()}{said[1:]} (given: {value!r:.100}).") from None
    return replace(RougeOptions(), **chosen)


@dataclass(frozen=True, slots=True)
class Kind:
    """One measure: ``name`` is N, L, Lsum, W, S or SU; ``order`` is the n of ROUGE-N."""

    label: str
    name: str
    order: int = 0
    weight: float = 0.0
    distance: int = 0


def parse_kind(text: str, options: RougeOptions) -> Kind:
    """Read ``1``, ``rouge2``, ``L``, ``Lsum``, ``W``, ``W1.2``, ``S4``, ``SU*`` and the like; the label is as given.

    Raises:
        ConfigError: the kind is not known.
    """
    found = _KIND.match(str(text))
    if found is None:
        raise ConfigError(f"Unknown ROUGE kind '{text}'. Known: 1 to 9, L, Lsum, W, S, SU (also S4, SU*, W1.2).")
    label = str(text)
    if found["n"]:
        return Kind(label, "N", order=int(found["n"]))
    name, number = _NAMES[found["name"].lower()], found["number"]
    if name in ("L", "Lsum") and number:
        raise ConfigError(f"ROUGE kind '{text}' takes no number; write {name}.")
    if name == "W":
        weight = float(number) if number and number != "*" else options.weight
        if not weight > 0:
            raise ConfigError(f"ROUGE kind '{text}': the weight must be more than 0.")
        return Kind(label, name, weight=weight)
    distance = options.skip_distance if number is None else -1 if number == "*" else int(float(number))
    return Kind(label, name, distance=distance)


def signature(profile: str, kinds: tuple[Kind, ...], options: RougeOptions, documents: int) -> str:
    """One line that pins everything the numbers depend on, in the manner of sacreBLEU."""
    stem = "porter" if options.stem else "no"
    if options.stem and options.exceptions:
        stem += "+wordnet2.0" if options.better == "well" else f"+wordnet2.0.{options.better}"
    limit = f"b{options.max_bytes}" if options.max_bytes else f"l{options.max_words}" if options.max_words else "no"
    parts = {
        "rouge": profile,
        "n": documents,
        "stem": stem,
        "stop": "smart" if options.remove_stop_words else "kept",
        "limit": limit,
        "refs": options.multi,
        "alpha": f"{options.alpha:g}",
    }
    parts |= {kind.label: f"{kind.weight:g}" for kind in kinds if kind.name == "W"}
    parts |= {kind.label: kind.distance if kind.distance >= 0 else "*" for kind in kinds if kind.name in ("S", "SU")}
    if options.interval:
        parts["ci"] = f"{options.confidence:g}%r{options.samples}"
    return "|".join(f"{name}:{value}" for name, value in parts.items()) + f"|laconic.r{REVISION}"
