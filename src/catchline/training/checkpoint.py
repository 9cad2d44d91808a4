"""What a run's exact continuation needs, and the folder that holds it: written beside, flushed, renamed; verified when
read; no pickle anywhere.

Tensors are in ``model.safetensors`` (parameters and buffers), ``optimizer.safetensors`` and, if any,
``average.safetensors`` and ``objectives.safetensors`` (what these remember). ``state.json`` has the model's switches,
the random number generators of torch of every process, and the training state (`TrainState`), of
which learning rate and batches are pure functions. A resumed run cuts ``log.jsonl`` back to the length noted there.
``manifest.json`` has the size and SHA-256 of each file.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from accelerate.utils import gather_object
from torch import Tensor

from catchline.errors import CheckpointError
from catchline.files import digest_of, remove_leftovers, replacing_folder, write_json
from catchline.models.base import SummarizationModel
from catchline.models.stored import save_tensors
from catchline.objectives.base import Objective
from catchline.training.optim import WeightAverage, parameter_names

MANIFEST = "manifest.json"
STATE = "state.json"
STAGE_FOLDER = "pretraining"  # the sub-folder in which a run's pre-training stage is its own run


@dataclass
class TrainState:
    """Where a run stands: everything the loop decides by, apart from tensors and random number generators.

    ``update`` counts optimizer steps; ``epoch`` passes over the data that are complete; ``position`` the micro-batches
    of this epoch that the *loop* has consumed (a prefetching loader is further). ``phase`` is the index of the phase
    entered last, -1 before the first; ``window`` the sums since the last line of the log.
    """

    update: int = 0
    epoch: int = 0
    position: int = 0
    phase: int = -1
    best_metric: float | None = None
    best_update: int | None = None
    bad_validations: int = 0
    validated_update: int = 0
    plateau_factor: float = 1.0
    plateau_bad: int = 0
    previous_metric: float | None = None
    decaying: bool = False
    elapsed_seconds: float = 0.0
    log_bytes: int = 0
    window: dict[str, float] = field(default_factory=dict)
    last_metrics: dict[str, float] = field(default_factory=dict)
    best_metrics: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_state_dict(cls, values: dict[str, Any]) -> TrainState:
        """The inverse of `asdict`, also after JSON: floats survive unchanged. Other fields are a CheckpointError."""
        if strange := set(values) ^ {field.name for field in fields(cls)}:
            raise CheckpointError(f"Another version of Catchline wrote the checkpoint ({', '.join(sorted(strange))}).")
        return cls(**values)


@dataclass
class Snapshot:
    """The content of a checkpoint: groups of tensors by file, and what JSON can hold."""

    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # "model", "optimizer", "average", "objectives"
    values: dict[str, Any] = field(default_factory=dict)


# --------------------------------------------------------------------------- from the run and back to it


@dataclass(frozen=True)
class Learner:
    """All of a run that holds tensors which training changes."""

    model: SummarizationModel
    optimizer: torch.optim.Optimizer
    average: WeightAverage
    objectives: Sequence[Objective]

    def objective_state(self) -> dict[str, Tensor]:
        """What objectives remember (a baseline of rewards), as ``objective.buffer``; not the model, which they may
        hold."""
        of_model = {id(value) for value in self.model.state_dict(keep_vars=True).values()}
        state = {
            f"{o.name}.{key}": value for o in self.objectives for key, value in o.state_dict(keep_vars=True).items()
        }
        return {name: value for name, value in state.items() if id(value) not in of_model}


def gather(learner: Learner, state: TrainState, identity: dict[str, Any]) -> Snapshot:
    """Take everything together; every process must call this. ``identity`` is compared when the run is resumed."""
    names = parameter_names(learner.optimizer)
    optimizer = {
        f"{names[index]}.{key}": value
        for index, entry in learner.optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    }
    tensors = {"model": learner.model.state_dict(), "optimizer": optimizer}
    more = {"average": learner.average.mean, "objectives": learner.objective_state()}
    values = {
        "switches": learner.model.switches(),
        "generators": gather_object([generators()]),
        "train_state": asdict(state),
        "averaged": learner.average.updates,
        "identity": identity,
    }
    return Snapshot(tensors | {name: group for name, group in more.items() if group}, values)


def check_identity(snapshot: Snapshot, identity: dict[str, Any]) -> None:
    """Refuse to resume with other data, another tokenizer or another number of processes."""
    stored = snapshot.values["identity"]
    names = {"data": "training data", "validation": "validation data", "processes": "number of processes"}
    for key in (*names, "tokenizer"):
        if stored[key] != identity[key]:
            raise CheckpointError(
                f"The {names.get(key, key)} is not what the run was started with, so it cannot continue exactly; "
                "put the old one back, or start a new run."
            )


def restore(snapshot: Snapshot, learner: Learner, process: int) -> None:
    """Put model, optimizer, averaged weights and objectives back, and last the generators of process ``process``."""
    tensors, values = snapshot.tensors, snapshot.values
    learner.model.switch(values["switches"])
    try:
        learner.model.load_state_dict(tensors["model"], strict=True)
        numbers = {name: index for index, name in enumerate(parameter_names(learner.optimizer))}
        state = defaultdict[int, dict[str, Tensor]](dict)
        for place, tensor in tensors["optimizer"].items():
            name, _, key = place.rpartition(".")
            state[numbers[name]][key] = tensor
        learner.optimizer.load_state_dict(learner.optimizer.state_dict() | {"state": state})
        for name, buffer in learner.objective_state().items():
            buffer.copy_(tensors["objectives"][name])
        if learner.average.mean:
            learner.average.load(tensors["average"], values["averaged"])
    except (RuntimeError, KeyError, ValueError) as error:
        raise CheckpointError(f"The checkpoint does not fit the run's model: {str(error).splitlines()[0]}") from error
    restore_generators(values["generators"][process])


# ------------------------------------------------------------------------------ random number generators


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed Python, NumPy and torch; ranks get different, fixed streams."""
    words = np.random.SeedSequence([seed, rank]).generate_state(3)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.manual_seed(int(words[2]))


def generators() -> dict[str, str]:
    """The states of torch's generators in this process, as JSON can hold them."""
    states = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return {name: state.numpy().tobytes().hex() for name, state in states.items()}


def restore_generators(states: Mapping[str, str]) -> None:
    """Put the generators into ``states``; the last thing before the next update."""
    for name, state in states.items():
        (torch.cuda if name == "cuda" else torch).set_rng_state(
            torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8)
        )


# ---------------------------------------------------------------------------------------- writing


def checkpoint_folders(run_folder: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    numbers = {path: path.name.removeprefix("checkpoint-") for path in run_folder.glob("checkpoint-*")}
    return sorted((path for path in numbers if numbers[path].isdecimal()), key=lambda path: -int(numbers[path]))


def write_checkpoint(run_folder: Path, update: int, snapshot: Snapshot) -> Path:
    """Write ``checkpoint-UPDATE`` as a whole and return its path; one of an earlier try is replaced."""
    final = run_folder / f"checkpoint-{update}"
    with replacing_folder(final) as folder:
        for name, tensors in snapshot.tensors.items():
            save_tensors(_separate(tensors), folder / f"{name}.safetensors")
        write_json(folder / STATE, snapshot.values)
        files = {p.name: {"bytes": p.stat().st_size, "sha256": digest_of(p)} for p in sorted(folder.iterdir())}
        write_json(folder / MANIFEST, {"files": files})
    return final


def last_good(run_folder: Path) -> str:
    """A sentence that names the newest checkpoint, for messages."""
    folders = checkpoint_folders(run_folder) or checkpoint_folders(run_folder / STAGE_FOLDER)
    return f"The last good checkpoint is {folders[0]}." if folders else "No checkpoint had been written before."


def prune(run_folder: Path, keep: int) -> None:
    """Remove all checkpoints but the ``keep`` newest."""
    for folder in checkpoint_folders(run_folder)[keep:]:
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def remove_drafts(run_folder: Path) -> None:
    """Remove what a killed process left half written or half removed; what it was replacing comes back."""
    for path in [*run_folder.glob(".checkpoint-*.*")]:
        remove_leftovers(path.with_name(path.stem[1:]))
    for folder in checkpoint_folders(run_folder):
        if not (folder / MANIFEST).is_file():
            shutil.rmtree(folder, ignore_errors=True)


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors that share no memory (safetensors refuses tied ones)."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        shared = tensor.untyped_storage().data_ptr() in seen
        seen.add(tensor.untyped_storage().data_ptr())
        result[name] = tensor.clone() if shared else tensor
    return result


# ---------------------------------------------------------------------------------------- reading


def read_newest(run_folder: Path, notify: Callable[[str], None]) -> tuple[Path, Snapshot] | None:
    """The newest checkpoint that verifies, or None if the run has not written any. A damaged one is named through
    ``notify`` and the one before it is tried."""
    folders = checkpoint_folders(run_folder)
    for folder in folders:
        try:
            return folder, read_checkpoint(folder)
        except CheckpointError as error:
            notify(f"{error} Trying the checkpoint before it." if folder != folders[-1] else str(error))
    if not folders:
        return None
    raise CheckpointError(
        f"None of the {len(folders)} checkpoints in {run_folder} can be read; copy one back from a backup, or train "
        "again with --force."
    )


def newest_values(run_folder: Path) -> dict[str, Any] | None:
    """What the newest checkpoint whose ``state.json`` can be read says beside its tensors; it is not verified."""
    for folder in checkpoint_folders(run_folder):
        with suppress(OSError, ValueError, AttributeError):
            values = json.loads((folder / STATE).read_text(encoding="utf-8"))
            if {"identity", "train_state"} <= values.keys():
                return values
    return None


def read_checkpoint(folder: Path) -> Snapshot:
    """Verify one checkpoint and read it into main memory; CheckpointError where a file is not what was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"The checkpoint {folder} is incomplete: its {MANIFEST} is missing or damaged.") from None
    for name, (size, digest) in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size or digest_of(path) != digest:
            raise CheckpointError(f"The checkpoint {folder} is damaged: {name} has changed.")
    snapshot = Snapshot(values=json.loads((folder / STATE).read_text(encoding="utf-8")))
    for name in files:
        if name.endswith(".safetensors"):
            mapped = safetensors.torch.load_file(folder / name)  # as long as they live; Windows removes no such file
            snapshot.tensors[name.removesuffix(".safetensors")] = {key: each.clone() for key, each in mapped.items()}
    return snapshot
