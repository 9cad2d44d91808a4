"""An exported model behind the interface of `Summarizer`: no torch, no transformers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from catchline.errors import ConfigError
from catchline.runtime.folder import OpenedExport, open_export
from catchline.summarizer.decoding import DecodingSystem
from catchline.types import StepOutput

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt(3)


class ExportedSystem(DecodingSystem):
    """Graphs ready to decode. They keep larger arrays than torch, and gain less from many rows."""

    words_at_once = 1600

    def __init__(self, opened: OpenedExport) -> None:
        self.opened, self.model = opened, opened.model
        super().__init__(opened.model, opened, opened.about.start_id)

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: Any = "cpu") -> ExportedSystem:
        """Open an exported folder, as `open_export` does; it runs on the CPU whatever the device.

        glibc is asked to keep freed arrays, since clearing new pages is a third of the time of a search over graphs.
        Threads share one arena: others keep nothing. A user who sets how memory is allocated keeps that."""
        if not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")) for name in os.environ):
            with suppress(AttributeError, OSError, TypeError):  # another library than glibc
                for option, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 1 << 28), (_TRIM_THRESHOLD, 1 << 26)):
                    ctypes.CDLL(None).mallopt(option, value)
        return cls(open_export(Path(folder).absolute()))

    def __reduce__(self) -> tuple[Any, ...]:
        return self.from_pretrained, (self.opened.folder,), {"search": self.search}  # graphs are opened anew

    def _log_likelihoods(self, batch: Any) -> list[float]:
        about, rows = self.opened.about, np.arange(len(batch.target_ids))
        total = np.zeros(len(rows))
        for output, gold, real in self._forced(batch, "taught"):
            counted = real & ~np.isin(gold, about.uncounted)
            if not about.outside_counts:
                counted &= gold < about.vocab_size
            known = gold if about.copies else np.where(gold >= about.vocab_size, self.tokenizer.unk_id, gold)
            total += np.where(counted, output.log_probs[rows, known].astype(np.float64), 0.0)
        return total.tolist()

    def _forced(self, batch: Any, kind: str = "state") -> Iterator[tuple[StepOutput, np.ndarray, np.ndarray]]:
        """Each step of a teacher-forced pass, its gold words (B,), and which of them are real."""
        state = self.model.start(self.model.encode(batch), kind)
        for inputs, gold, real in zip(batch.target_input_ids.T, batch.target_ids.T, batch.target_mask.T, strict=True):
            output, state = self.model.step(np.ascontiguousarray(inputs), state)
            yield output, gold, real

    def _opponent_log_probs(self, batch: Any) -> np.ndarray | None:
        """What the score has beside log P_c, over lambda; nothing where lambda is 0."""
        switches = self.model.switches()
        weight = 1.0 if switches.get("decode_score") == "po" else switches.get("lambda_decode", 0.0)
        if not weight:
            return None
        rows, found = np.arange(len(batch.target_ids)), []
        for output, gold, _ in self._forced(batch):
            scores = output.scores[rows, gold].astype(np.float64)
            own = 0.0 if switches.get("decode_score") == "po" else output.log_probs[rows, gold]
            found.append((scores - own) / weight)
        return np.stack(found, axis=1)

    def _kind(self) -> tuple[str, bool, int]:
        about = self.opened.about
        return about.family, about.copies, about.parameters

    def save_pretrained(self, folder: str | Path) -> None:
        raise ConfigError("An exported folder is complete: copy it.")

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        raise ConfigError("An exported folder cannot be uploaded: upload its model folder.")

    def to(self, device: Any) -> None:
        if str(device) not in ("cpu", "auto"):
            raise ConfigError(f"An exported model runs on the cpu, not on '{device}'.")
