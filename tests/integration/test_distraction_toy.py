"""Where M1 starts decides how fast it learns: a toy task, and its losses as a table (``pytest -s -m slow``).

A source has 8 to 15 symbols, up to five of them marked; the summary is the marked ones in order. The model and the
optimizer are the paper's in small: m 24, n 48, l 32, batch 32, Adadelta, clipping at 100.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest
import torch

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import OptimizerConfig
from catchline.training.optim import build_optimizer
from catchline.types import Batch, TrainingBatch

SYMBOLS, BATCH, EOS = 8, 32, 3
VOCAB = 4 + 2 * SYMBOLS  # plain and marked

WAYS: dict[str, dict[str, Any]] = {
    "M1 off": {"content": False},
    "w_c = 1, u_c small": {"content": True, "m1_init": "identity"},
    "both small (released)": {"content": True, "m1_init": "released"},
}


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])


def toy_batch(generator: torch.Generator) -> Batch:
    """Random documents; a marked symbol is another word than the symbol unmarked."""

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    sources, targets = [], []
    for _ in range(BATCH):
        symbols = [draw(0, SYMBOLS - 1) for _ in range(draw(8, 15))]
        marked = sorted(torch.randperm(len(symbols), generator=generator)[: draw(1, 5)].tolist())
        sources.append([4 + s + (SYMBOLS if i in marked else 0) for i, s in enumerate(symbols)] + [EOS])
        targets.append([4 + symbols[i] for i in marked] + [EOS])
    source, source_mask = padded(sources)
    target, target_mask = padded(targets)
    first = torch.full((BATCH, 1), 2)
    return TrainingBatch(
        source_ids=source,
        source_extended_ids=source,
        source_mask=source_mask,
        extended_vocab_size=VOCAB,
        target_input_ids=torch.cat([first, target[:, :-1]], dim=1),
        target_ids=target,
        target_mask=target_mask,
    )


def losses_of(options: dict[str, Any], updates: int) -> list[float]:
    """The loss of b8 of every update."""
    torch.manual_seed(1)
    attention = {"type": "distraction", "size": 32, "history": False, **options}
    spec = {"type": "distraction", "embedding_size": 24, "hidden_size": 48, "attention": attention}
    model = build("model", MODELS, spec, vocab_size=VOCAB)
    nll = build("objective", OBJECTIVES, {"type": "nll", "reduction": "sentence"})
    adadelta = OptimizerConfig(type="adadelta", learning_rate=1.0, rho=0.95, epsilon=1e-6)
    optimizer = build_optimizer(adadelta, model.parameters())
    generator, losses = torch.Generator().manual_seed(2), []
    for _ in range(updates):
        batch = toy_batch(generator)
        term = nll(model(batch), batch)
        loss = term.sum / term.count
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.slow
def test_m1_learns_when_it_starts_as_the_identity() -> None:
    """Near zero, w_c all but closes the way from the encoder to the words at the start."""
    marks = (0, 400, 900, 1400, 1900, 2400)
    figures = {}
    for name, options in WAYS.items():
        losses = losses_of(options, 2500)
        figures[name] = [fmean(losses[start : start + 100]) for start in marks]
        print(f"{name:<24}", "  ".join(f"{value:5.2f}" for value in figures[name]))
    off, identity, released = figures.values()
    assert identity[-1] < 0.5 * identity[0]
    assert abs(identity[-1] - off[-1]) < 0.2 * off[0]
    assert released[-1] > identity[-1] + 0.5
