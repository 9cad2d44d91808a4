"""Sessions of onnxruntime over the graphs of a model.

Two threads at most (a step of few rows is short; for many rows several threads run a graph each: see
`catchline.summarizer.decoding`) and no spinning: a process that waits for work uses no core. The weights are in
``model.safetensors``, which onnxruntime maps into memory; it refuses a graph that names a file outside its folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from catchline.errors import ModelError
from catchline.jobs import threads_each

_MOST_THREADS = 2  # of one run
_SLOWER = ["SkipLayerNormFusion"]  # optimizations of graphs after which these take longer


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
        options = _options(onnxruntime, name != names[0])  # copies of matrices pay where few rows are multiplied
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


def _options(onnxruntime: Any, pack: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = min(threads_each(1), _MOST_THREADS), 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4  # what goes wrong is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.add_session_config_entry("session.disable_prepacking", str(int(not pack)))
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # eight bits become 32 once, not in every run
    options.enable_cpu_mem_arena = False
    return options
