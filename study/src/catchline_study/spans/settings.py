"""What is asked of a selection of spans. All of it decides the bytes that are written; nothing else does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from typer import Option

from catchline.cli.options import SkipBad
from catchline.errors import ConfigError
from catchline_study.spans.scoring import ScoreKey, Shape

WORDS = "words"
TEXT_UNITS = ("file", "line")
_DECIMAL = re.compile(r"\d+(\.\d+)?|\.\d+")


@dataclass(frozen=True)
class SpanSettings:
    """``weights`` and ``over`` are the decimal texts as given, so that nothing is rounded."""

    k: Annotated[int, Option("--k", metavar="N", min=1, help="Keep this many pairs of spans.")]
    tokenizer: Annotated[str, Option(help="Count lengths in the tokens of a folder or hub id, or in words.")] = (
        "facebook/bart-large"
    )
    lowercase: Annotated[bool, Option("--lowercase", help="Ignore case when comparing words.")] = False
    weights: Annotated[str, Option(help="Set the weights of ROUGE-1, -2 and -L in the score.")] = "1,1,1"
    random: Annotated[bool, Option("--random", help="Draw spans instead of scoring them.")] = False
    input_length: Annotated[int, Option(min=1, help="Set the tokens of the input span.")] = 128
    output_length: Annotated[int, Option(min=1, max=64, help="Set the tokens of the output span.")] = 32  # one word
    chunk: Annotated[int, Option(max=32_767, help="Set the tokens of a chunk of a document.")] = 512
    stride: Annotated[int, Option(min=1, help="Set the tokens between two windows.")] = 1
    over: Annotated[
        str | None,
        Option("--every-window-over", metavar="SCORE", help="Keep all windows above this, not only a chunk's best."),
    ] = None
    drop_duplicate_outputs: Annotated[bool, Option("--drop-duplicate-outputs", help="Keep outputs once.")] = False
    drop_ceiling: Annotated[
        bool, Option("--drop-ceiling", help="Leave out output spans that their input contains.")
    ] = False
    text: Annotated[str, Option(metavar="file|line", help="Use each file or line as a document.")] = "file"
    column: Annotated[str | None, Option("--document-column", help="Name the documents' column in JSON lines.")] = None
    validation: Annotated[int, Option(metavar="N", help="Hold out this many records.")] = 0
    shard_records: Annotated[int, Option("--records-per-file", min=1, help="Records per training file.")] = 100_000
    seed: Annotated[int, Option(min=0, max=2**63 - 1, help="Set the seed of draws, ties and order.")] = 1
    skip_bad: SkipBad = False

    def __post_init__(self) -> None:
        if not 0 <= self.validation < self.k:
            raise ConfigError(
                f"--validation is {self.validation}; it must be below the {self.k:,} spans that --k keeps, and not "
                "negative."
            )
        if self.chunk < self.shape.window:
            lengths = f"an input of {self.input_length} and an output of {self.output_length}"
            raise ConfigError(f"--chunk is {self.chunk}, but {lengths} need {self.shape.window}.")
        if len(weights := self.weights.split(",")) != 3:
            raise ConfigError(f"--weights '{self.weights}' is {len(weights)} numbers; give one each for R-1, R-2, R-L.")
        if not any([_decimal("--weights", weight) for weight in weights]):
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
        one, two, longest = map(Fraction, self.weights.split(","))
        return ScoreKey.of((one, two, longest), self.shape)

    @property
    def floor(self) -> int | None:
        """A window counts when its value is above this; values are whole, so the fraction may be cut off."""
        return None if self.over is None else int(Fraction(self.over) * self.key.denominator)


def _decimal(name: str, text: str) -> Fraction:
    if not _DECIMAL.fullmatch(text.strip()):
        raise ConfigError(f"{name}: '{text}' is not a number of 0 or more in decimal digits, such as 1 or 0.5.")
    return Fraction(text)
