"""Commands as a person gives them: what one prints that works, and the one sentence of one that does not; and the
programs of ``scripts/``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from catchline.cli.main import main

Capture, Patch = pytest.CaptureFixture[str], pytest.MonkeyPatch


def run(capsys: Capture, *arguments: object) -> str:
    """What the command prints; what was printed before it does not count."""
    capsys.readouterr()
    code = main(["--quiet", *map(str, arguments)])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def refused(capsys: Capture, code: int, said: str, *arguments: object) -> None:
    """The command ends with ``code`` and one line that holds ``said``; what was printed before it does not count."""
    capsys.readouterr()
    assert main(["--quiet", *map(str, arguments)]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def program(name: str) -> ModuleType:
    """``scripts/NAME.py`` or ``study/research/NAME.py`` as a module, its neighbours importable."""
    folders = [Path(__file__).parents[1] / place for place in ("scripts", "study/research")]
    folder = next(folder for folder in folders if (folder / f"{name}.py").is_file())
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    sys.modules[name] = module  # processes of its own import it by this name
    spec.loader.exec_module(module)
    return module
