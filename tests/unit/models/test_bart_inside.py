"""BART from within: what is seen of two attention layers, that nothing of it stays and gradients come through; the
output layer, borrowed from the network, in training without (rows, V) logits; folders and refusals."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from catchline.errors import ConfigError, DataError
from catchline.layers.transformer import mean_attention
from catchline.layers.vocabulary import BorrowedProjection
from catchline.models import checkpoints as bart_module
from catchline.models.checkpoints import BartSummarizer, Capture
from catchline.models.stored import FAMILY
from catchline.papers import coconet
from catchline.types import Batch
from samples import gradients
from tiny_bart import EOS, copying_bart, reference_of, source_batch, theirs
from trees import tensors_on

TIGHT = {"atol": 1e-11, "rtol": 0}
COPYING = ["attentional", "guided", "correlational"]


def seen(model: BartSummarizer, batch: Batch) -> tuple[Any, Any]:
    """The captures of a teacher-forced pass: the last encoder layer's and the copying layer's."""
    memory, capture = model.encode(batch), Capture(model._last_encoder_layer.self_attn)
    model.network.get_encoder()(input_ids=batch.source_ids, attention_mask=batch.source_mask, captures=[capture])
    encoder = capture.taken(batch.source_mask)
    assert all(map(torch.equal, memory.extra["captured"], (encoder.queries, encoder.keys)))
    return encoder, model._forced(batch, memory).captured[1]


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("left", [False, True])
def test_weights_from_the_captured_layers_are_those_of_transformers(kind: str, left: bool) -> None:
    """Also with padding, on either side, where the eager attention of transformers leaves rows for padded queries."""
    model, batch = copying_bart(kind=kind).float(), source_batch(left=left)
    expected = theirs(reference_of(model), batch)
    with torch.no_grad():
        encoder, cross = seen(model, batch)
        alpha = mean_attention(cross)
        semantic = coconet.mean_attention(encoder.queries, encoder.keys, encoder.mask) * encoder.mask.unsqueeze(-1)
    real = batch.source_mask[:, :, None]
    torch.testing.assert_close(alpha, expected.cross_attentions[-1].mean(1), atol=1e-5, rtol=0)
    torch.testing.assert_close(semantic, expected.encoder_attentions[-1].mean(1) * real, atol=1e-5, rtol=0)
    assert alpha.masked_select(~batch.source_mask[:, None]).eq(0).all()


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
def test_nothing_of_a_pass_stays(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = copying_bart(head).train(), source_batch()
    before, captures = tensors_on(model), []

    class Watched(Capture):
        def taken(self, mask: Tensor) -> Any:
            found = super().taken(mask)
            if found is not None:
                captures.append(weakref.ref(found.queries))
            return found

    monkeypatch.setattr(bart_module, "Capture", Watched)
    output = model(batch)
    output.gold_log_probs.sum().backward()
    assert tensors_on(model) == before
    assert captures
    del output
    gc.collect()
    assert all(capture() is None for capture in captures)


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
    torch.testing.assert_close(values[0], values[1], **TIGHT)
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
    torch.testing.assert_close(semantic.sum(-1), memory.mask.double(), **TIGHT)
    output = model(batch)
    torch.testing.assert_close(output.attention.sum(-1), torch.ones(3, 5).double(), **TIGHT)
    step, _ = model.step(torch.full((3,), EOS), model.start(memory))
    torch.testing.assert_close(step.details["p_final"].sum(-1), torch.ones(3).double(), **TIGHT)


@pytest.mark.parametrize("head", ["vocabulary", "pointer", *COPYING])
def test_sources_and_summaries_past_the_position_table_are_refused(head: str) -> None:
    model = copying_bart(head)
    with pytest.raises(
        DataError, match=r"A source of 41 tokens is longer than the 40 that this model reads: set text\."
    ):
        model(source_batch((41, 3, 2)))
    batch = source_batch()
    batch.target_ids = torch.full((3, 41), 5)
    batch.target_mask = torch.ones(3, 41, dtype=torch.bool)
    with pytest.raises(DataError, match="A summary of 41 tokens is longer than the 40 that this model reads"):
        model(batch)


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
        ("vocabulary", {"encoder_layers": 0}, "encoder_layers is 0: the model needs one"),
        *(("correlational", {f"{side}_layerdrop": 0.1}, "LayerDrop") for side in ("encoder", "decoder")),
        *(
            ("vocabulary", {"options": {"forced_bos_id": forced}}, f"_bos_id {forced} is not an id of a vocabulary")
            for forced in (-1, 9999)
        ),
    ],
)
def test_what_does_not_go_together_is_refused(head: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        copying_bart(head, **changes)
    copying_bart("vocabulary", encoder_layerdrop=0.1, decoder_layerdrop=0.1)
