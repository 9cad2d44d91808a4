"""Copy heads on the BART family: transformers' numbers where nothing is copied, and in search those of training.

The models are made so that the history counts (`tiny_bart.copying_bart`): most random ones forget it in one step, and
would hide a history that went astray.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forcing import worst
from torch import Tensor

from catchline.config.schema import SearchConfig
from catchline.models.checkpoints import BartSummarizer
from catchline.models.stored import FAMILY
from catchline.search.torch_bridge import decode
from catchline.types import Batch, Hypothesis, UpdateContext
from samples import gradients
from tiny_bart import BOS, EOS, PAD, UNK, VOCABULARY, copying_bart, reference_of, source_batch, theirs

COPYING = ["attentional", "guided", "correlational"]
EXACT = {"atol": 1e-10, "rtol": 0}
every_head = pytest.mark.parametrize("head", COPYING)


def pairs(heads: list[str]) -> pytest.MarkDecorator:
    """Every head on BART, the one with a state on every family; a head sees nothing of a family but its states."""
    usual = [(kind, head) for kind in FAMILY for head in heads if kind == "bart" or head == "correlational"]
    slow = [(kind, head) for kind in FAMILY for head in heads if (kind, head) not in usual]
    return pytest.mark.parametrize(
        ("kind", "head"), [*usual, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in slow)]
    )


every_family = pairs(COPYING)
SPECIAL = {"unk_id": UNK, "bos_id": EOS, "eos_id": EOS, "pad_id": PAD}


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


# ------------------------------------------------------------------------------- where nothing is copied


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


def test_with_copying_it_is_not() -> None:
    model, batch = copying_bart(), source_batch()
    expected = gold_of(theirs(reference_of(model), batch).logits, batch)
    with torch.no_grad():
        assert (model(batch).gold_log_probs - expected).abs().max() > 0.1


@every_head
def test_gradients_without_copying_are_those_of_the_checkpoint(head: str) -> None:
    model, batch = copying_bart(head), source_batch()
    model.head.generation.bias.data.fill_(1e4)
    plain = copying_bart("vocabulary")
    plain.load_state_dict(model.state_dict(), strict=False)
    for each in (model, plain):
        each(batch).gold_log_probs.square().sum().backward()
    mine = gradients(model)
    for name, wanted in gradients(plain).items():
        torch.testing.assert_close(mine[name], wanted, **EXACT, msg=name)


@pytest.mark.parametrize("change", [lambda model: model.double(), lambda model: model.float().double()])
def test_the_output_bias_is_always_the_networks(change: Any) -> None:
    """Also when it was changed, loaded or made anew after the model had been built."""
    model, batch = copying_bart("vocabulary"), source_batch()
    change(model)
    model.network.final_logits_bias = torch.nn.Buffer(torch.linspace(-2, 2, VOCABULARY).double()[None])
    expected = theirs(reference_of(model), batch).logits
    with torch.no_grad():
        torch.testing.assert_close(model(batch).gold_log_probs, gold_of(expected, batch), atol=1e-6, rtol=0)


# ------------------------------------------------------------------------------------------ checkpoints


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A folder as transformers saves it: nothing of ours in it."""
    network = reference_of(copying_bart("vocabulary")).float()
    network.save_pretrained(tmp_path / "released")
    return tmp_path / "released"


@every_head
def test_a_released_checkpoint_opens_as_it_is_and_only_the_gates_are_new(head: str, released: Path) -> None:
    plain = BartSummarizer.from_checkpoint(released)
    model = BartSummarizer.from_checkpoint(released, head={"type": head})
    weights, before = model.state_dict(), plain.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in before.items())
    new = weights.keys() - before.keys()
    assert new == {name for name in weights if name.startswith("head.")}
    assert sum(weights[name].numel() for name in new) <= 4 * (16 + 1)
    model.head.generation.bias.data.fill_(1e4)
    batch = source_batch()
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(batch).gold_log_probs, plain.eval()(batch).gold_log_probs)


# ---------------------------------------------------------------------------------------- distributions


@every_head
def test_the_head_stays_precise_under_autocast(head: str) -> None:
    """The network in bfloat16, the mixture not: rows of P_final sum to one, and log P is near float32's."""
    model, batch = copying_bart(head).float(), source_batch()
    with torch.no_grad():
        expected = model(batch).gold_log_probs
        with torch.autocast("cpu", torch.bfloat16):
            output, steps = model(batch), stepped(model, batch)
    assert output.gold_log_probs.dtype == torch.float32
    torch.testing.assert_close(output.attention.sum(-1), torch.ones(3, 5), atol=1e-6, rtol=0)
    for step in steps:
        assert step.details["p_final"].dtype == step.log_probs.dtype == torch.float32
        torch.testing.assert_close(step.details["p_final"].sum(-1), torch.ones(3), atol=1e-6, rtol=0)
        torch.testing.assert_close(step.log_probs.exp().sum(-1), torch.ones(3), atol=1e-5, rtol=0)
    assert (output.gold_log_probs - expected).abs().max() < 1.0


# ----------------------------------------------------------------------------------------------- search


def searched(model: Any, batch: Batch) -> list[list[Hypothesis]]:
    config = SearchConfig(beam_size=4, num_return=4, max_length=9, forbid_unk=False)
    return decode(model, batch, config, **SPECIAL)


@every_family
def test_hypotheses_are_worth_what_teacher_forcing_says(kind: str, head: str) -> None:
    model, batch = copying_bart(head, kind), source_batch(targets=False)
    for network, most in ((model, 2e-5), (model.float(), 2e-4)):
        found = searched(network, batch)
        assert [len(hypotheses) for hypotheses in found] == [4, 4, 4]
        assert max(worst(network, batch, found, SPECIAL)) < most


# ------------------------------------------------------------------------------- own words, the opponent


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


@every_head
def test_free_running_trains(head: str) -> None:
    """Step by step through the cache, the gradients are those of the pass that reads all words at once."""
    model, batch = copying_bart(head).train(), source_batch()
    forced = torch.ones_like(batch.target_mask)
    forced[:, -1] = False  # the model's own word is read at the last step, which no longer counts
    batch.target_mask = batch.target_mask & forced
    model(batch).gold_log_probs.sum().backward()
    wanted = gradients(model)
    model.zero_grad()
    model(batch, context=UpdateContext(forced_mask=forced)).gold_log_probs.sum().backward()
    for name, value in gradients(model).items():
        torch.testing.assert_close(value, wanted[name], atol=1e-9, rtol=0, msg=name)
    assert all(wanted[name].abs().max() > 0 for name in wanted if name.startswith("head."))


@every_family
def test_an_opponent_and_a_copy_head_work_together(kind: str, head: str) -> None:
    options = {"opponent": {"type": "max", "layer": 1, "head": 0, "lambda_decode": 0.3}}
    model, plain, batch = copying_bart(head, kind, options=options), copying_bart(head, kind), source_batch()
    model.opponent.double()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "opponent" not in name})
    with torch.no_grad():
        both, alone = model(batch), plain(batch)
        torch.testing.assert_close(both.gold_log_probs, alone.gold_log_probs, **EXACT)
        assert both.details["opponent_log_probs"].isfinite().all()
        for output, expected in zip(stepped(model, batch), stepped(plain, batch), strict=True):
            torch.testing.assert_close(output.log_probs, expected.log_probs, **EXACT)
            assert (output.scores - expected.scores)[:, 4:].abs().max() > 1e-3
            assert {"p_final", "opponent_attention"} <= output.details.keys()
    model.train()
    found = model(batch)
    (found.gold_log_probs + found.details["opponent_log_probs"]).sum().backward()
    assert all(value.isfinite().all() for value in gradients(model).values())
    assert model.opponent_attention(batch).shape == (3, 5, 9)


@pytest.mark.parametrize("forced", [None, BOS])
def test_a_forced_first_token_leaves_the_copy_state_alone(forced: int | None) -> None:
    """Its probability is never used, but what was copied with it is remembered."""
    model, batch = copying_bart(options={"forced_bos_id": forced}), source_batch(targets=False)
    with torch.no_grad():
        first, state = model.step(torch.full((3,), EOS), model.start(model.encode(batch)))
        torch.testing.assert_close(first.details["p_final"], state["head"], **EXACT)
        assert (first.scores.isfinite().sum(-1) == (1 if forced == BOS else VOCABULARY)).all()
        assert first.log_probs.isfinite().all()
