"""A small model to serve, and a server process, for the tests of the service."""

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
import torch

from laconic.config.schema import RunConfig, SearchConfig, TextConfig, TrainingConfig
from laconic.models.folder import save_model_folder
from laconic.models.seq2seq import Seq2Seq
from laconic.text.tokenizer import WordTokenizer

DOCUMENTS = [
    "the quick fox jumps over the lazy dog . it was late .",
    "a small cat sat on the mat .",
    "Zebratown sees the quick bird and the old dog in Zebratown .",
    "it was late",
    "the old cat and the old dog sat on the mat and it was late , very late , said Ellinghaus .",
]


def save_tiny_model(path: Path, *, units: int = 8, max_length: int = 7) -> Path:
    """An untrained pointer-generator with large weights, so that its choices are not all alike."""
    torch.manual_seed(3)
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([text.replace("Zebratown", "").replace("Ellinghaus", "") for text in DOCUMENTS])
    model = Seq2Seq(
        Seq2Seq.Config(embedding_size=units, encoder_hidden=units, hidden_size=units), vocab_size=tokenizer.vocab_size
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.9 if units <= 8 else 0.2)
    run = RunConfig(
        name="tiny",
        model={"type": "seq2seq"},
        training=TrainingConfig(max_updates=1),
        text=TextConfig(max_source_tokens=40, max_target_tokens=10),
        search=SearchConfig(beam_size=2, max_length=max_length, min_length=min(3, max_length)),
    )
    return save_model_folder(path, model=model, tokenizer=tokenizer, run=run)


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
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[Server]:
    """``laconic serve ARGUMENTS`` on a free port, killed at the end if it still runs."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "laconic.cli.main", "serve", *arguments, "--port", "0"]
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
