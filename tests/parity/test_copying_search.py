"""Correlational copying in search: its history goes with the hypotheses, and what it is equal to at its ends.

Most random models forget their history in one step and would hide mistakes. `remembering` does not: a narrow
Gaussian, little weight on the attention of the moment and on generation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from copying_reference import LITERAL, RELEASE
from torch import Tensor, nn

from laconic.config.names import MODELS, build
from laconic.config.schema import SearchConfig
from laconic.decoding import decode
from laconic.models.transformer import Transformer
from laconic.search.state import select
from laconic.types import Batch, Hypothesis
from samples import BOS, EOS, IDS, TRANSFORMER, UNK, VOCAB, one_example, random_batch, randomise

BASE = TRANSFORMER | {"feed_forward_size": 16}
HEADS: dict[str, dict[str, Any]] = {
    "attentional": {"type": "attentional"},
    "guided": {"type": "guided"},
    "correlational": {"type": "correlational"},
    "cutoff": {"type": "correlational", "clip_mode": "cutoff", "clip_distance": 3},
    "no-semantic": {"type": "correlational", "use_semantic": False},
    "no-positional": {"type": "correlational", "use_positional": False},
    "release": {"type": "correlational", **RELEASE},
    "literal": {"type": "correlational", **LITERAL, "allow_literal_training": True},
}
BATCH = random_batch((12, 7, 4, 1), (5, 4, 3, 2), seed=2)
EXACT = {"atol": 1e-9, "rtol": 0}
GATES = {"generation": -2.0, "attention_gate": -2.0, "semantic_gate": -3.0, "spread": -4.0}


def model_of(head: dict[str, Any], *, seed: int = 4) -> Transformer:
    """Random weights; the copy layer looks here and there as words go by, and the gates pass the history on."""
    model = build("model", MODELS, BASE | {"head": head}, vocab_size=VOCAB, **IDS).double()
    randomise(model, seed=seed, scale=0.8)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.mul_(0.1)
        for norm in (module for module in model.modules() if isinstance(module, nn.LayerNorm)):
            norm.weight.fill_(1.0)
        model.embedding.weight.mul_(1.5)
        model.decoder.layers[-1].cross_attention.in_proj.weight[: model.config.hidden_size] *= 3
        for name, bias in GATES.items():
            if getattr(model.head, name, None) is not None:
                getattr(model.head, name).weight.mul_(0.05)
                getattr(model.head, name).bias.fill_(bias)
    return model.eval()


def remembering(**options: Any) -> Transformer:
    return model_of({"type": "correlational", **options})


def found_by(model: Any, batch: Batch = BATCH, **options: Any) -> list[list[Hypothesis]]:
    config = SearchConfig(**{"beam_size": 4, "num_return": 4, "max_length": 10, "forbid_unk": False} | options)
    return decode(model, batch, config, **IDS)


def forced_on(hypotheses: list[list[Hypothesis]], batch: Batch) -> list[tuple[Batch, Hypothesis]]:
    """Each hypothesis as the target of a batch of its own document."""
    found = []
    for b, row in enumerate(hypotheses):
        for hypothesis in row:
            ids = torch.tensor([[*hypothesis.ids, *([EOS] if hypothesis.finished else [])]])
            inputs = torch.cat([torch.full((1, 1), BOS), ids[:, :-1]], dim=1)
            inputs = inputs.masked_fill(inputs >= VOCAB, UNK)
            targets = {"target_ids": ids, "target_input_ids": inputs, "target_mask": torch.ones_like(ids).bool()}
            found.append((replace(one_example(batch, b), **targets), hypothesis))
    return found


@torch.no_grad()
def worst(model: Any, hypotheses: list[list[Hypothesis]], batch: Batch = BATCH) -> float:
    """The largest difference of a token's log-probability in search (float32) and teacher-forced."""
    return max(
        float((model(forced).gold_log_probs[0] - torch.tensor(h.token_log_probs)).abs().max())
        for forced, h in forced_on(hypotheses, batch)
        if h.token_log_probs
    )


class Stuck:
    """A history that does not follow its hypotheses: rows stay where they are when beams are re-ordered."""

    def __init__(self, tree: Any, rows: int) -> None:
        self.tree, self.rows = tree, rows

    def select(self, index: Tensor) -> Stuck:
        return self if len(index) == self.rows else Stuck(select(self.tree, index), len(index))

    def select_documents(self, documents: Tensor, beams: int) -> Stuck:
        rows = (documents[:, None] * beams + torch.arange(beams)).flatten()
        return Stuck(select(self.tree, rows), len(rows))


class WithoutReordering:
    """A model whose copy history is not re-ordered, as in the paper's release."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.encode, self.read_figures = model, model.encode, model.read_figures

    def start(self, memory: Any) -> Any:
        return self._wrapped(self.model.start(memory), memory.batch_size)

    def step(self, last_ids: Tensor, state: Any) -> Any:
        output, state = self.model.step(last_ids, state | {"head": state["head"].tree})
        return output, self._wrapped(state, len(last_ids))

    @staticmethod
    def _wrapped(state: Any, rows: int) -> Any:
        assert state["head"] is not None
        return state | {"head": Stuck(state["head"], rows)}


@pytest.mark.parametrize("head", HEADS)
def test_hypotheses_are_worth_what_teacher_forcing_says(head: str) -> None:
    model = model_of(HEADS[head])
    found = found_by(model)
    assert worst(model, found) < 1e-6
    for forced, hypothesis in forced_on(found, BATCH):
        with torch.no_grad():
            assert hypothesis.log_prob == pytest.approx(float(model(forced).gold_log_probs.sum()), abs=1e-9)
    single = model_of(HEADS[head]).float()
    assert worst(single, found_by(single)) < 2e-5


def test_the_check_would_notice_a_history_that_stays_behind() -> None:
    model = remembering()
    stuck = WithoutReordering(model)
    assert worst(model, found_by(stuck)) > 0.05
    assert worst(model, found_by(stuck, beam_size=1, num_return=1)) < 1e-6  # nothing to re-order


def test_the_history_matters_in_these_models() -> None:
    """With another history, the same step has other probabilities."""
    model = remembering()
    with torch.no_grad():
        state = model.start(model.encode(BATCH))
        _, state = model.step(torch.full((4,), BOS), state)
        same, _ = model.step(torch.full((4,), 5), state)
        turned = _flipped(state["head"])
        other, _ = model.step(torch.full((4,), 5), state | {"head": turned})
    assert float((same.log_probs[0].exp() - other.log_probs[0].exp()).abs().max()) > 0.05


def _flipped(history: Any) -> Any:
    return history.flip(-1) if isinstance(history, Tensor) else type(history)(map(_flipped, history))


@torch.no_grad()
def test_beams_with_different_pasts_keep_their_own_histories() -> None:
    """K different prefixes of one document at once, against each of them alone."""
    model, g = remembering(), torch.Generator().manual_seed(1)
    beams, steps = 3, 4
    words = torch.randint(4, VOCAB, (steps, 4, beams), generator=g)
    state = select(model.start(model.encode(BATCH)), torch.arange(4).repeat_interleave(beams))
    outputs = []
    for t in range(steps + 1):
        last = torch.full((4 * beams,), BOS) if t == 0 else words[t - 1].flatten()
        output, state = model.step(last, state)
        outputs.append(output.log_probs.view(4, beams, -1))
    for b, k in itertools.product(range(4), range(beams)):
        alone = model.start(model.encode(one_example(BATCH, b, trim=False)))
        for t in range(steps + 1):
            output, alone = model.step(torch.tensor([BOS]) if t == 0 else words[t - 1, b, k : k + 1], alone)
            torch.testing.assert_close(outputs[t][b, k], output.log_probs[0], **EXACT)


@pytest.mark.parametrize("head", ["attentional", "guided", "correlational"])
def test_equals_exhaustive_search_on_a_toy(head: str) -> None:
    """Three words and EOS, up to three words: all sequences, scored by teacher forcing."""
    model = model_of(HEADS[head], seed=5)
    batch = random_batch((6, 3), (2, 2), seed=3, with_oov=False)
    allowed = [4, 5, 6]
    forbid = {"type": "forbid_tokens", "ids": [w for w in range(VOCAB) if w not in (*allowed, EOS)]}
    options = {"beam_size": 45, "num_return": 1, "max_length": 3, "length_normalisation": "none", "scorers": [forbid]}
    found = found_by(model, batch, **options, early_stopping="never")
    for b in range(2):
        best, score = None, -float("inf")
        with torch.no_grad():
            for length in range(4):
                for sequence in itertools.product(allowed, repeat=length):
                    candidate = Hypothesis(list(sequence), 0.0, 0.0, [], True)
                    forced, _ = forced_on([[candidate]], one_example(batch, b))[0]
                    value = float(model(forced).gold_log_probs.sum())
                    if value > score:
                        best, score = list(sequence), value
        assert found[b][0].ids == best
        assert found[b][0].log_prob == pytest.approx(score, abs=1e-9)


# --------------------------------------------------------------------------------- at the ends


def same_base(model: Transformer, head: dict[str, Any], **options: Any) -> Transformer:
    """A Transformer with another head and the same weights wherever the names agree."""
    other = build("model", MODELS, BASE | {"head": head} | options, vocab_size=VOCAB, **IDS).double().eval()
    known = other.state_dict()
    own = {name: value for name, value in model.state_dict().items() if name in known}
    other.load_state_dict(own, strict=False)
    return other


def all_log_probs(model: Transformer, batch: Batch = BATCH) -> Tensor:
    """Of every word, on the gold words: (B, T, X)."""
    with torch.no_grad():
        state, found = model.start(model.encode(batch)), []
        for t in range(batch.target_ids.shape[1]):
            output, state = model.step(batch.target_input_ids[:, t], state)
            found.append(output.log_probs)
        return torch.stack(found, dim=1)


def set_gate(model: Transformer, name: str, bias: float) -> None:
    with torch.no_grad():
        getattr(model.head, name).weight.zero_()
        getattr(model.head, name).bias.fill_(bias)


def both(models: tuple[Transformer, Transformer], look: Callable[[Transformer], Tensor]) -> None:
    torch.testing.assert_close(look(models[0]), look(models[1]), **EXACT)


@pytest.mark.parametrize("options", [{}, {"first_step": "literal", "allow_literal_training": True}], ids=str)
def test_attention_alone_is_attentional_copying(options: dict[str, Any]) -> None:
    """b_g to infinity: P_final is alpha."""
    model = remembering(**options)
    attentional = same_base(model, {"type": "attentional"})
    assert not torch.allclose(all_log_probs(model), all_log_probs(attentional))
    set_gate(model, "attention_gate", 800.0)
    both((model, attentional), all_log_probs)
    with torch.no_grad():
        both((model, attentional), lambda one: one(BATCH).gold_log_probs)


@pytest.mark.parametrize("head", HEADS)
def test_generation_alone_is_the_plain_transformer(head: str) -> None:
    """lambda to 1: nothing is copied."""
    without_floor = {"prob_floor": None} if "prob_floor" in HEADS[head] else {}  # it changes the words below it
    model = model_of(HEADS[head] | without_floor)
    batch = random_batch((12, 7, 4, 1), (5, 4, 3, 2), seed=2, with_oov=False)
    plain = same_base(model, {"type": "vocabulary"})
    set_gate(model, "generation", 800.0)
    both((model, plain), lambda one: all_log_probs(one, batch))
    with torch.no_grad():
        both((model, plain), lambda one: one(batch).gold_log_probs)


@pytest.mark.parametrize(("switch", "bias"), [("use_semantic", -800.0), ("use_positional", 800.0)])
def test_without_a_part_is_its_gate_shut(switch: str, bias: float) -> None:
    """(vii) without s is u = 0, without p is u = 1."""
    whole = remembering()
    without = same_base(whole, {"type": "correlational", switch: False})
    set_gate(whole, "semantic_gate", bias)
    both((whole, without), all_log_probs)
    with torch.no_grad():
        both((whole, without), lambda one: one(BATCH).gold_log_probs)


def test_an_indifferent_guide_is_attentional_copying() -> None:
    """SAGCopy's scalar starts at zero, so that it starts as attentional copying."""
    model = build("model", MODELS, BASE | {"head": {"type": "guided"}}, vocab_size=VOCAB, **IDS).double().eval()
    assert model.head.guide.item() == 0
    both((model, same_base(model, {"type": "attentional"})), all_log_probs)
