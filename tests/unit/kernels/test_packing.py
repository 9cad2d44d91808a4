"""Packed weights: the vocabulary's product as decoding uses it, kept between searches."""

from __future__ import annotations

import pytest
import torch

import tiny_bart
from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.kernels import dispatch, packed
from catchline.kernels.packed import Packing, linear
from catchline.layers.vocabulary import VocabularyProjection
from catchline.search.decode import decode
from catchline.search.torch_bridge import TorchModel
from samples import IDS

pytestmark = pytest.mark.skipif(not dispatch.ENABLED, reason="CATCHLINE_KERNELS=off: nothing is packed")


@pytest.fixture(autouse=True)
def small_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_WORTH_PACKING", 1)
    monkeypatch.setattr(packed, "_OUTPUT_WORTH_PACKING", 1)
    with torch.inference_mode():
        if not packed.can_pack(torch.zeros(2, 2)):
            pytest.skip("this build of torch lacks oneDNN's packed linear layer")


def test_packed_once_until_a_weight_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias, inputs = torch.randn(16, 8), torch.zeros(16), torch.randn(2, 5, 8)
    made, plain = [], packed.PackedLinear
    monkeypatch.setattr(packed, "PackedLinear", lambda *args: made.append(1) or plain(*args))
    packing = Packing()

    def check() -> None:
        torch.testing.assert_close(linear(inputs, weight, bias), inputs @ weight.t() + bias, rtol=1e-5, atol=1e-5)

    with torch.no_grad(), packing.used():
        check()
        check()
        assert len(made) == 1
        weight.mul_(2)
        check()
        bias.add_(1)
        check()
        assert len(made) == 3
        packing.forget()
        check()
        assert len(made) == 4
        with torch.autocast("cpu", torch.bfloat16):
            linear(inputs, weight, bias)
        linear(inputs.double(), weight.double(), bias.double())
        with torch.enable_grad():
            check()
    check()  # outside of a packing
    assert len(made) == 4


@pytest.mark.parametrize("hidden_size", [None, 24])
def test_packed_weights_give_the_same_logits(hidden_size: int | None) -> None:
    torch.manual_seed(0)
    projection = VocabularyProjection(32, 301, hidden_size=hidden_size)
    inputs = torch.randn(2, 3, 32)
    with torch.inference_mode():
        project = projection.for_decoding()
        assert project is not projection
        torch.testing.assert_close(project(inputs), projection(inputs), rtol=1e-5, atol=1e-5)
        wider = projection.for_decoding(305)(inputs)
        torch.testing.assert_close(wider[..., :301], projection(inputs), rtol=1e-5, atol=1e-5)
        assert bool((wider[..., 301:] == -torch.inf).all())
        projection.weight.mul_(2)  # a search sees the weights of its start; the next one sees the new ones
        torch.testing.assert_close(projection.for_decoding()(inputs), projection(inputs), rtol=1e-5, atol=1e-5)


def test_with_gradients_in_double_or_without_the_operators_nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    projection = VocabularyProjection(8, 50)
    assert projection.for_decoding() is projection
    with torch.no_grad():
        assert VocabularyProjection(8, 50).double().for_decoding().__class__ is VocabularyProjection
        monkeypatch.setattr(packed, "can_pack", lambda weight: False)
        assert projection.for_decoding() is projection


def test_layers_of_transformers_are_packed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = torch.arange(4, 20).view(2, 8)
    batch = tiny_bart.Batch(sources, sources, torch.ones_like(sources, dtype=torch.bool), tiny_bart.VOCABULARY)
    spec = {"type": "transformer", "encoder_layers": 2, "decoder_layers": 2, "hidden_size": 16, "num_heads": 2}
    own = build("model", MODELS, spec, vocab_size=tiny_bart.VOCABULARY, **IDS).eval()
    config = SearchConfig(beam_size=2, max_length=6, min_length_share=None)
    for model, layers in ((tiny_bart.copying_bart().float().eval(), "network"), (own, "")):
        ids = {name: getattr(model, name) for name in IDS} | {"bos_id": model.decoder_start_id}
        packing = Packing()
        found = decode(TorchModel(model, packing), batch, config, **ids)
        modules = model.get_submodule(layers).named_modules()
        linears = [part for name, part in modules if isinstance(part, torch.nn.Linear) and not name.endswith("lm_head")]
        assert len(packing._maps) == len(linears) + 1 + (0 if layers else 2)  # and the vocabulary; parts of in_proj
        with monkeypatch.context() as patch:
            patch.setattr(packed, "can_pack", lambda weight: False)
            plain = decode(TorchModel(model), batch, config, **ids)
        assert [best[0].ids for best in found] == [best[0].ids for best in plain]
        assert found[0][0].score == pytest.approx(plain[0][0].score, abs=1e-4)
