"""The search of torch models: it knows NumPy arrays alone.

`TorchModel` is a `SummarizationModel` as `catchline.search.decode` drives it. On the CPU nothing is copied: arrays
and tensors are the same memory. On another device the scores of all words stay there (`DeviceScores`), and so does the
search for the best of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from catchline.config.schema import SearchConfig
from catchline.jobs import R, T, Threaded, threaded
from catchline.kernels.packed import Packing
from catchline.search import decode as search
from catchline.search.hypotheses import select, select_documents
from catchline.types import Batch, Hypothesis, Memory, StepOutput


def decode(model: Any, batch: Batch, config: SearchConfig, **ids: Any) -> list[list[Hypothesis]]:
    """`catchline.search.decode.decode` of a torch model in evaluation mode, anything with ``encode``, ``start``,
    ``step`` and ``read_figures`` of `SummarizationModel`; ``batch`` is on its device."""
    return search.decode(TorchModel(model), batch, config, **ids)


def in_threads(work: Threaded[T, R], items: Sequence[T], workers: int) -> Generator[R, None, None]:
    """`catchline.jobs.threaded` in which each thread has its share of torch's threads. Several searches side by side
    multiply faster than one search by all threads, which wait for each other between operations."""
    whole = torch.get_num_threads()

    def begin() -> None:
        torch.get_num_threads()  # a thread that was never asked looks later, and takes what there are then
        torch.set_num_threads(max(1, whole // workers))

    with threads(whole) if workers > 1 else nullcontext():  # threads that begin later have what was set last
        yield from threaded(work, items, workers, begin)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """``number`` of torch's threads, inside only."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, inside only."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


class TorchModel:
    """A torch model as the search sees it; further attributes are the model's. ``packing`` keeps its packed weights
    from search to search."""

    def __init__(self, model: Any, packing: Packing | None = None) -> None:
        self._model = model
        self._packed = (packing or Packing()).used

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of a copy that has no model yet
            raise AttributeError(name)
        return getattr(self._model, name)

    @torch.inference_mode()
    def encode(self, batch: Batch) -> TorchMemory:
        with self._packed():
            return TorchMemory.of(self._model.encode(batch))

    @torch.inference_mode()
    def start(self, memory: TorchMemory) -> TorchState:
        with self._packed():
            return TorchState(self._model.start(memory.own), memory.own.mask.device)

    @torch.inference_mode()
    def step(self, last_ids: np.ndarray, state: TorchState) -> tuple[StepOutput, TorchState]:
        with self._packed():
            output, tree = self._model.step(_tensor(last_ids, state.device), state.tree)
        return _arrays(output), TorchState(tree, state.device)

    def read_figures(self, memory: TorchMemory) -> list[tuple[dict[str, int], np.ndarray]]:
        return self._model.read_figures(memory.own)


@dataclass(frozen=True, slots=True)
class TorchState:
    """A torch model's state, which search re-orders by arrays of rows."""

    tree: Any
    device: torch.device

    @torch.inference_mode()
    def select(self, index: np.ndarray) -> TorchState:
        return TorchState(select(self.tree, _tensor(index, self.device)), self.device)

    @torch.inference_mode()
    def select_documents(self, document_index: np.ndarray, beams: int) -> TorchState:
        return TorchState(select_documents(self.tree, _tensor(document_index, self.device), beams), self.device)


@dataclass(slots=True)
class TorchMemory(Memory):
    """The arrays that search reads of a torch model's memory, and that memory."""

    own: Any = None

    @classmethod
    def of(cls, memory: Memory) -> TorchMemory:
        mask, ids = _array(memory.mask), _array(memory.extended_ids)
        return cls(memory.states, mask, ids, memory.extended_vocab_size, own=memory)


def _tensor(index: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(index)
    return tensor if device.type == "cpu" else tensor.to(device)


def _array(tensor: Tensor) -> np.ndarray:
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return tensor.detach().cpu().numpy()


class DeviceScores:
    """A step's scores (N, X) on an accelerator, as search and its scorers use an array: rows and single scores are
    read, single scores are written, the best of each row are found there; `copy` is the whole array, here. Of equal
    scores the lower id comes first, but where the last of the best is one of several, any of them may be it."""

    def __init__(self, values: Tensor) -> None:
        low = values.dtype in (torch.bfloat16, torch.float16)
        self._values = values.float() if low else values
        self.shape, self.dtype = tuple(values.shape), np.dtype(str(self._values.dtype).removeprefix("torch."))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.copy().astype(dtype or self.dtype, copy=False)

    @torch.inference_mode()
    def copy(self) -> np.ndarray:
        return _array(self._values).copy()

    @torch.inference_mode()
    def __getitem__(self, index: Any) -> np.ndarray:
        return _array(self._values[self._there(index)])

    @torch.inference_mode()
    def __setitem__(self, index: Any, value: Any) -> None:
        given = torch.from_numpy(value).to(self._values) if isinstance(value, np.ndarray) else value
        self._values[self._there(index)] = given

    @torch.inference_mode()
    def fill(self, value: float) -> None:
        self._values.fill_(value)

    @torch.inference_mode()
    def top(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """`catchline.search.hypotheses.top_candidates`."""
        values, ids = (_array(part) for part in self._values.topk(min(count, self.shape[1]), dim=1))
        order = np.lexsort((ids, -values))
        return np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)

    def _there(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return tuple(map(self._there, index))
        return _tensor(np.ascontiguousarray(index), self._values.device) if isinstance(index, np.ndarray) else index


def _scores(values: Tensor) -> Any:
    return _array(values) if values.device.type == "cpu" else DeviceScores(values)


def _arrays(output: StepOutput[Tensor]) -> StepOutput[Any]:
    """The output in arrays; what is one tensor stays one array. Scores on another device stay there."""
    scores = _scores(output.scores)
    log_probs = scores if output.log_probs is output.scores else _scores(output.log_probs)
    details = {name: _array(value) for name, value in output.details.items()}
    names = ("attention", "context", "state", "attention_scores")
    given = {name: _array(value) for name in names if (value := getattr(output, name)) is not None}
    return StepOutput(scores, log_probs, details=details, **given)
