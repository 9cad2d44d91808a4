"""A model whose probabilities stand in a table, and slow searches to compare with.

Token ids: PAD 0, UNK 1, BOS 2, EOS 3, words from 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch
from torch import Tensor

from catchline.config.schema import SearchConfig
from catchline.search.beam import beam_search
from catchline.search.scorers import Scorer, SpecialIds, build_scorers
from catchline.search.torch_bridge import TorchMemory, TorchModel, TorchState
from catchline.types import Batch, Hypothesis, Memory, Shared, StepOutput

SPECIALS = SpecialIds(unk_id=1, bos_id=2, eos_id=3, pad_id=0)
BOS, EOS = 2, 3


@dataclass
class PathState:
    """Remembers its own path; a wrong re-ordering is noticed at the next step."""

    path: Tensor  # (N, t) what this row has read so far
    document: Tensor  # (N,)


class TableModel:
    """P(next | document, last two tokens) and attention by (document, last token), all from tables."""

    def __init__(self, documents: int, vocab: int, source: int = 5, seed: int = 0, sharpness: float = 1.5):
        generator = torch.Generator().manual_seed(seed)
        scores = torch.randn(documents, vocab, vocab, vocab, generator=generator, dtype=torch.float64)
        self.log_probs = (scores * sharpness).log_softmax(-1)
        scores = torch.randn(documents, vocab, source, generator=generator, dtype=torch.float64)
        self.attention = (2 * scores).softmax(-1)
        self.mask = torch.ones(documents, source, dtype=torch.bool)
        self.steps: list[int] = []  # N of each step taken

    def only(self, documents: list[int]) -> TableModel:
        """The same model for some of its documents."""
        other = TableModel.__new__(TableModel)
        other.log_probs, other.attention = self.log_probs[documents], self.attention[documents]
        other.mask, other.steps = self.mask[documents], []
        return other

    @property
    def memory(self) -> Memory:
        states = torch.zeros(*self.mask.shape, 1)
        return Memory(states, self.mask, torch.zeros_like(self.mask, dtype=torch.long), self.log_probs.shape[-1])

    def start(self) -> dict:
        documents = torch.arange(len(self.mask))
        return {
            "rows": [PathState(torch.zeros(len(documents), 0, dtype=torch.long), documents)],
            "shared": Shared({"document": documents, "log_probs": self.log_probs, "attention": self.attention}),
        }

    def step(self, last_ids: Tensor, state: dict) -> tuple[StepOutput, dict]:
        (rows,), shared = state["rows"], state["shared"].tree
        beams = len(last_ids) // len(shared["document"])
        here = torch.arange(len(shared["document"])).repeat_interleave(beams)
        assert torch.equal(rows.document, shared["document"][here]), "rows and documents fell apart"
        self.steps.append(len(last_ids))
        path = torch.cat([rows.path, last_ids[:, None]], dim=1)
        before = path[:, -2] if path.shape[1] > 1 else torch.zeros_like(last_ids)
        log_probs = shared["log_probs"][here, before, last_ids]
        output = StepOutput(
            scores=log_probs.clone(),
            log_probs=log_probs,
            attention=shared["attention"][here, last_ids],
            details={"path": path.double().sum(1), "seen": last_ids.clone()},
        )
        return output, {"rows": [PathState(path, rows.document)], "shared": state["shared"]}

    # --- the same facts for slow references, one document, one prefix at a time

    def log_prob(self, document: int, prefix: tuple[int, ...], token: int) -> float:
        """log P(token | prefix without BOS)."""
        full = (BOS, *prefix)
        before = full[-2] if len(full) > 1 else 0
        return float(self.log_probs.numpy()[document, before, full[-1], token])

    def attention_rows(self, document: int, ids: tuple[int, ...], steps: int) -> list[list[float]]:
        full = (BOS, *ids)
        return [self.attention[document, full[t]].tolist() for t in range(steps)]


class Encoding:
    """A `TableModel` with an encoder that reads nothing."""

    def __init__(self, model: TableModel):
        self.model = model

    def encode(self, batch: Batch) -> Memory:
        assert torch.is_inference_mode_enabled()
        return replace(self.model.memory, extended_ids=batch.source_extended_ids)

    def start(self, memory: Memory) -> dict:
        return self.model.start()

    def step(self, last_ids, state):
        return self.model.step(last_ids, state)

    def read_figures(self, memory: Memory) -> list:
        return []


def batch_of(source: torch.Tensor, vocab: int) -> Batch:
    return Batch(source.clamp_max(vocab - 1), source, torch.ones_like(source, dtype=torch.bool), int(source.max()) + 1)


def search(
    model: TableModel,
    config: SearchConfig,
    scorers: list[Scorer] | None = None,
    *,
    step: Callable[[Tensor, dict], tuple[StepOutput, dict]] | None = None,
) -> list[list[Hypothesis]]:
    """What beam search finds, with the model's own step or another."""
    seen, memory = TorchModel(SimpleNamespace(step=step or model.step)), TorchMemory.of(model.memory)
    state = TorchState(model.start(), model.mask.device)
    scorers = build_scorers(config, SPECIALS) if scorers is None else scorers
    return beam_search(seen.step, state, memory=memory, config=config, specials=SPECIALS, scorers=scorers)


def total_log_prob(model: TableModel, document: int, ids: tuple[int, ...], finished: bool) -> float:
    tokens = (*ids, EOS) if finished else ids
    return sum(model.log_prob(document, tokens[:t], tokens[t]) for t in range(len(tokens)))


def final_score(
    model: TableModel, document: int, ids: tuple[int, ...], finished: bool, config: SearchConfig, free: bool = False
) -> float:
    """The score of a whole hypothesis, from the definitions of the scorers; ``free``: EOS counts, and costs nothing."""
    score, length = total_log_prob(model, document, ids, finished), len(ids) + finished + free
    if config.length_normalisation == "average":
        score /= length + 1
    elif config.length_normalisation == "predicted":
        score /= max(length, 1) ** config.length_alpha
    elif config.length_normalisation == "gnmt":
        score /= ((5 + length) / 6) ** config.length_alpha
    return score


def allowed(ids: tuple[int, ...], config: SearchConfig) -> bool:
    size = config.no_repeat_ngram
    grams = [ids[i : i + size] for i in range(len(ids) - size + 1)] if size else []
    return len(set(grams)) == len(grams)


def least_length(model: TableModel, document: int, config: SearchConfig) -> int:
    share = config.min_length_share
    tokens = int(model.mask[document].sum())
    return config.min_length if share is None else min(config.min_length, max(1, math.floor(share * tokens)))


def words_of(model: TableModel, config: SearchConfig) -> list[int]:
    return ([] if config.forbid_unk else [1]) + list(range(4, model.log_probs.shape[-1]))


def exhaustive(model: TableModel, document: int, config: SearchConfig) -> list[tuple[float, tuple[int, ...]]]:
    """Every finished sequence the configuration allows, best first."""
    words = words_of(model, config)
    found = [
        (final_score(model, document, ids, True, config), ids)
        for length in range(least_length(model, document, config), config.max_length + 1)
        for ids in itertools.product(words, repeat=length)
        if allowed(ids, config)
    ]
    return sorted(found, key=lambda pair: (-pair[0], pair[1]))


Scored = tuple[float, tuple[int, ...], bool]  # final score, ids, finished


def slow_beam(model: TableModel, document: int, config: SearchConfig) -> list[Scored]:
    """Beam search with lists, one document, one hypothesis at a time.

    Written from the code that each rule is named after: ``see`` walks the 2K best candidates in order, an EOS goes to
    the results, another lives on, until K live on (or, with early stopping, K have finished); ``within_beam`` lets
    those in EOS finish that stand among the first K, and keeps the best K of all. ``never`` never stops before the
    maximum length; one beam stops at its first end.
    """
    size, least, words = config.beam_size, least_length(model, document, config), words_of(model, config)
    stopping = True if size == 1 else config.early_stopping
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    results: list[Scored] = []
    cut: list[Scored] = []
    for length in range(config.max_length + (config.unfinished == "force_end")):
        candidates = []
        for total, ids in live:
            for token in [EOS, *words]:
                if token == EOS and length < least:
                    continue
                if token != EOS and (length == config.max_length or not allowed((*ids, token), config)):
                    continue
                value = total + model.log_prob(document, ids, token)
                candidates.append((value, ids, token))
        candidates.sort(key=lambda c: -c[0])
        following: list[tuple[float, tuple[int, ...]]] = []
        last = length + 1 == config.max_length and config.unfinished != "force_end"
        if last and config.unfinished == "compete":
            chosen = [(value, (*ids, token)) for value, ids, token in candidates[:size] if token != EOS]
            cut = [(final_score(model, document, ids, False, config), ids, False) for _, ids in chosen]
        for rank, (value, ids, token) in enumerate(candidates[: 2 * size]):
            if len(following) == size:
                break
            if config.finish == "see" and stopping is True and len(results) == size:
                break
            if token != EOS:
                following.append((value, (*ids, token)))
            elif config.finish == "see" or rank < size:
                assert abs(value - total_log_prob(model, document, ids, True)) < 1e-9
                results.append((final_score(model, document, ids, True, config), ids, True))
        results.sort(key=lambda r: -r[0])
        results = results[:size]
        live = following
        if len(results) == size and stopping is True:
            break
        if len(results) == size and stopping is False:
            as_they_stand = [final_score(model, document, ids, False, config) for _, ids in live]
            if not live or results[-1][0] >= max(as_they_stand):
                break
        if last and config.unfinished != "compete":
            free = config.unfinished == "free_end"
            cut = [(final_score(model, document, ids, False, config, free), ids, False) for _, ids in live]
    cut.sort(key=lambda r: -r[0])
    found = [*results, *cut]
    if config.unfinished in ("compete", "free_end"):
        found.sort(key=lambda r: -r[0])
    return found[: config.num_return]
