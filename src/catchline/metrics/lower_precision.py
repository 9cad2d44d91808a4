"""In which precision a model decodes: what was found out about the lower ones, and which one is taken.

A product in bf16 or int8 is faster and a little different, so a summary may come out in other words. How often, and
what it costs, is a fact of each model: `measure` decodes validation records in each precision, and what it found
lies in the model folder as ``precision.json``. ``search.precision: auto`` takes a lower precision only where that file
says that the words hold, and among those the one that is the fastest for the shapes at hand, timed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat, TypeAdapter
from pydantic.dataclasses import dataclass

from catchline.files import write_json
from catchline.metrics.confidence import stored
from catchline.metrics.scoring import Scoring, score_as, suited
from catchline.types import Precision, Record, references_of

FILE = "precision.json"
LOWER: tuple[Precision, ...] = ("bf16", "int8")
MOST_LOST, LEAST_EQUAL = 0.3, 0.8  # ROUGE x 100, and the share of equal summaries
KINDS = ("1", "2", "L")
TIMES = 3


@dataclass(frozen=True)
class Lowered:
    """One precision against fp32 on the same records: ``equal`` is the share of summaries that are the same to the
    letter, ``rouge`` what each ROUGE F x 100 changed by."""

    equal: Annotated[float, Field(ge=0, le=1)]
    rouge: dict[str, FiniteFloat]

    def __post_init__(self) -> None:
        if lacking := [kind for kind in KINDS if kind not in self.rouge]:
            raise ValueError(f"rouge lacks {lacking[0]}")

    @property
    def holds(self) -> bool:
        """May it be taken in place of fp32?"""
        return self.equal >= LEAST_EQUAL and all(abs(change) <= MOST_LOST for change in self.rouge.values())


@dataclass(frozen=True)
class Precisions:
    """What each lower precision does to one model's summaries of ``records`` validation records; in int8 a weight had
    ``byte_steps`` values to each side of zero."""

    records: Annotated[int, Field(ge=1)]
    of: dict[str, Lowered]
    byte_steps: int = 127

    def may_be(self, byte_steps: int) -> tuple[Precision, ...]:
        """The precisions that ``auto`` chooses among on a CPU of so many ``byte_steps``; a coarser int8 than the one
        that was tried is none of them."""
        coarser = {"int8"} if byte_steps < self.byte_steps else set()
        return ("fp32", *(name for name in LOWER if name in self.of.keys() - coarser and self.of[name].holds))

    def say(self) -> str:
        parts = [f"{name} {lower.equal:.0%} equal, ROUGE-1 {lower.rouge['1']:+.2f}" for name, lower in self.of.items()]
        return f"Precision of decoding, {self.records} records against fp32: {'; '.join(parts)}"

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, TypeAdapter(Precisions).dump_python(self, mode="json"))

    @classmethod
    def load(cls, folder: Path) -> Precisions | None:
        """That of a model folder, if it has one.

        Raises:
            ModelError: it cannot be read.
        """
        return stored(folder / FILE, TypeAdapter(Precisions))


def measure(
    summarize: Callable[[Precision], Sequence[str]],
    records: Sequence[Record],
    lower: Sequence[Precision] = LOWER,
    way: Scoring | None = None,
    byte_steps: int = 127,
) -> Precisions:
    """Decode records with references in each precision and compare.

    ``summarize`` gives the texts of all records in a precision, ``lower`` the precisions that this machine has,
    ``way`` how the model's run counts ROUGE, ``byte_steps`` how finely this machine's int8 divides a weight.
    """
    references = [list(references_of(record)) for record in records]
    way = suited(way or Scoring(), references)

    def scores(texts: Sequence[str]) -> dict[str, float]:
        found = score_as(way, texts, references, KINDS)
        return {kind: 100 * found.mean[kind].f for kind in KINDS}

    exact = summarize("fp32")
    base = scores(exact)
    lowered: dict[str, Lowered] = {}
    for name in lower:
        texts = summarize(name)
        equal = sum(one == other for one, other in zip(texts, exact, strict=True)) / len(exact)
        lowered[name] = Lowered(equal, {kind: round(f - base[kind], 3) for kind, f in scores(texts).items()})
    return Precisions(len(records), lowered, byte_steps)


def fastest(precisions: Sequence[Precision], seconds: Callable[[Precision], float]) -> Precision:
    """The one that takes the least time; the first time of each pays for packing and does not count."""
    found = {name: min([seconds(name) for _ in range(TIMES)][1:]) for name in precisions}
    return min(found, key=found.__getitem__)
