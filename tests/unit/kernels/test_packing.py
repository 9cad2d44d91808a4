"""Packed weights: the vocabulary's product as decoding uses it, in lower precision too, kept between searches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from catchline.jobs import threaded
from catchline.kernels import dispatch, packed
from catchline.kernels.packed import Packing, can_multiply, linear_map
from catchline.layers.vocabulary import VocabularyProjection

pytestmark = pytest.mark.skipif(not dispatch.ENABLED, reason="CATCHLINE_KERNELS=off: nothing is packed")


@pytest.fixture(autouse=True)
def small_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_WORTH_PACKING", 1)
    monkeypatch.setattr(packed, "_OUTPUT_WORTH_PACKING", 1)
    with torch.inference_mode():
        if not packed.can_pack(torch.zeros(2, 2)):
            pytest.skip("this build of torch lacks oneDNN's packed linear layer")


def rounded(x: Tensor, steps: int = 127) -> Tensor:
    """Each row in so many steps to each side of zero."""
    scale = x.abs().amax(-1, keepdim=True) / steps
    return torch.round(x / scale) * scale


@pytest.mark.parametrize("relu", [False, True])
@torch.no_grad()
def test_each_precision_is_the_product_of_rounded_factors(relu: bool) -> None:
    torch.manual_seed(0)
    weight, bias, inputs = torch.randn(33, 48), torch.randn(33), torch.randn(2, 5, 48)
    low = [x.bfloat16().float() for x in (inputs, weight, bias)]
    expected = {
        "fp32": torch.nn.functional.linear(inputs, weight, bias),
        "bf16": torch.nn.functional.linear(*low).bfloat16().float(),
    }
    if steps := packed.byte_steps():
        expected["int8"] = torch.nn.functional.linear(rounded(inputs), rounded(weight, steps), bias)
    for precision, value in expected.items():
        if not can_multiply(precision):  # type: ignore[arg-type]
            continue
        with Packing(precision).used():  # type: ignore[arg-type]
            found = linear_map(weight, bias, relu=relu, pack=True)(inputs)
        tolerance = 1e-2 if precision == "bf16" else 1e-5  # bf16's last bit hangs on the order of the sum
        torch.testing.assert_close(found, value.relu() if relu else value, rtol=tolerance, atol=tolerance)
        if precision != "fp32":
            assert not torch.equal(found, expected["fp32"].relu() if relu else expected["fp32"])


def saturated(limit: int) -> Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]:
    """Products of a CPU that adds two products of eight bits where no more than ``limit`` fits."""

    def product(steps: Tensor, scale: Tensor) -> Callable[[Tensor], Tensor]:
        pair = 2 * 255 * int(steps.max())
        return lambda x: x @ steps.float().t() * (min(pair, limit) / pair)

    return product


def test_a_product_that_overflows_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without VNNI the sum of two products of eight bits saturates at 2 ** 15; with seven it does not."""

    def absent(steps: Tensor, scale: Tensor) -> Callable[[Tensor], Tensor]:
        raise AttributeError("no such operator")

    for products, steps in (
        ([saturated(2**15), saturated(2**15)], 63),
        ([absent, saturated(2**15)], 63),
        ([saturated(2**15), saturated(2**17)], 127),
        ([saturated(2**14), absent], 0),
    ):
        monkeypatch.setattr(packed, "_PRODUCTS", products)
        monkeypatch.setattr(packed, "byte_steps", packed.byte_steps.__wrapped__)
        assert packed.byte_steps() == steps
        assert can_multiply.__wrapped__("int8") is (steps > 0)
        monkeypatch.undo()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert [can_multiply.__wrapped__(name) for name in ("fp32", "bf16", "int8")] == [True, False, False]


@pytest.mark.parametrize("shape", [(1, 3, 5), (4, 70, 33), (70, 256, 128)])
def test_all_products_of_bytes_are_exact(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    rows, inputs, outputs = shape
    steps, scale = torch.randint(-63, 64, (outputs, inputs)).to(torch.int8), torch.rand(outputs)
    x = torch.randint(-127, 128, (rows, inputs))
    exact = (x @ steps.long().t()).float() * scale
    made = packed._right_products(63)
    assert made or not packed.byte_steps()
    for product in made:
        assert torch.equal(product(steps, scale)(x.float()), exact)


@torch.no_grad()
def test_few_rows_and_many_may_be_multiplied_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def named(name: str) -> Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]:
        def product(steps: Tensor, scale: Tensor) -> Callable[[Tensor], Tensor]:
            return lambda x: asked.append((name, len(x))) or x @ (steps * scale[:, None]).t()

        return product

    monkeypatch.setattr(packed, "byte_steps", lambda: 127)
    monkeypatch.setattr(packed, "_fastest_products", lambda: [named("few"), named("many")])
    weight, inputs = torch.randn(20, 40), torch.randn(64, 40)
    product = packed.PackedByteLinear(weight, torch.zeros(20), 20)
    torch.testing.assert_close(product(inputs)[:63], product(inputs[:63]))
    assert asked == [("many", 64), ("few", 63)]


def test_what_two_threads_want_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias, made = torch.randn(20, 40), torch.zeros(20), list[int]()
    meeting, packing = threading.Barrier(2, timeout=30), Packing()

    def pack(weight: Tensor, bias: Tensor, columns: int, *, relu: bool) -> packed.Map:
        made.append(threading.get_ident())
        time.sleep(0.1)  # in which the other one asks
        return packed.PackedLinear(weight, bias, columns, relu=relu)

    @torch.no_grad()
    def work(_: int, go_on: Callable[[], None]) -> packed.Map:
        meeting.wait()
        return packing.packed(weight, bias, 20, relu=False)

    monkeypatch.setitem(packed.PACKED, "fp32", pack)
    one, other = threaded(work, range(2), 2)
    assert one is other
    assert len(made) == 1


@torch.no_grad()
def test_in_int8_a_row_does_not_depend_on_others() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(6, 40)
    inputs[3] *= 1000
    inputs[4] = 0
    with Packing("int8").used():
        product = linear_map(torch.randn(20, 40), torch.randn(20), pack=True)
        assert torch.equal(product(inputs)[:2], product(inputs[:2]))
        assert bool(product(inputs).isfinite().all())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@torch.no_grad()
def test_words_outside_the_vocabulary_get_minus_infinity(precision: packed.Precision) -> None:
    if not can_multiply(precision):
        pytest.skip(f"this CPU has no {precision}")
    projection = VocabularyProjection(32, 301)
    with Packing(precision).used():
        wide = projection.for_decoding(305)(torch.randn(4, 32))
    assert wide.shape == (4, 305)
    assert bool((wide[:, 301:] == -torch.inf).all())
    assert bool(wide[:, :301].isfinite().all())


def test_packed_once_until_a_weight_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias, inputs = torch.randn(16, 8), torch.zeros(16), torch.randn(2, 8)
    made = []
    plain = packed.PACKED["fp32"]
    monkeypatch.setitem(packed.PACKED, "fp32", lambda *args, **options: made.append(1) or plain(*args, **options))
    packing = Packing("fp32")
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
    assert len(made) == 4  # `linear_map` without a packing does not ask the table


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
