"""On a GPU the host runs ahead of the device until it asks for a number.

How often an update asks is counted on the CPU, by the operations that would wait: a number taken from a tensor, places
found in a mask, what is different among values.
"""

from __future__ import annotations

import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch.utils._python_dispatch import TorchDispatchMode

import catchline
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.kernels import vocabulary
from catchline.training.step import UpdateStep
from samples import IDS, VOCAB, random_batch

SOURCE = Path(catchline.__file__).parent
WAITING = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "repeat_interleave", "_unique2"}
BY_MASK = {"index", "index_put", "index_put_", "_index_put_impl_"}

# What may wait, by file: where the gold words stand (at the beginning, when the device has nothing to do yet) and
# whether the loss weighs words as foreseen. The last number, at the update's end, is not counted: it has to be.
USUAL = Counter({"models/base.py": 1, "kernels/vocabulary.py": 1})
PADDED = USUAL + Counter({"layers/recurrent.py": 1})  # is there padding? asked on a CPU alone
EXPECTED = {
    ("headline_writer", "pointer-generator-coverage"): PADDED,
    ("distraction", "m1-m2"): PADDED,
    ("contrastive", "transformer"): USUAL,
    ("contrastive", "contrastive"): USUAL + Counter({"kernels/vocabulary.py": 1}),  # the opponent's words too
    ("coconet", "coconet"): USUAL,
    ("coarse_to_fine", "standard"): USUAL,
}


class Waits(TorchDispatchMode):
    """Counts the waiting operations, by the file of this library that asked (``torch``: none)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in BY_MASK and any(each is not None and each.dtype == torch.bool for each in args[1])
        if name in WAITING or by_mask:
            frames = [Path(frame.filename) for frame in traceback.extract_stack()]
            ours = [path.relative_to(SOURCE).as_posix() for path in frames if path.is_relative_to(SOURCE)]
            self.found[ours[-1] if ours else "torch"] += 1
        return func(*args, **(kwargs or {}))


def waits(recipe: str, row: str) -> Counter[str]:
    run = resolve_run(load_recipe(recipe), row, "tiny", {})
    model = build("model", MODELS, run.model, vocab_size=VOCAB, **IDS).train()
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    update, batch = UpdateStep(run.training, model, objectives, Accelerator(cpu=True)), random_batch()
    with Waits() as counted:
        update([batch], 0, [], Path())
    del counted.found["training/step.py"]  # of the batch on the host, before it goes to the device
    return counted.found


@pytest.mark.parametrize(("recipe", "row"), EXPECTED, ids=lambda part: part)
def test_an_update_waits_no_more_often_than_it_has_to(recipe: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_ASKED_ON", "nowhere")  # as on a GPU
    assert waits(recipe, row) - EXPECTED[recipe, row] == Counter()


def test_more_objectives_ask_more_often() -> None:
    """The sampled chunks and their reward ask at every step, and are counted."""
    assert waits("coarse_to_fine", "c2f").total() > 2 * USUAL.total()
