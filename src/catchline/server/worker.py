"""A process that runs functions on text from outside: what takes too long there ends with the process."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")
CHECK_SECONDS = 0.05


class WorkerDiedError(Exception):
    """The process ended by itself, for example because memory ran out."""


class Worker:
    """One process, started at the first call and again after it was ended. It answers one call at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection

    def call(self, check: Callable[[], object], function: Callable[..., T], *arguments: Any) -> T:
        """``function(*arguments)`` in the process; everything passed is pickled.

        Raises:
            Exception: what ``function`` raises, or what ``check`` raises, which is called while the function runs; then
                the process is ended.
            WorkerDiedError: the process died.
        """
        with self._lock:
            if self._process is None or not self._process.is_alive():
                self._start()
            try:
                self._pipe.send((function, arguments))
                while not self._pipe.poll(CHECK_SECONDS):
                    check()
                succeeded, result = self._pipe.recv()
            except (EOFError, OSError) as error:
                self.stop()
                raise WorkerDiedError("The process that worked on the document ended.") from error
            except BaseException:
                self.stop()
                raise
        if not succeeded:
            raise result
        return result

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_answer, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()  # it has started and imported: from now on time counts


def _answer(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the service, which ends this process
    import_module("catchline.server.service")  # with the functions that it is asked to run
    pipe.send("ready")
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, function(*arguments)))
        except BaseException as error:  # a library in Rust that panics raises no Exception
            pipe.send((False, error if isinstance(error, Exception) else RuntimeError(str(error))))
