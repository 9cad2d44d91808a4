"""Damaged exported folders: one sentence or a summary, in time, with the digests of before and with digests that fit.

500 folders: 250 of each of two models, the second of eight bits.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hostile import open_damaged
from hypothesis import strategies as st

from catchline import Summarizer
from catchline.export.folder import export_apart
from catchline.runtime.folder import digest_of
from catchline.runtime.manifest import MANIFEST
from catchline.summarizer.onnx_backend import ExportedSystem
from catchline.types import Summary
from exports import save_case
from tiny_models import DOCUMENTS

pytestmark = pytest.mark.slow

KINDS = {"writer-see": False, "wide": True}  # eight bits?
EXAMPLES = int(os.environ.get("FUZZ", 250))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("sound")
    for kind, int8 in KINDS.items():
        export_apart(save_case(home / kind, kind, spread=0.2), home / f"{kind}-out", int8=int8)
    return {kind: home / f"{kind}-out" for kind in KINDS}


def with_digests(folder: Path) -> None:
    """Let ``export.json`` say of every file what it is now, where it still can."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        manifest["sha256"] = {name: digest_of(folder / name) for name in manifest["sha256"]}
        (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def perhaps_with_digests(folder: Path, draw: Any) -> str:
    if not draw(st.booleans()):
        return ""
    with_digests(folder)
    return ", digests fit"


@pytest.mark.parametrize("kind", KINDS)
def test_exported_folders(sound: dict[str, Path], kind: str) -> None:
    def explain(folder: Path) -> Summary:
        return Summarizer(ExportedSystem.from_pretrained(folder)).explain(DOCUMENTS[0])

    open_damaged(sound[kind], EXAMPLES, explain, values=4, bytes_=5, after=perhaps_with_digests)
