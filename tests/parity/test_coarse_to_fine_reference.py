"""Coarse-to-fine attention once more, from the equations: one example, one step and one word at a time, in float64.

Written from the paper and the readings in docs/coarse_to_fine.md, as `plain` has it; the grid's padding is `None`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plain import affine, lstm, softmax, zero
from torch import Tensor

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.models.coarse_to_fine import CoarseToFine
from catchline.types import Batch, UpdateContext
from samples import VOCAB, random_batch


class Reference:
    """``kind``: standard, standard-chunked, hierarchical, sparsemax, coarse_to_fine. No dropout."""

    def __init__(self, model: CoarseToFine, kind: str) -> None:
        self.p, self.kind, self.o = dict(model.named_parameters()), kind, model.config
        self.layers, self.n, self.hidden = self.o.layers, self.o.chunk_words, self.o.hidden_size
        kinds = {name.rpartition(".")[2] for name in self.p if ".layers." in name}
        assert kinds == {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0"}, "a cell has one bias"

    # ------------------------------------------------------------------------------ encoder

    def recur(self, stack: str, x: Tensor, state: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One word through the layers of a stack, whose ``state`` moves on."""
        for layer in range(self.layers):
            state[layer] = lstm(self.p, f"{stack}.layers.{layer}.{{}}_l0", x, *state[layer])
            x = state[layer][0]
        return x

    def run_words(self, embedded: list[Tensor | None]) -> list[Tensor]:
        """States of a sequence from the zero state; a padding word (None) leaves the zero vector in its place."""
        nothing = torch.zeros(self.hidden, dtype=torch.float64)
        state = [(nothing, nothing)] * self.layers
        return [nothing if x is None else self.recur("encoder", x, state) for x in embedded]

    def read(self, ids: list[int], rows: int) -> tuple[list[list[Tensor]], list[list[bool]]]:
        """The document's grid of ``rows`` chunks: word states, and which cells are real words."""
        cells: list[int | None] = [*ids[: rows * self.n]]
        cells += [None] * (rows * self.n - len(cells))
        grid = [cells[r * self.n : (r + 1) * self.n] for r in range(rows)]
        table = self.p["embedding.weight"]
        embed = [[None if w is None else table[w] for w in row] for row in grid]
        if self.kind == "standard":
            flat = self.run_words([x for row in embed for x in row])
            states = [flat[r * self.n : (r + 1) * self.n] for r in range(rows)]
        else:
            states = [self.run_words(row) for row in embed]
        self.grid = grid
        return states, [[w is not None for w in row] for row in grid]

    def coarse(self) -> list[Tensor]:
        """CONV or BOW of each chunk, with +POS its place's vector."""
        vectors = []
        for place, row in enumerate(self.grid):
            if "coarse.filters.weight" in self.p:
                table = self.p["embedding.weight"]
                words = [torch.zeros(table.shape[1], dtype=torch.float64) if w is None else table[w] for w in row]
                kernel = self.p["coarse.filters.weight"]  # (F, E, width)
                while len(words) < kernel.shape[2]:
                    words.append(torch.zeros(table.shape[1], dtype=torch.float64))
                windows = []
                for start in range(len(words) - kernel.shape[2] + 1):
                    total = self.p["coarse.filters.bias"]
                    for u in range(kernel.shape[2]):
                        total = total + kernel[:, :, u] @ words[start + u]
                    windows.append(self.act(total))
                vector = torch.stack(windows).max(dim=0).values
            else:
                table = self.p["coarse.own.weight"]
                vector = torch.zeros(table.shape[1], dtype=torch.float64)
                for w in row:
                    vector = vector if w is None else vector + table[w]
            if "positions.weight" in self.p:
                table = self.p["positions.weight"]
                vector = torch.cat([vector, table[min(place, len(table) - 1)]])
            vectors.append(vector)
        return vectors

    def act(self, x: Tensor) -> Tensor:
        return {"tanh": torch.tanh, "relu": torch.relu, "none": lambda v: v}[self.o.coarse.get("activation", "tanh")](x)

    # ------------------------------------------------------------------------------ attention

    def sparse(self, scores: list[Tensor], real: list[bool]) -> list[Tensor]:
        """The simplex projection by its definition: tau with sum max(z - tau, 0) = 1."""
        kept = sorted((s for s, r in zip(scores, real, strict=True) if r), key=torch.Tensor.item, reverse=True)
        tau = kept[0] - 1
        for k in range(1, len(kept) + 1):
            candidate = (sum(kept[:k]) - 1) / k
            if kept[k - 1].item() > candidate.item():
                tau = candidate
        return [torch.clamp(s - tau, min=0) if r else zero() for s, r in zip(scores, real, strict=True)]

    def attend(self, h: Tensor, states: list, real: list, picks: list[int] | None, top: int) -> tuple[Tensor, dict]:
        """c~ of one step, with log alpha^s where there is one."""
        fine = self.p["attention.fine_query.weight"] @ h
        may = [[r or not self.o.mask_padding for r in row] for row in real]
        if self.kind.startswith("standard"):
            flat = [s for row in states for s in row]
            weights = softmax(torch.stack([s @ fine for s in flat]), [m for row in may for m in row])
            return sum(w * s for w, s in zip(weights, flat, strict=True)), {}
        wanted = self.p["attention.coarse_query.weight"] @ h
        scores = [vector @ wanted for vector in self.vectors]
        chunk_may = [any(row) for row in may]
        alpha = self.sparse(scores, chunk_may) if self.kind == "sparsemax" else softmax(torch.stack(scores), chunk_may)
        within = []
        for row, ok in zip(states, may, strict=True):
            weights = softmax(torch.stack([s @ fine for s in row]), ok)
            within.append(sum(w * s for w, s in zip(weights, row, strict=True)))
        if self.kind != "coarse_to_fine":
            return sum(a * c for a, c in zip(alpha, within, strict=True)), {"alpha": alpha}
        if picks is None:
            order = sorted(range(len(alpha)), key=lambda i: (-alpha[i].item(), i))[:top]
            total = sum(alpha[i] for i in order)
            shares = {i: alpha[i] / total for i in order}
        else:
            shares = {}
            for i in picks:
                shares[i] = shares.get(i, 0.0) + 1.0 / len(picks)
        return sum(share * within[i] for i, share in shares.items()), {"alpha": alpha}

    # -------------------------------------------------------------------------------- decoder

    def log_probs(self, ids: list[int], rows: int, inputs: list[int], picks: list[list[int]] | None, top: int = 1):
        """Per step: log p over the vocabulary, and alpha^s (None for STANDARD)."""
        states, real = self.read(ids, rows)
        if "attention.coarse_query.weight" in self.p:
            self.vectors = self.coarse()
        feed, out = torch.zeros(self.hidden, dtype=torch.float64), []
        state = [(feed, feed)] * self.layers
        for t, word in enumerate(inputs):
            x = self.recur("decoder", torch.cat([self.p["target_embedding.weight"][word], feed]), state)
            context, found = self.attend(x, states, real, None if picks is None else picks[t], top)
            feed = torch.tanh(self.p["merge.weight"] @ torch.cat([context, x]))
            out.append((softmax(affine(self.p, "head.projection", feed)).log(), found.get("alpha")))
        return out


def advantages(rewards: list[list[float]], baseline: list[float], gamma: float, scale: float) -> list[list[float]]:
    """A_t = lambda sum_{s >= t} gamma^(s - t) (r_s - b_s), by two loops; ragged rows, ended ones stop."""
    return [
        [scale * sum(gamma ** (s - t) * (row[s] - baseline[s]) for s in range(t, len(row))) for t in range(len(row))]
        for row in rewards
    ]


SIZES: dict[str, Any] = {"embedding_size": 5, "hidden_size": 6, "chunk_words": 3, "dropout": 0.0, "init_range": 0.6}
CONV: dict[str, Any] = {"type": "convolution", "size": 7, "width": 2}
HIERARCHICAL, DRAWN = {"attention": {"type": "hierarchical"}}, {"type": "coarse_to_fine"}
# the reference's kind, and the options
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "standard": ("standard", {"attention": {"type": "standard"}}),
    "standard, chunked": ("standard-chunked", {"attention": {"type": "standard", "encoder": "chunked"}}),
    "hier conv": ("hierarchical", HIERARCHICAL),
    "hier conv relu": ("hierarchical", HIERARCHICAL | {"coarse": {**CONV, "activation": "relu"}}),
    "hier bow": ("hierarchical", HIERARCHICAL | {"coarse": {"type": "bag_of_words", "size": 4, "frozen": False}}),
    "hier pos": ("hierarchical", HIERARCHICAL | {"position_size": 3, "position_rows": 2}),
    "hier sparsemax": ("sparsemax", {"attention": {"type": "hierarchical", "normalizer": "sparsemax"}}),
    "hier wide filter": ("hierarchical", HIERARCHICAL | {"coarse": {**CONV, "width": 5}}),
    "c2f": ("coarse_to_fine", {"attention": DRAWN}),
    "c2f multi2": ("coarse_to_fine", {"attention": DRAWN | {"draws": 2}}),
    "c2f multi3 pos": ("coarse_to_fine", {"attention": DRAWN | {"draws": 3}, "position_size": 2, "position_rows": 9}),
}


def make(options: dict[str, Any]) -> CoarseToFine:
    torch.manual_seed(3)
    spec = {"type": "coarse_to_fine", "coarse": CONV, "chunks": None, **SIZES, **options}
    return build("model", MODELS, spec, vocab_size=VOCAB).double()


def gold(model: CoarseToFine, batch: Batch, kind: str, sampled: Any, top: int) -> tuple[list, list]:
    """Per example: log p of the gold words, and alpha^s of each step, by the reference."""
    reference, scores, policies = Reference(model, kind), [], []
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
        assert not output.details["coarse_entropy"][b, len(row) :].any()
