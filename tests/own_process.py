"""A call in a process of its own, for libraries that bring threads and servers and may take a process with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import pytest

needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed (pip install 'catchline[ray]')")


def in_own_process(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What ``function`` (of a module, not a local one) returns or raises; ``BrokenProcessPool`` if its process dies."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


# ------------------------------------------------------------- processes that export, with torch imported once

EXPORT = "catchline.export.folder"
# Of each line, the program's arguments, the exit code and what it wrote to standard error.
FORKS = f"""
import json, os, runpy, sys, tempfile
import {EXPORT} as program
for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 2)
            sys.argv, code = [program.__file__, *json.loads(line)], 1
            try:
                runpy.run_path(program.__file__, run_name="__main__")
                code = 0
            except SystemExit as end:
                code = end.code or 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        print(json.dumps([code, said.read()]), flush=True)
"""


@pytest.fixture
def exports_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `catchline.export.folder.export_apart` starts is forked from a process that has imported all of it: the same
    program in a process of its own, without the seconds that the import takes."""
    monkeypatch.setattr(f"{EXPORT}.subprocess", SimpleNamespace(run=_run_forked))


def _run_forked(command: list[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
    assert (command[:3], env["CATCHLINE_KERNELS"]) == ([sys.executable, "-m", EXPORT], "graph")
    process = _exporter()
    print(json.dumps(command[3:]), file=process.stdin, flush=True)
    code, said = json.loads(process.stdout.readline())
    return subprocess.CompletedProcess(command, code, "", said)


@cache
def _exporter() -> Any:
    """It ends with its standard input, which is when this process ends."""
    environment = os.environ | {"CATCHLINE_KERNELS": "graph"}
    command, pipe = [sys.executable, "-c", FORKS], subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
