"""A copy task full of unknown words: learnt with the pointer, out of reach without it.

The whole way from strings to strings: tokenizer, data set, collation, training, search, detokenization.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from catchline.config.names import MODELS, OBJECTIVES, TOKENIZERS, build
from catchline.config.schema import SearchConfig, TextConfig
from catchline.data.collate import Collator
from catchline.data.dataset import EncodedDataset
from catchline.models.seq2seq import Seq2Seq
from catchline.search.torch_bridge import decode
from catchline.text.base import Tokenizer
from catchline.training.data import pairs_of
from catchline.types import PLAIN_PASS, Record, TrainingBatch

KNOWN = [f"word{chr(97 + i)}{chr(97 + j)}" for i in range(12) for j in range(12)]
LETTERS = "bcdfghjklmnpqrstvwxz"
BATCH, UPDATES = 32, 110


def records(count: int, seed: int) -> list[Record]:
    """Documents of 3 to 5 words, six in ten of them never seen before; the summary repeats the document."""
    r = random.Random(seed)

    def word() -> str:
        return "".join(r.choice(LETTERS) for _ in range(7)) if r.random() < 0.6 else r.choice(KNOWN)

    texts = [" ".join(word() for _ in range(r.randint(3, 5))) for _ in range(count)]
    return [Record(text, text, id=str(i)) for i, text in enumerate(texts)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    result = build("tokenizer", TOKENIZERS, {"type": "word", "min_frequency": 1})
    result.train([" ".join(KNOWN)])
    return result


def batches(tokenizer: Tokenizer, count: int, seed: int) -> list[TrainingBatch]:
    text = TextConfig()
    data = EncodedDataset.build(records(count, seed), tokenizer, text)
    collate = Collator(tokenizer)
    return [pairs_of(collate, [data[i] for i in range(start, start + BATCH)]) for start in range(0, count, BATCH)]


def trained(tokenizer: Tokenizer, updates: int = UPDATES, **options: Any) -> tuple[Seq2Seq, float]:
    """A small model after ``updates`` updates, and its loss on new records."""
    torch.manual_seed(1)
    spec = {"type": "seq2seq", "embedding_size": 24, "encoder_hidden": 32, "hidden_size": 48, **options}
    model = build("model", MODELS, spec, vocab_size=tokenizer.vocab_size, **tokenizer.ids)
    nll = build("objective", OBJECTIVES, {"type": "nll"})
    optimizer = torch.optim.Adam(model.parameters(), 0.008)
    for batch in batches(tokenizer, updates * BATCH, seed=0):
        optimizer.zero_grad()
        term = nll(model(batch, context=nll.wants(batch, PLAIN_PASS)), batch)
        (term.sum / term.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        terms = [nll(model(batch), batch) for batch in batches(tokenizer, 4 * BATCH, seed=1)]
    return model, float(sum(term.sum for term in terms) / sum(term.count for term in terms))


def right_summaries(model: Seq2Seq, tokenizer: Tokenizer, beam_size: int) -> float:
    """The share of new documents whose summary comes out as the very same string."""
    config = SearchConfig(beam_size=beam_size, max_length=8)
    wanted = [record.summary for record in records(2 * BATCH, seed=2)]
    written = [
        tokenizer.decode(hypotheses[0].ids, words)
        for batch in batches(tokenizer, 2 * BATCH, seed=2)
        for hypotheses, words in zip(decode(model, batch, config, **tokenizer.ids), batch.oov_words, strict=True)
    ]
    return sum(a == b for a, b in zip(wanted, written, strict=True)) / len(wanted)


@pytest.mark.parametrize("coverage", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_pointer_learns_to_copy_unknown_words(tokenizer: Tokenizer, coverage: bool) -> None:
    model, loss = trained(tokenizer, attention={"type": "additive", "size": 32, "coverage": coverage})
    assert loss < 0.05
    assert right_summaries(model, tokenizer, beam_size=1) > 0.95
    assert right_summaries(model, tokenizer, beam_size=3) > 0.95


def test_without_a_pointer_it_cannot_be_learnt(tokenizer: Tokenizer) -> None:
    """Attention alone comes to know where the unknown words stand (its loss counts them as UNK and falls), but it
    has no way to write them: nearly every summary is wrong."""
    options = {"attention": {"type": "additive", "size": 32}, "head": {"type": "vocabulary"}}
    model, loss = trained(tokenizer, 70, **options)
    assert loss < 2.0
    assert right_summaries(model, tokenizer, beam_size=1) < 0.1
