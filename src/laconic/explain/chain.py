"""How a token was copied, step by step: gates and distributions that a model gives beside its attention.

What is read of a hypothesis's details (layers/copying, layers/opponent say how they come about):

| detail | shown as |
| --- | --- |
| ``p_final`` (T, S), ``copy_correlational`` (T, S) | maps ``p_final`` and ``p_co`` (Li et al. 2021, equations 14, 11) |
| ``copy_attention_gate``, ``copy_semantic_gate`` (T,) | figures g and u (equations 15, 13) |
| ``opponent_attention``, ``conventional_attention`` (T, S) | maps alpha_o and alpha_c (Duan et al. 2019) |
| ``opponent_log_prob`` (T,) | figure log P_o |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from laconic.explain.alignment import merge_spans
from laconic.types import SourceSpan, SummaryToken

MAPS = {
    "copy_correlational": "p_co",
    "p_final": "p_final",
    "opponent_attention": "opponent_attention",
    "conventional_attention": "conventional_attention",
}
GATES = ("copy_attention_gate", "copy_semantic_gate")
SUMS = ("opponent_log_prob",)  # of a word of several tokens their sum; of the others the mean
ON_SPECIALS = "copied_from_specials"  # the mass of P_final at tokens that are no text, such as BOS and EOS
TITLES = {
    "attention": "Attention",
    "p_co": "Correlational copying P_co",
    "p_final": "Copying P_final",
    "opponent_attention": "Opponent attention",
    "conventional_attention": "Conventional attention",
}
SHOWN = 3  # source places a token and map


@dataclass(frozen=True, slots=True)
class Chain:
    """Over the tokens that are shown (T) and the source tokens (S): ``maps`` (T, S) and ``figures`` (T,) by name."""

    maps: Mapping[str, np.ndarray] = field(default_factory=dict)
    figures: Mapping[str, np.ndarray] = field(default_factory=dict)

    def word_maps(self, group: Sequence[int]) -> dict[str, tuple[float, ...]]:
        """Each map of a word, the mean over its tokens."""
        return {name: tuple(values[list(group)].mean(0).tolist()) for name, values in self.maps.items()}

    def word_figures(self, group: Sequence[int]) -> dict[str, float]:
        """Each figure of a word."""
        found = {}
        for name, values in self.figures.items():
            own = values[list(group)]
            found[name] = float(own.sum() if name in SUMS else own.mean())
        return found


def read_chain(details: Mapping[str, np.ndarray], shown: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Chain:
    """What ``details`` hold of the steps ``shown``; empty for a model that gives none of it.

    A gate of each source position (the release's u) is shown as its mean over the source.
    """
    length, steps = len(offsets), list(shown)
    maps = {
        name: np.asarray(details[detail], dtype=np.float64)[steps, :length]
        for detail, name in MAPS.items()
        if detail in details
    }
    figures = {}
    for name in (*GATES, *SUMS):
        if name in details:
            values = np.asarray(details[name], dtype=np.float64)[steps]
            figures[name] = values[:, :length].mean(1) if values.ndim > 1 else values
    if "p_final" in maps:
        specials = np.array([end <= start for start, end in offsets], dtype=bool)
        figures[ON_SPECIALS] = maps["p_final"][:, specials].sum(1)
    return Chain(maps, figures)


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """What is known of one token beside its chain."""

    text: str
    probability: float
    p_gen: float | None
    copy_share: float
    attention: np.ndarray  # (S,)


def token_of(
    facts: TokenFacts, chain: Chain, step: int, document: str, offsets: Sequence[tuple[int, int]]
) -> SummaryToken:
    """One token with its gates and the heaviest places of its attention and of each map."""

    def places(weights: np.ndarray) -> tuple[SourceSpan, ...]:
        return merge_spans(weights, offsets, document, limit=SHOWN)

    sources = {"attention": places(facts.attention)}
    sources |= {name: places(values[step]) for name, values in chain.maps.items()}
    return SummaryToken(
        text=facts.text,
        probability=facts.probability,
        p_gen=facts.p_gen,
        copy_share=facts.copy_share,
        figures={name: float(values[step]) for name, values in chain.figures.items()},
        sources=sources,
    )
