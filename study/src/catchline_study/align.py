"""Attention as word alignment: which head reads where the summary's words come from, and maps to draw.

Summaries are teacher-forced in evaluation mode. Row t of an attention is the step that **predicts** token t; with
``shift`` a token gets the row of the step that reads it. Subwords become words (the sum over the document's, the
mean over the summary's subwords); the end symbol and padding belong to no word.

Choosing a head for contrastive attention (Duan et al. 2019, footnote 1; the procedure is ours): for each summary
word that a person linked, take the document word with the largest weight, and choose the head of the lowest
alignment error rate, counts summed over all pairs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from catchline.data.dataset import Collator, EncodedDataset, Example, encode_documents
from catchline.errors import ConfigError
from catchline.jobs import batches
from catchline.models.base import SummarizationModel
from catchline.summarizer.extractive import Progress
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.text.sentences import sentence_gaps
from catchline.training.data import pairs_of
from catchline.types import Record, TrainingBatch
from catchline_study.links import Links, WordPair, head_counts, head_error_rates, word_attention

Spans = Sequence[tuple[int, int]]
OPPONENT = "opponent"
_MAP = re.compile(r"(?P<layer>\d{1,9}):(?P<head>\d{1,9})|layer-mean:(?P<mean>\d{1,9})|mean|" + OPPONENT)


@dataclass(frozen=True, slots=True)
class ForcedPair:
    """A pair as the model reads it, with the word that each of its tokens belongs to (-1: none)."""

    words: WordPair
    example: Example
    columns: tuple[int, ...]  # (S,)
    rows: tuple[int, ...]  # (T,)


@dataclass(frozen=True, slots=True)
class MapChoice:
    """One attention map of a model: a head, the mean of a layer's heads, the mean of all, or the opponent's."""

    name: str
    layer: int | None = None
    head: int | None = None

    @classmethod
    def parse(cls, text: str) -> MapChoice:
        """Read ``2:4``, ``layer-mean:2``, ``mean`` or ``opponent``. Raises ConfigError: something else."""
        found = _MAP.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"'{text}' is not an attention map; write LAYER:HEAD, layer-mean:LAYER (both counted from 0), mean or "
                "opponent."
            )
        layer, head = found["layer"] or found["mean"], found["head"]
        return cls(text, int(layer) if layer else None, int(head) if head else None)

    def take(self, attentions: Tensor) -> Tensor:
        """The map (B, T, S) out of (L, H, B, T, S). Raises ConfigError: the model has no such layer or head."""
        layers, heads = attentions.shape[:2]
        if (self.layer or 0) >= layers or (self.head or 0) >= heads:
            raise ConfigError(
                f"There is no map '{self.name}': the model has {layers} layer{'s' * (layers > 1)} of {heads} "
                f"head{'s' * (heads > 1)}, counted from 0."
            )
        chosen = attentions if self.layer is None else attentions[self.layer, None]
        return (chosen if self.head is None else chosen[:, self.head, None]).mean((0, 1))


# -------------------------------------------------------------------------------------- pairs as read


def forced_pairs(system: NeuralSystem, pairs: Sequence[WordPair]) -> list[ForcedPair]:
    """Encode the pairs as in training, and find the word of each token. Raises DataError: a document or summary holds
    no token."""
    records = [Record(pair.document, pair.summary, id=pair.label) for pair in pairs]
    data = EncodedDataset.build(records, system.tokenizer, system.text)
    _, sources = encode_documents(records, system.tokenizer, system.text)
    texts, separator = [record.summary for record in records], system.tokenizer.separator
    gaps = None if separator is None else (sentence_gaps(text, separator, by_line=True) for text in texts)
    most = system.text.max_target_tokens
    targets = list(system.tokenizer.encode_stream(iter(texts), max_tokens=most, gaps=gaps))
    prefix = [(0, 0)] * len(system.tokenizer.target_prefix_ids)
    return [
        _forced(system, pair, data[index], sources[index].offsets, [*prefix, *targets[index].offsets])
        for index, pair in enumerate(pairs)
    ]


def _forced(system: NeuralSystem, pair: WordPair, example: Example, source: Spans, target: Spans) -> ForcedPair:
    gold = example.target_extended_ids
    assert gold is not None, "a pair has a summary"
    words = _word_of(target[: len(gold)], pair.target)
    words += [-1] * (len(gold) - len(words))  # the end symbol
    if gold[-1] == system.tokenizer.eos_id:
        words[-1] = -1  # where the summary was cut to make room for it
    columns = _word_of(source[: len(example.source_extended_ids)], pair.source)
    return ForcedPair(pair, example, tuple(columns), tuple(words))


def _word_of(tokens: Spans, words: Spans) -> list[int]:
    """For each token the word that it shares most characters with, the first of equals; -1 for none."""
    found = []
    first = 0
    for start, end in tokens:
        while first < len(words) and words[first][1] <= start:
            first += 1
        best, shared = -1, 0
        for index in range(first, len(words)):
            if words[index][0] >= end:
                break
            common = min(end, words[index][1]) - max(start, words[index][0])
            if common > shared:
                best, shared = index, common
        found.append(best)
    return found


# ------------------------------------------------------------------------------------- maps of the model


def attention_maps(
    system: NeuralSystem,
    pairs: Sequence[ForcedPair],
    choices: Sequence[MapChoice] = (),
    *,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """The attention of each pair: (maps, T, S) for ``choices``, or of every head (L, H, T, S) without any. Comes pair
    by pair with the pair's position, in the order of the documents' lengths. Raises ConfigError: the model lacks a map,
    or has no attention at all."""
    order = sorted(range(len(pairs)), key=lambda index: -len(pairs[index].columns))
    collate = Collator(system.tokenizer)
    for chosen in batches(order, batch_size):
        batch = pairs_of(collate, [pairs[index].example for index in chosen]).to(system.device)
        maps = _maps(system.model, batch, choices).float().cpu().numpy()
        for row, index in enumerate(chosen):
            steps, positions = len(pairs[index].rows), len(pairs[index].columns)
            yield index, maps[..., row, :steps, :positions]
        if progress:
            progress(len(chosen))


@torch.inference_mode()
def _maps(model: SummarizationModel, batch: TrainingBatch, choices: Sequence[MapChoice]) -> Tensor:
    """(L, H, B, T, S), or (maps, B, T, S) for ``choices``."""
    if not choices:
        return model.cross_attentions(batch)
    own, opponent = cache(partial(model.cross_attentions, batch)), cache(partial(model.opponent_attention, batch))
    maps = (opponent() if choice.name == OPPONENT else choice.take(own()) for choice in choices)
    return torch.stack([one.float() for one in maps])


def word_map(pair: ForcedPair, weights: np.ndarray, *, shift: bool = False) -> np.ndarray:
    """Attention between tokens (..., T, S) as attention between words (..., summary words, document words)."""
    rows = (-1, *pair.rows[:-1]) if shift else pair.rows
    shape = len(pair.words.target), len(pair.words.source)
    return word_attention(weights, rows, pair.columns, shape)


# ---------------------------------------------------------------------------------------- the table


def head_rates(
    system: NeuralSystem, pairs: Sequence[WordPair], links: Sequence[Links], *, shift: bool = False, **how: Any
) -> np.ndarray:
    """The alignment error rate of every head (L, H) over ``pairs`` with their ``links``; ``how`` is of
    `attention_maps`. Raises ConfigError: the model has no attention; DataError: there is no link in any pair, or a pair
    cannot be encoded."""
    forced = forced_pairs(system, pairs)
    counts = [
        head_counts(word_map(forced[index], weights, shift=shift), links[index].sure, links[index].possible)
        for index, weights in attention_maps(system, forced, **how)
    ] or [np.zeros((2, 1, 1))]
    return head_error_rates(np.sum(counts, axis=0))


# -------------------------------------------------------------------------------------- how sharp it is


def sharpness(pair: ForcedPair, weights: np.ndarray) -> dict[str, float]:
    """How sharp one map (T, S) is: mean ``entropy`` (nats) and ``maximum`` over the ``steps`` that write words, over
    the positions that the model reads (the end symbol too); ``uniform`` is the entropy that a flat map would have,
    ``outside`` the share of weight on what is no word. Rows of zeros are left out."""
    rows = np.asarray(weights, dtype=np.float64)[np.asarray(pair.rows, dtype=int) >= 0]
    rows = rows[rows.sum(1) > 0]
    steps = max(len(rows), 1)
    return {
        "entropy": float(-(rows * np.log(np.where(rows > 0, rows, 1.0))).sum() / steps),
        "maximum": float(rows.max(1, initial=0.0).sum() / steps),
        "uniform": float(np.log(rows.shape[1])) if len(rows) else 0.0,
        "outside": float(rows[:, np.asarray(pair.columns, dtype=int) < 0].sum() / steps),
        "steps": len(rows),
    }
