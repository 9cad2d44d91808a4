"""Sessions of onnxruntime over the graphs of a model, with the weights handed over by name.

Two threads at most (a step of few rows is short; for many rows several threads run a graph each: see
`catchline.summarizer.decoding`) and no spinning: a process that waits for work uses no core. The weights of both graphs
are the same arrays.

Weights are read as NumPy arrays from ``model.safetensors`` without a tensor library. The file is a header in JSON,
which says type, shape and place of each tensor, and then the numbers. Sixteen-bit floats become float32: bfloat16 is
the upper half of one.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from catchline.errors import ModelError
from catchline.jobs import threads_each
from catchline.runtime import onnx_file
from catchline.runtime.eight_bits import NUMBERS, SCALES, restored

_MOST_THREADS = 2  # of one run


class Session:
    """One graph, ready to run."""

    def __init__(self, session: Any, weights: Any, where: Path) -> None:
        self._session, self._weights, self._where = session, weights, where  # the session reads them where they are
        self.inputs = [each.name for each in session.get_inputs()]
        self.outputs = {each.name: each.shape for each in session.get_outputs()}

    def run(self, values: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """The outputs by name, all of them if none are named; ``values`` may hold more than the graph's inputs.

        Raises:
            ModelError: the graph fails, which one that was exported here does not.
        """
        wanted = list(outputs or self.outputs)
        try:
            found = self._session.run(wanted, {name: values[name] for name in self.inputs})
        except Exception as error:  # onnxruntime's errors have no common base
            raise ModelError(f"{self._where} failed ({_reason(error)}); export the model again.") from error
        return dict(zip(wanted, found, strict=True))


def open_sessions(folder: Path, names: Sequence[str]) -> list[Session]:
    """The graphs ``names`` of a folder, which has them and their weights.

    Raises:
        ModelError: a file is damaged, names numbers elsewhere, or onnxruntime cannot run the graph here.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # nothing is reported anywhere; read at the import
    import onnxruntime

    contents = {name: (folder / name).read_bytes() for name in names}
    ports = {name: onnx_file.check(content, folder / name) for name, content in contents.items()}
    arrays = _weights(folder, {port.name: port for found in ports.values() for port in found})
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    sessions: dict[str, Session] = {}
    for name, content in reversed(contents.items()):  # the last one's making takes most memory
        options = _options(onnxruntime, name != names[0])  # copies of matrices pay where few rows are multiplied
        own = [port.name for port in ports[name]]
        options.add_external_initializers(own, [values[each] for each in own])  # so that it can look at them,
        for each in own:
            options.add_initializer(each, values[each])  # and so that it keeps no copy
        try:
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ModelError(f"{folder / name} cannot be run here ({_reason(error)}).") from error
        sessions[name] = Session(session, values, folder / name)
    for array in arrays.values():
        _unread(array)
    return [sessions[name] for name in names]


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(".") if lines else type(error).__name__


def _weights(folder: Path, ports: Mapping[str, onnx_file.Port]) -> dict[str, np.ndarray]:
    """The weights that the graphs want."""
    arrays = read_weights(folder / onnx_file.ELSEWHERE, ports)
    for name, port in ports.items():
        if arrays[name].shape != port.shape or arrays[name].dtype.name != port.type:
            raise ModelError(f"The graphs in {folder} do not fit its weights ({name}); export the model again.")
    return arrays


def _unread(array: np.ndarray) -> None:
    """Where it is of a mapped file, what was read of that leaves this process; the system brings back what is used."""
    place: Any = array
    while place is not None:
        if isinstance(place, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            place.madvise(mmap.MADV_DONTNEED)
        place = getattr(place, "base", None)


def _options(onnxruntime: Any, pack: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = min(threads_each(1), _MOST_THREADS), 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4  # what goes wrong is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")  # what was looked through, no other format
    options.add_session_config_entry("session.disable_prepacking", str(int(not pack)))
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # eight bits become 32 once, not in every run
    options.enable_cpu_mem_arena = False
    return options


# ------------------------------------------------------------------------------------------------------------- weights


_MOST_HEADER = 100_000_000
_PLAIN = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I8": np.int8, "U8": np.uint8, "I64": np.int64}


def read_weights(path: Path, wanted: Iterable[str]) -> dict[str, np.ndarray]:
    """The tensors ``wanted`` by name, views of the file, mapped into memory, where their type allows it. A matrix that
    is stored in eight bits and wanted as a whole is float32 again; then nothing stays a view.

    Raises:
        ModelError: the file is damaged or truncated, or lacks one.
    """
    try:
        header, content = _opened(path)
        found = {name: _named(name, header, content) for name in wanted}
        views = [] if found.keys() <= header.keys() else found.keys() & header.keys()
        return found | {name: found[name].copy() for name in views}  # a view keeps the whole file in memory
    except KeyError as error:
        raise ModelError(f"{path} lacks the tensor {error.args[0]!r} of its graphs; export the model again.") from None
    except (ValueError, TypeError, OSError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged or truncated; copy it again.") from error


def _named(name: str, header: dict[str, Any], content: np.ndarray) -> np.ndarray:
    if name not in header and name + NUMBERS in header:
        return restored(*(_tensor(header[name + part], content) for part in (NUMBERS, SCALES)))
    return _tensor(header[name], content)


def _opened(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    whole = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(whole[:8].tobytes(), "little")
    if len(whole) < 8 or size > min(len(whole) - 8, _MOST_HEADER):
        raise ValueError("no header")
    return json.loads(whole[8 : 8 + size].tobytes()), whole[8 + size :]


def _tensor(entry: dict[str, Any], content: np.ndarray) -> np.ndarray:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(content):
        raise ValueError("a tensor that is not there")
    numbers, shape = content[start:end], tuple(entry["shape"])
    if entry["dtype"] == "BF16":
        halves = numbers.view(np.uint16)
        wide = np.empty(len(halves), dtype=np.uint32)
        np.left_shift(halves, 16, out=wide, dtype=np.uint32, casting="unsafe")
        return wide.view(np.float32).reshape(shape)
    found = numbers.view(_PLAIN[entry["dtype"]]).reshape(shape)
    return found.astype(np.float32) if entry["dtype"] in ("F16", "F64") else found
