"""BART's output layer: borrowed from the network, and in training without (rows, V) logits."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from laconic.errors import ConfigError
from laconic.kernels import dispatch
from laconic.layers.vocabulary import BorrowedProjection
from laconic.models.bart import BartSummarizer
from laconic.models.folder import load_model_folder, save_model_folder
from laconic.text.tokenizer import WordTokenizer
from laconic.types import UpdateContext
from tiny_bart import UNK, architecture, copying_bart, source_batch

COPYING = ["attentional", "guided", "correlational"]


@pytest.mark.skipif(not dispatch.ENABLED, reason="the plain equations keep what autograd keeps")
@pytest.mark.parametrize("head", ["vocabulary", "pointer", *COPYING])
def test_training_keeps_no_logits_for_the_backward_pass(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, rows = 4000, 11  # real target tokens
    monkeypatch.setattr("laconic.kernels.vocabulary._CHUNK_ON_CPU", 2 * vocabulary)
    model, batch = copying_bart(head, vocab_size=vocabulary).train(), source_batch()
    assert int(batch.target_mask.sum()) == rows
    kept: list[tuple[int, ...]] = []
    own = {parameter.shape for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(batch)
    output.gold_log_probs.sum().backward()
    large = [shape for shape in kept if torch.Size(shape).numel() >= rows * vocabulary and torch.Size(shape) not in own]
    assert not large


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


def test_a_batch_that_weighs_words_trains_as_without_the_hint() -> None:
    """What a word will weigh in the loss is a hint for speed: the gradients are the same."""
    model, batch = copying_bart("vocabulary").train(), source_batch()
    weights = torch.linspace(0.5, 1.5, 15).double().view(3, 5)
    found = []
    for hint in (None, weights, weights.flip(0)):
        model.zero_grad()
        (model(batch, context=UpdateContext(token_weights=hint)).gold_log_probs * weights).sum().backward()
        found.append(model.network.model.shared.weight.grad.clone())
    torch.testing.assert_close(found[1], found[0], atol=1e-11, rtol=0)
    torch.testing.assert_close(found[2], found[0], atol=1e-11, rtol=0)


@pytest.mark.parametrize("head", COPYING)
def test_our_own_folder_keeps_the_gates(head: str, tmp_path: Path) -> None:
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train(["a quick fox jumps over the lazy dog", "the small cat sees the quick bird"])
    config = BartSummarizer.Config(architecture=architecture(vocab_size=tokenizer.vocab_size), head={"type": head})
    model = BartSummarizer(config, unk_id=UNK).eval()
    torch.nn.init.normal_(model.head.generation.weight)
    save_model_folder(tmp_path / "model", model=model, tokenizer=tokenizer)
    loaded = load_model_folder(tmp_path / "model").model
    assert loaded.config.head == {"type": head}
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in model.state_dict().items())
    batch = source_batch()
    batch.source_ids = batch.source_extended_ids = batch.source_ids % tokenizer.vocab_size
    batch.target_ids = batch.target_ids % tokenizer.vocab_size
    with torch.no_grad():
        assert torch.equal(loaded(batch).gold_log_probs, model(batch).gold_log_probs)


def test_older_transformers_have_another_name_for_checkpointing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.delattr(PreTrainedModel, "activation_checkpointing_enable", raising=False)
    monkeypatch.setattr(PreTrainedModel, "gradient_checkpointing_enable", lambda _, options: asked.append(options))
    BartSummarizer(BartSummarizer.Config(architecture=architecture(), gradient_checkpointing=True), unk_id=UNK)
    assert asked == [{"use_reentrant": False}]


def test_specials_are_excluded_by_the_ids_of_the_checkpoint() -> None:
    model, batch = copying_bart({"type": "correlational", "exclude_special_from_copy": True}), source_batch()
    batch.source_ids[:, 0], batch.source_ids[0, -1] = 0, 2  # BOS and EOS
    with torch.no_grad():
        step, _ = model.step(torch.full((3,), 2), model.start(model.encode(batch)))
    special = torch.isin(batch.source_ids, torch.tensor([0, 1, 2]))
    assert step.details["p_final"][special].eq(0).all()
    torch.testing.assert_close(step.details["p_final"].sum(-1), torch.ones(3).double())


def test_an_unknown_head_is_refused() -> None:
    with pytest.raises(ConfigError, match="copy head"):
        copying_bart("pointers")


@pytest.mark.parametrize("forced", [-1, 9999])
def test_a_forced_first_word_is_one_of_the_vocabulary(forced: int) -> None:
    with pytest.raises(ConfigError, match=f"model.forced_bos_id {forced} is no word of the vocabulary"):
        copying_bart("vocabulary", options={"forced_bos_id": forced})
