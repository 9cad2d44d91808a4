"""An exported model as `catchline.search.decode` drives it: graphs and NumPy arrays.

Sessions of onnxruntime have two threads at most (a step of few rows is short; for many rows several threads run a graph
each: see `catchline.summarizer.decoding`) and do not spin: a process that waits for work uses no core. The weights are
in ``model.safetensors``, which onnxruntime maps into memory; it refuses a graph that names a file outside its folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from catchline.config.base import ConfigBase
from catchline.errors import ConfigError, DataError, ModelError
from catchline.jobs import threads_each
from catchline.types import Batch, Memory, Shared, StepOutput

_MOST_THREADS = 2  # of one run
_SLOWER = ["SkipLayerNormFusion"]  # optimizations of graphs after which these take longer


class Layout(ConfigBase):
    """The decoder's state in an exported folder: names of its tensors, one a row and one a document. ``next`` are those
    that a step changes, ``outputs`` what else it gives."""

    rows: tuple[str, ...]
    shared: tuple[str, ...]
    next: tuple[str, ...]
    outputs: tuple[str, ...]
    same_scores: bool = True  # are the scores the log-probabilities?
    first_id: int | None = None  # what the decoder reads first, whatever it is given
    forced_id: int | None = None  # what every summary begins with


class Exported(ConfigBase, extra="ignore"):
    """``export.json``. ``uncounted`` are the ids that a summary's likelihood leaves out, ``outside_counts`` whether it
    counts words outside the vocabulary."""

    format: int
    catchline: str = ""
    quantized: bool = False
    family: str = ""
    copies: bool = False
    parameters: int = 0
    vocab_size: int = Field(ge=1)
    start_id: int
    max_source_tokens: int | None = None
    max_target_tokens: int | None = None
    uncounted: tuple[int, ...] = ()
    outside_counts: bool = True
    switches: dict[str, Any] = Field(default_factory=dict)
    layout: Layout
    sha256: dict[str, str]


class GraphModel:
    """``encode``, ``start`` and ``step`` over two sessions. Details that nobody wants are not computed: see `plain`."""

    def __init__(self, encoder: Session, step: Session, about: Exported) -> None:
        self._encoder, self._step, self.layout, self._switches = encoder, step, about.layout, about.switches
        self.vocab_size = about.vocab_size
        self.max_source_tokens, self.max_target_tokens = about.max_source_tokens, about.max_target_tokens
        self._unflattened = {name for name, shape in step.outputs.items() if list(shape[:2]) == ["B", "K"]}
        self._outputs = [*self.layout.outputs, *(f"next.{name}" for name in self.layout.next)]

    def encode(self, batch: Batch) -> Memory:
        """Read the source; ``extra`` is the state before the first step. Raises DataError: the source is longer than
        the model reads."""
        self._check_length("source", batch.source_ids.shape[1], "text.max_source_tokens")
        ids, mask, size = batch.source_extended_ids, batch.source_mask, batch.extended_vocab_size
        outside = np.zeros(size - self.vocab_size, np.float32)  # as many zeros as words are outside the vocabulary
        given = {"source_ids": batch.source_ids, "extended_ids": ids, "mask": mask, "outside": outside}
        return Memory(mask, mask, ids, size, extra=self._encoder.run(given))

    def start(self, memory: Memory, kind: str = "state") -> dict[str, Any]:
        """The state before the first step. Of kind ``taught`` it is that of training, where decoding has another."""
        made = memory.extra
        shared = {name: made[f"state.{name}"] for name in self.layout.shared}
        rows = {name: made.get(f"{kind}.{name}", made[f"state.{name}"]) for name in self.layout.rows}
        outside = memory.extended_vocab_size - self.vocab_size
        return {"rows": rows, "documents": Shared(shared), "outside": outside, "steps": 0}

    def step(self, last_ids: np.ndarray, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        """One step for N rows. Raises DataError: the summary grows longer than the model can write."""
        layout, steps = self.layout, state["steps"]
        self._check_length("summary", steps + 1, "search.max_length")
        if steps == 0 and layout.first_id is not None:
            last_ids = np.full_like(last_ids, layout.first_id)
        shared, rows = state["documents"].tree, state["rows"]
        documents = len(next(iter(shared.values()), last_ids))
        beams = len(last_ids) // documents
        given = {"last_ids": last_ids, **{f"state.{name}": value for name, value in rows.items()}}
        given = {name: value.reshape(documents, beams, *value.shape[1:]) for name, value in given.items()}
        given |= {f"state.{name}": value for name, value in shared.items()}
        given["outside"] = np.zeros(state["outside"], np.float32)
        found = self._step.run(given, self._outputs)
        for name in self._unflattened & found.keys():
            found[name] = found[name].reshape(len(last_ids), *found[name].shape[2:])
        rows = rows | {name: found[f"next.{name}"] for name in layout.next}
        log_probs = found["log_probs"]
        output = StepOutput(
            scores=log_probs if layout.same_scores else found["scores"],
            log_probs=log_probs,
            details={name[8:]: value for name, value in found.items() if name.startswith("details.")},
            **{name: found.get(name) for name in ("attention", "context", "state", "attention_scores")},
        )
        if steps == 0 and layout.forced_id is not None:
            output.scores = np.full_like(log_probs, -np.inf)
            output.scores[:, layout.forced_id] = 0.0
        return output, {**state, "rows": rows, "steps": steps + 1}

    def read_figures(self, memory: Memory) -> list[tuple[dict[str, int], np.ndarray]]:
        """Empty: chunks are read by torch models only."""
        return []

    def switches(self) -> dict[str, Any]:
        """The values that the graphs were made with."""
        return dict(self._switches)

    def switch(self, options: Mapping[str, Any]) -> None:
        """Graphs cannot be switched; to what they are they can. Raises ConfigError: another value."""
        for name, value in options.items():
            if name not in self._switches or self._switches[name] != value:
                raise ConfigError(
                    f"An exported model keeps its options: {name} is "
                    f"{self._switches.get(name, 'not one of them')}. For another, export it again from a copy that "
                    "Summarizer.from_pretrained(MODEL, model={...}).save_pretrained(DIR) makes."
                )

    def _check_length(self, what: str, length: int, setting: str) -> None:
        limit = self.max_source_tokens if what == "source" else self.max_target_tokens
        if limit is not None and length > limit:
            raise DataError(
                f"A {what} of {length} tokens is longer than the {limit} of this model: set {setting} lower."
            )


# ---------------------------------------------------------------------------------------------------- sessions


class Session:
    """One graph, ready to run."""

    def __init__(self, session: Any, where: Path) -> None:
        self._session, self._where = session, where
        self.inputs = [each.name for each in session.get_inputs()]
        self.outputs = {each.name: each.shape for each in session.get_outputs()}

    def run(self, values: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """The outputs by name, all of them if none are named; ``values`` may hold more than the graph's inputs. Raises
        ModelError: the graph fails, which one that was exported here does not."""
        wanted = list(outputs or self.outputs)
        try:
            found = self._session.run(wanted, {name: values[name] for name in self.inputs})
        except Exception as error:  # onnxruntime's errors have no common base
            raise ModelError(f"{self._where} failed ({_reason(error)}); export the model again.") from error
        return dict(zip(wanted, found, strict=True))


def open_sessions(folder: Path, names: Sequence[str]) -> list[Session]:
    """The graphs ``names`` of a folder. Raises ModelError: a file is damaged, a graph names a file outside the folder,
    or onnxruntime cannot run it here."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # nothing is reported anywhere; read at the import
    import onnxruntime

    sessions = []
    for name in names:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = min(threads_each(1), _MOST_THREADS), 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4  # what goes wrong is raised
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.load_model_format", "ONNX")
        # copies of matrices pay where few rows are multiplied, not in the encoder
        options.add_session_config_entry("session.disable_prepacking", str(int(name == names[0])))
        # eight bits become 32 once, not in every run
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.enable_cpu_mem_arena = False
        try:
            session = onnxruntime.InferenceSession(
                folder / name, options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOWER
            )
        except Exception as error:
            raise ModelError(f"{folder / name} cannot be opened ({_reason(error)}); export the model again.") from error
        sessions.append(Session(session, folder / name))
    return sessions


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(".") if lines else type(error).__name__
