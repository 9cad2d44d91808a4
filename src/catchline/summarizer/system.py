"""What `Summarizer` drives: a trained model, an extractive method, or a language model of a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from catchline.errors import ConfigError
from catchline.jobs import R, T, Threaded, threaded
from catchline.metrics.confidence import Calibration
from catchline.types import Record, Summary

Progress = Callable[[int], object]  # receives the number of documents just done
OnText = Callable[[int, str], object]  # receives the place of a document and its summary so far


class System(ABC):
    """A way to summarize a batch. What is here is that of a system without weights or probabilities."""

    name: str
    calibration: Calibration | None = None
    batch: ClassVar[int] = 16  # documents of a batch where nobody says how many; results are kept by 8 batches
    unk_text: str | None = None  # what a word outside the vocabulary looks like in the output, if it can occur

    @abstractmethod
    def options(self, overrides: Mapping[str, Any]) -> Any:
        """The settings changed by ``overrides``. Raises ConfigError: an unknown setting or a wrong value."""

    @abstractmethod
    def describe(self, options: Any) -> dict[str, Any]:
        """The settings, for records of results."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What kind of system this is, for those who choose one: family, whether it copies, its size and limits."""

    @abstractmethod
    def summarize_batch(
        self,
        records: Sequence[Record],
        *,
        explain: bool | None,
        options: Any,
        on_step: Callable[[], object] | None = None,
        on_text: OnText | None = None,
    ) -> list[Summary]:
        """Summarize the documents. ``on_step()`` is called before each step or document; what it raises ends the work.
        ``on_text(i, text)`` receives the summary of document i so far."""

    def set_defaults(self, overrides: Mapping[str, Any]) -> None:
        """Change the settings that are used when nothing else is asked for; of a method its name has them."""
        return

    def documents_at_once(self, longest: str) -> int:
        """How many documents, none longer than this one, are best worked on together."""
        return 16

    def batches_at_once(self, documents: int, options: Any) -> int:
        """How many parts of this many documents are best worked on `in_threads`."""
        return 1

    def in_threads(self, work: Threaded[T, R], batches: Sequence[T], workers: int) -> Generator[R, None, None]:
        """``work`` of each batch, in order, by this many threads of this process."""
        return threaded(work, batches, workers)

    def score(self, records: Sequence[Record], batch_size: int, progress: Progress | None) -> list[float]:
        """log P(summary | document) of each record, END included."""
        raise ConfigError(f"'{self.name}' has no probabilities; score with a trained model.")

    def to(self, device: Any) -> None:
        """Move the weights. Raises ConfigError: there is no such device."""
        return

    def save_pretrained(self, folder: str | Path) -> None:
        raise ConfigError(f"'{self.name}' has no weights, so there is nothing to save; its name opens it anywhere.")

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        raise ConfigError(f"'{self.name}' has no weights, so there is nothing to upload; its name opens it anywhere.")
