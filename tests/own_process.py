"""A call in a process of its own, for libraries that bring threads and servers and may take a process with them."""

from __future__ import annotations

import contextlib
import io
import runpy
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed (pip install 'laconic[ray]')")


def in_own_process(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What ``function`` (of a module, not a local one) returns or raises; ``BrokenProcessPool`` if its process dies."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


# ------------------------------------------------------------- processes that export, with torch imported once

EXPORT = "laconic.export.folder"


@pytest.fixture
def exports_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `laconic.export.folder.export_apart` starts is forked from a process that has imported all of it: the same
    program in a process of its own, without the seconds that the import takes."""
    monkeypatch.setattr(f"{EXPORT}.subprocess", SimpleNamespace(run=_run_forked))


def _run_forked(command: list[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
    assert (command[:3], env["LACONIC_KERNELS"]) == ([sys.executable, "-m", EXPORT], "graph")
    with ProcessPoolExecutor(1, mp_context=_exporters()) as pool:
        code, said = pool.submit(_export, command[3:]).result()
    return subprocess.CompletedProcess(command, code, "", said)


@cache
def _exporters() -> ForkServerContext:
    context = get_context("forkserver")
    context.set_forkserver_preload([EXPORT])
    with mock.patch.dict("os.environ", LACONIC_KERNELS="graph"):
        ensure_running()
    return context


def _export(arguments: list[str]) -> tuple[int, str]:
    """The exit code, and what was written to standard error."""
    said = io.StringIO()
    with mock.patch.object(sys, "argv", [EXPORT, *arguments]), contextlib.redirect_stderr(said):
        try:
            runpy.run_path(sys.modules[EXPORT].__file__ or "", run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()
