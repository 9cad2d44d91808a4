"""Checkpoints of the BART family decode as transformers' ``generate`` does, token for token, whatever its settings.

transformers' search counts in 32-bit floats, ours in 64-bit ones: with random weights a rounding would now and then
decide between two words. So the networks here are 64-bit, and `Exact` keeps ``generate`` from rounding their logits.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from catchline.config.generation import search_from
from catchline.models.checkpoints import BartSummarizer
from catchline.models.stored import FAMILY
from catchline.search.torch_bridge import decode
from catchline.types import Batch, Hypothesis
from tiny_bart import BOS, EOS, PAD, UNK, architecture, reference_of

VOCABULARY, LANGUAGE, LIMIT = 29, 28, 30
STARTS = {"bart": EOS, "mbart": LANGUAGE, "marian": PAD, "pegasus": PAD}  # as the real checkpoints do
ENDS = 5.5  # what is added to the logit of EOS, so that some summaries end at once, some later and some never


class Exact(Tensor):
    """Logits that stay as they are."""

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.as_subclass(Tensor).clone()


def keep_logits(module: Any, inputs: Any, output: Any) -> Any:
    output.logits = output.logits.as_subclass(Exact)
    return output


@functools.cache
def tiny(kind: str) -> tuple[BartSummarizer, Any]:
    """Our model, and that of transformers with the same weights."""
    torch.manual_seed(FAMILY.index(kind))
    options = architecture(kind, vocab_size=VOCABULARY, init_std=1.0, decoder_start_token_id=STARTS[kind])
    model = BartSummarizer(BartSummarizer.Config(architecture=options), unk_id=UNK)
    model.network.final_logits_bias[0, EOS] = ENDS
    model = model.double().eval()
    network = reference_of(model)
    network.register_forward_hook(keep_logits)
    return model, network


def documents(count: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 13, (count,), generator=generator)
    mask = torch.arange(12) < lengths[:, None]
    source = torch.randint(3, VOCABULARY, (count, 12), generator=generator).masked_fill(~mask, PAD)
    return Batch(source_ids=source, source_extended_ids=source, source_mask=mask, extended_vocab_size=VOCABULARY)


def theirs(network: Any, batch: Batch, settings: dict[str, Any]) -> list[list[tuple[list[int], bool]]]:
    """What ``generate`` writes, without the start and the end token, and whether it ends."""
    count = settings.get("num_return_sequences", 1)
    written = network.generate(
        batch.source_ids,
        attention_mask=batch.source_mask.long(),
        generation_config=GenerationConfig(
            decoder_start_token_id=network.config.decoder_start_token_id,
            **{"eos_token_id": EOS, "pad_token_id": PAD, "bos_token_id": BOS, **settings},
        ),
    )
    rows = [(row[: row.index(EOS)], True) if EOS in row else (row, False) for row in written[:, 1:].tolist()]
    return [rows[start : start + count] for start in range(0, len(rows), count)]


def ours(model: BartSummarizer, batch: Batch, settings: dict[str, Any]) -> list[list[Hypothesis]]:
    search, refused = search_from(GenerationConfig(**settings).to_dict(), eos_id=EOS, limit=LIMIT)
    assert refused == []
    model.forced_bos_id = settings.get("forced_bos_token_id")
    return decode(model, batch, search, unk_id=UNK, bos_id=model.bos_id, eos_id=EOS, pad_id=PAD)


def compare(kind: str, settings: dict[str, Any], count: int, seed: int = 1) -> Iterator[str]:
    """Hold every document against ``generate``; what kinds of summaries there were."""
    model, network = tiny(kind)
    batch = documents(count, seed)
    expected, found = theirs(network, batch, settings), ours(model, batch, settings)
    free = settings.get("forced_eos_token_id") is not None
    for number, (wanted, hypotheses) in enumerate(zip(expected, found, strict=True)):
        got = [(h.ids, h.finished or (free and len(h.ids) == longest(settings) - 1)) for h in hypotheses]
        assert got == wanted, f"{kind}, {settings}, document {number}"
        yield "cut" if not got[0][1] else "empty" if not got[0][0] else "ended"


def longest(settings: dict[str, Any]) -> int:
    return settings.get("max_new_tokens", settings.get("max_length", 21) - 1)


# One setting of each kind, and the settings of well-known checkpoints (bart-large-cnn; Marian's translators)
SOME: list[dict[str, Any]] = [
    {"max_length": 12, "no_repeat_ngram_size": 2},
    {"num_beams": 4, "max_length": 10},
    {"num_beams": 2, "max_length": 10, "early_stopping": "never", "length_penalty": -1.0, "min_length": 4},
    {"num_beams": 3, "max_new_tokens": 7, "min_new_tokens": 2, "length_penalty": 0.8, "num_return_sequences": 3},
    {"num_beams": 4, "length_penalty": 0.0, "suppress_tokens": [5, 7], "repetition_penalty": 1.3},
    {
        **{"num_beams": 4, "early_stopping": True, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "max_length": 11},
        **{"min_length": 5, "forced_bos_token_id": BOS, "forced_eos_token_id": EOS},
    },
    {
        **{"num_beams": 4, "max_length": 12, "bad_words_ids": [[PAD], [EOS]], "forced_eos_token_id": EOS},
        **{"renormalize_logits": True, "num_return_sequences": 2},
    },
]


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")  # a checkpoint may name no length
@pytest.mark.parametrize(
    "kind",  # `test_bart` compares every family's probabilities, and a search sees nothing else
    [pytest.param(kind, marks=[] if kind == "bart" else pytest.mark.slow) for kind in FAMILY],
)
def test_every_kind_of_setting_on_some_documents(kind: str) -> None:
    kinds: Counter[str] = Counter()
    for settings in SOME:
        kinds.update(compare(kind, settings, count=24))
    assert min(kinds[name] for name in ("cut", "empty", "ended")) >= 3, kinds
