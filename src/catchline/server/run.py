"""Around the application: an id, the token, the host's name, headers, one line of log and the counts of every request;
and uvicorn, which runs it."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import re
import signal
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import h11
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from catchline.errors import ConfigError
from catchline.server import openai
from catchline.server.schemas import CODES, ProblemError
from catchline.server.service import Service

log = logging.getLogger(__name__)
access = logging.getLogger("catchline.access")

LOOPBACK_NAMES = ("localhost", "*.localhost", "127.0.0.1", "[::1]")
CONTEXT = "catchline.context"  # key of the scope
PROBE = "/health"  # asked by address, whatever the service's name
OPEN_PATHS = ("/", PROBE, "/openapi.json")  # and /static/: they need no token
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


@dataclass(slots=True)
class RequestContext:
    """The facts of a request for its line in the log."""

    request_id: str
    path: str = ""
    status: int = 0
    code: str = ""
    bytes_out: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    def body(self, problem: ProblemError) -> dict[str, Any]:
        """The problem as JSON values; the log gets its code."""
        self.code = problem.code
        if self.path == openai.PATH:
            return openai.error_body(problem)
        return {"error": problem.message, "code": problem.code, "request_id": self.request_id}

    def answer(self, problem: ProblemError) -> Response:
        body = json.dumps(self.body(problem), ensure_ascii=False).encode("utf-8", "replace")
        return Response(body, problem.status, problem.headers, "application/json")


class RequestMiddleware:
    """The outermost layer: it checks host and token, adds id and headers, and turns an uncaught error into a 500."""

    def __init__(self, app: ASGIApp, service: Service, token: str | None) -> None:
        self.app, self.service = app, service
        self._token = None if token is None else f"bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # a GET of which the server leaves out the body
            scope = {**scope, "method": "GET"}
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        context = scope[CONTEXT] = RequestContext(request_id, scope["path"])
        started = time.monotonic()
        try:
            await self._answer(scope, receive, send, context)
        finally:
            self._count_and_log(scope, context, time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, context: RequestContext) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-ID"] = context.request_id
            else:
                context.bytes_out += len(message.get("body", b""))
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, sending)
        except ProblemError as problem:
            await context.answer(problem)(scope, receive, sending)
        except asyncio.CancelledError:  # the server's patience at its end is shorter than the work
            if context.status:
                raise
            await context.answer(ProblemError("stopping"))(scope, receive, sending)
        except Exception:
            log.exception("Request %s failed", context.request_id)
            context.code = "internal_error"
            if context.status:
                raise  # the answer has begun: all that is left is to close the connection
            await context.answer(ProblemError("internal_error"))(scope, receive, sending)

    def _check(self, scope: Scope) -> None:
        headers, path, names = Headers(scope=scope), scope["path"], self.service.settings.allowed_hosts
        if names and path != PROBE and not _named(headers.get("host", ""), names):
            raise ProblemError("unknown_host")
        method = scope["method"]  # OPTIONS comes from browsers, without the token
        is_open = method == "OPTIONS" or (method == "GET" and (path in OPEN_PATHS or path.startswith("/static/")))
        if self._token is not None and not is_open:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if not hmac.compare_digest(f"{scheme.lower()} {given.strip()}".encode("latin-1"), self._token):
                raise ProblemError("unauthorized", headers={"WWW-Authenticate": 'Bearer realm="catchline"'})
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.service.settings.max_body_bytes:
            raise ProblemError("body_too_large")

    def _count_and_log(self, scope: Scope, context: RequestContext, seconds: float) -> None:
        status, route = context.status or CODES["client_gone"][0], getattr(scope.get("route"), "path", "other")
        self.service.metrics.requests.labels(route, str(status)).observe(seconds)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "id": context.request_id,
            "client": (scope.get("client") or ("", 0))[0],
            "method": scope["method"],
            "path": scope["path"][:100],
            "status": status,
            "ms": round(seconds * 1000, 1),
            "bytes_out": context.bytes_out,
            **context.about,
            **({"code": context.code} if context.code else {}),
        }
        access.info(json.dumps(line))


def _named(host: str, allowed: tuple[str, ...]) -> bool:
    """Is the ``Host`` header, its port aside, one of the names?"""
    name = re.sub(r":\d*\Z", "", host[:300]).lower().removesuffix(".")
    return any(name == one.lower() or (one.startswith("*.") and name.endswith(one[1:].lower())) for one in allowed)


# -------------------------------------------------------------------------------------------- the process


class _Protocol(H11Protocol):
    """uvicorn's, which answers what is no HTTP in the shape of every other error, unless an answer has begun."""

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:  # of a request whose body is no HTTP: nobody hears its answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        context = RequestContext(uuid.uuid4().hex)
        answer = context.answer(ProblemError("invalid_http"))
        headers = [*answer.raw_headers, (b"x-request-id", context.request_id.encode()), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()


def serve(app: Any, host: str, port: int) -> None:
    """Answer until SIGTERM or Ctrl-C, then finish what was accepted. Raises ConfigError: the address cannot be used."""
    service: Service = app.state.service
    listener = bind(host, port)
    log_to(sys.stdout, sys.stderr)
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=service.settings.max_connections,
        timeout_graceful_shutdown=max(1, round(service.settings.drain_timeout)),
    )
    address, port = listener.getsockname()[:2]
    address = f"[{address}]" if ":" in address else address
    trained = "".join(f"{served.name}, " for served in service.catalogue if served.kind != "extractive")
    methods = sum(served.kind == "extractive" for served in service.catalogue)
    text = f"catchline: serving {trained}{methods} extractive methods at http://{address}:{port}/"
    print(text, file=sys.stderr, flush=True)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn handles both, then raises them again
        signal.signal(number, signal.SIG_IGN)
    uvicorn.Server(config).run(sockets=[listener])


def bind(host: str, port: int) -> socket.socket:
    """A listening address; ``port`` 0 picks a free port. Raises ConfigError: it is taken or does not exist."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        reason = f"Address {host} port {port} cannot be used: {error}"
        raise ConfigError(f"{reason}. Choose another with --host and --port.") from None


def is_loopback(host: str) -> bool:
    """Is this an address that only this machine reaches?"""
    try:
        names = {str(address[0]) for *_, address in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False  # `bind` says why
    addresses = [ipaddress.ip_address(name.partition("%")[0]) for name in names]
    return all((getattr(each, "ipv4_mapped", None) or each).is_loopback for each in addresses)


def trusted_names(host: str, token: str | None, given: Sequence[str]) -> tuple[str, ...]:
    """The names that the service answers to, empty for any. A page of another site can resolve its name to this
    machine (DNS rebinding) and reach a local service that asks for no token: that one answers to local names only."""
    if is_loopback(host) and token is None:
        return (*LOOPBACK_NAMES, f"[{host}]" if ":" in host else host, *given)
    return tuple(given)


def log_to(lines: Any, errors: Any) -> None:
    """Write one JSON line a request to ``lines``, other warnings and errors to ``errors``. Of uvicorn only errors: it
    warns of every malformed request."""
    logging.raiseExceptions = False  # a full disk or a closed pipe prints no traceback for each request
    other = logging.StreamHandler(errors)
    other.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = (("catchline.access", logging.INFO, logging.StreamHandler(lines)), ("catchline", logging.WARNING, other))
    for name, level, handler in (*loggers, ("uvicorn.error", logging.ERROR, other)):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.handlers = [handler]
        logger.propagate = False
