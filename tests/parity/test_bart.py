"""The BART family against transformers: log-probabilities, attention, gradients, the cache; and copy heads on it, in
models made so that the history counts (`tiny_bart.copying_bart`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.models.checkpoints import BartSummarizer, folded_attention
from catchline.models.stored import FAMILY
from catchline.types import Batch, UpdateContext
from tiny_bart import BOS, EOS, UNK, VOCABULARY, architecture, copying_bart, reference_of, shifted, source_batch, theirs

COPYING = ["attentional", "guided", "correlational"]
EXACT = {"atol": 1e-10, "rtol": 0}
every_family = pytest.mark.parametrize("kind", FAMILY)


def tiny(kind: str) -> BartSummarizer:
    torch.manual_seed(FAMILY.index(kind))
    config = BartSummarizer.Config(architecture=architecture(kind, init_std=0.4))
    model = BartSummarizer(config, unk_id=UNK)
    model.network.final_logits_bias[0, EOS] = 1.0  # so that some hypotheses end
    return model.double().eval()


def pairs(heads: list[str]) -> pytest.MarkDecorator:
    """Every head on BART, the one with a state on every family; a head sees nothing of a family but its states."""
    usual = [(kind, head) for kind in FAMILY for head in heads if kind == "bart" or head == "correlational"]
    slow = [(kind, head) for kind in FAMILY for head in heads if (kind, head) not in usual]
    return pytest.mark.parametrize(
        ("kind", "head"), [*usual, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in slow)]
    )


def gold_of(logits: Tensor, batch: Batch) -> Tensor:
    gold = logits.log_softmax(-1).gather(2, batch.target_ids[..., None])[..., 0]
    return gold.masked_fill(~batch.target_mask, 0.0)


def stepped(model: BartSummarizer, batch: Batch) -> list[Any]:
    """The outputs of the steps that read the gold words."""
    outputs, state = [], model.start(model.encode(batch))
    last = torch.full((len(batch.target_ids),), EOS)
    for step in range(batch.target_ids.shape[1]):
        output, state = model.step(last, state)
        outputs.append(output)
        last = batch.target_ids[:, step]
    return outputs


@every_family
@torch.no_grad()
def test_attention_of_every_head_of_every_layer(kind: str) -> None:
    model, batch = tiny(kind), source_batch()
    expected = theirs(reference_of(model), batch).cross_attentions
    attention, heads = model(batch).attention, model.cross_attentions(batch)
    torch.testing.assert_close(attention, expected[-1].mean(1), **EXACT)
    torch.testing.assert_close(heads, torch.stack(expected).transpose(1, 2))
    assert torch.equal(attention > 0, batch.source_mask[:, None].expand_as(attention))


@every_family
def test_loss_and_gradients_equal_those_of_transformers(kind: str) -> None:
    """Also with transformers' own shift of the labels; mBART's moves a language code to the front."""
    model, batch = tiny(kind), source_batch()
    network, loss = reference_of(model), -model(batch).gold_log_probs.sum() / batch.target_mask.sum()
    loss.backward()
    read = {"input_ids": batch.source_ids, "attention_mask": batch.source_mask.long()}
    labels = batch.target_ids.masked_fill(~batch.target_mask, -100)
    inputs = {} if kind != "mbart" else {"decoder_input_ids": shifted(batch.target_ids)}
    expected = network(**read, labels=labels, **inputs).loss
    expected.backward()
    torch.testing.assert_close(loss, expected, **EXACT)
    for (name, mine), (_, other) in zip(model.network.named_parameters(), network.named_parameters(), strict=True):
        if other.grad is not None:
            torch.testing.assert_close(mine.grad, other.grad, **EXACT, msg=name)


def test_folding_is_what_repeating_the_keys_would_give() -> None:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(6, 2, 1, 4, generator=generator, dtype=torch.float64)
    key, value = (torch.randn(3, 2, 5, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.ones(3, 1, 1, 5, dtype=torch.bool)
    mask[1, ..., 3:] = False
    output, _ = folded_attention(torch.nn.Identity(), query, key, value, mask)
    scores = (query @ key.repeat_interleave(2, 0).transpose(2, 3)) / 2.0
    weights = scores.masked_fill(~mask.repeat_interleave(2, 0), -torch.inf).softmax(-1)
    expected = (weights @ value.repeat_interleave(2, 0)).transpose(1, 2)
    assert torch.allclose(output, expected, atol=1e-12)


@pairs(["vocabulary", *COPYING])
@torch.no_grad()
def test_without_copying_it_is_the_checkpoint(kind: str, head: str) -> None:
    """lambda = 1: every log-probability is transformers', whatever the padding's side."""
    model = copying_bart(head, kind)
    if head != "vocabulary":
        model.head.generation.bias.data.fill_(1e4)
    network = reference_of(model)
    for batch in (source_batch(), source_batch(left=True)):
        expected = theirs(network, batch).logits
        torch.testing.assert_close(model(batch).gold_log_probs, gold_of(expected, batch), **EXACT)
        for step, output in enumerate(stepped(model, batch)):
            torch.testing.assert_close(output.log_probs, expected[:, step].log_softmax(-1), **EXACT)


@pairs(["vocabulary", *COPYING])
def test_own_words_are_read_with_the_history_they_were_made_with(kind: str, head: str) -> None:
    """Free running is greedy decoding: the same words, then the same probabilities as forcing those words."""
    model, batch = copying_bart(head, kind), source_batch()
    steps = batch.target_ids.shape[1]
    batch.target_mask = torch.ones_like(batch.target_mask)
    unforced = UpdateContext(forced_mask=torch.zeros_like(batch.target_mask))
    with torch.no_grad():
        free = model(batch, context=unforced)
        state, last, words = model.start(model.encode(batch)), torch.full((3,), EOS), []
        for step in range(steps):
            output, state = model.step(last, state)
            expected = output.log_probs.gather(1, batch.target_ids[:, step, None])[:, 0]
            torch.testing.assert_close(free.gold_log_probs[:, step], expected, **EXACT)
            torch.testing.assert_close(free.attention[:, step], output.attention, **EXACT)
            last = output.log_probs.argmax(-1)
            words.append(last)
        own = replace(batch, target_ids=torch.stack(words, 1))
        forced = model(own).gold_log_probs
        again = model(own, context=unforced).gold_log_probs
    torch.testing.assert_close(forced, again, **EXACT)


@pytest.mark.parametrize("forced", [None, BOS])
@torch.no_grad()
def test_a_forced_first_token_costs_nothing_and_leaves_the_copy_state_alone(forced: int | None) -> None:
    """Its probability is never used, but what was copied with it is remembered."""
    model, batch = copying_bart(options={"forced_bos_id": forced}), source_batch(targets=False)
    first, state = model.step(torch.full((3,), EOS), model.start(model.encode(batch)))
    second, _ = model.step(torch.full((3,), BOS), state)
    torch.testing.assert_close(first.details["p_final"], state["head"], **EXACT)
    assert (first.scores.isfinite().sum(-1) == (1 if forced == BOS else VOCABULARY)).all()
    assert forced is None or (first.scores[:, BOS] == 0).all()
    assert first.log_probs.isfinite().all()
    assert torch.equal(second.scores, second.log_probs)
