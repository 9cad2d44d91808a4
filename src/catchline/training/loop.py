"""The training loop: while not done, validate, save, enter the phase, make an update.

`Trainer.fit` is the loop; an update's arithmetic is in `catchline.training.step`, what a checkpoint holds in
`catchline.training.checkpoint`, what comes before and after in `catchline.training.run`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast

from catchline.config.schema import PhaseConfig, RunConfig
from catchline.errors import ConfigError
from catchline.models.folder import save_model_folder
from catchline.training import checkpoint as files
from catchline.training import optim
from catchline.training.checkpoint import Learner, TrainState
from catchline.training.data import BatchStream
from catchline.training.log import Callbacks, RunLog
from catchline.training.optim import Phases
from catchline.training.prepare import Prepared
from catchline.training.step import LOWER_IS_BETTER, UpdateStep, Validator, is_best

MODEL_FOLDER = "model"


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


class Trainer:
    """A run in progress. It starts where the run folder's newest checkpoint stands, or at the beginning."""

    def __init__(
        self, run: RunConfig, out: Path, parts: Prepared, accelerator: Accelerator, callbacks: Callbacks
    ) -> None:
        self.run, self.out, self.parts, self.accelerator, self.callbacks = run, out, parts, accelerator, callbacks
        training = run.training
        self.model = parts.model.to(accelerator.device)
        refuse_too_long(run, parts)
        broadcast(self.model.state_dict())  # the first process's, in place
        if training.teacher_forcing.feed != "argmax":
            self.model.switch({"prediction_feed": training.teacher_forcing.feed})
        ranks = (accelerator.process_index, accelerator.num_processes)
        self.stream = BatchStream(parts.train_set, parts.collator, training, *ranks)
        self.phases = Phases(training.phases, self.stream.updates_per_epoch)
        self.total = optim.total_updates(training, self.stream.updates_per_epoch)
        optim.schedule_factor(training.schedule, training.schedule.warmup_updates, self.total)  # refuse it now
        self.step = UpdateStep(run.training, self.model, parts.objectives, accelerator)
        switches, self.phase = self.model.switches(), self.phases[0]
        for number in reversed(range(len(training.phases))):  # refuse now what would stop it when a phase begins
            self._apply_phase(self.phases[number])
        self.model.switch(switches)
        self.optimizer = optim.build_optimizer(training.optimizer, self.model)
        self.average = optim.WeightAverage(self.model, training.average_last)
        validation = parts.validation_set
        self.validator = None if validation is None else Validator(run, parts, validation, self.step)
        self.state = TrainState()
        settings = {"processes": accelerator.num_processes, "recipe": run.model_dump(mode="json")}
        self._identity = parts.identity | settings
        self._saved_update, self._improved, self._elapsed_before = 0, False, 0.0
        self._stop_flag = self._end_flag = 0.0
        files.seed_everything(training.seed, accelerator.process_index + 1)
        self._load()

    # ------------------------------------------------------------------------------------ the loop

    def fit(self) -> TrainResult:
        """Train to the end; see `catchline.training.run.train` for what can happen on the way."""
        self.log = RunLog(self.out, self.state, self.accelerator, self.callbacks)
        self._started_at = time.perf_counter() - self.state.elapsed_seconds
        self.callbacks.show(self.state.update, total=self.total, description="Training")
        self.model.train()
        try:
            with stop_signals() as stop:
                while True:
                    if self._validation_due():
                        self._validate()
                    if self._checkpoint_due():
                        self._checkpoint()
                    if reason := self._stop_reason():
                        return self._finish(reason)
                    self._enter_phase()
                    self._update(stop)
                    if self._stop_flag:
                        self._checkpoint()
                        raise TrainingInterrupted(
                            f"Interrupted after update {self.state.update:,}; everything is saved."
                        )
        finally:
            self.log.close()

    def _update(self, stop: Sequence[int]) -> None:
        state = self.state
        batches = self.stream.take(state.epoch, state.position)
        figures = self.step(batches, state.update, self._control_flags(stop), self.out)
        rate = self._learning_rate()
        optim.set_learning_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.update()
        state.update += 1
        state.position += len(batches)
        place = self._place() | {"lr": rate}
        if state.position >= self.stream.batches_per_epoch:
            state.epoch, state.position = state.epoch + 1, 0
        state.elapsed_seconds = time.perf_counter() - self._started_at
        self._stop_flag, self._end_flag = figures.flags
        values = {"loss": figures.loss, **figures.values, "grad_norm": figures.grad_norm, "tokens": figures.tokens}
        self.log.update(values, place, self.run.training.log_every, figures.details)

    def _control_flags(self, stop: Sequence[int]) -> list[float]:
        """What this process wants to happen after the update: stop, end (time is up).

        They travel with the gradients, so that all processes decide alike; the first one's clock counts.
        """
        minutes, elapsed = self.run.training.max_minutes, time.perf_counter() - self._started_at
        over = self.accelerator.is_main_process and minutes is not None and elapsed >= 60 * minutes
        return [float(bool(stop)), float(over)]

    def _learning_rate(self) -> float:
        schedule = self.run.training.schedule
        factor = optim.schedule_factor(schedule, self.state.update, self.total, self.state.plateau_factor)
        return self.run.training.optimizer.learning_rate * factor

    def _stop_reason(self) -> str | None:
        training, state = self.run.training, self.state
        ends = {  # what there is so far, and the most there may be
            "max_updates": (state.update, training.max_updates),
            "max_epochs": (state.epoch, training.max_epochs),
            "max_minutes": (float("inf") if self._end_flag else self._elapsed_before / 60, training.max_minutes),
            "early_stopping": (state.bad_validations, training.early_stopping),
        }
        return next((reason for reason, (count, most) in ends.items() if most is not None and count >= most), None)

    def _place(self) -> dict[str, Any]:
        """Where the run stands, as its log says it."""
        epoch = self.state.epoch + self.state.position / self.stream.batches_per_epoch
        return {"update": self.state.update, "epoch": round(epoch, 4), "phase": self.phase.name}

    # -------------------------------------------------------------------------------------- phases

    def _enter_phase(self) -> None:
        state, number = self.state, self.phases.at(self.state.update)
        if number == state.phase:
            return
        before, phase, first = self.phase, self.phases[number], state.phase < 0
        self._apply_phase(phase)
        state.phase = number
        if phase.reset_optimizer and not first:
            self.optimizer = optim.build_optimizer(self.run.training.optimizer, self.model)
        if phase.model != before.model and not first and self.run.training.validation.metric in LOWER_IS_BETTER:
            # Losses of different objectives cannot be compared: best model and patience start again.
            state.best_metric, state.best_update, state.bad_validations = None, None, 0
            state.previous_metric = None

    def _apply_phase(self, phase: PhaseConfig) -> None:
        """Bring model and data into ``phase``; neither parameters nor optimizer state change."""
        self.model.switch(phase.model)
        self.stream.dataset = self.parts.train_set.limits(phase.max_source_tokens, phase.max_target_tokens)
        self.phase = phase

    # ---------------------------------------------------------------------------------- validation

    def _validation_due(self) -> bool:
        state, every = self.state, self.run.training.validation.every_updates
        if self.validator is None or state.validated_update == state.update:
            return False
        return state.position == 0 if every is None else state.update % every == 0

    def _validate(self) -> None:
        assert self.validator is not None
        state, training = self.state, self.run.training
        self.callbacks.show(state.update, note="validating")
        with self.average.applied():
            values = self.validator()
            state.validated_update, state.last_metrics = state.update, values
            self._improved = is_best(state, values[training.validation.metric], training)
            if self._improved:
                state.best_metrics = values
                self._export(values)
        self.log.validation(values, self._place(), best=self._improved)

    # --------------------------------------------------------------------------------- checkpoints

    @property
    def _learner(self) -> Learner:
        return Learner(self.model, self.optimizer, self.average, self.parts.objectives)

    def _checkpoint_due(self) -> bool:
        state, every = self.state, self.run.training.checkpoint.every_updates
        if self._improved or self._saved_update == state.update:
            return self._improved
        return state.position == 0 if every is None else state.update % every == 0

    def _checkpoint(self) -> None:
        state = self.state
        state.elapsed_seconds = time.perf_counter() - self._started_at
        self.log.sync()
        content = files.gather(self._learner, state, self._identity)
        if self.accelerator.is_main_process:
            files.write_checkpoint(self.out, state.update, content)
            files.prune(self.out, self.run.training.checkpoint.keep)
        self.accelerator.wait_for_everyone()
        self._saved_update, self._improved = state.update, False

    def _load(self) -> None:
        """Go to the newest checkpoint, if there is one."""
        if (newest := files.read_newest(self.out, self.callbacks.on_message)) is None:
            return
        folder, content = newest
        files.check_identity(content, self._identity)
        self.state = state = TrainState.from_state_dict(content.values["train_state"])
        if state.phase >= 0:
            self._apply_phase(self.phases[state.phase])
        files.restore(content, self._learner, self.accelerator.process_index)
        self._saved_update, self._elapsed_before = state.update, state.elapsed_seconds
        self.callbacks.on_message(f"Resuming from {folder} (update {state.update:,}).")

    # ------------------------------------------------------------------------------------- the end

    def _finish(self, reason: str) -> TrainResult:
        """Validate once more if needed, save, and make sure that the best model is exported."""
        state = self.state
        self.callbacks.show(state.update, note="")
        self.log.close_window(self._place() | {"lr": self._learning_rate()})
        if self.validator is not None and state.validated_update != state.update:
            self._validate()
        if self._improved or self._saved_update != state.update:
            self._checkpoint()
        if state.best_update is None or not (self.out / MODEL_FOLDER / "config.json").is_file():
            state.best_metric, state.best_update, state.best_metrics = None, None, state.last_metrics
            with self.average.applied():
                self._export(state.last_metrics)
        return TrainResult(
            folder=str(self.out),
            model_folder=str(self.out / MODEL_FOLDER),
            updates=state.update,
            epochs=state.epoch,
            stopped=reason,
            best_metric=state.best_metric,
            best_update=state.best_update,
            metrics=state.best_metrics,
            elapsed_seconds=state.elapsed_seconds,
        )

    def _export(self, metrics: dict[str, float]) -> None:
        if self.accelerator.is_main_process:
            facts: dict[str, Any] = {"update": self.state.update, "epoch": self.state.epoch, "validation": metrics}
            facts["data"] = self.parts.facts
            if self.validator is not None and (signature := self.validator.signature):
                facts["signature"] = signature
            tokenizer, folder = self.parts.tokenizer, self.out / MODEL_FOLDER
            save_model_folder(folder, model=self.model, tokenizer=tokenizer, run=self.run, metrics=facts)
        self.accelerator.wait_for_everyone()


def refuse_too_long(run: RunConfig, parts: Prepared) -> None:
    """Refuse before the training what the model has no positions for: a text, or what validation may write."""
    source, target = parts.model.max_source_tokens, parts.model.max_target_tokens
    if target is not None and run.search.num_steps > target:
        raise ConfigError(f"search.max_length {run.search.max_length} is more than the model's {target} positions.")
    for data in filter(None, (parts.train_set, parts.validation_set)):
        sides = (("source", source, data.source_lengths), ("target", target, data.target_lengths))
        for side, most, lengths in sides:
            if most is not None and (longest := int(lengths.max(initial=0))) > most:
                raise ConfigError(
                    f"A {side} has {longest} tokens, the model {most} positions: set text.max_{side}_tokens to {most}."
                )


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The signals SIGINT and SIGTERM that have arrived, which the loop answers after the present update; a second
    Ctrl-C interrupts at once. Outside the main thread, where Python has no signal handlers, nothing is installed."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
