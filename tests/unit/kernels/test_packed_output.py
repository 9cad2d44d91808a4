"""The vocabulary projection as decoding uses it."""

from __future__ import annotations

import pytest
import torch

from laconic.kernels import dispatch, packed
from laconic.layers.vocabulary import VocabularyProjection

pytestmark = pytest.mark.skipif(not dispatch.ENABLED, reason="LACONIC_KERNELS=off: nothing is packed")


@pytest.mark.parametrize("hidden_size", [None, 24])
def test_packed_weights_give_the_same_logits(hidden_size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_OUTPUT_WORTH_PACKING", 1)
    torch.manual_seed(0)
    projection = VocabularyProjection(32, 301, hidden_size=hidden_size)
    inputs = torch.randn(2, 3, 32)
    with torch.inference_mode():
        project = projection.for_decoding()
        if not packed.can_pack(projection.weight):
            pytest.skip("this build of torch lacks oneDNN's packed linear layer")
        assert project is not projection
        torch.testing.assert_close(project(inputs), projection(inputs), rtol=1e-5, atol=1e-5)
        wider = projection.for_decoding(305)(inputs)
        torch.testing.assert_close(wider[..., :301], projection(inputs), rtol=1e-5, atol=1e-5)
        assert bool((wider[..., 301:] == -torch.inf).all())
        projection.weight.mul_(2)  # a search sees the weights of its start; the next one sees the new ones
        torch.testing.assert_close(projection.for_decoding()(inputs), projection(inputs), rtol=1e-5, atol=1e-5)


def test_with_gradients_in_double_or_without_the_operators_nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_OUTPUT_WORTH_PACKING", 1)
    projection = VocabularyProjection(8, 50)
    assert projection.for_decoding() is projection
    with torch.no_grad():
        assert VocabularyProjection(8, 50).double().for_decoding().__class__ is VocabularyProjection
        monkeypatch.setattr(packed, "can_pack", lambda weight: False)
        assert projection.for_decoding() is projection
