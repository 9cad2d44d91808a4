"""Packed weights: the vocabulary's product as decoding uses it, kept between searches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import tiny_bart
from catchline.config.schema import SearchConfig
from catchline.jobs import threaded
from catchline.kernels import dispatch, packed
from catchline.kernels.packed import Packing, linear_map
from catchline.layers.vocabulary import VocabularyProjection
from catchline.search.decode import decode
from catchline.search.torch_bridge import TorchModel

pytestmark = pytest.mark.skipif(not dispatch.ENABLED, reason="CATCHLINE_KERNELS=off: nothing is packed")


@pytest.fixture(autouse=True)
def small_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_WORTH_PACKING", 1)
    monkeypatch.setattr(packed, "_OUTPUT_WORTH_PACKING", 1)
    with torch.inference_mode():
        if not packed.can_pack(torch.zeros(2, 2)):
            pytest.skip("this build of torch lacks oneDNN's packed linear layer")


@pytest.mark.parametrize("relu", [False, True])
@torch.no_grad()
def test_a_packed_map_is_the_product(relu: bool) -> None:
    torch.manual_seed(0)
    weight, bias, inputs = torch.randn(33, 48), torch.randn(33), torch.randn(2, 5, 48)
    expected = torch.nn.functional.linear(inputs, weight, bias)
    with Packing().used():
        found = linear_map(weight, bias, relu=relu, pack=True)(inputs)
    torch.testing.assert_close(found, expected.relu() if relu else expected, rtol=1e-5, atol=1e-5)


def test_what_two_threads_want_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias, made = torch.randn(20, 40), torch.zeros(20), list[int]()
    meeting, packing = threading.Barrier(2, timeout=30), Packing()

    plain = packed.PackedLinear

    def pack(weight: Tensor, bias: Tensor, columns: int, *, relu: bool) -> packed.Map:
        made.append(threading.get_ident())
        time.sleep(0.1)  # in which the other one asks
        return plain(weight, bias, columns, relu=relu)

    @torch.no_grad()
    def work(_: int, go_on: Callable[[], None]) -> packed.Map:
        meeting.wait()
        return packing.packed(weight, bias, 20, relu=False)

    monkeypatch.setattr(packed, "PackedLinear", pack)
    one, other = threaded(work, range(2), 2)
    assert one is other
    assert len(made) == 1


def test_packed_once_until_a_weight_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias, inputs = torch.randn(16, 8), torch.zeros(16), torch.randn(2, 8)
    made = []
    plain = packed.PackedLinear
    monkeypatch.setattr(packed, "PackedLinear", lambda *args, **options: made.append(1) or plain(*args, **options))
    packing = Packing()
    with torch.no_grad(), packing.used():
        first = linear_map(weight, bias, pack=True)
        assert linear_map(weight, bias, pack=True) is first
        assert len(made) == 1
        weight.mul_(2)
        torch.testing.assert_close(linear_map(weight, bias, pack=True)(inputs), inputs @ weight.t())
        bias.add_(1)
        torch.testing.assert_close(linear_map(weight, bias, pack=True)(inputs), inputs @ weight.t() + 1)
        assert len(made) == 3
        packing.forget()
        linear_map(weight, bias, pack=True)
        assert len(made) == 4
    with torch.no_grad():
        assert Packing.current() is None
        linear_map(weight, bias, pack=True)  # nobody keeps it
        linear_map(weight, bias, pack=True)
    assert len(made) == 6


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


def test_the_layers_of_bart_are_packed_too() -> None:
    model = tiny_bart.copying_bart().float().eval()
    sources = torch.arange(4, 20).view(2, 8)
    batch = tiny_bart.Batch(sources, sources, torch.ones_like(sources, dtype=torch.bool), tiny_bart.VOCABULARY)
    ids = {"pad_id": tiny_bart.PAD, "unk_id": tiny_bart.UNK, "bos_id": model.decoder_start_id, "eos_id": tiny_bart.EOS}
    config, packing = SearchConfig(beam_size=2, max_length=6, min_length_share=None), Packing()
    plain, found = (decode(TorchModel(model, each), batch, config, **ids) for each in (None, packing))
    linears = [m for m in model.network.modules() if isinstance(m, torch.nn.Linear) and m is not model.network.lm_head]
    assert len(packing._kept) == len(linears) + 1  # and the vocabulary
    assert [best[0].ids for best in found] == [best[0].ids for best in plain]
    assert found[0][0].score == pytest.approx(plain[0][0].score, abs=1e-4)
