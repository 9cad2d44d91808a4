"""An answer hidden in one of eight chunks: coarse-to-fine attention learns which chunk to read, and reads no other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import SearchConfig
from catchline.search.torch_bridge import decode
from catchline.types import Batch, TrainingBatch, UpdateContext

VOCABULARY, CHUNKS, WORDS, MARK = 20, 8, 5, 4


def documents(count: int, seed: int) -> tuple[Batch, Tensor]:
    """Noise words, and somewhere the mark with two words behind it, which are the summary; and the chunk it is in."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.randint(5, VOCABULARY, (count, CHUNKS, WORDS), generator=generator)
    chunk = torch.randint(CHUNKS, (count,), generator=generator)
    place = torch.randint(WORDS - 2, (count,), generator=generator)
    answer = torch.randint(5, VOCABULARY, (count, 2), generator=generator)
    rows = torch.arange(count)
    grid[rows, chunk, place] = MARK
    grid[rows, chunk, place + 1], grid[rows, chunk, place + 2] = answer.unbind(1)
    source, target = grid.flatten(1), torch.cat([answer, torch.full((count, 1), 3)], dim=1)
    batch = TrainingBatch(
        source_ids=source,
        source_extended_ids=source,
        source_mask=torch.ones_like(source, dtype=torch.bool),
        extended_vocab_size=VOCABULARY,
        target_ids=target,
        target_input_ids=torch.cat([torch.full((count, 1), 2), answer], dim=1),
        target_mask=torch.ones_like(target, dtype=torch.bool),
    )
    return batch, chunk


@pytest.mark.slow
def test_the_hidden_answer_is_found() -> None:
    torch.manual_seed(0)
    spec = {
        "type": "coarse_to_fine",
        "attention": {"type": "coarse_to_fine"},
        "coarse": {"type": "convolution", "size": 32, "width": 3},
        "embedding_size": 24,
        "hidden_size": 48,
        "layers": 1,
        "dropout": 0.0,
        "chunks": CHUNKS,
        "chunk_words": WORDS,
        "alternate": 0.5,  # the policy is paid for the right chunk only once the words in it can be read
    }
    model = build("model", MODELS, spec, vocab_size=VOCABULARY)
    objectives = [
        build("objective", OBJECTIVES, {"type": "nll", "reduction": "sentence"}),
        build("objective", OBJECTIVES, {"type": "reinforce"}),
    ]
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    for update in range(1200):
        batch, _ = documents(32, update)
        output = model.train()(batch, context=UpdateContext(noise_seed=update))
        for objective in objectives:
            objective.see(output, batch)
            objective.seen()
        terms = [objective(output, batch) for objective in objectives]
        optimizer.zero_grad()
        sum(term.sum / term.count for term in terms).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    batch, chunk = documents(200, 10**6)
    with torch.no_grad():
        entropy = model.eval()(batch).details["coarse_entropy"][:, :2].mean()
    config = SearchConfig(beam_size=1, max_length=3, length_normalisation="none")
    found = decode(model, batch, config, unk_id=1, bos_id=2, eos_id=3, pad_id=0)
    right = [h[0].ids == target[:2].tolist() for h, target in zip(found, batch.target_ids, strict=True)]
    read = [set(h[0].details["sampled"][:2, 0].tolist()) for h in found]
    assert sum(right) / len(right) > 0.95
    assert float(entropy) < 0.3  # of ln 8 = 2.08
    assert sum(len(picks) for picks in read) / len(read) < 1.2
    assert sum(where in picks for where, picks in zip(chunk.tolist(), read, strict=True)) / len(read) > 0.95
