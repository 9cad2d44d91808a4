"""The Transformer: start, padding, decoding, what it copies and explains by, its first weights, its refusals.

Numbers against torch's own layers are in tests/parity; what every model promises is in tests/contract.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from catchline.config.names import MODELS, build
from catchline.errors import ConfigError, DataError
from catchline.layers.copying.pointer import BorrowedProjection
from catchline.models.checkpoints import Capture
from catchline.models.transformer import Transformer
from catchline.papers import coconet
from samples import EOS, IDS, PAD, VOCAB, gradients, random_batch, randomise
from tiny_bart import EOS as BART_EOS
from tiny_bart import copying_bart, source_batch

TINY = {"encoder_layers": 2, "decoder_layers": 2, "hidden_size": 16, "num_heads": 2, "feed_forward_size": 24}
POINTER = {"head": {"type": "pointer"}}
EXACT = {"atol": 1e-11, "rtol": 0}


def first_weights(*, vocab_size: int = VOCAB, seed: int = 0, **options: Any) -> Transformer:
    torch.manual_seed(seed)
    spec = {"type": "transformer", **TINY, "dropout": 0.0, **options}
    return build("model", MODELS, spec, vocab_size=vocab_size, **IDS)


def tiny(**options: Any) -> Transformer:
    return randomise(first_weights(**options).double().eval(), scale=0.5)


# ---------------------------------------------------------------------------------- the beginning


def test_first_weights() -> None:
    """N(0, 1 / D) embeddings with a zero row for padding; one matrix for everything; equal for equal seeds."""
    model = first_weights(vocab_size=2000, hidden_size=64)
    weight = model.embedding.weight
    assert weight[PAD].eq(0).all()
    assert weight.std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert model.target_embedding.weight is weight
    assert model.head.projection.weight is weight
    assert "bias" not in dict(model.head.projection.named_parameters())
    apart = first_weights(vocab_size=2000, share_embeddings=False)
    matrices = [apart.embedding.weight, apart.target_embedding.weight, apart.head.projection.weight]
    assert len({id(matrix) for matrix in matrices}) == 3
    assert all(matrix[1:].std().item() == pytest.approx(0.25, rel=0.02) for matrix in matrices)


def test_dropout_places() -> None:
    """On embeddings with positions and on every sublayer's output: 1 + 2 L for the source, 1 + 3 L for the target."""
    model, shapes = first_weights(dropout=0.3), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Dropout, "forward", lambda self, x: (shapes.append((self.p, tuple(x.shape))), x)[1])
        model(random_batch())
    assert shapes == [(0.3, (3, 7, 16))] * 5 + [(0.3, (3, 5, 16))] * 7


def test_a_document_of_nothing_but_padding() -> None:
    """Finite, alone in what it does: its companions do not notice, and it sends no NaN back."""
    model, batch = tiny(), random_batch()
    expected = model(batch).gold_log_probs
    mask = batch.source_mask.clone()
    mask[1] = False
    empty = replace(batch, source_mask=mask)
    output = model(empty)
    assert output.gold_log_probs.isfinite().all()
    assert output.attention[1].eq(0).all()
    torch.testing.assert_close(output.gold_log_probs[[0, 2]], expected[[0, 2]], **EXACT)
    output.gold_log_probs.sum().backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())
    with torch.no_grad():
        step, _ = model.step(batch.target_input_ids[:, 0], model.start(model.encode(empty)))
    assert step.log_probs.isfinite().all()
    assert step.attention[1].eq(0).all()
    assert step.context[1].eq(0).all()


@torch.no_grad()
def test_the_pointer_copies_by_the_averaged_weights() -> None:
    """P(w) = p_gen softmax(E h) + (1 - p_gen) times the weights at w, with the gate on [context; h; x]."""
    model, batch = tiny(**POINTER), random_batch()
    memory = model.encode(batch)
    step, _ = model.step(batch.target_input_ids[:, 0], model.start(memory))
    word = model.embedding.weight[EOS] * 4.0
    angles = 1.0 * torch.exp(-torch.arange(8).double() * torch.log(torch.tensor(10000.0).double()) / 7)
    embedded = (word + torch.cat([angles.sin(), angles.cos()])).expand(3, -1)  # PAD is 0: the first position is 1
    gate = model.head.gate(torch.cat([step.context, step.state, embedded], -1)).sigmoid()
    torch.testing.assert_close(step.details["p_gen"], gate.squeeze(-1), **EXACT)
    probs = torch.zeros(3, batch.extended_vocab_size).double()
    probs[:, :VOCAB] = gate * torch.softmax(step.state @ model.embedding.weight.T, -1)
    for b in range(3):
        for s in range(7):
            probs[b, batch.source_extended_ids[b, s]] += (1 - gate[b, 0]) * step.attention[b, s]
    torch.testing.assert_close(step.log_probs.exp(), probs, **EXACT)


# ------------------------------------------------------------------------------------------ captures


@pytest.mark.parametrize("options", [{"num_heads": 3}, {"attention_layer": 2}])
def test_settings_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        first_weights(**options)


COPYING = ["attentional", "guided", "correlational"]


def test_a_capture_keeps_the_last_and_is_empty_once_read() -> None:
    layer, mask = nn.Identity(), torch.ones(2, 5, dtype=torch.bool)
    first, second = (torch.full((2, 3, 4, 6), value) for value in (1.0, 2.0))
    capture = Capture(layer)
    assert capture.taken(mask) is None
    for value in (first, second):
        capture.offer(layer, value.transpose(1, 2), value.transpose(1, 2), value.transpose(1, 2))
        capture.offer(nn.Identity(), first, first, first)  # another layer's
    found = capture.taken(mask)
    assert found is not None
    assert found.queries.eq(2).all()
    capture.offer(layer, first, first, first)  # the same layer, computed again in the backward pass
    assert capture.taken(mask) is None


@pytest.mark.parametrize("head", ["vocabulary", *COPYING])
def test_checkpointed_layers_give_the_same_gradients(head: str) -> None:
    model, batch = copying_bart(head).train(), source_batch()
    checked = copying_bart(head, options={"gradient_checkpointing": True}).train()
    checked.load_state_dict(model.state_dict())
    assert checked.network.get_decoder().layers[-1].gradient_checkpointing
    values = []
    for each in (model, checked):
        each.zero_grad()
        output = each(batch)
        output.gold_log_probs.square().sum().backward()
        values.append(output.gold_log_probs)
    torch.testing.assert_close(values[0], values[1], **EXACT)
    mine, other = gradients(model), gradients(checked)
    torch.testing.assert_close(mine, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("head", COPYING)
def test_the_weights_are_those_before_dropout(head: str) -> None:
    """With attention dropout in the layers: rows of alpha and of P_final sum to one, and s too."""
    model, batch = copying_bart(head, attention_dropout=0.5).train(), source_batch()
    torch.manual_seed(1)
    memory = model.encode(batch)
    queries, keys = memory.extra["captured"]
    semantic = coconet.mean_attention(queries, keys, memory.mask) * memory.mask.unsqueeze(-1)
    torch.testing.assert_close(semantic.sum(-1), memory.mask.double(), **EXACT)
    output = model(batch)
    torch.testing.assert_close(output.attention.sum(-1), torch.ones(3, 5).double(), **EXACT)
    step, _ = model.step(torch.full((3,), BART_EOS), model.start(memory))
    torch.testing.assert_close(step.details["p_final"].sum(-1), torch.ones(3).double(), **EXACT)


@pytest.mark.parametrize(
    "model", [tiny(max_positions=7), copying_bart(max_position_embeddings=7)], ids=["ours", "bart"]
)
@torch.no_grad()
def test_what_is_too_long_is_refused(model: Any) -> None:
    assert (model.max_source_tokens, model.max_target_tokens) == (7, 7)
    with pytest.raises(DataError, match=r"source of 8 tokens is longer than the 7 that this model reads"):
        model(random_batch((8,), (2,), vocab_size=model.vocab_size))
    with pytest.raises(DataError, match="summary of 8 tokens"):
        model(random_batch((7,), (8,), vocab_size=model.vocab_size))
    source, words = random_batch((7,), (7,), vocab_size=model.vocab_size), torch.tensor([5])
    state = model.start(model.encode(source))
    for _ in range(7):
        _, state = model.step(words, state)
    with pytest.raises(DataError, match=r"search\.max_length"):
        model.step(words, state)


# -------------------------------------------------------------------------------------- the output layer


def test_the_projection_owns_nothing_and_follows_its_network() -> None:
    model = copying_bart("correlational")
    projection = model.head.projection
    assert isinstance(projection, BorrowedProjection)
    assert not list(projection.parameters())
    assert not projection.state_dict()
    assert projection.vocab_size == model.vocab_size
    assert projection.weight is model.network.model.shared.weight
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.head.projection.weight is other.network.model.shared.weight
        assert other.head.projection.weight is not projection.weight


def test_specials_are_excluded_by_the_ids_of_the_checkpoint() -> None:
    model, batch = copying_bart({"type": "correlational", "exclude_special_from_copy": True}), source_batch()
    batch.source_ids[:, 0], batch.source_ids[0, -1] = 0, 2  # BOS and EOS
    with torch.no_grad():
        step, _ = model.step(torch.full((3,), 2), model.start(model.encode(batch)))
    special = torch.isin(batch.source_ids, torch.tensor([0, 1, 2]))
    assert step.details["p_final"][special].eq(0).all()
    torch.testing.assert_close(step.details["p_final"].sum(-1), torch.ones(3).double())


@pytest.mark.parametrize(
    ("head", "changes", "said"),
    [
        ("pointers", {}, "copy head"),
        ("vocabulary", {"encoder_layers": 0}, "encoder_layers is 0: the model needs at least one"),
        *(("correlational", {f"{side}_layerdrop": 0.1}, "LayerDrop") for side in ("encoder", "decoder")),
        ("vocabulary", {"options": {"forced_bos_id": 9999}}, "_bos_id 9999 is not an id of a vocabulary"),
    ],
)
def test_what_does_not_go_together_is_refused(head: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        copying_bart(head, **changes)
    copying_bart("vocabulary", encoder_layerdrop=0.1, decoder_layerdrop=0.1)
