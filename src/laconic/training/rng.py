"""The global random number generators of one process: captured, restored, and checked with a probe draw.

A restored state is only worth something if the generator really is in it (accelerate, for one, only logs a
restore that failed), so each state is stored with the next number it would give, and that draw is compared
after restoring.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from laconic.errors import CheckpointError


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed Python, NumPy and torch; ranks get different, fixed streams."""
    words = np.random.SeedSequence([seed, rank]).generate_state(3)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.manual_seed(int(words[2]))


def capture() -> dict[str, Any]:
    """The states of all generators of this process and their probe draws, as JSON can hold them."""
    version, internal, gauss = random.getstate()
    name, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    states: dict[str, Any] = {
        "python": [version, list(internal), gauss],
        "numpy": [str(name), [int(key) for key in keys], int(place), int(has_gauss), float(cached)],
        "torch": _to_hex(torch.get_rng_state()),
    }
    if torch.cuda.is_available():
        states["cuda"] = _to_hex(torch.cuda.get_rng_state())
    states["probes"] = _probes()
    _set(states)
    return states


def restore(states: dict[str, Any]) -> None:
    """Put the generators into ``states``.

    Raises:
        CheckpointError: a generator does not draw what it would have drawn when the state was captured.
    """
    _set(states)
    drawn, stored = _probes(), states["probes"]
    wrong = [name for name in drawn if name in stored and drawn[name] != stored[name]]
    if wrong or ("cuda" in stored) != ("cuda" in drawn):
        raise CheckpointError(
            f"The random number generators ({', '.join(wrong) or 'cuda'}) could not be restored from the checkpoint; "
            "resume on the same kind of machine with the same versions of Python, NumPy and PyTorch."
        )
    _set(states)


def _probes() -> dict[str, float]:
    drawn = {"python": random.random(), "numpy": float(np.random.random_sample()), "torch": float(torch.rand(()))}
    if torch.cuda.is_available():
        drawn["cuda"] = float(torch.rand((), device="cuda"))
    return drawn


def _set(states: dict[str, Any]) -> None:
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, place, has_gauss, cached = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), place, has_gauss, cached))
    torch.set_rng_state(_from_hex(states["torch"]))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(_from_hex(states["cuda"]))


def _to_hex(state: torch.Tensor) -> str:
    return state.numpy().tobytes().hex()


def _from_hex(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
