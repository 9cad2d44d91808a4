"""A model that says which of its switches change what the encoder leaves must say so truly: memories are reused."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from laconic.config.loading import load_recipe, recipe_names, resolve_run
from laconic.config.names import MODELS, build
from laconic.models.base import SummarizationModel
from samples import random_batch

IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
STRINGS = {"prediction_feed": "sample", "decode_score": "pc", "encode": "lazy"}


@cache
def rows() -> dict[str, dict[str, Any]]:
    recipes = {name: load_recipe(name) for name in recipe_names()}
    return {
        f"{name}:{row}": resolve_run(recipe, row, "tiny").model
        for name, recipe in recipes.items()
        if not recipe.extractive
        for row in recipe.rows
    }


def untruths(model: SummarizationModel) -> list[str]:
    """The switches that change the memory although the model says that they do not."""
    batch = random_batch()
    found = []
    with torch.inference_mode():
        for name, value in model.switches().items():
            other = (
                STRINGS.get(name) if isinstance(value, str) else (not value if isinstance(value, bool) else value / 2)
            )
            if name in (model.encoder_switches or ()) or other is None:
                continue
            before = model.encode(batch)
            model.switch({name: other})
            after = model.encode(batch)
            model.switch({name: value})
            if not torch.equal(before.states, after.states) or not torch.equal(before.mask, after.mask):
                found.append(name)
    return found


@pytest.mark.parametrize("row", rows())
def test_switches_that_are_not_the_encoders_leave_it_alone(row: str) -> None:
    model = build("model", MODELS, rows()[row], vocab_size=20, **IDS).eval()
    if model.encoder_switches is None:
        pytest.skip("it says nothing, so every switch counts")
    assert not untruths(model)


def test_an_untruth_is_noticed() -> None:
    model = build("model", MODELS, rows()["headline_writer:pointer-generator-coverage"], vocab_size=20, **IDS).eval()
    encode = model.encode

    def switched(batch: Any) -> Any:
        memory = encode(batch)
        memory.states = memory.states * (1 + model.switches()["coverage"])
        return memory

    model.encode = switched  # type: ignore[method-assign]
    assert untruths(model) == ["coverage"]
