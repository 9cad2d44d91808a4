"""What every step leaves behind, and how a finished path is read back.

Nothing here is re-ordered while the search runs: each step stores its tensors with back-pointers, and only
the winning paths are followed from their last step to their first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from laconic.types import StepOutput


@dataclass(slots=True)
class StepRecord:
    """One step. Its input rows (N,) become nodes (M,): the hypotheses that live on after it."""

    origin: Tensor  # (N,) the previous step's node behind each input row
    attention: Tensor | None  # (N, S)
    details: dict[str, Tensor]  # (N, ...)
    parents: Tensor | None = None  # (M,) the input row each node grew from; None after the last step
    tokens: Tensor | None = None  # (M,)
    log_probs: Tensor | None = None  # (M,)


@dataclass(slots=True)
class Path:
    """A path read back. Arrays have a row for EOS where the path ended in it."""

    ids: list[int]
    log_probs: list[float]
    attention: np.ndarray | None
    details: dict[str, np.ndarray]


@dataclass(slots=True)
class History:
    """The records of all steps so far."""

    records: list[StepRecord] = field(default_factory=list)

    def open_step(self, origin: Tensor, output: StepOutput) -> None:
        """Store what explains a step: attention and details, not the (N, X) tensors."""
        rows = len(origin)
        details = {name: value for name, value in output.details.items() if value.dim() and len(value) == rows}
        self.records.append(StepRecord(origin, output.attention, details))

    def close_step(self, parents: Tensor, tokens: Tensor, log_probs: Tensor) -> None:
        """Store which rows went on with which tokens."""
        record = self.records[-1]
        record.parents, record.tokens, record.log_probs = parents, tokens, log_probs

    def paths(self, steps: Tensor, rows: Tensor, finished: Tensor) -> list[Path]:
        """Follow M paths back from input row ``rows`` (M,) of step ``steps`` (M,).

        ``finished`` (M,) says that EOS was predicted at that step; otherwise the path ends one token
        earlier and the step's own row does not count. Of a step that was never taken the rows are the nodes of the
        last one.
        """
        if not len(steps):
            return []
        longest = int(steps.max())
        device = rows.device
        ids = torch.zeros(len(rows), longest, dtype=torch.int64, device=device)
        log_probs = torch.zeros(len(rows), longest, dtype=torch.float64, device=device)
        pointers = torch.zeros(len(rows), min(longest + 1, len(self.records)), dtype=torch.int64, device=device)
        pointer = rows.clone()
        for step in range(pointers.shape[1] - 1, -1, -1):
            record = self.records[step]
            active = steps > step  # the others end here or have not begun
            if step < longest:
                assert record.parents is not None
                assert record.tokens is not None
                assert record.log_probs is not None
                node = torch.where(active, pointer, 0)
                if step + 1 < len(self.records):
                    node = self.records[step + 1].origin[node]
                ids[:, step] = record.tokens[node]
                log_probs[:, step] = record.log_probs[node]
                pointer = torch.where(active, record.parents[node], pointer)
            pointers[:, step] = torch.where(steps >= step, pointer, 0)
        return self._cut(ids, log_probs, pointers, steps, finished)

    def _cut(self, ids: Tensor, log_probs: Tensor, pointers: Tensor, steps: Tensor, finished: Tensor) -> list[Path]:
        attention = self._gather([record.attention for record in self.records], pointers)
        names = self.records[0].details
        details = {n: self._gather([record.details.get(n) for record in self.records], pointers) for n in names}
        ids_list, log_prob_list = ids.tolist(), log_probs.tolist()
        paths = []
        for i, (length, ended) in enumerate(zip(steps.tolist(), finished.tolist(), strict=True)):
            rows = length + bool(ended)
            paths.append(
                Path(
                    ids_list[i][:length],
                    log_prob_list[i][:length],
                    None if attention is None else attention[i, :rows].copy(),
                    {name: value[i, :rows].copy() for name, value in details.items() if value is not None},
                )
            )
        return paths

    def _gather(self, tensors: list[Tensor | None], pointers: Tensor) -> np.ndarray | None:
        """(M, T, ...) the rows of each step's tensor that lie on the paths."""
        used = [
            tensor[pointers[:, step]] for step, tensor in enumerate(tensors[: pointers.shape[1]]) if tensor is not None
        ]
        if len(used) < pointers.shape[1]:
            return None
        stacked = torch.stack(used, dim=1)
        return (stacked.float() if stacked.dtype == torch.bfloat16 else stacked).cpu().numpy()
