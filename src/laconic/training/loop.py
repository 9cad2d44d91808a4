"""The training loop: while not done, validate, save, enter the phase, make an update.

`Trainer.fit` is the loop; an update's arithmetic is in `laconic.training.step`, what a checkpoint holds in
`laconic.training.checkpoint`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from laconic.config.checking import check_run
from laconic.config.loading import with_absolute_paths
from laconic.config.schema import RunConfig
from laconic.config.trust import outside_names, trusting
from laconic.errors import ConfigError
from laconic.models.folder import save_model_folder
from laconic.training import checkpoint as files
from laconic.training import optim, rng, snapshot
from laconic.training.averaging import WeightAverage
from laconic.training.gradients import share_parameters
from laconic.training.logging import Outlets, Reporter, RunLog
from laconic.training.phases import Phases, PhaseSettings, freeze
from laconic.training.processes import join_processes, on_the_first
from laconic.training.run_folder import MODEL_FOLDER, RECIPE, run_folder
from laconic.training.setup import Parts, plan, prepare
from laconic.training.signals import StopRequest
from laconic.training.stages import finished, mark_finished, share_tokenizer, stage_of, stage_outlets
from laconic.training.state import TrainingInterrupted, TrainResult, TrainState
from laconic.training.step import UpdateStep
from laconic.training.stream import BatchStream
from laconic.training.validate import LOWER_IS_BETTER, Validator


def train(
    run: RunConfig,
    out: str | Path,
    *,
    resume: bool = False,
    force: bool = False,
    accept_changes: bool = False,
    progress: Reporter | None = None,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    on_message: Callable[[str], None] | None = None,
) -> TrainResult:
    """Train what ``run`` describes into the run folder ``out``; with ``resume`` go on from its newest checkpoint.

    A run with a pre-training stage does that first, in the sub-folder ``pretraining``, or goes on with it.

    Args:
        force: empty a run folder that is there already.
        accept_changes: go on although recipe or log are not those that the run had at its newest checkpoint.
        progress: a display with an ``update`` method (`laconic.training.logging.Reporter`).
        on_log: called with each entry of ``log.jsonl``, on the first process.
        on_message: called with each sentence for a person (default: printed to stderr).

    Raises:
        ConfigError: the settings do not fit together, or ``out`` holds a run and neither option was given.
        DataError: the data is not usable.
        TrainingError: loss or gradients are not finite.
        CheckpointError: no checkpoint can be read, it is of another run, or the disk is full.
        FolderInUseError: another process works in ``out``.
        TrainingInterrupted: Ctrl-C or SIGTERM; a checkpoint has been written.
    """
    given: dict[str, Any] = {"reporter": progress, "on_log": on_log, "on_message": on_message}
    outlets = Outlets(**{name: value for name, value in given.items() if value is not None})
    out, run = Path(out), with_absolute_paths(run)
    check_run(run)
    stage = stage_of(run) if run.pretraining.enabled else None
    accelerator = join_processes(run, out)
    with ExitStack() as held:
        folder = run_folder(run, out, resume=resume, force=force, accept=accept_changes)
        on_the_first(accelerator, lambda: held.enter_context(folder))
        held.enter_context(files.naming_a_full_disk(out))
        held.enter_context(trusting(outside_names(run.model_dump())))
        start = run.training.initial_weights
        if files.checkpoint_folders(out):
            start = None  # whatever it started from is in the checkpoints
        elif stage is not None:
            start = _pretrain(run, stage, out, accelerator, outlets, accept_changes)
        return _train_stage(run, out, start, accelerator, outlets)


def _pretrain(
    run: RunConfig, stage: RunConfig, out: Path, accelerator: Accelerator, outlets: Outlets, accept: bool
) -> str:
    """Do the stage before the training, or what is left of it; returns the folder of its model."""
    place = out / files.STAGE_FOLDER
    done = finished(out)
    accelerator.wait_for_everyone()
    if not done:
        with ExitStack() as held:
            begun = (place / RECIPE).is_file()
            folder = run_folder(stage, place, resume=begun, force=False, accept=accept)
            on_the_first(accelerator, lambda: held.enter_context(folder))
            if accelerator.is_main_process:
                outlets.on_message(f"Stage 1 of 2: pre-training on {run.pretraining.data}, in {place}")
            share_tokenizer(run, stage, out, accelerator, outlets.reporter)
            start = None if files.checkpoint_folders(place) else stage.training.initial_weights
            own = join_processes(stage, place)
            result = _train_stage(stage, place, start, own, stage_outlets(outlets), whole=out)
            if accelerator.is_main_process:
                mark_finished(out, result)
    if accelerator.is_main_process:
        outlets.on_message("Stage 2 of 2: training, from the weights of the first stage")
    return str(place / MODEL_FOLDER)


def _train_stage(
    run: RunConfig,
    out: Path,
    start: str | None,
    accelerator: Accelerator,
    outlets: Outlets,
    whole: Path | None = None,
) -> TrainResult:
    if run.training.trackers:
        accelerator.init_trackers("laconic")
    rng.seed_everything(run.training.seed)
    parts = prepare(run, out, accelerator, outlets.reporter, start=start)
    if accelerator.is_main_process:
        for line in plan(run, parts, accelerator):
            outlets.on_message(line)
    return Trainer(run, out, parts, accelerator, outlets, whole).fit()


class Trainer:
    """A run in progress. It starts where the run folder's newest checkpoint stands, or at the beginning.

    ``whole`` is the folder of the run that this is the pre-training stage of, which is what can be resumed."""

    def __init__(
        self,
        run: RunConfig,
        out: Path,
        parts: Parts,
        accelerator: Accelerator,
        outlets: Outlets | None = None,
        whole: Path | None = None,
    ) -> None:
        self.run, self.out, self.parts, self.accelerator = run, out, parts, accelerator
        self._resumable = whole or out
        self.outlets = outlets or Outlets()
        training = run.training
        self.model = parts.model.to(accelerator.device)
        self._trainable = frozenset(name for name, p in self.model.named_parameters() if p.requires_grad)
        share_parameters(self.model, accelerator)
        if training.teacher_forcing.feed != "argmax":
            self.model.switch({"prediction_feed": training.teacher_forcing.feed})
        self.stream = BatchStream(
            parts.train_set,
            parts.collator,
            training,
            rank=accelerator.process_index,
            world_size=accelerator.num_processes,
            pin_memory=accelerator.device.type == "cuda",
        )
        self.total = optim.total_updates(training, self.stream.updates_per_epoch())
        optim.schedule_factor(training.schedule, training.schedule.warmup_updates, self.total)  # refuse it now
        self.step = UpdateStep(run, self.model, parts.objectives, accelerator)
        self.phases = Phases(run, self.stream.updates_per_epoch())
        self.phase = self.phases.at(0)
        self.phases.try_on(self.model, self.step.acting, self._trainable)
        self.optimizer = optim.build_optimizer(training.optimizer, self.model)
        self.average = WeightAverage(self.model, training.average_last) if training.average_last else None
        self.validator = self._validator()
        self.state = TrainState()
        made = {"processes": accelerator.num_processes, "recipe": run.model_dump(mode="json")}
        self._identity = parts.identity | made
        self._saved_update, self._improved, self._flags = 0, False, [0.0, 0.0, 0.0]
        rng.seed_everything(training.seed, accelerator.process_index + 1)
        self._load()

    # ------------------------------------------------------------------------------------ the loop

    def fit(self) -> TrainResult:
        """Train to the end; see `train` for what can happen on the way."""
        self.log = RunLog(self.out, self.state, self.accelerator, self.outlets)
        self._started_at = time.perf_counter() - self.state.elapsed_seconds
        self._saved_at = time.perf_counter()
        self.outlets.reporter.update(self.state.update, total=self.total, description="Training")
        self.model.train()
        try:
            with StopRequest() as stop:
                while True:
                    if self._validation_due():
                        self._validate()
                    if self._checkpoint_due():
                        self._checkpoint()
                    if reason := self._stop_reason():
                        return self._finish(reason)
                    self._enter_phase()
                    self._update(stop)
                    if self._flags[0]:
                        self._interrupt()
        finally:
            self.stream.close()
            self.log.close()

    def _update(self, stop: StopRequest) -> None:
        state, training = self.state, self.run.training
        batches = self.stream.take(state.epoch, state.position)
        figures = self.step(batches, state.update, self._wishes(stop), self.out)
        rate = self._learning_rate()
        optim.set_learning_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update()
            state.averaged_updates = self.average.updates
        state.update += 1
        state.position += len(batches)
        place = self._place() | {"lr": rate}
        if state.position >= self.stream.batches_per_epoch:
            state.epoch, state.position = state.epoch + 1, 0
        state.elapsed_seconds = time.perf_counter() - self._started_at
        self._flags = figures.flags
        values = {"loss": figures.loss, **figures.values, "grad_norm": figures.grad_norm, "tokens": figures.tokens}
        self.log.update(values, place, training.log_every, figures.details)

    def _wishes(self, stop: StopRequest) -> list[float]:
        """What this process would like to happen after the update: stop, end (time is up), save.

        They travel with the gradients, so that all processes decide alike; the first one's clock counts.
        """
        training, now = self.run.training, time.perf_counter()
        first = self.accelerator.is_main_process
        minutes, every = training.max_minutes, training.checkpoint.every_minutes
        over = first and minutes is not None and now - self._started_at >= 60 * minutes
        save = first and every is not None and now - self._saved_at >= 60 * every
        return [float(stop.requested), float(over), float(save)]

    def _learning_rate(self) -> float:
        schedule = self.run.training.schedule
        factor = optim.schedule_factor(schedule, self.state.update, self.total, self.state.plateau_factor)
        return self.phase.learning_rate * factor

    def _stop_reason(self) -> str | None:
        training, state = self.run.training, self.state
        if training.max_updates is not None and state.update >= training.max_updates:
            return "max_updates"
        if training.max_epochs is not None and state.epoch >= training.max_epochs:
            return "max_epochs"
        minutes = training.max_minutes
        if minutes is not None and (self._flags[1] or self._elapsed_before >= 60 * minutes):
            return "max_minutes"
        patience = training.early_stopping.patience
        if patience is not None and state.bad_validations >= patience:
            return "early_stopping"
        return None

    # -------------------------------------------------------------------------------------- phases

    def _enter_phase(self) -> None:
        phase = self.phases.at(self.state.update)
        if phase.index == self.state.phase:
            return
        before, first = self.phase, self.state.phase < 0
        self._apply_phase(phase)
        self.state.phase = phase.index
        if phase.reset_optimizer and not first:
            self.optimizer = optim.build_optimizer(self.run.training.optimizer, self.model)
        if phase.limits != before.limits and self.state.position:
            # Other lengths make other batches: the pass over the data is cut short and a new one begins.
            self.state.epoch, self.state.position = self.state.epoch + 1, 0
        changed = phase.model != before.model or phase.objective_weights != before.objective_weights
        if changed and not first and LOWER_IS_BETTER[self.run.training.validation.metric]:
            # Losses of different objectives cannot be compared: best model and patience start again.
            self.state.best_metric, self.state.best_update, self.state.bad_validations = None, None, 0

    def _apply_phase(self, phase: PhaseSettings) -> None:
        """Bring model, objectives and data into ``phase``; neither parameters nor optimizer state change."""
        self.model.switch(phase.model)
        self.step.set_weights(phase.objective_weights)
        freeze(self.model, phase.freeze, self._trainable)
        if phase.limits != (self.stream.dataset.max_source_tokens, self.stream.dataset.max_target_tokens):
            self.stream.limit(self.parts.train_set.limits(*phase.limits))
        self.phase = phase

    # ---------------------------------------------------------------------------------- validation

    def _validator(self) -> Validator | None:
        if self.parts.validation_set is None:
            return None
        settings = self.run.training.validation
        if not LOWER_IS_BETTER[settings.metric] and not settings.decode_records:
            raise ConfigError(
                f"training.validation.metric is {settings.metric}, so summaries must be decoded: "
                "set training.validation.decode_records, for example to 200."
            )
        return Validator(
            run=self.run,
            model=self.model,
            tokenizer=self.parts.tokenizer,
            dataset=self.parts.validation_set,
            collator=self.parts.collator,
            accelerator=self.accelerator,
            terms=self.step.terms,
            names=lambda: [objective.name for objective in self.step.active],
        )

    def _validation_due(self) -> bool:
        state, every = self.state, self.run.training.validation.every_updates
        if self.validator is None or state.validated_update == state.update:
            return False
        return state.position == 0 if every is None else state.update % every == 0

    def _validate(self) -> None:
        assert self.validator is not None
        state, training = self.state, self.run.training
        self.outlets.reporter.update(state.update, note="validating")
        with self._averaged():
            values = self.validator()
            state.validated_update, state.last_metrics = state.update, values
            self._improved = self._judge(values[training.validation.metric])
            if self._improved:
                state.best_metrics = values
                self._export(values)
        self.log.validation(values, self._place(), best=self._improved)
        self.log.resume_clock()

    def _judge(self, metric: float) -> bool:
        """Is this the best validation so far? Early stopping and the plateau schedule count from here."""
        state, training = self.state, self.run.training
        sign = 1.0 if LOWER_IS_BETTER[training.validation.metric] else -1.0
        before, state.previous_metric = state.previous_metric, metric
        state.decaying |= before is not None and sign * (metric - before) > 0
        if training.schedule.type == "sticky" and state.decaying:
            state.plateau_factor *= training.schedule.plateau_factor
        better = state.best_metric is None or sign * (state.best_metric - metric) > training.early_stopping.min_delta
        if better and metric == metric:
            state.best_metric, state.best_update = metric, state.update
            state.bad_validations = state.plateau_bad = 0
            return True
        state.bad_validations += 1
        state.plateau_bad += 1
        if training.schedule.type == "plateau" and state.plateau_bad > training.schedule.plateau_patience:
            state.plateau_factor *= training.schedule.plateau_factor
            state.plateau_bad = 0
        return False

    # --------------------------------------------------------------------------------- checkpoints

    def _checkpoint_due(self) -> bool:
        state, settings = self.state, self.run.training.checkpoint
        if self._improved:
            return True
        if self._saved_update == state.update:
            return False
        if settings.every_updates is None and settings.every_minutes is None:
            return state.position == 0
        by_count = settings.every_updates is not None and state.update % settings.every_updates == 0
        return by_count or bool(self._flags[2])

    def _checkpoint(self) -> None:
        state = self.state
        state.elapsed_seconds = time.perf_counter() - self._started_at
        self.log.sync()
        content = snapshot.take(
            model=self.model,
            optimizer=self.optimizer,
            average=self.average,
            objectives=self.parts.objectives,
            state=state,
            identity=self._identity,
            accelerator=self.accelerator,
        )
        if self.accelerator.is_main_process:
            files.write_checkpoint(self.out, state.update, content)
            files.prune(self.out, self.run.training.checkpoint.keep, state.best_update)
        self.accelerator.wait_for_everyone()
        self._saved_update, self._saved_at, self._improved = state.update, time.perf_counter(), False
        self.log.resume_clock()

    def _load(self) -> None:
        """Go to the newest checkpoint, if there is one."""
        main = self.accelerator.is_main_process
        notify = self.outlets.on_message if main else lambda message: None
        found = files.read_newest(self.out, notify)
        self._elapsed_before = 0.0
        if found is None:
            return
        folder, content = found
        snapshot.check_identity(content, self._identity)
        self.state = TrainState.from_state_dict(content.values["train_state"])
        if self.state.phase >= 0:
            self._apply_phase(self.phases[self.state.phase])
        if self.state.position >= self.stream.batches_per_epoch:  # changes that were accepted make fewer batches
            self.state.epoch, self.state.position = self.state.epoch + 1, 0
        snapshot.restore(
            content,
            model=self.model,
            optimizer=self.optimizer,
            average=self.average,
            objectives=self.parts.objectives,
        )
        snapshot.restore_generators(content, self.accelerator)
        self._saved_update, self._elapsed_before = self.state.update, self.state.elapsed_seconds
        notify(f"Resuming from {folder} (update {self.state.update:,}).")

    def _interrupt(self) -> None:
        self._checkpoint()
        raise TrainingInterrupted(
            f"Interrupted after update {self.state.update:,}; everything is saved. "
            f"Go on with: laconic resume {self._resumable}"
        )

    # ------------------------------------------------------------------------------------- the end

    def _finish(self, reason: str) -> TrainResult:
        """Validate once more if needed, save, and make sure that the best model is exported."""
        state = self.state
        self.outlets.reporter.update(state.update, note="")
        self.log.close_window(self._place() | {"lr": self._learning_rate()})
        if self.validator is not None and state.validated_update != state.update:
            self._validate()
        if state.stopped != reason or self._improved or self._saved_update != state.update:
            state.stopped = reason
            self._checkpoint()
        if state.best_update is None:
            with self._averaged():
                self._export(state.last_metrics)
        elif not (self.out / MODEL_FOLDER / "config.json").is_file():
            self._export_checkpoint(state.best_update)
        return TrainResult(
            folder=str(self.out),
            model_folder=str(self.out / MODEL_FOLDER),
            updates=state.update,
            epochs=state.epoch,
            stopped=reason,
            best_metric=state.best_metric,
            best_update=state.best_update,
            metrics=state.best_metrics or state.last_metrics,
            elapsed_seconds=state.elapsed_seconds,
        )

    def _export(self, metrics: dict[str, float]) -> None:
        if self.accelerator.is_main_process:
            facts = {"update": self.state.update, "epoch": self.state.epoch, "validation": metrics}
            save_model_folder(
                self.out / MODEL_FOLDER,
                model=self.model,
                tokenizer=self.parts.tokenizer,
                run=self.run,
                metrics=facts,
            )
        self.accelerator.wait_for_everyone()

    def _export_checkpoint(self, update: int) -> None:
        """Export the weights of an earlier checkpoint (the model folder was lost)."""
        content = files.read_checkpoint(self.out / f"checkpoint-{update}")
        own = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(content.tensors["model"])
        if self.average is not None:
            mean, self.average.mean = self.average.mean, content.tensors["average"]
            with self.average.applied():
                self._export(self.state.best_metrics)
            self.average.mean = mean
        else:
            self._export(self.state.best_metrics)
        self.model.load_state_dict(own)

    def _averaged(self) -> Any:
        return nullcontext() if self.average is None else self.average.applied()

    def _place(self) -> dict[str, Any]:
        state = self.state
        epoch = state.epoch + state.position / self.stream.batches_per_epoch
        return {"update": state.update, "epoch": round(epoch, 4), "phase": self.phase.name}
