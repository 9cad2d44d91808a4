"""Learning what texts are about: a vector a word, such that a text and its summary point the same way.

    u(x) = sum_{w in x} v_w        topic(x, y) = cos(u(x), u(y))

A batch has B texts x_i with their summaries y_i; each text shall find its own summary among them and the other way
round (contrastive learning with the other pairs of the batch as negatives):

    L = - 1/2B sum_i [ ln softmax_j(s cos(u(x_i), u(y_j)))_i + ln softmax_j(s cos(u(x_j), u(y_i)))_i ]

with a scale s that is learnt too. Bags of words know no grammar, but they know what a line leaves out: rare words grow
long vectors, words that every text has short ones. `laconic.metrics.confidence` looks at the cosine when it chooses
among the lines of a beam.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import cross_entropy, embedding_bag, normalize

from laconic.data.dataset import EncodedDataset
from laconic.metrics.confidence import TOPIC_SIZE
from laconic.text.base import Tokenizer

BATCH = 256
UPDATES = 5000
LEARNING_RATE = 3e-3
RARE = 1e-3  # the share of all words below which a word's first vector is long
COUNTED = 20_000  # pairs, for these shares
FIRST_SCALE = 20.0


def learn_word_vectors(
    data: EncodedDataset,
    tokenizer: Tokenizer,
    *,
    updates: int = UPDATES,
    seed: int = 1,
    progress: Callable[[int], object] | None = None,
) -> np.ndarray:
    """Vectors (V, `TOPIC_SIZE`) from texts, as far as the model reads them, and their summaries.

    ``progress`` is told of each update. Equal arguments give equal vectors on equal machines.
    """
    drawn, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    size = tokenizer.vocab_size
    no_words = [*tokenizer.special_ids, tokenizer.unk_id]

    def words(place: int) -> list[np.ndarray]:
        example = data[place]
        both = [ids for ids in (example.source_extended_ids, example.target_extended_ids) if ids is not None]
        return [ids[(ids < size) & ~np.isin(ids, no_words)] for ids in both]

    counted = [ids for place in drawn.permutation(len(data))[:COUNTED].tolist() for ids in words(place)]
    shares = torch.from_numpy(np.bincount(np.concatenate(counted), minlength=size) + 1.0)
    rarity = torch.log1p(RARE * shares.sum() / shares).float()
    vectors = torch.randn(size, TOPIC_SIZE, generator=generator) * rarity[:, None] / TOPIC_SIZE**0.5
    vectors[no_words] = 0.0
    scale = torch.tensor(FIRST_SCALE).log()
    learnt = [vectors.requires_grad_(), scale.requires_grad_()]
    optimizer = torch.optim.Adam(learnt, lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, updates)
    for _ in range(updates):
        chosen = drawn.integers(len(data), size=min(BATCH, len(data))).tolist()
        texts, summaries = zip(*map(words, chosen), strict=True)
        logits = scale.exp() * _directions(texts, vectors) @ _directions(summaries, vectors).T
        own = torch.arange(len(chosen))
        loss = (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if progress:
            progress(1)
    return vectors.detach().numpy()


def _directions(texts: Sequence[np.ndarray], vectors: torch.Tensor) -> torch.Tensor:
    """u(x) (B, `TOPIC_SIZE`), of length one."""
    starts = torch.from_numpy(np.cumsum([0, *map(len, texts)])[:-1])
    flat = torch.from_numpy(np.concatenate(texts).astype(np.int64))
    return normalize(embedding_bag(flat, vectors, starts, mode="sum"), dim=-1)
