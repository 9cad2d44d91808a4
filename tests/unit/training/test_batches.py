"""The scheduled-sampling mask: which gold tokens the decoder is shown; what the processes of an update read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from catchline.config.schema import TeacherForcingConfig
from catchline.training.batches import BatchStream, forced_mask, free_running_mask

PLACE = {"seed": 1, "update": 7}
SCOPES = ("step", "example_step", "sequence")


def drawn(config: TeacherForcingConfig, size: tuple[int, int], *, first: int = 0, **place: int) -> Any:
    """Of the examples ``first``, ``first + 1``, ..."""
    return forced_mask(config, size, **(PLACE | place), examples=range(first, first + size[0]))


def test_bos_is_always_read_and_ratio_one_needs_no_mask() -> None:
    assert drawn(TeacherForcingConfig(ratio=1.0), (2, 3)) is None
    mask = drawn(TeacherForcingConfig(ratio=0.0), (3, 4))
    assert mask.tolist() == [[True, False, False, False]] * 3
    assert torch.equal(mask, free_running_mask(mask))


def test_scopes() -> None:
    before = torch.get_rng_state()
    step, each, whole = (drawn(TeacherForcingConfig(ratio=0.5, scope=scope), (50, 40)) for scope in SCOPES)
    assert bool((step == step[:1]).all())
    assert len({tuple(row) for row in each.tolist()}) == 50
    assert bool((whole[:, 1:] == whole[0, 1]).all())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("scope", SCOPES)
def test_the_ratio_is_the_probability(scope: str) -> None:
    config = TeacherForcingConfig(ratio=0.3, scope=scope)
    draws = [drawn(config, (4, 9), update=update) for update in range(1000)]
    assert float(torch.stack(draws)[..., 1:].float().mean()) == pytest.approx(0.3, abs=0.04)


def test_the_mask_depends_on_the_place_and_on_nothing_else() -> None:
    config = TeacherForcingConfig(ratio=0.5, scope="example_step")
    first = drawn(config, (8, 16))
    torch.manual_seed(99)
    assert torch.equal(first, drawn(config, (8, 16)))
    for name, value in {"seed": 2, "update": 8, "first": 8}.items():
        assert not torch.equal(first, drawn(config, (8, 16), **{name: value}))


@pytest.mark.parametrize("scope", SCOPES)
def test_a_minibatch_draws_the_same_mask_however_it_is_split(scope: str) -> None:
    config = TeacherForcingConfig(ratio=0.5, scope=scope)
    whole, parts = drawn(config, (7, 20)), [drawn(config, (3, 20)), drawn(config, (4, 20), first=3)]
    assert torch.equal(torch.cat(parts), whole)
    # targets of a micro-batch are cut where its longest ends
    assert torch.equal(drawn(config, (7, 5)), whole[:, :5])


@pytest.mark.parametrize("batching", ["bucket", "sorted"])
def test_processes_read_together_what_one_reads_in_larger_batches(make_trainer: Any, batching: str) -> None:
    trainer = make_trainer(**{"training.batch_size": 3, "training.batching": batching, "training.accumulation": 2})

    def records(size: int, processes: int) -> list[list[list[int]]]:
        """Of each process the micro-batches of an epoch, stopped and opened again in its middle."""
        config = trainer.run.training.model_copy(update={"batch_size": size})
        read = []
        for rank in range(processes):
            stream = BatchStream(
                trainer.parts.train_set, trainer.parts.collator.pairs, config, rank=rank, world_size=processes
            )
            taken: list[Any] = []
            while len(taken) < stream.batches_per_epoch:
                if len(taken) == 4:
                    stream.open(1, 4)
                taken += stream.take(1, len(taken))
            read.append([list(batch.indices) for batch in taken])
        return read

    (alone,) = records(6, 1)
    together = records(3, 2)
    assert [sorted(one + other) for one, other in zip(*together, strict=True)] == [sorted(batch) for batch in alone]
    assert max(len(batch) for batches in together for batch in batches) == 3
