"""From a decoded hypothesis to a `Summary` that says of each word where it came from.

Of the token w at step t, P(w) = p_gen P_vocab(w) + (1 - p_gen) * (copy probability of the source positions that hold w)
(See et al. 2017, equation 9). Its copy share is the second summand over the sum; ``copy_probs`` of the details has
1 - p_gen in it. A word of several tokens has the product of their probabilities and the mean of their copy shares (our
reading: a product of shares would call a long word generated only because it is long).

Models that copy in several steps give maps (T, S) and figures (T,) beside their attention.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from catchline.config.schema import SearchConfig
from catchline.explain.chunks import build_chunks, part_of, read_attention, read_positions
from catchline.search.decode import DROP, replacing
from catchline.text.base import extended
from catchline.text.render import Rendered, SourceText, rendered, spaced
from catchline.text.sentences import WRAPPED, bounds
from catchline.text.tokenizer import Tokenizer
from catchline.types import Hypothesis, Record, SourceSpan, Summary, SummaryToken, SummaryWord, TokenizedText

COPIED = 0.5  # a word is called copied when more than this share of its probability was copied
MIN_WEIGHT = 0.01  # spans that carry less attention are not worth showing
MAX_SOURCES = 5
MAPS = {
    "copy_correlational": "p_co",  # Li et al. 2021, equation 11
    "p_final": "p_final",  # equation 14
    "opponent_attention": "opponent_attention",  # Duan et al. 2019
    "conventional_attention": "conventional_attention",
}
GATES = ("copy_attention_gate", "copy_semantic_gate")  # Li et al. 2021, equations 15 and 13
SUMS = ("opponent_log_prob",)  # of a word of several tokens their sum; of the others the mean
ON_SPECIALS = "copied_from_specials"  # the mass of P_final at tokens that are no text, such as BOS and EOS
SYMBOLS = {  # of the maps and figures, as the papers write them
    "attention": "alpha",
    "p_co": "P_co",
    "p_final": "P_final",
    "opponent_attention": "alpha_o",
    "conventional_attention": "alpha_c",
    "copy_attention_gate": "g",
    "copy_semantic_gate": "u",
    "copied_from_specials": "specials",
    "opponent_log_prob": "log P_o",
}
SHOWN = 3  # source places a token and map
UNKNOWN = ("<unk>", "[UNK]", "UNK", "⁇")  # what models write for a word that they do not know
PLAIN = SearchConfig(surface="raw")
_WORD = re.compile(rf"(?:\S*{WRAPPED.pattern})?\S+")


@dataclass(frozen=True, slots=True)
class ReadSource:
    """The document as the model read it. ``extended_ids`` number its tokens as the batch did."""

    document: str
    encoding: TokenizedText
    extended_ids: np.ndarray
    joined: tuple[bool, ...]  # does the token go on with the word of the token before? Empty where nobody asks


@dataclass(slots=True)
class _Steps:
    """Arrays over the tokens that are shown (T) and the source tokens (S)."""

    probability: np.ndarray  # (T,)
    attention: np.ndarray  # (T, S)
    p_gen: np.ndarray | None  # (T,)
    copied: np.ndarray  # (T, S) the copy probability that went to the token, zero where another word stands
    share: np.ndarray  # (T,)
    maps: Mapping[str, np.ndarray] = field(default_factory=dict)  # (T, S) by name, where each word is explained
    figures: Mapping[str, np.ndarray] = field(default_factory=dict)  # (T,) likewise


def build_summary(
    hypothesis: Hypothesis,
    *,
    document: str | Record,
    source_encoding: TokenizedText,
    tokenizer: Tokenizer,
    oov_words: Sequence[str] = (),
    model_name: str = "",
    search: SearchConfig = PLAIN,
    explain: bool = True,
) -> Summary:
    """Turn search's answer into text with provenance; with ``explain=False`` only the text and the scores are made.
    ``document`` is the text that ``source_encoding`` was made of, or its record. ``oov_words`` are the strings of the
    ids from V on, as the batch numbered them. Of ``search``, ``replace_unk`` puts a source token where the model wrote
    UNK (`catchline.search.decode`), which counts as copied in whole; ``surface`` and ``capitals`` say how the words are
    written (`catchline.text.render`). ``sources`` of a word that was not copied are what was attended to."""
    record = Record(document) if isinstance(document, str) else document
    shown_encoding, attention, positions = _seen(hypothesis, source_encoding)
    source_ids, _ = extended(shown_encoding, tokenizer.vocab_size, tokenizer.unk_id, oov_words)
    joined = _joined(tokenizer.word_groups(shown_encoding.tokens), positions) if explain else ()
    source = ReadSource(record.document, shown_encoding, source_ids, joined)
    specials = tokenizer.special_ids - {tokenizer.unk_id}
    shown = [t for t, id in enumerate(hypothesis.ids) if id not in specials]
    ids = [hypothesis.ids[t] for t in shown]
    replaced: dict[int, int] = {}
    if search.replace_unk and tokenizer.unk_id in ids:
        replaced, kept = _replacements(ids, attention[shown], source, tokenizer, search.replace_unk)
        shown, ids = [shown[t] for t in kept], [ids[t] for t in kept]
    tokens = [
        source.encoding.tokens[replaced[t]] if t in replaced else tokenizer.token(id, oov_words)
        for t, id in enumerate(ids)
    ]
    steps = _steps(hypothesis, shown, ids, attention[shown], source, replaced)
    if explain:
        steps.maps, steps.figures = _chain(hypothesis.details, shown, shown_encoding.offsets)
    unknown = [id == tokenizer.unk_id and t not in replaced for t, id in enumerate(ids)]
    found = _written(tokens, unknown, steps, source, tokenizer, search)
    words: list[SummaryWord] = []
    groups: list[list[int]] = []  # the steps of each word
    for group in filter(None, found.groups if explain else ()):
        places = [found.kept[t] for t in group]
        word = _word(places, [found.spans[t] for t in group], found.text, steps, source)
        if word.end > word.start:
            words.append(word)
            groups.append([shown[t] for t in places])
    # the document's own tokens, with the separators between its sentences, without special tokens
    places_and_ids = zip(source_encoding.offsets, source_encoding.ids, strict=True)
    read = sum(end > start or id == tokenizer.separator_id for (start, end), id in places_and_ids)
    return Summary(
        text=found.text,
        score=hypothesis.score,
        log_prob=hypothesis.log_prob,
        id=record.id,
        model=model_name,
        document=record.document,
        words=tuple(words),
        source_offsets=source.encoding.offsets if explain else (),
        tokens_read=read,
        tokens_given=source_encoding.total,
        truncated=source_encoding.truncated,
        finished=hypothesis.finished,
        terms=dict(hypothesis.terms),
        reading=dict(hypothesis.reading),
        chunks=build_chunks(hypothesis, groups, source_encoding.offsets) if groups else (),
    )


def _written(
    tokens: Sequence[str],
    unknown: Sequence[bool],
    steps: _Steps,
    source: ReadSource,
    tokenizer: Tokenizer,
    search: SearchConfig,
) -> Rendered:
    """The text of the tokens, as ``search.surface`` asks."""
    if search.surface in ("raw", "tokens"):
        raw = search.surface == "raw"
        text, spans = tokenizer.detokenize(tokens) if raw else spaced(tokens, tokenizer.separator)
        return Rendered(text, list(range(len(tokens))), spans, tokenizer.word_groups(tokens))
    copying = np.where(steps.share[:, None] > 0, steps.copied, steps.attention)
    read = _source_text(source.document, source.encoding, tokenizer)
    clean = search.surface == "clean"
    return rendered(tokens, unknown, copying, steps.share, read, tokenizer, clean=clean, capitals=search.capitals)


_source_text = lru_cache(maxsize=1)(SourceText)  # the hypotheses of a document are written one after the other


def extractive_summary(
    document: str, spans: Sequence[tuple[int, int]], *, model_name: str, record_id: str = "", with_words: bool = True
) -> Summary:
    """The summary that consists of these pieces of ``document``; every word points to where it stands. One that was
    divided at the end of a line is one word."""
    words: list[SummaryWord] = []
    at = 0
    for match in (match for span in spans if with_words for match in _WORD.finditer(document, *span)):
        word = "".join(match[0].split())
        place = SourceSpan(*match.span(), match[0], 1.0)
        words.append(SummaryWord(word, at, at + len(word), 1.0, True, 1.0, None, (place,), ()))
        at += len(word) + 1
    read = len(document.split())
    pieces = (document[start:end] for start, end in spans)
    return Summary(
        text=" ".join(word for piece in pieces for word in WRAPPED.sub("", piece).split()),
        id=record_id,
        model=model_name,
        document=document,
        words=tuple(words),
        source_offsets=tuple(spans),
        tokens_read=read,
        tokens_given=read,
    )


def _seen(hypothesis: Hypothesis, encoding: TokenizedText) -> tuple[TokenizedText, np.ndarray, np.ndarray | None]:
    """The source tokens (R) that weights exist for, the weights of all steps (T, R), and the positions of those tokens;
    ``None`` for all, which they are but in a long document in chunks."""
    if hypothesis.attention is not None:
        return encoding, np.asarray(hypothesis.attention, dtype=np.float64)[:, : len(encoding.ids)], None
    if hypothesis.chunk_tokens is None:
        return encoding, np.zeros((len(hypothesis.ids) + 1, len(encoding.ids))), None
    positions = read_positions(hypothesis)
    return part_of(encoding, positions), read_attention(hypothesis, positions), positions


def _joined(groups: Sequence[list[int]], positions: np.ndarray | None) -> tuple[bool, ...]:
    """Of each token, does it continue the word of the token before? ``groups`` are the words."""
    return tuple(
        at > group[0] and (positions is None or bool(positions[at] == positions[at - 1] + 1))
        for group in groups
        for at in group
    )


def _replacements(
    ids: list[int], attention: np.ndarray, source: ReadSource, tokenizer: Tokenizer, mode: str
) -> tuple[dict[int, int], list[int]]:
    """For each replaced UNK the source position, by its place among the steps that are kept; and those steps."""
    unknown = [t for t, id in enumerate(ids) if id == tokenizer.unk_id]
    real = np.array([end > start for start, end in source.encoding.offsets], dtype=bool)
    source_ids = np.array(source.encoding.ids)
    found = replacing(mode, attention[unknown], source_ids, real, tokenizer.separator_id).tolist()
    place_of = dict(zip(unknown, found, strict=True))
    kept = [t for t in range(len(ids)) if place_of.get(t) != DROP]
    return {new: place_of[t] for new, t in enumerate(kept) if place_of.get(t, -1) >= 0}, kept


def _steps(
    hypothesis: Hypothesis,
    shown: list[int],
    ids: list[int],
    attention: np.ndarray,
    source: ReadSource,
    replaced: dict[int, int],
) -> _Steps:
    probability = np.exp(np.minimum(np.array([hypothesis.token_log_probs[t] for t in shown], dtype=np.float64), 0.0))
    length = attention.shape[1]
    details = hypothesis.details
    p_gen = np.asarray(details["p_gen"], dtype=np.float64).reshape(-1)[shown] if "p_gen" in details else None
    copied, share = np.zeros_like(attention), np.zeros(len(ids))
    copy_probs = None
    if "copy_probs" in details:
        copy_probs = np.asarray(details["copy_probs"], dtype=np.float64)[shown, :length]
    elif p_gen is not None:
        copy_probs = (1.0 - p_gen)[:, None] * attention
    if copy_probs is not None:
        holds = source.extended_ids[None, :] == np.asarray(ids)[:, None]  # (T, S)
        copied = np.where(holds, copy_probs, 0.0)
        share = np.clip(copied.sum(1) / np.maximum(probability, 1e-30), 0.0, 1.0)
    for t, position in replaced.items():
        copied[t] = 0.0
        copied[t, position] = share[t] = 1.0
    return _Steps(probability, attention, p_gen, copied, share)


def _word(group: list[int], spans: list[tuple[int, int]], text: str, steps: _Steps, source: ReadSource) -> SummaryWord:
    """The word of the steps ``group``, whose tokens stand at ``spans`` of the summary."""
    start, end = bounds(text, min(first for first, _ in spans), max(last for _, last in spans))
    share = float(steps.share[group].mean())
    attention = steps.attention[group].mean(0)
    weights = steps.copied[group]
    if share > COPIED and weights.sum() > 0:
        total = weights.sum(1, keepdims=True)
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0).mean(0)
    else:
        weights = attention
    sources = merge_spans(
        weights,
        source.encoding.offsets,
        source.document,
        joined=source.joined,
        min_weight=MIN_WEIGHT * float(weights.max(initial=0.0)),
    )
    return SummaryWord(
        text=text[start:end],
        start=start,
        end=end,
        probability=float(math.prod(steps.probability[group].tolist())),
        copied=share > COPIED,
        copy_share=share,
        p_gen=None if steps.p_gen is None else float(steps.p_gen[group].mean()),
        sources=sources,
        attention=tuple(attention.tolist()),
        maps={name: tuple(values[group].mean(0).tolist()) for name, values in steps.maps.items()},
        figures={
            name: float(values[group].sum() if name in SUMS else values[group].mean())
            for name, values in steps.figures.items()
        },
        tokens=tuple(
            _token(t, text[slice(*span)], steps, source) for t, span in zip(group, spans, strict=True) if steps.maps
        ),
    )


def _token(t: int, text: str, steps: _Steps, source: ReadSource) -> SummaryToken:
    """One token with its gates and the heaviest places of its attention and of each map."""
    weights = {"attention": steps.attention[t]} | {name: values[t] for name, values in steps.maps.items()}
    return SummaryToken(
        text=text,
        probability=float(steps.probability[t]),
        p_gen=None if steps.p_gen is None else float(steps.p_gen[t]),
        copy_share=float(steps.share[t]),
        figures={name: float(values[t]) for name, values in steps.figures.items()},
        sources={
            name: merge_spans(own, source.encoding.offsets, source.document, limit=SHOWN)
            for name, own in weights.items()
        },
    )


def _chain(
    details: Mapping[str, np.ndarray], steps: list[int], offsets: Sequence[tuple[int, int]]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The maps and figures that ``details`` hold of some steps; a gate of each source position is shown as its mean."""
    length = len(offsets)
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
    return maps, figures


def merge_spans(
    weights: Sequence[float] | np.ndarray,
    offsets: Sequence[tuple[int, int]],
    document: str,
    *,
    joined: Sequence[bool] | None = None,
    limit: int = MAX_SOURCES,
    min_weight: float = 0.0,
) -> tuple[SourceSpan, ...]:
    """Source positions as spans of ``document``, heaviest first, at most ``limit``, special tokens left out. Where
    ``joined[i]``, position i continues the word of i - 1: both are one span of their summed weight."""
    merged: list[list[float]] = []  # start, end, weight, last position
    for position, (start, end) in enumerate(offsets):
        weight = float(weights[position])
        if end <= start or weight <= min_weight:
            continue
        if merged and merged[-1][3] == position - 1 and joined is not None and joined[position]:
            merged[-1][1:] = [max(end, merged[-1][1]), merged[-1][2] + weight, position]
        else:
            merged.append([start, end, weight, position])
    merged.sort(key=lambda one: (-one[2], one[0]))
    return tuple(SourceSpan(int(s), int(e), document[int(s) : int(e)], w) for s, e, w, _ in merged[:limit])
