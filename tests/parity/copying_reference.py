"""Copying on a Transformer (Li et al. 2021, Xu et al. 2020), written a second time: one document and one decoder step
at a time, in float64, probabilities in full, from the papers' equations and the readings in
docs/coconet.md, and nothing else.

Nothing is batched. Parameters of the Transformer are looked up by their names, its states come from the model, so
that the gradients of both can be compared. Source position j is copied from, i copied to; matrices are [j, i].

| paper | here |
| --- | --- |
| e, alpha (6-9) | `heads_of`, their mean |
| lambda (10), u (13), g (15), sigma (21) | `CopyingReference.gate`: sigmoid(w . x + b), by the names of `GATES` |
| s (16-19), p (20) | ``semantic``, ``positional`` of `Chain` |
| rel (12), P_co (11), P_final (14), P (5) | `CopyingReference.steps`, local names |
| c (centrality) | `centrality_of` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from plain import affine, sigmoid, softmax, zero
from torch import Tensor

DEFAULTS: dict[str, Any] = {
    "use_semantic": True,
    "use_positional": True,
    "detach_history": False,
    "co_norm": "none",
    "normalise": "row",
    "self_transfer": "zero_renorm",
    "clip_mode": "clamp",
    "clip_distance": 16,
    "u_input": "decoder_query",
    "sigma_input": "encoder_query",
    "g_input": "sum",
    "values": "v_proj",
    "lambda_input": "context",
    "context_heads": "mean",
    "first_step": "attention",
    "prob_floor": None,
    "centrality": "indegree-2",
}
RELEASE: dict[str, Any] = {
    "co_norm": "softmax",
    "normalise": "none",
    "self_transfer": "keep",
    "u_input": "source_state",
    "sigma_input": "encoder_state",
    "g_input": "concat",
    "values": "encoder_states",
    "lambda_input": "decoder_state",
    "prob_floor": 1e-6,
}
GATES = {"lambda": "generation", "u": "semantic_gate", "g": "attention_gate", "sigma": "spread"}
LITERAL: dict[str, Any] = {"self_transfer": "zero", "normalise": "none", "first_step": "literal"}


@dataclass(frozen=True)
class Document:
    """One document and its T decoder steps as the model sees them, padding included."""

    ids: list[int]  # S extended ids
    real: list[bool]  # S
    encoder_inputs: Tensor  # (S, D) what the last encoder layer's self-attention projects
    encoder_states: Tensor  # (S, D) the encoder's output
    copy_states: Tensor  # (T, D) what the cross attention of the copy layer projects
    hidden: Tensor  # (T, D) the decoder's output
    copyable: list[bool] | None = None  # S, where some real tokens (the special ones) are never copied

    @property
    def length(self) -> int:
        return sum(self.real)

    def may_be_copied(self, i: int) -> bool:
        return self.real[i] and (self.copyable is None or self.copyable[i])


@dataclass(frozen=True)
class Chain:
    """s and p, (S, S) each, as the recurrence multiplies by them; their rows' sigma (S,)."""

    semantic: Tensor
    positional: Tensor
    sigma: Tensor


@dataclass(frozen=True)
class ReferenceStep:
    """One decoder step over S positions and X words. ``u`` is () or, of source states, (S,)."""

    attention: Tensor  # alpha of all real tokens
    alpha: Tensor  # of those that may be copied
    co: Tensor
    final: Tensor
    generate: Tensor  # lambda
    u: Tensor
    g: Tensor
    probs: Tensor


def divided(row: Tensor) -> Tensor:
    """A row that sums to one; a row of zeros stays."""
    total = row.sum()
    return row / total if float(total.detach()) > 0 else row


# ------------------------------------------------------------------------- equations 16 to 21


def density(distance: float, sigma: Tensor) -> Tensor:
    """Equation 20 as printed."""
    return torch.exp(-(distance**2) / (2 * sigma**2)) / ((2 * pi) ** 0.5 * sigma)


def clipped(j: int, i: int, options: Mapping[str, Any]) -> float | None:
    """D(j, i); none: beyond the cutoff, nothing goes there."""
    distance, limit = abs(j - i), options["clip_distance"]
    if options["clip_mode"] == "clamp":
        return min(distance, limit)
    return None if options["clip_mode"] == "cutoff" and distance > limit else distance


def is_reached(document: Document, j: int, i: int, options: Mapping[str, Any]) -> bool:
    """May position i be copied after position j?"""
    if not (document.may_be_copied(j) and document.may_be_copied(i)):
        return False
    kind = options["self_transfer"]
    return {"keep": True, "type": document.ids[j] != document.ids[i]}.get(kind, j != i)


def semantic_of(attention: Tensor, document: Document, options: Mapping[str, Any]) -> Tensor:
    """s (S, S) from the encoder's head-averaged attention (S, S)."""
    size = len(document.ids)
    rows = []
    for j in range(size):
        reached = [is_reached(document, j, i, options) for i in range(size)]
        row = torch.stack([attention[j, i] if reached[i] else zero() for i in range(size)])
        scaled = options["self_transfer"] in ("zero_renorm", "type") or document.copyable is not None
        rows.append(divided(row) if scaled else row)
    return torch.stack(rows)


def positional_row(j: int, sigma: Tensor, document: Document, options: Mapping[str, Any]) -> Tensor:
    """p(j, .) (S,) for one sigma ()."""
    size = len(document.ids)
    distances = [clipped(j, i, options) for i in range(size)]
    reached = [is_reached(document, j, i, options) and distances[i] is not None for i in range(size)]
    if options["normalise"] == "row":
        squares = torch.tensor([(d or 0) ** 2 for d in distances], dtype=torch.float64)
        if options["self_transfer"] != "zero":
            return softmax(-squares / (2 * sigma**2), reached)
        kept = {**options, "self_transfer": "keep"}  # what the diagonal held is lost
        whole = [is_reached(document, j, i, kept) and distances[i] is not None for i in range(size)]
        return softmax(-squares / (2 * sigma**2), whole) * torch.tensor(reached)
    values = [density(d, sigma) if ok else zero() for d, ok in zip(distances, reached, strict=True)]
    return torch.stack(values)


def positional_of(sigma: Tensor, document: Document, options: Mapping[str, Any]) -> Tensor:
    """p (S, S) from sigma (S,)."""
    return torch.stack([positional_row(j, sigma[j], document, options) for j in range(len(document.ids))])


# ----------------------------------------------------------------------------- ----- SAGCopy


def centrality_of(attention: Tensor, real: Sequence[bool], kind: str) -> Tensor:
    """c (S,) from the encoder's head-averaged attention (S, S): ``outdegree`` or ``indegree-n``."""
    size, length = len(real), sum(real)
    a = [[attention[j, i] if real[j] and real[i] else zero() for i in range(size)] for j in range(size)]
    if kind == "outdegree":
        return torch.stack([sum(a[j][i] for j in range(size)) / length for i in range(size)])
    columns = [sum(a[j][i] for j in range(size)) + 1e-6 for i in range(size)]
    t = [[a[j][i] / columns[i] for i in range(size)] for j in range(size)]
    c = [sum(t[j][i] for i in range(size)) / length for j in range(size)]
    for _ in range(int(kind.removeprefix("indegree-")) - 1):
        c = [0.85 * sum(t[j][i] * c[i] for i in range(size)) + 0.15 * c[j] for j in range(size)]
    return torch.stack(c)


def guided_attention(alpha: Tensor, centrality: Tensor, weight: Tensor, length: int) -> Tensor:
    """alpha' of one step: proportional to alpha exp(w_c |x| c)."""
    return divided(alpha * torch.exp(weight * length * centrality))


def guidance_loss(alphas: Sequence[Tensor], centrality: Tensor, real: Sequence[bool]) -> Tensor:
    """KL(mean over the real steps of alpha || c) of one document."""
    mean = sum(alphas) / len(alphas)
    c = centrality.clamp(1e-9, 1 - 1e-9)
    terms = [mean[i] * torch.log(mean[i] / c[i]) for i in range(len(real)) if real[i]]
    return sum(terms)


# ------------------------------------------------------------------------------ equation 5


def words_of(document: Document, generated: Tensor, copied: Tensor, share: Tensor, size: int) -> Tensor:
    """P (X,): lambda P_gen + (1 - lambda) sum of the positions that hold the word."""
    probs = [share * p for p in generated] + [zero() for _ in range(size - len(generated))]
    for i, word in enumerate(document.ids):
        probs[word] = probs[word] + (1 - share) * copied[i]
    return torch.stack(probs)


class CopyingReference:
    """One head of a Transformer: ``options`` are the head's, and override `DEFAULTS`."""

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        self.kind, self.o, self.p = options["type"], {**DEFAULTS, **options}, dict(model.named_parameters())
        self.num_heads = model.config.num_heads
        self.cross = f"decoder.layers.{model.attention_layer % model.config.decoder_layers}.cross_attention.in_proj"
        self.own = f"encoder.layers.{model.config.encoder_layers - 1}.self_attention.in_proj"
        self.words = self.p["embedding.weight"]

    def gate(self, name: str, x: Tensor) -> Tensor:
        return sigmoid(affine(self.p, f"head.{GATES[name]}", x)[0])

    def project(self, name: str, which: int, x: Tensor) -> Tensor:
        """Queries (0), keys (1) or values (2), all heads side by side: (N, D) -> (N, D)."""
        size = x.shape[1]
        rows = slice(which * size, (which + 1) * size)
        return x @ self.p[f"{name}.weight"][rows].t() + self.p[f"{name}.bias"][rows]

    def heads_of(self, name: str, queries: Tensor, keys: Tensor, real: Sequence[bool]) -> list[Tensor]:
        """Equations 6 to 8 (and 16 to 18): the weights of each head, (Q, S)."""
        q, k = self.project(name, 0, queries), self.project(name, 1, keys)
        width, maps = q.shape[1] // self.num_heads, []
        for h in range(self.num_heads):
            own = slice(h * width, (h + 1) * width)
            scores = q[:, own] @ k[:, own].t() / width**0.5
            maps.append(torch.stack([softmax(row, real) for row in scores]))
        return maps

    def encoder_attention(self, document: Document) -> Tensor:
        """Equation 19 before history is cut and rescaled: (S, S), every row a softmax over the real tokens."""
        maps = self.heads_of(self.own, document.encoder_inputs, document.encoder_inputs, document.real)
        return sum(maps) / len(maps)

    def chain(self, document: Document) -> Chain:
        """Equations 16 to 21, the history cut and rescaled."""
        by_query = self.o["sigma_input"] == "encoder_query"
        inputs = self.project(self.own, 0, document.encoder_inputs) if by_query else document.encoder_states
        scale = document.length / 2
        spread = "head.spread.weight" in self.p
        sigma = torch.stack([scale * self.gate("sigma", x) if spread else zero() + 1 for x in inputs])
        positional = positional_of(sigma, document, self.o)
        return Chain(semantic_of(self.encoder_attention(document), document, self.o), positional, sigma)

    def centrality(self, document: Document) -> Tensor:
        return centrality_of(self.encoder_attention(document), document.real, self.o["centrality"])

    def context(self, weights: Tensor, document: Document, maps: list[Tensor] | None = None) -> Tensor:
        """Sum over i of weights_i V_i: (D,). With ``maps`` (H of (S,)) each head weighs its own share of V."""
        values = document.encoder_states
        if self.o["values"] == "v_proj":
            values = self.project(self.cross, 2, document.encoder_states)
        rows = [i for i in range(len(document.ids)) if document.real[i]]
        if maps is None:
            return sum(weights[i] * values[i] for i in rows)
        parts = values.chunk(self.num_heads, dim=1)
        return torch.cat([sum(m[i] * part[i] for i in rows) for m, part in zip(maps, parts, strict=True)])

    def steps(self, document: Document, size: int, chain: Chain | None = None) -> list[ReferenceStep]:
        """All steps of a document over ``size`` = X words."""
        heads = self.heads_of(self.cross, document.copy_states, document.encoder_states, document.real)
        queries = self.project(self.cross, 0, document.copy_states)
        if self.kind == "correlational" and chain is None:
            chain = self.chain(document)
        centrality = self.centrality(document) if self.kind == "guided" else None
        found: list[ReferenceStep] = []
        for t in range(len(document.hidden)):
            maps = [head[t] for head in heads]
            attention = alpha = sum(maps) / len(maps)
            if document.copyable is not None:
                alpha = divided(alpha * torch.tensor(document.copyable, dtype=torch.float64))
            per_head = maps if self.o["context_heads"] == "per_head" else None
            seen = self.context(alpha, document, per_head)
            lambda_input = seen if self.o["lambda_input"] == "context" else document.hidden[t]
            generate = self.gate("lambda", lambda_input)
            u = g = co = zero()
            final = alpha
            if centrality is not None:
                final = guided_attention(alpha, centrality, self.p["head.guide"], document.length)
            if chain is not None:
                before = found[-1].final if found else None
                u, co = self.copied_on(before, queries[t], document, chain)
                g, final = self.gated(alpha, co, seen, document, first=before is None)
            generated = softmax(self.words @ document.hidden[t])
            probs = words_of(document, generated, final, generate, size)
            if self.o["prob_floor"]:
                exist = torch.tensor([w < len(generated) or w in document.ids for w in range(size)])
                probs = torch.where(exist, probs.clamp(self.o["prob_floor"], 1 - self.o["prob_floor"]), probs)
            found.append(ReferenceStep(attention, alpha, co, final, generate, u, g, probs))
        return found

    def copied_on(
        self, before: Tensor | None, query: Tensor, document: Document, chain: Chain
    ) -> tuple[Tensor, Tensor]:
        """Equations 11 to 13: u and P_co (S,)."""
        size = len(document.ids)
        if not self.o["use_semantic"]:
            u = zero()
        elif not self.o["use_positional"]:
            u = zero() + 1
        elif self.o["u_input"] == "decoder_query":
            u = self.gate("u", query)
        else:
            u = torch.stack([self.gate("u", x) for x in document.encoder_states])
        if before is None:
            return u, torch.zeros(size, dtype=torch.float64)
        if self.o["detach_history"]:
            before = before.detach()
        of_row = u[:, None] if u.dim() else u
        rel = of_row * chain.semantic + (1 - of_row) * chain.positional
        co = before @ rel
        if self.o["co_norm"] == "l1":
            co = divided(co)
        elif self.o["co_norm"] == "softmax" and float(co.detach().sum()) > 0:
            where = [document.may_be_copied(i) for i in range(size)]
            co = softmax(co, where)
        return u, co

    def gated(
        self, alpha: Tensor, co: Tensor, seen: Tensor, document: Document, *, first: bool
    ) -> tuple[Tensor, Tensor]:
        """Equations 14 and 15: g and P_final (S,); g counts as 1 where there is nothing but alpha."""
        carried = self.context(co, document)
        g = self.gate("g", seen + carried if self.o["g_input"] == "sum" else torch.cat([seen, carried]))
        nothing = not float(co.detach().sum())
        if self.o["first_step"] == "attention" and (first or nothing):
            return zero() + 1, alpha
        return g, g * alpha + (1 - g) * co
