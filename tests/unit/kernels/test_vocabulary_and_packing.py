"""The gold words' log-probabilities and their gradients, foreseen or not; weights that are packed between searches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tiny_bart
from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.kernels import dispatch, packed, vocabulary
from catchline.kernels.packed import Packing, linear
from catchline.layers.copying.pointer import VocabularyProjection
from catchline.papers import pointer_generator
from catchline.search.decode import decode
from catchline.search.torch_bridge import TorchModel
from samples import IDS, rand
from watching import watch

pytestmark = pytest.mark.skipif(not dispatch.ENABLED, reason="CATCHLINE_KERNELS=off: the kernel is not in use")

M, F, V = 37, 6, 11


def projection(seed: int = 0, **options: Any) -> VocabularyProjection:
    torch.manual_seed(seed)
    result = VocabularyProjection(F, V, **options).double()
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.uniform_(-1, 1)
    return result


GOLD = torch.randint(V, (M,), generator=torch.Generator().manual_seed(1))


def plain(layer: VocabularyProjection, features: Tensor, gold: Tensor) -> Tensor:
    """log softmax(W x + b)[gold]."""
    features = features if layer.hidden is None else layer.hidden(features)
    return pointer_generator.gold_log_probs(features, layer.weight, layer.bias, gold)


@pytest.fixture(params=[1, 2**24], ids=["chunks", "one chunk"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1 the rows go through in chunks of 16, the smallest there are: 16 + 16 + 5."""
    monkeypatch.setattr(vocabulary, "_CHUNK_ON_CPU", request.param)


@pytest.fixture
def projected_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the backward pass had to compute the chunks again."""
    return watch(monkeypatch, vocabulary, "_again")


WEIGHTS = rand(M, seed=3)
DERIVATIVES: dict[str, tuple[Any, Tensor, bool]] = {
    # name: (the hint, what the loss really weighs each row, is the hint right?)
    "all alike": (None, torch.ones(M, dtype=torch.float64), True),
    "all alike, scaled": (None, torch.full((M,), -0.03, dtype=torch.float64), True),
    "right weights": (lambda _, rows: WEIGHTS[rows], 4.2 * WEIGHTS, True),
    "no weight at all": (None, torch.zeros(M, dtype=torch.float64), True),
    "wrong weights": (None, WEIGHTS, False),
    "nothing expected": (lambda values, rows: torch.zeros_like(values), WEIGHTS, False),
    "not a number expected": (lambda values, rows: values * torch.nan, WEIGHTS, False),
    "one row left out": (None, torch.ones(M, dtype=torch.float64).index_fill(0, torch.tensor(20), 0.0), False),
    "one row a little off": (None, torch.ones(M, dtype=torch.float64).index_fill(0, torch.tensor(3), 1 + 1e-9), False),
}


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("two_layers", [False, True])
@pytest.mark.parametrize("case", DERIVATIVES)
def test_values_and_gradients(case: str, two_layers: bool, projected_again: list[int]) -> None:
    derivative, wanted, foreseen = DERIVATIVES[case]
    layer = projection(hidden_size=4 if two_layers else None)
    features = rand(M, F, seed=5).requires_grad_()
    leaves = [features, *layer.parameters()]
    value = layer.gold_log_probs(features, GOLD, derivative)
    expected = plain(layer, features, GOLD)
    torch.testing.assert_close(value, expected, atol=1e-13, rtol=0)
    grads = torch.autograd.grad((value * wanted).sum(), leaves)
    torch.testing.assert_close(grads, torch.autograd.grad((expected * wanted).sum(), leaves), atol=1e-12, rtol=0)
    assert len(projected_again) == (0 if foreseen else 1)


@pytest.mark.parametrize("device", ["cpu", "another"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gold_words_whose_probability_underflows(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, device: str
) -> None:
    """log softmax stays finite and exact where softmax is 0; the gradient is that of log softmax. On another device it
    is computed without asking."""
    monkeypatch.setattr(vocabulary, "_ASKED_ON", "cpu" if device == "cpu" else "nowhere")
    layer = VocabularyProjection(1, 3).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0], [2000.0], [-2000.0]]))
        layer.bias.zero_()
    features = torch.tensor([[1.0], [-1.0], [0.0]], dtype=dtype, requires_grad=True)
    gold = torch.tensor([2, 1, 0])
    value = layer.gold_log_probs(features, gold)
    expected = torch.log_softmax(features @ layer.weight.t(), -1).gather(1, gold[:, None])[:, 0]
    torch.testing.assert_close(value, expected)
    assert value[0] == -4000
    grads = torch.autograd.grad(value.sum(), [features, layer.weight])
    torch.testing.assert_close(grads, torch.autograd.grad(expected.sum(), [features, layer.weight]))
    with torch.no_grad():
        torch.testing.assert_close(layer.gold_log_probs(features, gold), expected)


@pytest.mark.parametrize("foreseen", [True, False])
def test_autocast_is_close_to_float32(foreseen: bool) -> None:
    """Products in bfloat16; softmax, log-probabilities and the gradients of float32 parameters in float32."""
    torch.manual_seed(0)
    layer = VocabularyProjection(32, 200)
    features, gold = torch.randn(40, 32), torch.randint(200, (40,))
    weights = torch.ones(40) if foreseen else torch.linspace(-1, 2, 40)
    results = {}
    for low in (False, True):
        x = features.clone().requires_grad_()
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            value = layer.gold_log_probs(x, gold)
        assert value.dtype == torch.float32
        (weights * value).sum().backward()
        results[low] = [value.detach(), x.grad, layer.weight.grad.clone(), layer.bias.grad.clone()]
        assert layer.weight.grad.dtype == torch.float32
    for name, low, full in zip(("value", "features", "weight", "bias"), results[True], results[False], strict=True):
        error = float((low - full).norm() / full.norm())
        assert 0 < error < 0.02, name


@pytest.fixture
def small_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_WORTH_PACKING", 1)
    monkeypatch.setattr(packed, "_OUTPUT_WORTH_PACKING", 1)
    with torch.inference_mode():
        if not packed.can_pack(torch.zeros(2, 2)):
            pytest.skip("this build of torch lacks oneDNN's packed linear layer")


@pytest.mark.usefixtures("small_is_packed")
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


@pytest.mark.usefixtures("small_is_packed")
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


@pytest.mark.usefixtures("small_is_packed")
def test_with_gradients_in_double_or_without_the_operators_nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    projection = VocabularyProjection(8, 50)
    assert projection.for_decoding() is projection
    with torch.no_grad():
        assert VocabularyProjection(8, 50).double().for_decoding().__class__ is VocabularyProjection
        monkeypatch.setattr(packed, "can_pack", lambda weight: False)
        assert projection.for_decoding() is projection


@pytest.mark.usefixtures("small_is_packed")
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
