"""Switches of the model that hold while it decodes."""

from __future__ import annotations

import pytest

from laconic.errors import ConfigError
from laconic.models.base import SummarizationModel
from laconic.search.decode import switched


class Switchable(SummarizationModel):
    encode = start = step = forward = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.values = {"score": "joint", "weight": 0.2}

    def switches(self):
        return self.values

    def _set_switch(self, name, value):
        self.values[name] = value


@pytest.fixture
def model() -> Switchable:
    Switchable.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return Switchable()


def test_switches_hold_inside_only(model):
    with switched(model, {"weight": 0.0}):
        assert model.values == {"score": "joint", "weight": 0.0}
    assert model.values == {"score": "joint", "weight": 0.2}


def test_switches_are_put_back_after_an_error(model):
    with pytest.raises(RuntimeError), switched(model, {"score": "pc"}):
        raise RuntimeError
    assert model.values["score"] == "joint"


def test_an_unknown_switch_is_refused(model):
    with pytest.raises(ConfigError, match="no switch 'wieght'"), switched(model, {"wieght": 1}):
        pass
