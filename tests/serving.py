"""A server process for the tests of the service."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx


class Server:
    """A server process of ours on the loopback address."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, url: str) -> None:
        self.process, self.folder, self.url = process, folder, url

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **options)

    def log(self) -> str:
        """The lines of the access log."""
        return (self.folder / "stdout").read_text()

    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self, timeout: float = 30) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


@contextmanager
def running(folder: Path, *arguments: str, python: str = sys.executable, **environment: str) -> Iterator[Server]:
    """``catchline serve ARGUMENTS`` on a free port, killed at the end if it still runs."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", "catchline.cli.main", "serve", *arguments, "--port", "0"]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            command, stdout=out, stderr=err, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}
        )
    server = Server(process, folder, "")
    try:
        until = time.monotonic() + 90
        while not (found := re.search(r"at (http://\S+)", server.errors())):
            assert process.poll() is None, server.errors()
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.05)
        server.url = found[1]
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
