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
from catchline.cli.main import VARIABLES
from catchline.cli.options import AsJson
from catchline.config.names import DEFAULT, place_of
from catchline.errors import EXTRAS, CatchlineError, installing

PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "numpy", "pydantic", "typer", "huggingface_hub")
WHAT_FOR = {
    "train": "training and models",
    "serve": "catchline serve",
    "track": "TensorBoard",
    "ray": "a Ray cluster",
    "documents": "web pages, PDF, DOCX, PPTX, EPUB and notebooks",
    "lora": "training.lora",
}


def command(as_json: AsJson = False) -> None:
    """Print versions, threads, devices, the CPU's features, and missing packages with what needs them."""
    values = facts()
    rows = [[name, str(value)] for name, value in values.items() if name != "missing"]
    missing = [
        f"Missing for {WHAT_FOR.get(extra, extra)}: {', '.join(packages)}; {installing(extra)}"
        for extra, packages in values["missing"].items()
    ]
    table = aligned(["what", "here"], rows, left=2)
    print_result(as_json, values, "\n".join([table, *(missing or ["Nothing is missing."])]))


def facts() -> dict[str, Any]:
    """Name and value; ``missing`` maps an extra to its packages that are not here."""
    missing: dict[str, list[str]] = {}
    for package, extra in EXTRAS.items():
        if find_spec(package) is None:
            missing.setdefault(extra, []).append(package)
    values: dict[str, Any] = {"catchline": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            values[name] = version(name)
        except PackageNotFoundError:
            values[name] = "not installed"
    values |= {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    if find_spec("torch") is not None:
        import torch

        devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        devices += ["mps"] if torch.backends.mps.is_available() else []
        values |= {"threads": torch.get_num_threads(), "cpu": torch.backends.cpu.get_cpu_capability()}
        values["devices"] = ", ".join(["cpu", *devices])
    values["free disk"] = f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GB"
    try:
        values["bundled model"] = str(place_of(DEFAULT))
    except CatchlineError:
        values["bundled model"] = "not here: `catchline summarize` takes an extractive method"
    names = [name for names in VARIABLES for name in names.split(", ") if "TOKEN" not in name]
    return values | {f"${name}": os.environ[name] for name in names if name in os.environ} | {"missing": missing}
