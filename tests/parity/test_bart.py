"""The BART family against transformers: log-probabilities, attention, gradients, the cache; and copy heads on it, in
models made so that the history counts (`tiny_bart.copying_bart`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from catchline.models.checkpoints import BartSummarizer
from catchline.models.stored import FAMILY
from catchline.papers.coconet import mean_attention
from catchline.types import Batch
from tiny_bart import BOS, EOS, VOCABULARY, copying_bart, reference_of, shifted, source_batch, theirs

COPYING = ["attentional", "guided", "correlational"]
EXACT = {"atol": 1e-10, "rtol": 0}
every_family = pytest.mark.parametrize("kind", FAMILY)


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
@pytest.mark.parametrize("left", [False, True])
@torch.no_grad()
def test_attention_of_every_head_of_every_layer(kind: str, left: bool) -> None:
    """And of the encoder's last layer, which heads read; transformers leaves rows for padded queries."""
    model, batch = copying_bart(kind=kind), source_batch(left=left)
    expected = theirs(reference_of(model), batch)
    attention, heads = model(batch).attention, model.cross_attentions(batch)
    torch.testing.assert_close(attention, expected.cross_attentions[-1].mean(1), **EXACT)
    torch.testing.assert_close(heads, torch.stack(expected.cross_attentions).transpose(1, 2))
    assert torch.equal(attention > 0, batch.source_mask[:, None].expand_as(attention))
    semantic = mean_attention(*model.encode(batch).extra["captured"], batch.source_mask)
    theirs_of = expected.encoder_attentions[-1].mean(1)
    torch.testing.assert_close(semantic[batch.source_mask], theirs_of[batch.source_mask], **EXACT)


@every_family
def test_loss_and_gradients_equal_those_of_transformers(kind: str) -> None:
    """Also with transformers' own shift of the labels; mBART's moves a language code to the front."""
    model, batch = copying_bart("vocabulary", kind), source_batch()
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


@pytest.mark.parametrize(
    ("kind", "head"),  # a head sees nothing of a family but its states
    [*(("bart", head) for head in ("vocabulary", *COPYING)), *((kind, "correlational") for kind in FAMILY[1:])],
)
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
