"""A trained model behind the interface of `Summarizer`: tokenize, decode, say where the words came from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from catchline.config.schema import SearchConfig
from catchline.data.dataset import Example, encode_documents
from catchline.errors import ConfigError
from catchline.kernels.packed import Packing
from catchline.models.folder import LoadedModel, load_model_folder, uploaded
from catchline.search.beam import StepFunction
from catchline.search.torch_bridge import TorchModel, in_threads, threads
from catchline.summarizer.decoding import MOST_THREADS, DecodingSystem
from catchline.types import Batch, Hypothesis

# Multiplications a step from which it is worth more than one thread (two cores, nets of 2 to 139 million parameters):
# several searches side by side, and one by threads that sleep between its operations.
_WORTH_SHARING, _WORTH_WAKING = 5e8, 1e9


class NeuralSystem(DecodingSystem):
    """A `LoadedModel` ready to decode."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.model = loaded.model.eval()
        self._packing = Packing()
        self._parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.attended_tokens = self.model.attended_tokens
        super().__init__(TorchModel(self.model, self._packing), loaded, self.model.decoder_start_id)

    @classmethod
    def from_pretrained(cls, folder_or_id: str | Path, device: Any) -> NeuralSystem:
        """Open a folder or hub id, as `load_model_folder` and `as_device` do."""
        return cls(load_model_folder(folder_or_id, device=as_device(device)))

    def batches_at_once(self, documents: int, options: SearchConfig) -> int:
        if self.device.type != "cpu" or documents * options.beam_size * self._parameters < _WORTH_SHARING:
            return 1
        return min(documents, torch.get_num_threads(), MOST_THREADS)

    in_threads = staticmethod(in_threads)  # type: ignore[assignment]

    def _search(self, batch: Batch, config: SearchConfig, step: StepFunction, **ids: Any) -> list[list[Hypothesis]]:
        short = len(batch.source_ids) * config.beam_size * self._parameters < _WORTH_WAKING
        sleeping = self.device.type == "cpu" and os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
        with threads(1) if short and sleeping else nullcontext():
            return super()._search(batch, config, step, **ids)

    @torch.inference_mode()
    def _opponent_log_probs(self, batch: Any) -> np.ndarray:
        log_probs: np.ndarray = self.model(batch).details["opponent_log_probs"].float().cpu().numpy()
        return log_probs

    def _batch(self, examples: Sequence[Example]) -> Batch:
        return self._collator(examples).changed(torch.from_numpy).to(self.device)

    @torch.inference_mode()
    def _log_likelihoods(self, batch: Any) -> list[float]:
        sums: list[float] = self.model(batch).gold_log_probs.double().sum(-1).tolist()
        return sums

    @torch.inference_mode()
    def _kind(self) -> tuple[str, bool, int]:
        example = encode_documents(["a"], self.tokenizer, self.text)[0]
        memory = self.model.encode(self._batch(example))
        start = torch.full((1,), self.model.decoder_start_id, device=self.device)
        output, _ = self.model.step(start, self.model.start(memory))
        copies = not {"p_gen", "copy_probs"}.isdisjoint(output.details)
        family = self.loaded.run.model["type"] if self.loaded.run else type(self.model).__name__.lower()
        return family, copies, self._parameters

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model folder, with the decoding defaults in force here."""
        self.loaded.search = self.search
        self.loaded.save_pretrained(folder)

    def push_to_hub(self, repo_id: str, *, token: str | None = None, **options: Any) -> str:
        """Upload the model folder; gives back the address. Raises ModelError: no token, or the hub refuses."""
        self.loaded.search = self.search
        return uploaded(repo_id, lambda found: self.loaded.push_to_hub(repo_id, token=found, **options), token)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.model.parameters()).device

    def to(self, device: Any) -> None:
        self.model.to(as_device(device))
        self._packing.forget()


def as_device(device: Any) -> torch.device:
    """``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``, or ``"auto"``: the best there is. Raises ConfigError: no such
    device on this machine."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen).tolist()  # what cannot be read back is no device to compute on
    except (RuntimeError, AssertionError, ValueError, TypeError):
        raise ConfigError(f"There is no device '{device}' here; use cpu, or auto for the best there is.") from None
    return chosen
