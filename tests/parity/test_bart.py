"""The BART family against transformers itself: teacher-forced log-probabilities, attention, gradients, the cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from catchline.models.checkpoints import BartSummarizer, folded_attention
from catchline.models.stored import FAMILY
from tiny_bart import BOS, EOS, UNK, VOCABULARY, architecture, reference_of, shifted, source_batch, theirs

LAST = -1


def tiny(kind: str, **changes: Any) -> BartSummarizer:
    torch.manual_seed(FAMILY.index(kind))
    options = architecture(kind, **{"init_std": 0.4, **changes})
    model = BartSummarizer(BartSummarizer.Config(architecture=options), unk_id=UNK)
    model.network.final_logits_bias[0, EOS] = 1.0  # so that some hypotheses end
    return model.double().eval()


@pytest.mark.parametrize("kind", FAMILY)
def test_forward_gives_the_log_probabilities_and_attention_of_transformers(kind: str) -> None:
    """The attention of every head of every layer, too."""
    model, batch = tiny(kind), source_batch()
    found = theirs(reference_of(model), batch)
    with torch.no_grad():
        ours, heads = model(batch), model.cross_attentions(batch)
    gold = found.logits.log_softmax(-1).gather(2, batch.target_ids[..., None])[..., 0]
    assert torch.allclose(ours.gold_log_probs, gold.masked_fill(~batch.target_mask, 0.0), atol=1e-10)
    assert torch.allclose(ours.attention, found.cross_attentions[LAST].mean(1), atol=1e-10)
    torch.testing.assert_close(heads, torch.stack(found.cross_attentions).transpose(1, 2))
    assert torch.equal(ours.attention > 0, batch.source_mask[:, None].expand_as(ours.attention))


@pytest.mark.parametrize("kind", ["bart", "marian", "pegasus"])  # mBART's own shift moves a language code to the front
def test_labels_shift_as_in_transformers(kind: str) -> None:
    model, batch = tiny(kind), source_batch()
    labels = batch.target_ids.masked_fill(~batch.target_mask, -100)
    with torch.no_grad():
        loss = reference_of(model)(
            input_ids=batch.source_ids, attention_mask=batch.source_mask.long(), labels=labels
        ).loss
        ours = -model(batch).gold_log_probs.sum() / batch.target_mask.sum()
    assert torch.allclose(loss, ours, atol=1e-10)


@pytest.mark.parametrize("kind", FAMILY)
def test_gradients_equal_those_of_transformers(kind: str) -> None:
    model, batch = tiny(kind), source_batch()
    network = reference_of(model)
    (-model(batch).gold_log_probs.sum()).backward()
    logits = network(
        input_ids=batch.source_ids,
        attention_mask=batch.source_mask.long(),
        decoder_input_ids=shifted(batch.target_ids),
    ).logits
    gold = logits.log_softmax(-1).gather(2, batch.target_ids[..., None])[..., 0]
    (-(gold * batch.target_mask).sum()).backward()
    for (name, mine), (_, other) in zip(model.network.named_parameters(), network.named_parameters(), strict=True):
        if other.grad is not None:
            assert torch.allclose(mine.grad, other.grad, atol=1e-9), name


def test_a_forced_first_token_is_forced_and_costs_nothing() -> None:
    plain, batch = tiny("bart"), source_batch(targets=False)
    model = BartSummarizer(plain.config.model_copy(update={"forced_bos_id": BOS})).eval()
    with torch.no_grad():
        state = model.start(model.encode(batch))
        first, state = model.step(torch.full((3,), EOS), state)
        second, _ = model.step(torch.full((3,), BOS), state)
    assert first.scores.argmax(-1).tolist() == [BOS] * 3
    assert torch.isinf(first.scores).sum() == 3 * (VOCABULARY - 1)
    assert (first.scores.amax(-1) == 0).all()
    assert torch.isfinite(first.log_probs).all()
    assert torch.equal(second.scores, second.log_probs)


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
