"""Running the service: the socket, the logs, uvicorn."""

from __future__ import annotations

import errno
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI

from catchline.errors import ConfigError
from catchline.server.service import Service

LOOPBACK_NAMES = ("localhost", "*.localhost", "127.0.0.1", "[::1]")


def serve(app: FastAPI, host: str, port: int) -> None:
    """Answer until SIGTERM or Ctrl-C, then finish what was accepted.

    Raises:
        ConfigError: the address cannot be used.
    """
    service: Service = app.state.service
    listener = bind(host, port)
    log_to(sys.stdout, sys.stderr)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=service.settings.max_connections,
        timeout_graceful_shutdown=max(1, round(service.settings.drain_timeout)),
    )
    announce(service, listener)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn handles both, then raises them again
        signal.signal(number, signal.SIG_IGN)
    uvicorn.Server(config).run(sockets=[listener])


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
    address = f"[{host}]" if ":" in host else host
    trained = [served.name for served in service.catalogue if served.is_neural]
    methods = sum(not served.is_neural for served in service.catalogue)
    names = f"{', '.join(trained)} and " if trained else ""
    text = f"catchline: serving {names}{methods} extractive methods at http://{address}:{port}/"
    print(text, file=sys.stderr, flush=True)


def is_loopback(host: str) -> bool:
    """Is this an address that only this machine reaches?"""
    try:
        found = {str(address[0]) for *_, address in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False  # `bind` says why
    addresses = [ipaddress.ip_address(each.partition("%")[0]) for each in found]
    return all((getattr(each, "ipv4_mapped", None) or each).is_loopback for each in addresses)


def trusted_names(host: str, token: str | None, given: Sequence[str]) -> tuple[str, ...]:
    """The names that the service answers to, empty for any. A page of another site can resolve its name to this
    machine (DNS rebinding) and reach a local service that asks for no token: that one answers to local names only."""
    if is_loopback(host) and token is None:
        return (*LOOPBACK_NAMES, f"[{host}]" if ":" in host else host, *given)
    return tuple(given)


class _AccessLog(logging.StreamHandler[Any]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk or a closed pipe prints no traceback for each request."""


def log_to(lines: Any, errors: Any) -> None:
    """Write one JSON line a request to ``lines``, other warnings and errors to ``errors``. Of uvicorn only errors: it
    warns of every malformed request."""
    access = logging.getLogger("catchline.access")
    access.setLevel(logging.INFO)
    access.propagate = False
    access.handlers = [_AccessLog(lines)]
    access.handlers[0].setFormatter(logging.Formatter("%(message)s"))
    other = logging.StreamHandler(errors)
    other.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name, level in (("catchline", logging.WARNING), ("uvicorn.error", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.handlers = [other]
        logger.propagate = False
