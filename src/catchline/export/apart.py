"""Export a model folder in its own process, and compare what both write: an exported model and torch's.

Both decode the same records. A model of eight bits does not always write the same: what that costs is the difference of
both in ROUGE, over records that have summaries.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from catchline.errors import ConfigError, ModelError, not_installed
from catchline.files import refuse_other
from catchline.jobs import batches
from catchline.metrics.scoring import score_as, suited
from catchline.runtime.folder import MANIFEST
from catchline.summarizer import Summarizer
from catchline.summarizer.onnx_backend import ExportedSystem
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.types import Record, Summary

RAISED = b"raised: "  # before the error that the process that exports hands over


def export_apart(source: str | Path, target: Path, *, int8: bool = False, trust_code: bool = False) -> None:
    """Run `catchline.export.folder.export_folder` in another process, which computes with the equations of graphs, and
    raise its errors here. With ``trust_code`` it runs classes that ``source`` names. Raises ConfigError: ``target``
    holds something else than an exported model, or the extra ``export`` is not installed."""
    if not find_spec("onnxscript"):
        raise ConfigError(not_installed("onnxscript"))
    refuse_other(target, MANIFEST, "exported model")
    environment = os.environ | {"CATCHLINE_KERNELS": "graph", "PYTHONSAFEPATH": "1"}
    options = [*["--int8"] * int8, *["--trust-code"] * trust_code]
    command = [sys.executable, "-m", "catchline.export.folder", *options, str(source), str(target)]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode:
        _, marked, error = done.stdout.partition(RAISED)
        raise pickle.loads(error) if marked else ModelError(done.stderr.decode(errors="replace")[-2000:])


@dataclass(slots=True)
class Agreement:
    """What came out: ``different`` has the summaries that are not equal, torch's first."""

    records: int = 0
    equal: int = 0
    worst_score: float = 0.0  # of equal summaries
    different: list[tuple[Summary, Summary]] = field(default_factory=list)
    scored: int = 0  # records with summaries
    rouge: list[dict[str, float]] = field(default_factory=list)  # F by kind, torch's first


def compare(
    source: str | Path,
    exported: Path,
    records: Sequence[Record],
    *,
    batch_size: int = 16,
    progress: Callable[[int], object] = lambda _: None,
) -> Agreement:
    """Decode ``records`` with the model ``source`` and with the folder ``exported``."""
    system = NeuralSystem.from_pretrained(source, "cpu")
    torch_model, graphs = Summarizer(system), Summarizer(ExportedSystem.from_pretrained(exported))
    found = Agreement(len(records))
    written: list[tuple[str, str, str]] = []  # torch's, the graphs', the reference
    options: dict[str, Any] = {"always_write": True, "batch_size": batch_size}
    for chosen in batches(records, batch_size):
        pairs = zip(torch_model.summarize(chosen, **options), graphs.summarize(chosen, **options), strict=True)
        for record, (ours, theirs) in zip(chosen, pairs, strict=True):
            if record.summary:
                written.append((ours.text, theirs.text, record.summary))
            if ours.text != theirs.text:
                found.different.append((ours, theirs))
            else:
                found.equal += 1
                found.worst_score = max(found.worst_score, abs(ours.score - theirs.score))
        progress(len(chosen))
    if written:
        *both, gold = zip(*written, strict=True)
        references = [[text] for text in gold]
        way = suited(system.loaded.scoring, references)
        scores = [score_as(way, texts, references, ("1", "2", "L")).mean for texts in both]
        found.rouge = [{kind: 100 * score.f for kind, score in mean.items()} for mean in scores]
        found.scored = len(written)
    return found
