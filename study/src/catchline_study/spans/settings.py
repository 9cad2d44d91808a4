"""What is asked of a selection of spans. All of it decides the bytes that are written; nothing else does."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from catchline.errors import ConfigError
from catchline_study.spans.scoring import ScoreKey, Shape

WORDS = "words"
DEFAULT_TOKENIZER = "facebook/bart-large"
TEXT_UNITS = ("file", "line")
_DECIMAL = re.compile(r"\d+(\.\d+)?|\.\d+")


@dataclass(frozen=True, slots=True)
class SpanSettings:
    """``weights`` and ``over`` are the decimal texts as given, so that nothing is rounded. Numbers are within the
    bounds of the command's options.

    ``tokenizer``: ``words``, a folder, a file or a hub id. ``over``: take every window whose score is above it instead
    of the best one of each chunk. ``random``: a drawn window of each chunk, and drawn chunks. ``text``: a plain text
    file is one document, or each line is. ``validation``: so many records are held out.
    """

    k: int
    tokenizer: str = DEFAULT_TOKENIZER
    lowercase: bool = False
    weights: tuple[str, str, str] = ("1", "1", "1")
    input_length: int = 128
    output_length: int = 32
    chunk: int = 512
    stride: int = 1
    over: str | None = None
    random: bool = False
    seed: int = 1
    text: str = "file"
    column: str | None = None
    skip_bad: bool = False
    drop_duplicate_outputs: bool = False
    drop_ceiling: bool = False
    validation: int = 0
    shard_records: int = 100_000

    def __post_init__(self) -> None:
        if not 0 <= self.validation < self.k:
            raise ConfigError(
                f"--validation is {self.validation}; it must be below the {self.k:,} spans that --k keeps, and not "
                "negative."
            )
        if self.chunk < self.shape.window:
            lengths = f"an input of {self.input_length} and an output of {self.output_length}"
            raise ConfigError(f"--chunk is {self.chunk}, but {lengths} need {self.shape.window}.")
        if not any([_decimal("--weights", weight) for weight in self.weights]):
            raise ConfigError("--weights are all 0, so that no span is better than another; for that use --random.")
        _ = self.key  # refuses weights of too many digits
        if self.over is not None:
            _decimal("--every-window-over", self.over)
        if self.over is not None and self.random:
            raise ConfigError("--random draws one window of each chunk; leave out --every-window-over.")
        if self.text not in TEXT_UNITS:
            raise ConfigError(f"--text is '{self.text}'; a document can be a file or a line.")
        if self.tokenizer != WORDS and self.lowercase:
            raise ConfigError("--lowercase goes with --tokenizer words; another tokenizer decides for itself.")

    @property
    def shape(self) -> Shape:
        return Shape(self.input_length, self.output_length, self.stride)

    @property
    def key(self) -> ScoreKey:
        one, two, longest = (Fraction(weight) for weight in self.weights)
        return ScoreKey.of((one, two, longest), self.shape)

    @property
    def floor(self) -> int | None:
        """A window counts when its value is above this; values are whole, so the fraction may be cut off."""
        return None if self.over is None else int(Fraction(self.over) * self.key.denominator)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"weights": list(self.weights)}


def parse_weights(text: str) -> tuple[str, str, str]:
    """``1,1,0.5`` to its three numbers.

    Raises:
        ConfigError: not three.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3:
        raise ConfigError(f"--weights '{text}' is {len(parts)} numbers; give one each for R-1, R-2, R-L, as in 1,1,1.")
    return parts[0], parts[1], parts[2]


def _decimal(name: str, text: str) -> Fraction:
    if not _DECIMAL.fullmatch(text):
        raise ConfigError(f"{name}: '{text}' is no number of 0 or more in decimal digits, such as 1 or 0.5.")
    return Fraction(text)
