"""What is told of a summary while it is written: that a step is made, and the text so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from laconic.config.schema import SearchConfig
from laconic.explain.provenance import build_summary
from laconic.systems.extractive import OnText
from laconic.types import Hypothesis, Record, StepOutput, TokenizedText


class Writer:
    """The summary of one document while greedy decoding makes it."""

    def __init__(
        self, record: Record, encoding: TokenizedText, oov_words: Sequence[str], tokenizer: Any, options: SearchConfig
    ) -> None:
        self.hypothesis = Hypothesis([], 0.0, 0.0, [], finished=False)
        self.open = True
        self._rows: list[np.ndarray] = []
        self._eos_id, self._replace_unk = tokenizer.eos_id, options.replace_unk
        if options.surface == "clean":  # what is dropped is known at the end only
            options = options.model_copy(update={"surface": "cased"})
        self._build = partial(
            build_summary,
            document=record,
            source_encoding=encoding,
            tokenizer=tokenizer,
            oov_words=oov_words,
            search=options,
            explain=False,
        )

    def add(self, token_id: int, attention: np.ndarray | None) -> str | None:
        """The text with one token more; ``None`` when nothing was added."""
        self.open = self.open and token_id != self._eos_id
        if not self.open:
            return None
        self.hypothesis.ids.append(token_id)
        self.hypothesis.token_log_probs.append(0.0)
        if self._replace_unk and attention is not None:
            self._rows.append(attention)
            self.hypothesis.attention = np.stack(self._rows)
        return self._build(self.hypothesis).text


class Watched:
    """A model (`laconic.decoding`) that tells of its steps; everything else is the model's own."""

    def __init__(
        self,
        model: Any,
        on_step: Callable[[], object] | None,
        on_text: OnText | None,
        writers: Sequence[Writer],
    ) -> None:
        self._model, self._on_step, self._on_text, self._writers = model, on_step, on_text, writers
        self._attention: np.ndarray | None = None
        self._steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def step(self, last_ids: np.ndarray, state: Any) -> tuple[StepOutput, Any]:
        """The model's step; ``last_ids`` are what greedy decoding chose in the one before."""
        if self._on_step:
            self._on_step()
        if self._steps and self._on_text and self._writers:
            attention = [None] * len(self._writers) if self._attention is None else list(self._attention)
            for row, (writer, token_id) in enumerate(zip(self._writers, last_ids.tolist(), strict=True)):
                if writer.open and (text := writer.add(token_id, attention[row])) is not None:
                    self._on_text(row, text)
        self._steps += 1
        output, state = self._model.step(last_ids, state)
        self._attention = output.attention
        return output, state
