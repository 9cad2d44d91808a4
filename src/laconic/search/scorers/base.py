"""The interface of a scorer: something that forbids tokens, changes scores or ranks hypotheses.

A scorer belongs to one search at a time: `start` resets it, and what it remembers has N rows in front and
is re-ordered by `select`. Search records what each scorer added to each hypothesis under its ``name``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from laconic.config.section import Section
from laconic.types import Memory, StepOutput


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids that search must know. ``bos_id`` is what the decoder reads first.

    ``separator_id`` is the token between sentences, where the texts have one.
    """

    unk_id: int
    bos_id: int
    eos_id: int
    pad_id: int
    separator_id: int | None = None


@dataclass(slots=True)
class HypothesesView:
    """What a scorer may look at: the prefixes of the N rows and the output of the present step.

    ``output`` is ``None`` in `Scorer.bound` and for hypotheses cut at the maximum length; ``ended`` says whether
    the hypotheses that are ranked end in EOS (which ``ids`` never holds).
    """

    ids: Tensor  # (N, length), without BOS
    output: StepOutput | None = None
    ended: bool = False

    @property
    def length(self) -> int:
        """The number of tokens of each prefix, BOS not counted; also the number of steps done."""
        return int(self.ids.shape[1])


class Scorer:
    """Base of the scorers; every hook here does nothing.

    ``adds_to_tokens`` must be true if `on_tokens` changes any score otherwise than to minus infinity.
    ``carries_rows`` false takes back what `on_rows` added once the candidates of the step are chosen: it decides
    which live on, and counts neither in the running totals nor in the final score.
    ``num_groups`` above one splits the beams of a document (see `on_group`).
    """

    class Config(Section):
        """Options of the scorer, as they stand below ``search.scorers`` in a recipe."""

    name: ClassVar[str]
    adds_to_tokens: ClassVar[bool] = False
    carries_rows: bool = True
    num_groups: int = 1

    def __init__(self, config: Section, *, specials: SpecialIds):
        self.config = config
        self.specials = specials

    def start(self, memory: Memory | None, num_rows: int) -> None:
        """Forget the last search. ``num_rows`` is N; row ``b * K + k`` belongs to document b."""

    def on_rows(self, totals: Tensor, view: HypothesesView) -> Tensor:
        """Change the running totals (N,) of the prefixes, having seen this step's attention; return them.

        For terms that are the same for every next token. Must not write into ``totals``.
        """
        return totals

    def on_tokens(self, scores: Tensor, view: HypothesesView) -> Tensor:
        """Change the scores (N, X) of the next tokens; return them. May write into ``scores``."""
        return scores

    def on_group(self, scores: Tensor, chosen: Tensor, alive: Tensor) -> Tensor:
        """Change the token scores of a later group of beams, in view of what earlier groups chose.

        Args:
            scores: (D, K / groups, X) of this group's rows; may be written into.
            chosen: (D, m) the tokens that the earlier groups of the same document chose at this step.
            alive: (D, m) false where ``chosen`` does not count.
        """
        return scores

    def on_hypotheses(self, scores: Tensor, view: HypothesesView) -> Tensor:
        """The final scores (N,) of hypotheses that stop here, from their totals; return a new tensor."""
        return scores

    def bound(self, scores: Tensor, length: int, max_length: int) -> Tensor:
        """An upper bound of `on_hypotheses` for prefixes of ``length`` tokens however they go on.

        ``scores`` (N,) bound the totals from above. The default suits scorers that add nothing positive.
        """
        return scores

    def select(self, index: Tensor) -> None:
        """Re-order what is remembered: row i becomes what row ``index[i]`` was."""
