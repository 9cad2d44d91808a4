"""OpenNMT-py 3.5.1's recurrent model with copying and coverage, as a training step on our batches.

The package asks for an old torch and for tokenizers that a training step never calls, so it is installed on
its own into a separate folder, with nothing it depends on:

    pip install --no-deps --target /tmp/opennmt OpenNMT-py==3.5.1

Its own modules compute everything: encoder, decoder with input feeding, attention, copy generator and loss
(`onmt.utils.loss.LossCompute`, which is what its trainer calls). Modules that it imports without using them
here are replaced by empty ones; its own modules are not touched.
"""

from __future__ import annotations

import importlib
import logging
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from catchline.types import Batch

_PAD, _UNK = 1, 0  # OpenNMT-py's: ours are the other way round
_IMPORTED_ONLY = ("pyonmttok", "spacy", "ahocorasick", "fasttext", "configargparse", "ctranslate2")
_SPECIALS = ("<unk>", "<blank>", "<s>", "</s>")


def find(folder: Path | None) -> str | None:
    """Make ``onmt`` importable, from ``folder`` if given; return its version, None where it is not installed."""
    if folder is not None:
        sys.path.append(str(folder))
    for name in _IMPORTED_ONLY:
        if importlib.util.find_spec(name) is None and importlib.util.find_spec("onmt") is not None:
            sys.modules[name] = _Empty(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.INFO)
            importlib.import_module("onmt.utils.loss")
    except ModuleNotFoundError as error:
        print(f"OpenNMT-py: {error}", file=sys.stderr)
        return None
    return str(sys.modules["onmt"].__version__)


class _Empty(types.ModuleType):
    """A module that has every name, so that ``from name import anything`` and annotations work."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class OpenNmt(nn.Module):
    """``forward(batch) -> loss``: a bidirectional LSTM encoder ``width / 2`` a direction, everything else ``width``.

    In OpenNMT-py one width serves memory, attention, decoder and output layer. See et al.'s model has memory and
    attention 512 wide and decoder and output layer 256 wide, so no width gives the same model: 512 is the same
    attention with an output layer twice as wide, 256 the same output layer with half the attention.
    """

    def __init__(self, *, vocab_size: int, embedding_size: int, width: int) -> None:
        super().__init__()
        onmt = importlib.import_module("onmt")
        decoders = importlib.import_module("onmt.decoders.decoder")
        losses = importlib.import_module("onmt.utils.loss")
        embeddings = onmt.modules.Embeddings(embedding_size, vocab_size, _PAD)
        encoder = onmt.encoders.RNNEncoder("LSTM", True, 1, width, embeddings=embeddings)
        decoder = decoders.InputFeedRNNDecoder(
            "LSTM",
            True,
            1,
            width,
            attn_type="mlp",
            coverage_attn=True,
            copy_attn=True,
            reuse_copy_attn=True,
            embeddings=embeddings,
        )
        self.model = onmt.models.NMTModel(encoder, decoder)
        self.model.generator = onmt.modules.CopyGenerator(width, vocab_size, _PAD)
        criterion = onmt.modules.CopyGeneratorLoss(vocab_size, False, unk_index=_UNK, ignore_index=_PAD)
        self.loss = losses.LossCompute(
            criterion, self.model.generator, copy_attn=True, lambda_coverage=1.0, vocab=_Words.whole(vocab_size)
        )
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """The loss of a batch that `translate` made, a mean over target tokens."""
        outputs, attentions = self.model(batch["src"], batch["tgt"], batch["srclen"])
        loss, statistics = self.loss(batch, outputs, attentions)
        return loss.sum() / statistics.n_words


class _Words:
    """What the loss asks of a vocabulary: its size, a word's id (0 if absent), an id's word."""

    def __init__(self, words: list[str]) -> None:
        self.ids_to_tokens = words
        self._ids = {word: i for i, word in enumerate(words)}

    @classmethod
    def whole(cls, vocab_size: int) -> _Words:
        return cls([*_SPECIALS, *(f"w{i}" for i in range(len(_SPECIALS), vocab_size))])

    def __len__(self) -> int:
        return len(self.ids_to_tokens)

    def __getitem__(self, word: str) -> int:
        return self._ids.get(word, _UNK)


def translate(batch: Batch, vocab_size: int) -> dict[str, Any]:
    """Our batch as OpenNMT-py's loader would have made it: one-hot source map, alignment, a vocabulary a source."""
    vocabularies = [_Words(list(_distinct(row))) for row in batch.source_extended_ids.tolist()]
    source_map = torch.zeros(*batch.source_ids.shape, max(map(len, vocabularies)))
    alignment = torch.zeros(len(batch.target_ids), batch.target_ids.shape[1] + 1, dtype=torch.long)
    for b, words in enumerate(vocabularies):
        columns = [words[f"w{i}"] for i in batch.source_extended_ids[b].tolist()]
        source_map[b, range(len(columns)), columns] = 1
        alignment[b, 1:] = torch.tensor([words[f"w{i}"] for i in batch.target_ids[b].tolist()])
    targets = torch.cat([batch.target_input_ids[:, :1], batch.target_ids], dim=1)
    return {
        "src": _swapped(batch.source_ids).unsqueeze(-1),
        "srclen": batch.source_mask.sum(dim=1),
        "tgt": _swapped(targets.masked_fill(targets >= vocab_size, 1)).unsqueeze(-1),
        "src_map": source_map,
        "alignment": alignment,
        "src_ex_vocab": vocabularies,
    }


def _distinct(row: list[int]) -> Iterator[str]:
    yield from _SPECIALS
    yield from dict.fromkeys(f"w{i}" for i in row)


def _swapped(ids: Tensor) -> Tensor:
    """Our PAD 0 and UNK 1 -> theirs, 1 and 0."""
    return torch.where(ids < 2, 1 - ids, ids)
