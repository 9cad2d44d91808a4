"""An exported folder: a model folder with graphs beside its weights, and ``export.json``, which says what they are.

```
export.json            format, who wrote it, the decoder's state, SHA-256 digests of the other files
encoder.onnx           what the model makes of a document
step.onnx              one step of its decoder
model.safetensors      the weights of both
```

and of the model folder the tokenizer, casing, configuration, search settings, calibration and README. Nothing in it is
executed, and nothing outside of it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catchline.config.base import ConfigBase, validate
from catchline.config.names import refuse_code
from catchline.config.schema import SearchConfig, TextConfig
from catchline.errors import CatchlineError, ModelError
from catchline.files import digest_of, write_json
from catchline.metrics.confidence import Calibration
from catchline.runtime.model import Exported, GraphModel, Session, open_sessions
from catchline.text.base import Tokenizer, read_json

MANIFEST, ENCODER, STEP, WEIGHTS = "export.json", "encoder.onnx", "step.onnx", "model.safetensors"
FORMAT = 2


class _Described(ConfigBase, extra="ignore"):
    """What is read of ``config.json``."""

    name: str = ""
    text: TextConfig


@dataclass(frozen=True, slots=True)
class OpenedExport:
    """An exported folder, opened."""

    folder: Path
    model: GraphModel
    tokenizer: Tokenizer
    text: TextConfig
    search: SearchConfig
    name: str
    about: Exported
    calibration: Calibration | None


def open_export(folder: Path) -> OpenedExport:
    """Open an exported folder. Raises ModelError: a file is missing, damaged or of another version, or the graphs
    cannot run here."""
    path = folder / MANIFEST
    found = read_json(path)
    if (version := found.get("format")) != FORMAT:
        raise ModelError(
            f"{path} is of export format {str(version)[:20]}; this catchline opens {FORMAT}: export the model again."
        )
    try:
        about = validate(Exported, found, where=MANIFEST)
    except CatchlineError as error:
        raise ModelError(f"{path} is damaged ({error}); export the model again.") from None
    _check_sums(folder, about.sha256)
    try:
        # of config.json nothing is built here: the graphs need no class that the model was made of
        described = validate(_Described, read_json(folder / "config.json"), where="config.json")
        decoding = read_json(folder / "generation_config.json")
        refuse_code(decoding, folder / "generation_config.json")
        search = validate(SearchConfig, decoding, where="search")
        tokenizer = Tokenizer.load(folder)
        calibration = Calibration.load(folder)
    except ModelError:
        raise
    except CatchlineError as error:
        raise ModelError(f"{folder} cannot be opened: {error}") from None
    if tokenizer.vocab_size > about.vocab_size:
        raise ModelError(f"The tokenizer in {folder} does not fit its ONNX models; export the model again.")
    tokenizer.widen(about.vocab_size)
    encoder, step = open_sessions(folder, (ENCODER, STEP))
    _check_layout(folder, about, encoder, step)
    name, model = described.name or folder.name, GraphModel(encoder, step, about)
    return OpenedExport(folder, model, tokenizer, described.text, search, name, about, calibration)


def _check_sums(folder: Path, expected: dict[str, str]) -> None:
    lacking = {ENCODER, STEP, WEIGHTS, "tokenizer.json", "config.json"} - set(expected)
    if lacking:
        raise ModelError(f"{folder / MANIFEST} has no digest of {min(lacking)}; export the model again.")
    for name, digest in expected.items():
        path = folder / name
        if Path(name).name != name or not os.path.isfile(path):
            raise ModelError(f"{folder} has no {name[:100]}; the folder is incomplete: copy it again.")
        if digest_of(path) != digest:
            raise ModelError(f"{path} has changed since the export (its SHA-256 differs); copy it again.")


def _check_layout(folder: Path, about: Exported, encoder: Session, step: Session) -> None:
    """Do the graphs take and give what ``export.json`` says, and are its ids those of words?"""
    layout = about.layout
    state = {f"state.{name}" for name in (*layout.rows, *layout.shared)}
    needed = {"log_probs"} if layout.same_scores else {"log_probs", "scores"}
    given = {*layout.outputs, *(f"next.{name}" for name in layout.next)}
    unlike = (
        (state - set(encoder.outputs))
        | (set(encoder.inputs) - {"source_ids", "extended_ids", "mask", "outside"})
        | (set(step.inputs) - state - {"last_ids", "outside"})
        | (needed - set(layout.outputs))
        | (given - set(step.outputs))
    )
    ids = [one for one in (about.start_id, layout.first_id, layout.forced_id) if one is not None]
    unlike |= {f"id {one}" for one in ids if not 0 <= one < about.vocab_size}
    widths = [str(size).removeprefix("O+") for size in step.outputs.get("log_probs", ())[-1:]]  # O words are outside it
    unlike |= {f"vocab_size {about.vocab_size}"} - {f"vocab_size {width}" for width in widths}
    if unlike:
        raise ModelError(f"{folder / MANIFEST} does not fit its models ({min(unlike)[:60]}); export the model again.")


def write_manifest(folder: Path, about: dict[str, Any], names: Iterable[str]) -> None:
    """Write ``export.json`` over the files ``names``, which are there."""
    sums = {name: digest_of(folder / name) for name in sorted(names)}
    write_json(folder / MANIFEST, {"format": FORMAT, **about, "sha256": sums}, indent=1)
