"""What every copy head promises, for every entry of the table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch.autograd import gradcheck

from laconic.config.names import COPY_HEADS, build, parse
from laconic.config.section import validate
from laconic.errors import ConfigError
from laconic.layers.copying.base import CopyHead, CopySource, GoldTokens, HeadInput
from laconic.layers.masking import mask_scores, masked_softmax
from laconic.layers.vocabulary import VocabularyProjection
from laconic.types import AttentionOutput
from samples import UNK, randomise
from trees import Unmodified, tensors_on

B, Q, S, F, G, V, X = 2, 3, 5, 4, 6, 8, 11
IDS = torch.tensor([[8, 2, 8, 9, 2], [10, 3, 0, 0, 0]])
MASK = torch.tensor([[True] * 5, [True, True, False, False, False]])

VARIANTS: dict[str, list[dict[str, Any]]] = {}
CASES = [{"type": name, **options} for name in COPY_HEADS for options in [{}, *VARIANTS.get(name, [])]]
every_head = pytest.mark.parametrize("spec", CASES, ids=lambda spec: "-".join(map(str, spec.values())))


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def head_of(spec: dict[str, Any]) -> CopyHead:
    projection = VocabularyProjection(F, V)
    head = build("copy head", COPY_HEADS, spec, projection=projection, gate_size=G, unk_id=UNK).double()
    randomise(head, scale=1.0)
    return head


def first_positions(ids: Tensor) -> Tensor:
    return torch.tensor([[row.index(word) for word in row] for row in ids.tolist()])


def source_of(ids: Tensor = IDS, mask: Tensor = MASK, size: int = X) -> CopySource:
    return CopySource(ids, mask, size, first_positions(ids))


def inputs_of(seed: int = 0) -> tuple[HeadInput, AttentionOutput]:
    scores = mask_scores(2 * rand(B, Q, S, seed=seed + 2), MASK.unsqueeze(1))
    weights = masked_softmax(scores, MASK.unsqueeze(1))
    attention = AttentionOutput(rand(B, Q, 3, seed=seed + 3), weights, scores)
    return HeadInput(rand(B, Q, F, seed=seed), rand(B, Q, G, seed=seed + 1)), attention


@torch.no_grad()
def step(head: CopyHead, source: CopySource | None = None) -> Tensor:
    """log P of one step as decoding computes it."""
    inputs, attention = inputs_of()
    return head(inputs, attention, source or source_of())[0]


@every_head
def test_with_gradients_the_values_are_the_same(spec: dict[str, Any]) -> None:
    head, source = head_of(spec), source_of(IDS.masked_fill(~MASK, 9))  # a word that only padding has
    inputs, attention = inputs_of()
    log_probs, _, _ = head(inputs, attention, source)
    assert log_probs.requires_grad
    torch.testing.assert_close(log_probs, step(head, source), atol=1e-13, rtol=0)
    log_probs.exp().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


@every_head
def test_probabilities_sum_to_one(spec: dict[str, Any]) -> None:
    head = head_of(spec)
    log_probs = step(head)
    assert log_probs.shape == (B, Q, X if head.copies else V)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(B, Q).double(), atol=1e-12, rtol=0)
    assert log_probs[..., :V].isfinite().all()


@every_head
def test_only_words_of_the_own_source_are_copied(spec: dict[str, Any]) -> None:
    """Ids at and beyond V exist for the document that holds them, and for no other."""
    head = head_of(spec)
    log_probs = step(head)
    for b in range(B):
        own = set(IDS[b][MASK[b]].tolist())
        for word in range(V, log_probs.shape[-1]):
            assert log_probs[b, :, word].isfinite().all() == (word in own)


@every_head
def test_padding_and_companions_do_not_matter(spec: dict[str, Any]) -> None:
    head = head_of(spec)
    expected = step(head)
    for junk in (UNK, 2, 8, 10):
        ids = IDS.masked_fill(~MASK, junk)
        torch.testing.assert_close(step(head, source_of(ids)), expected, atol=1e-14, rtol=0)
    inputs, attention = inputs_of()
    for b, length in enumerate((5, 2)):
        row = slice(b, b + 1)
        short = AttentionOutput(attention.context[row], attention.weights[row, :, :length], None)
        source = source_of(IDS[row, :length], MASK[row, :length])
        with torch.no_grad():
            alone, _, _ = head(HeadInput(inputs.hidden[row], inputs.gate[row]), short, source)
        torch.testing.assert_close(alone, expected[row], atol=1e-14, rtol=0)


@every_head
def test_queries_do_not_see_each_other(spec: dict[str, Any]) -> None:
    head = head_of(spec)
    expected = step(head)
    inputs, attention = inputs_of()
    for q in range(Q):
        one = slice(q, q + 1)
        part = AttentionOutput(attention.context[:, one], attention.weights[:, one], None)
        with torch.no_grad():
            alone, details, _ = head(HeadInput(inputs.hidden[:, one], inputs.gate[:, one]), part, source_of())
        torch.testing.assert_close(alone, expected[:, one], atol=1e-14, rtol=0)
        assert all(value.shape[:2] == (B, 1) for value in details.values())


def every_word(head: CopyHead) -> tuple[Tensor, Tensor, Tensor]:
    """Each (document, query, word) with a probability: rows, queries, words."""
    return step(head).isfinite().nonzero(as_tuple=True)


@every_head
def test_gold_log_probs_are_entries_of_the_distribution(spec: dict[str, Any]) -> None:
    """For every word there is, with its gradients; a word the head does not know counts as UNK."""
    head = head_of(spec)
    rows, queries, words = every_word(head)
    inputs, attention = inputs_of()
    leaves = [inputs.hidden.requires_grad_(), inputs.gate.requires_grad_(), *head.parameters()]
    for weights in (None, torch.ones(len(words)).double(), rand(len(words), seed=7).abs()):
        picked = HeadInput(inputs.hidden[rows, queries], inputs.gate[rows, queries])
        gold = GoldTokens(words, rows, weights)
        values, details = head.gold_log_probs(picked, attention.scores[rows, queries], source_of(), gold)
        expected = head(inputs, attention, source_of())[0][rows, queries, words]
        torch.testing.assert_close(values, expected, atol=1e-12, rtol=0)
        assert all(value.shape == values.shape for value in details.values())
        loss = rand(len(words), seed=7).abs()
        actual = torch.autograd.grad((loss * values).sum(), leaves, allow_unused=True)
        wanted = torch.autograd.grad((loss * expected).sum(), leaves, allow_unused=True)
        for a, w in zip(actual, wanted, strict=True):
            assert (a is None) == (w is None)
            if a is not None:
                torch.testing.assert_close(a, w, atol=1e-12, rtol=0)
    if not head.copies:
        outside = GoldTokens(torch.tensor([X - 1]), torch.tensor([0]))
        value, _ = head.gold_log_probs(HeadInput(inputs.hidden[:1, 0], inputs.gate[:1, 0]), None, source_of(), outside)
        torch.testing.assert_close(value[0], head(inputs, attention, source_of())[0][0, 0, UNK])


@every_head
def test_gradients(spec: dict[str, Any]) -> None:
    head = head_of(spec)
    words, rows = torch.tensor([8, 2, 5, 10, UNK]), torch.tensor([0, 0, 1, 1, 1])
    if not head.copies:
        words = words.clamp_max(V - 1)

    def function(hidden: Tensor, gate: Tensor, scores: Tensor) -> Tensor:
        return head.gold_log_probs(HeadInput(hidden, gate), scores, source_of(), GoldTokens(words, rows))[0]

    inputs = [rand(5, size, seed=size).requires_grad_() for size in (F, G, S)]
    assert gradcheck(function, inputs)


@every_head
def test_inputs_stay_as_they_are(spec: dict[str, Any]) -> None:
    head = head_of(spec)
    inputs, attention = inputs_of()
    source, before = source_of(), tensors_on(head)
    gold = GoldTokens(torch.tensor([2, 3]), torch.tensor([0, 1]), torch.ones(2).double())
    with Unmodified(inputs, attention, source, gold, head.state_dict()), torch.no_grad():
        head(inputs, attention, source)
        head.gold_log_probs(HeadInput(inputs.hidden[:, 0], inputs.gate[:, 0]), attention.scores[:, 0], source, gold)
    assert tensors_on(head) == before


@every_head
def test_one_real_token(spec: dict[str, Any]) -> None:
    head = head_of(spec)
    ids, mask = torch.tensor([[8]]), torch.ones(1, 1, dtype=torch.bool)
    attention = AttentionOutput(rand(1, 1, 3), torch.ones(1, 1, 1).double(), torch.zeros(1, 1, 1).double())
    with torch.no_grad():
        log_probs, _, _ = head(HeadInput(rand(1, 1, F), rand(1, 1, G)), attention, source_of(ids, mask, 9))
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(1, 1).double(), atol=1e-12, rtol=0)


@every_head
def test_round_trips(spec: dict[str, Any]) -> None:
    head = head_of(spec)
    again = build("copy head", COPY_HEADS, spec, projection=VocabularyProjection(F, V), gate_size=G, unk_id=UNK)
    again.double().load_state_dict(head.state_dict())
    assert torch.equal(step(again), step(head))
    cls, config = parse("copy head", COPY_HEADS, spec)
    text = yaml.safe_dump(config.model_dump(mode="json"))
    assert validate(cls.Config, yaml.safe_load(text), where="copy head") == config


@pytest.mark.parametrize("name", COPY_HEADS)
def test_unknown_options_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no_such_option"):
        parse("copy head", COPY_HEADS, {"type": name, "no_such_option": 1})
