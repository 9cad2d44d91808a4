"""A model for tests that summarize: untrained, with large weights, so that its choices are not all alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from catchline.config.schema import RunConfig, SearchConfig, TextConfig, TrainingConfig
from catchline.models.folder import save_model_folder
from catchline.models.seq2seq import Seq2Seq
from catchline.text.tokenizer import WordTokenizer

DOCUMENTS = [
    "the quick fox jumps over the lazy dog . it was late .",
    "a small cat sat on the mat .",
    "Zebratown sees the quick bird and the old dog in Zebratown .",
    "it was late",
    "the old cat and the old dog sat on the mat and it was late , very late , said Ellinghaus .",
]


def save_tiny_model(
    path: Path,
    texts: Sequence[str] = DOCUMENTS,
    *,
    max_source_tokens: int = 40,
    search: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Save one whose vocabulary is that of ``texts`` without Zebratown and Ellinghaus; ``config`` is of `Seq2Seq`."""
    torch.manual_seed(3)
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([text.replace("Zebratown", "").replace("Ellinghaus", "") for text in texts])
    sizes = {"embedding_size": 8, "encoder_hidden": 8, "hidden_size": 8}
    model = Seq2Seq(Seq2Seq.Config(**sizes, **config), vocab_size=tokenizer.vocab_size)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.9)
    run = RunConfig(
        name="tiny",
        model={"type": "seq2seq"},
        training=TrainingConfig(max_updates=1),
        text=TextConfig(max_source_tokens=max_source_tokens, max_target_tokens=10),
        search=SearchConfig(**(search or {"beam_size": 2, "max_length": 7, "min_length": 3})),
    )
    return save_model_folder(path, model=model, tokenizer=tokenizer, run=run)
