"""Running the service: the socket, patience with slow clients, the log, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from catchline.errors import ConfigError
from catchline.server.service import Service
from catchline.server.settings import Settings

LAST_BYTES = 5  # seconds for answers that are written but not yet taken, and for the workers to end
LOOPBACK_NAMES = ("localhost", "*.localhost", "127.0.0.1", "[::1]")


def serve(app: FastAPI, host: str, port: int) -> bool:
    """Answer until SIGTERM or Ctrl-C; true when everything that was accepted has been answered.

    Raises:
        ConfigError: the address cannot be used.
    """
    service: Service = app.state.service
    listener = bind(host, port)
    log_to(sys.stdout, sys.stderr)
    config = uvicorn.Config(
        app,
        http=patient(service.settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=service.settings.max_connections,
        timeout_graceful_shutdown=LAST_BYTES,
    )
    server = Draining(config, service)
    server.run(sockets=[listener])
    return server.lost == 0


def bind(host: str, port: int) -> socket.socket:
    """A listening address. ``port`` 0 takes a free one.

    Raises:
        ConfigError: it is taken, forbidden or does not exist.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        if sys.platform != "win32":  # where it would let a second service have an address that the first one holds
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # another process may have bound it too until one of them listens
    except (OSError, UnicodeError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "is in use" if taken else f"cannot be used ({getattr(error, 'strerror', None) or error})"
        raise ConfigError(f"Address {host} port {port} {reason}; choose another with --host and --port.") from None
    return listener


def announce(service: Service, listener: socket.socket) -> None:
    """Say on stderr what is served where."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    trained = [served.name for served in service.catalogue if served.is_neural]
    methods = sum(not served.is_neural for served in service.catalogue)
    names = f"{', '.join(trained)} and " if trained else ""
    _say(f"serving {names}{methods} extractive methods at http://{shown}:{port}/")


def _say(text: str) -> None:
    print(f"catchline: {text}", file=sys.stderr, flush=True)


def is_loopback(host: str) -> bool:
    """Is this an address that only this machine reaches?"""
    try:
        found = {str(address[0]) for *_, address in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False  # `bind` says why
    addresses = [ipaddress.ip_address(each.partition("%")[0]) for each in found]
    return all((getattr(each, "ipv4_mapped", None) or each).is_loopback for each in addresses)


def trusted_names(host: str, token: str | None, given: Sequence[str]) -> tuple[str, ...]:
    """The names that the service answers to, empty for any. A page of another site can let its own name stand for this
    machine (DNS rebinding) and so reach a local service that asks for no token: that one answers to local names only.
    """
    if is_loopback(host) and token is None:
        return (*LOOPBACK_NAMES, f"[{host}]" if ":" in host else host, *given)
    return tuple(given)


class _AccessLog(logging.StreamHandler[Any]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk or a closed pipe is no reason for a traceback a request."""


def log_to(lines: Any, errors: Any) -> None:
    """One JSON line a request to ``lines``, everything else from warnings up to ``errors``; of the server's own only
    errors, for it warns of every connection that is one too many or no HTTP."""
    access = logging.getLogger("catchline.access")
    access.setLevel(logging.INFO)
    access.propagate = False
    access.handlers = [_AccessLog(lines)]
    access.handlers[0].setFormatter(logging.Formatter("%(message)s"))
    other = logging.StreamHandler(errors)
    other.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in ("catchline", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR if name == "uvicorn.error" else logging.WARNING)
        logger.handlers = [other]
        logger.propagate = False


class Draining(uvicorn.Server):
    """Ends in order: at the first signal /ready says 503 and new work is refused; when what was accepted is
    answered, or time is up, the process ends. A second signal ends it at once. ``lost``: requests not answered."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self.lost = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for listener in sockets or ():
            announce(self.service, listener)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The signal handler (it replaces uvicorn's, which would end the process by the signal)."""
        if self.service.draining or self._loop is None:
            self.force_exit = self.should_exit = True
            return
        self.service.draining = True
        self._leaving = asyncio.run_coroutine_threadsafe(self._drain(), self._loop)

    async def _drain(self) -> None:
        settings = self.service.settings
        until = time.monotonic() + settings.drain_timeout
        waiting = self.service.open_requests
        _say(f"stopping; {waiting} requests are being answered.")
        await asyncio.sleep(settings.drain_delay)
        while self.service.open_requests and time.monotonic() < until:
            await asyncio.sleep(0.02)
        self.lost = self.service.open_requests
        if self.lost:
            self.service.abandon()
            _say(f"{self.lost} requests were not answered within {settings.drain_timeout:g} seconds.")
        self.should_exit = True


def patient(settings: Settings) -> type[asyncio.Protocol]:
    """uvicorn's protocol with two limits it lacks: on the time to send a request's head, and to take an answer."""

    class Patient(H11Protocol):
        _head: asyncio.TimerHandle | None = None
        _taking: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch_head()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._head, self._taking):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._taking = self.loop.call_later(settings.send_timeout, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._taking is not None:
                self._taking.cancel()

        def _is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _watch_head(self) -> None:
            if not self._is_idle():
                if self._head is not None:
                    self._head.cancel()
                    self._head = None
            elif self._head is None:
                self._head = self.loop.call_later(settings.body_timeout, self._give_up)

        def _give_up(self) -> None:
            self._head = None
            if self._is_idle():
                self.transport.abort()

    return Patient
