"""What tests of whole runs share: silence, and what of a run's newest checkpoint must not depend on interruptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laconic.training.checkpoint import checkpoint_folders


def quiet(message: str) -> None:
    """An ``on_message`` that says nothing."""


def bits(out: Path) -> tuple[Any, ...]:
    newest = checkpoint_folders(out)[0]
    state = json.loads((newest / "state.json").read_text())
    for clock in ("elapsed_seconds", "timing_bytes"):
        state["train_state"].pop(clock)
    tensors = {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}
    return newest.name, tensors, state, (out / "log.jsonl").read_bytes()
