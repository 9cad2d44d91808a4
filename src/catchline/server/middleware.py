"""Around every request: an id, the token, the limits on the body, headers, one line of log, the counts.

Plain ASGI: nothing is buffered but the request's body, which is small by then.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catchline.files import sha256
from catchline.server.schemas import ProblemError
from catchline.server.service import ClientGoneError, Service, stopped

log = logging.getLogger(__name__)
access = logging.getLogger("catchline.access")

TRACE = "catchline.trace"  # key of the scope
PROBES = ("/health", "/ready")  # asked by address, whatever the service's name
OPEN_PATHS = ("/", *PROBES, "/openapi.json")  # and /static/: what has to work without the token
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
DISCARDED = 32_000_000  # bytes of a refused body that are read, so that the client gets to read the answer
CLIENT_GONE = 499
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


@dataclass(slots=True)
class Trace:
    """What is known of a request, for its line in the log. ``text`` is filled for ``log_text`` only."""

    request_id: str
    status: int = 0
    code: str = ""
    bytes_in: int = 0
    body_read: bool = False
    bytes_out: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)


class Observed:
    """The outermost layer: id, headers, log line, counts; and what nobody caught becomes a 500."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        trace = scope[TRACE] = Trace(given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex)
        started = time.monotonic()
        metrics = self.service.metrics
        self.service.open_requests += 1
        try:
            await self._answer(scope, receive, send, trace)
        finally:
            self.service.open_requests -= 1
            fitting = (one for one in scope["app"].routes if one.matches(scope)[0] is Match.FULL)
            route = getattr(scope.get("route") or next(fitting, None), "path", "other")  # the gate asks for no route
            seconds = time.monotonic() - started
            metrics.on_request(route, scope["method"], trace.status or CLIENT_GONE, seconds)
            if trace.code:
                metrics.problems.labels(trace.code).inc()
            self._log(scope, trace, route, seconds)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, trace: Trace) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-ID"] = trace.request_id
                if self.service.draining:
                    headers.setdefault("Connection", "close")
            else:
                trace.bytes_out += len(message.get("body", b"")) * (scope["method"] != "HEAD")
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except asyncio.CancelledError:  # by the server at its end, where a batch is longer than its patience
            if trace.status or not self.service.abandoned:
                raise
            await problem_answer(stopped(), trace)(scope, receive, sending)
        except Exception:
            log.exception("Request %s failed", trace.request_id)
            trace.code = "internal_error"
            if trace.status:
                raise  # the answer has begun: all that is left is to close the connection
            await problem_answer(ProblemError("internal_error"), trace)(scope, receive, sending)

    def _log(self, scope: Scope, trace: Trace, route: str, seconds: float) -> None:
        client = scope.get("client") or ("", 0)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "id": trace.request_id,
            "client": client[0],
            "method": scope["method"],
            "path": route if route != "other" else scope["path"][:100],
            "status": trace.status or CLIENT_GONE,
            "ms": round(seconds * 1000, 1),
            "bytes_in": trace.bytes_in,
            "bytes_out": trace.bytes_out,
            **trace.about,
            **({"code": trace.code} if trace.code else {}),
            **(trace.text if self.service.settings.log_text else {}),
        }
        access.info(json.dumps(line))


class Gate:
    """Lets in only requests with the token, declared as JSON, with a body within the limits."""

    def __init__(self, app: ASGIApp, service: Service, token: str | None) -> None:
        self.app, self.service = app, service
        self._token = None if token is None else sha256(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        trace: Trace = scope[TRACE]
        headers = Headers(scope=scope)
        try:
            self._check(scope, headers)
            if scope["method"] == "POST":
                receive = await self._with_body(receive, trace)
        except ProblemError as problem:
            left = not trace.body_read and problem.code != "body_timeout"
            if left and await _discard(headers, receive, self.service.settings.body_timeout):
                problem.headers["Connection"] = "close"
            await problem_answer(problem, trace)(scope, receive, send)
            return
        except ClientGoneError:
            return
        # HEAD is GET of which the server leaves out the body
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self.app(asked, receive, send)
        finally:
            scope.setdefault("route", asked.get("route"))

    def _check(self, scope: Scope, headers: Headers) -> None:
        path, hosts = scope["path"], self.service.settings.allowed_hosts
        if hosts and path not in PROBES and not _named(headers.get("host", ""), hosts):
            reason = "The service does not answer to this name; start it with --allowed-host to let it."
            raise ProblemError("unknown_host", reason)
        is_open = scope["method"] in ("GET", "HEAD") and (path in OPEN_PATHS or path.startswith("/static/"))
        if self._token is not None and not is_open:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(sha256(given.strip().encode("latin-1")), self._token)
            if not same or scheme.lower() != "bearer":
                reason = "This service needs a token: send the header Authorization: Bearer TOKEN."
                raise ProblemError("unauthorized", reason, {"WWW-Authenticate": 'Bearer realm="catchline"'})
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                reason = "Send JSON, with the header Content-Type: application/json."
                raise ProblemError("unsupported_media_type", reason)
            if (coding := headers.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
                reason = f"The body is compressed ({coding[:40]}); send it as it is, without Content-Encoding."
                raise ProblemError("unsupported_media_type", reason, {"Accept-Encoding": "identity"})
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length[:20]) > self.service.settings.max_body_bytes:
                raise self._too_large()
            if self.service.draining:  # whoever has come in before is answered
                reason = "The service is about to stop; try another instance."
                raise ProblemError("draining", reason, {"Retry-After": "5"})

    async def _with_body(self, receive: Receive, trace: Trace) -> Receive:
        """Read the body; give it back as one message. What comes after it is the connection's end."""
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(self.service.settings.body_timeout):
                while not trace.body_read:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    chunk = message.get("body", b"")
                    trace.body_read = not message.get("more_body", False)
                    trace.bytes_in += len(chunk)
                    if trace.bytes_in > self.service.settings.max_body_bytes:
                        raise self._too_large()
                    chunks.append(chunk)
        except TimeoutError:
            reason = f"The body did not arrive within {self.service.settings.body_timeout:g} seconds."
            raise ProblemError("body_timeout", reason, {"Connection": "close"}) from None
        whole: list[Message] = [{"type": "http.request", "body": b"".join(chunks), "more_body": False}]

        async def receive_again() -> Message:
            return whole.pop() if whole else await receive()

        return receive_again

    def _too_large(self) -> ProblemError:
        limit = self.service.settings.max_body_bytes
        return ProblemError("body_too_large", f"The body is larger than the limit of {limit:,} bytes.")


def problem_answer(problem: ProblemError, trace: Trace) -> Response:
    """An error as an answer; the trace remembers its code."""
    trace.code = problem.code
    body = json.dumps(problem.body(trace.request_id), ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, problem.status, problem.headers, "application/json")


async def _discard(headers: Headers, receive: Receive, seconds: float) -> bool:
    """Read what is left of a refused body, within bounds; true when the connection has to be closed after all."""
    if not headers.get("content-length", "0").strip("0") and "transfer-encoding" not in headers:
        return False
    if "expect" in headers:  # the client asks before it sends, and takes the answer for a no
        return True
    total = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while total < DISCARDED:
                message = await receive()
                total += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return message["type"] == "http.disconnect"
    return True


def _named(host: str, allowed: tuple[str, ...]) -> bool:
    """Is the ``Host`` header, its port aside, one of the names?"""
    name = re.sub(r":\d*\Z", "", host).lower().removesuffix(".")
    return any(name == one.lower() or (one.startswith("*.") and name.endswith(one[1:].lower())) for one in allowed)
