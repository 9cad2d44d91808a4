"""Where a run stands: everything the loop decides by, apart from tensors and random number generators."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from laconic.errors import CheckpointError


@dataclass
class TrainState:
    """Stored in every checkpoint (point 6 of `laconic.training.checkpoint`).

    ``update`` counts optimizer steps; ``epoch`` passes over the data that are complete; ``position`` the
    micro-batches of this epoch that the *loop* has consumed (a prefetching loader is further). ``phase`` is the
    index of the phase entered last, -1 before the first. ``window`` holds the sums since the last line of the
    log. ``elapsed_seconds`` adds up over resumes.
    """

    update: int = 0
    epoch: int = 0
    position: int = 0
    phase: int = -1
    tokens: int = 0
    best_metric: float | None = None
    best_update: int | None = None
    bad_validations: int = 0
    validated_update: int = 0
    plateau_factor: float = 1.0
    plateau_bad: int = 0
    previous_metric: float | None = None
    decaying: bool = False
    elapsed_seconds: float = 0.0
    stopped: str | None = None
    log_bytes: int = 0
    timing_bytes: int = 0
    averaged_updates: int = 0
    window: dict[str, float] = field(default_factory=dict)
    last_metrics: dict[str, float] = field(default_factory=dict)
    best_metrics: dict[str, float] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them; floats survive unchanged."""
        return asdict(self)

    @classmethod
    def from_state_dict(cls, values: dict[str, Any]) -> TrainState:
        """The inverse of `state_dict`.

        Raises:
            CheckpointError: the fields are not those of this version.
        """
        known = {f.name for f in fields(cls)}
        if set(values) != known:
            strange = ", ".join(sorted(set(values) ^ known))
            raise CheckpointError(f"The checkpoint's training state does not fit this version of Laconic ({strange}).")
        return cls(**values)


@dataclass(frozen=True)
class TrainResult:
    """What a finished run leaves: the run folder, the exported model, and how it went.

    ``stopped`` is one of ``max_updates``, ``max_epochs``, ``max_minutes``, ``early_stopping``. ``metrics`` are the
    validation values of the exported model.
    """

    folder: str
    model_folder: str
    updates: int
    epochs: int
    stopped: str
    best_metric: float | None
    best_update: int | None
    metrics: dict[str, float]
    elapsed_seconds: float


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: the update was finished and a checkpoint written. ``str()`` says how to go on."""
