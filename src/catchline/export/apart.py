"""Start the export of a model folder in its own process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from catchline.errors import ConfigError, ModelError, not_installed
from catchline.files import refuse_other
from catchline.runtime.manifest import MANIFEST

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
