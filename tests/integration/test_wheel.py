"""The wheel holds all that Catchline brings: in an environment that knows only it, the model in the box writes a
line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from catchline import __version__

ROOT = Path(__file__).parent.parent.parent


def run(*command: str | Path, folder: Path, text: str = "") -> str:
    """The command's output, from a folder and with an environment that do not lead to the sources."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=clean, input=text, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_installed_wheel_summarizes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel without a network needs: pip install hatchling")
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    quiet = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*quiet, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source, folder=tmp_path)
    (wheel,) = tmp_path.glob("catchline-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"catchline/oneline/model.safetensors", "catchline/server/static/index.html", "catchline/py.typed"} <= held
    assert not [name for name in held if name.startswith("tests") or "__pycache__" in name]

    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    run(python, "-m", "pip", "--quiet", "install", "--no-deps", "--no-index", wheel, folder=tmp_path)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip())
    # Dependencies are those of this environment, behind the wheel; Catchline itself is not taken from there.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert run(python, "-c", "import catchline; print(catchline.__file__)", folder=tmp_path).startswith(str(site))
    catchline = tmp_path / "bare" / "bin" / "catchline"
    assert __version__ in run(catchline, "--version", folder=tmp_path)
    text = "Tidepool is a small monitor for home weather stations. It reads temperature and wind from sensors."
    assert run(catchline, "summarize", "-", folder=tmp_path, text=text).strip()
    assert "wind" in run(catchline, "summarize", "lead", "--sentences", "2", "-", folder=tmp_path, text=text)
