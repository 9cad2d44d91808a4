"""``catchline doctor``: what is installed here, what this machine can do, and what is missing for what."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from catchline import __version__
from catchline.cli.io import aligned, print_result
from catchline.cli.options import AsJson
from catchline.config.shipped import DEFAULT, place_of
from catchline.errors import EXTRAS, CatchlineError

PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "numpy", "pydantic", "typer", "huggingface_hub")
WHAT_FOR = {
    "train": "training and models",
    "serve": "catchline serve",
    "hf": "data sets of the hub, Parquet",
    "export": "catchline export",
    "track": "TensorBoard",
    "ray": "a Ray cluster",
    "zstd": "files that end in .zst",
    "documents": "web pages, PDF, DOCX, PPTX, EPUB and notebooks",
}
VARIABLES = (
    *("OMP_NUM_THREADS", "CATCHLINE_CACHE", "CATCHLINE_KERNELS", "CATCHLINE_QUIET", "CATCHLINE_TRACEBACK"),
    *("HF_HOME", "HF_HUB_OFFLINE"),
)


def command(as_json: AsJson = False) -> None:
    """Print versions, threads, devices, the CPU's features, and what is not installed with what needs it."""
    found = facts()
    rows = [[name, str(value)] for name, value in found.items() if name != "missing"]
    missing = [
        f"Missing for {WHAT_FOR.get(extra, extra)}: {', '.join(packages)}; pip install 'catchline[{extra}]'"
        for extra, packages in found["missing"].items()
    ]
    told = [aligned(["what", "here"], rows, left=2), *(missing or ["Nothing is missing."])]
    print_result(as_json, found, "\n".join(told))


def facts() -> dict[str, Any]:
    """Name and value; ``missing`` maps an extra to its packages that are not here."""
    missing: dict[str, list[str]] = {}
    for package, extra in EXTRAS.items():
        if find_spec(package) is None:
            missing.setdefault(extra, []).append(package)
    found: dict[str, Any] = {"catchline": __version__, "python": platform.python_version()}
    found |= {name: _version(name) for name in PACKAGES}
    found |= {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    if find_spec("torch") is not None:
        import torch

        devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        found |= {
            "threads": torch.get_num_threads(),
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "devices": ", ".join(["cpu", *devices, *(["mps"] if torch.backends.mps.is_available() else [])]),
        }
    found["free disk"] = f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GB"
    found["model in the box"] = _boxed()
    found |= {f"${name}": os.environ[name] for name in VARIABLES if name in os.environ}
    return found | {"missing": missing}


def _boxed() -> str:
    try:
        return str(place_of(DEFAULT))
    except CatchlineError:
        return "not here: `catchline summarize` takes an extractive method"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
