"""Losses and gradients of the coarse-to-fine models against loops over the equations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from coarse_to_fine_reference import Reference, advantages

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.models.coarse_to_fine import CoarseToFine
from catchline.types import Batch, UpdateContext
from samples import VOCAB, random_batch

SIZES: dict[str, Any] = {"embedding_size": 5, "hidden_size": 6, "chunk_words": 3, "dropout": 0.0, "init_range": 0.6}
CONV: dict[str, Any] = {"type": "convolution", "size": 7, "width": 2}
HIERARCHICAL, DRAWN = {"attention": {"type": "hierarchical"}}, {"type": "coarse_to_fine"}
# the reference's kind, and the options
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "standard": ("standard", {"attention": {"type": "standard"}}),
    "standard, chunked": ("standard-chunked", {"attention": {"type": "standard", "encoder": "chunked"}}),
    "hier conv": ("hierarchical", HIERARCHICAL),
    "hier conv relu": ("hierarchical", HIERARCHICAL | {"coarse": {**CONV, "activation": "relu"}}),
    "hier own table": ("hierarchical", HIERARCHICAL | {"coarse": {**CONV, "separate_embedding": True}}),
    "hier bow": ("hierarchical", HIERARCHICAL | {"coarse": {"type": "bag_of_words", "size": 4, "frozen": False}}),
    "hier pos": ("hierarchical", HIERARCHICAL | {"position_size": 3, "position_rows": 2}),
    "hier sparsemax": ("sparsemax", {"attention": {"type": "hierarchical", "normalizer": "sparsemax"}}),
    "hier wide filter": ("hierarchical", HIERARCHICAL | {"coarse": {**CONV, "width": 5}}),
    "c2f": ("coarse_to_fine", {"attention": DRAWN}),
    "c2f multi2": ("coarse_to_fine", {"attention": DRAWN | {"draws": 2}}),
    "c2f multi3 pos": (
        "coarse_to_fine",
        {"attention": DRAWN | {"draws": 3}, "position_size": 2, "position_rows": 9},
    ),
}


def make(options: dict[str, Any]) -> CoarseToFine:
    torch.manual_seed(3)
    spec = {"type": "coarse_to_fine", "coarse": CONV, "chunks": None, **SIZES, **options}
    return build("model", MODELS, spec, vocab_size=VOCAB).double()


def reference_of(model: CoarseToFine, kind: str) -> Reference:
    c = model.config
    reference = Reference(
        dict(model.named_parameters()), kind, layers=c.layers, width=c.coarse.get("width", 0), chunk_words=c.chunk_words
    )
    reference.mask_padding = c.mask_padding
    reference.activation = c.coarse.get("activation", "tanh")
    return reference


def gold(model: CoarseToFine, batch: Batch, kind: str, sampled: Any, top: int) -> tuple[list, list]:
    """Per example: log p of the gold words, and alpha^s of each step, by the reference."""
    reference, scores, policies = reference_of(model, kind), [], []
    for b in range(len(batch.source_ids)):
        length, steps = int(batch.source_mask[b].sum()), int(batch.target_mask[b].sum())
        ids = batch.source_ids[b, :length].tolist()
        fixed = model.config.chunks
        rows = fixed if fixed is not None else max(1, -(-length // model.config.chunk_words))
        chosen = None if sampled is None else [sampled[t][b].tolist() for t in range(steps)]
        out = reference.log_probs(ids, rows, batch.target_input_ids[b, :steps].tolist(), chosen, top)
        words = batch.target_ids[b, :steps].masked_fill(batch.target_ids[b, :steps] >= VOCAB, 1).tolist()
        scores.append([log_p[w] for (log_p, _), w in zip(out, words, strict=True)])
        policies.append([alpha for _, alpha in out])
    return scores, policies


# A grid's size and the mask of its padding say nothing of each other: two names have both, the others meet in pairs.
BOTH = ("hier conv", "c2f multi2")
GRIDS = [
    (name, chunks, masked)
    for name in CASES
    for chunks in (None, 4)
    for masked in (False, True)
    if name in BOTH or masked == (chunks is not None)
]


@pytest.mark.parametrize(("name", "chunks", "masked"), GRIDS)
def test_loss_and_gradients(name: str, chunks: int | None, masked: bool) -> None:
    kind, options = CASES[name]
    model = make(options | {"chunks": chunks, "mask_padding": masked})
    batch = random_batch((8, 5, 1), (4, 3, 1))
    sampled: list[torch.Tensor] = []
    if kind == "coarse_to_fine":  # what the model draws is what the reference is told to read
        keep = model._run
        model._run = lambda *args, **kwargs: _recorded(keep(*args, **kwargs), sampled)  # type: ignore[method-assign]
    output = model(batch, context=UpdateContext(noise_seed=11))
    loss = -output.gold_log_probs.sum()
    scores, policies = gold(model, batch, kind, sampled or None, top=1)
    expected = -sum(s for row in scores for s in row)
    if kind == "coarse_to_fine":
        reinforce = build("objective", OBJECTIVES, {"type": "reinforce", "baseline_order": "subtract_first"}).double()
        reinforce.baseline += 0.25 * torch.arange(len(reinforce.baseline))
        term = reinforce(output, batch)
        loss = loss + term.sum
        rewards = [[s.item() for s in row] for row in scores]
        values = advantages(rewards, [0.25 * t for t in range(4)], 0.5, 0.3)
        for b, row in enumerate(values):
            for t, value in enumerate(row):
                expected = expected - value * sum(policies[b][t][i].log() for i in sampled[t][b].tolist())
        assert int(term.count) == len(batch.source_ids)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-9)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    ours = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    theirs = torch.autograd.grad(expected, list(trained.values()), allow_unused=True)
    for parameter, mine, other in zip(trained, ours, theirs, strict=True):
        mine, other = (torch.zeros(()) if g is None else g for g in (mine, other))
        torch.testing.assert_close(mine, other.expand_as(mine), atol=1e-9, rtol=1e-9, msg=parameter)


def _recorded(trace: Any, sampled: list[torch.Tensor]) -> Any:
    sampled[:] = trace.sampled
    return trace


@pytest.mark.parametrize("top", [1, 2, 5])
def test_evaluation_reads_the_most_probable_chunks(top: int) -> None:
    model = make({"attention": {"type": "coarse_to_fine", "read": top}}).eval()
    batch = random_batch((8, 5, 1), (4, 3, 1))
    with torch.no_grad():
        output = model(batch)
        scores, policies = gold(model, batch, "coarse_to_fine", None, top)
    for b, row in enumerate(scores):
        found = output.gold_log_probs[b, : len(row)]
        torch.testing.assert_close(found, torch.stack(row), atol=1e-10, rtol=0)
        entropy = torch.stack([-sum(a * a.log() for a in step) for step in policies[b]])
        torch.testing.assert_close(output.details["coarse_entropy"][b, : len(row)], entropy, atol=1e-10, rtol=0)
