"""What goes into a checkpoint and back: model, optimizer, generators, training state (see `checkpoint`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from laconic.errors import CheckpointError
from laconic.models.base import SummarizationModel
from laconic.objectives.base import Objective
from laconic.training import rng
from laconic.training.averaging import WeightAverage
from laconic.training.checkpoint import Snapshot
from laconic.training.optim import parameter_names
from laconic.training.state import TrainState


def take(
    *,
    model: SummarizationModel,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None,
    objectives: Sequence[Objective],
    state: TrainState,
    identity: dict[str, Any],
    accelerator: Accelerator,
) -> Snapshot:
    """Gather everything; every process must call this. ``identity`` is compared when the run is resumed."""
    tensors, structure = _optimizer_state(optimizer)
    snapshot = Snapshot(tensors={"model": model.state_dict(), "optimizer": tensors})
    if average is not None:
        snapshot.tensors["average"] = average.mean
    if own := _objective_state(objectives):
        snapshot.tensors["objectives"] = own
    snapshot.values = {
        "switches": model.switches(),
        "optimizer": structure,
        "generators": gather_object([rng.capture()]) if accelerator.num_processes > 1 else [rng.capture()],
        "train_state": state.state_dict(),
        "identity": identity,
    }
    return snapshot


def check_identity(snapshot: Snapshot, identity: dict[str, Any]) -> None:
    """Refuse to resume with other data, another tokenizer or another number of processes.

    Raises:
        CheckpointError: says what differs.
    """
    stored = snapshot.values["identity"]
    if stored.get("processes") != identity["processes"]:
        raise CheckpointError(
            f"The run was made by {stored.get('processes')} process(es) and is resumed by {identity['processes']}; "
            "an exact continuation needs the same number (see accelerate launch --num_processes)."
        )
    for key, what in (("data", "training data"), ("validation", "validation data"), ("tokenizer", "tokenizer")):
        if stored.get(key, identity[key]) != identity[key]:  # an older version noted the training data only
            raise CheckpointError(
                f"The {what} is not what the run was started with, so it cannot continue exactly; "
                "put the old files back, or start a new run."
            )


def restore(
    snapshot: Snapshot,
    *,
    model: SummarizationModel,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None,
    objectives: Sequence[Objective],
) -> None:
    """Put model, optimizer and averaged weights back; the generators come last, by `restore_generators`.

    Raises:
        CheckpointError: the tensors do not fit the model.
    """
    model.switch(snapshot.values["switches"])
    try:
        model.load_state_dict(snapshot.tensors["model"], strict=True)
        _load_optimizer(optimizer, snapshot.tensors.get("optimizer", {}), snapshot.values["optimizer"])
        for name, buffer in _objective_state(objectives).items():
            buffer.copy_(snapshot.tensors["objectives"][name])
        if average is not None:
            updates = snapshot.values["train_state"]["averaged_updates"]
            average.load(snapshot.tensors["average"], updates)
    except (RuntimeError, KeyError, ValueError) as error:
        raise CheckpointError(f"The checkpoint does not fit the run's model: {str(error).splitlines()[0]}") from error


def restore_generators(snapshot: Snapshot, accelerator: Accelerator) -> None:
    """Put this process's random number generators back; the last thing before the next update."""
    rng.restore(snapshot.values["generators"][accelerator.process_index])


def _objective_state(objectives: Sequence[Objective]) -> dict[str, Tensor]:
    """What objectives remember (a baseline of rewards), as ``objective.buffer``."""
    return {f"{o.name}.{name}": value for o in objectives for name, value in o.state_dict().items()}


def _optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimizer's tensors as ``parameter.key`` and, for each parameter, the keys; numbers stay numbers."""
    state = optimizer.state_dict()["state"]
    tensors: dict[str, Tensor] = {}
    structure: dict[str, dict[str, Any]] = {}
    for index, name in enumerate(parameter_names(optimizer)):
        entry: dict[str, Any] = {}
        for key, value in state.get(index, {}).items():
            entry[key] = None if isinstance(value, Tensor) else value
            if isinstance(value, Tensor):
                tensors[f"{name}.{key}"] = value
        structure[name] = entry
    return tensors, structure


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], structure: dict[str, Any]) -> None:
    whole = optimizer.state_dict()
    state: dict[int, dict[str, Any]] = {}
    for index, name in enumerate(parameter_names(optimizer)):
        entry = structure[name]
        if entry:
            keys = {key: (tensors[f"{name}.{key}"] if value is None else value) for key, value in entry.items()}
            state[index] = keys
    optimizer.load_state_dict({"state": state, "param_groups": whole["param_groups"]})
