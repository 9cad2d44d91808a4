"""Around every request: an id, the token, the host's name, headers, one line of log, the counts. Plain ASGI."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catchline.files import sha256
from catchline.server.schemas import ProblemError
from catchline.server.service import RequestOutcome, Service, stopped

log = logging.getLogger(__name__)
access = logging.getLogger("catchline.access")

CONTEXT = "catchline.context"  # key of the scope
PROBES = ("/health", "/ready")  # asked by address, whatever the service's name
OPEN_PATHS = ("/", *PROBES, "/openapi.json")  # and /static/: they need no token
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
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
class RequestContext:
    """The facts of a request for its line in the log. ``texts`` is shown with ``log_text`` only."""

    request_id: str
    status: int = 0
    code: str = ""
    bytes_out: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, Any] = field(default_factory=dict)

    def add_outcome(self, outcome: RequestOutcome) -> None:
        self.about["queue_ms"] = round(outcome.queue_seconds * 1000, 1)
        self.texts["summaries"] = [summary.text for summary in outcome.summaries]


class RequestMiddleware:
    """The outermost layer: it checks host and token, adds id and headers, and turns an uncaught error into a 500."""

    def __init__(self, app: ASGIApp, service: Service, token: str | None) -> None:
        self.app, self.service = app, service
        self._token = None if token is None else sha256(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # a GET of which the server leaves out the body
            scope = {**scope, "method": "GET"}
        given = Headers(scope=scope).get("x-request-id", "")
        context = scope[CONTEXT] = RequestContext(given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex)
        started = time.monotonic()
        self.service.open_requests += 1
        try:
            await self._answer(scope, receive, send, context)
        finally:
            self.service.open_requests -= 1
            matching = (route for route in scope["app"].routes if route.matches(scope)[0] is Match.FULL)
            path = getattr(scope.get("route") or next(matching, None), "path", "other")
            seconds = time.monotonic() - started
            self.service.metrics.on_request(path, scope["method"], context.status or CLIENT_GONE, seconds)
            if context.code:
                self.service.metrics.problems.labels(context.code).inc()
            self._log(scope, context, path, seconds)

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
            await problem_answer(problem, context)(scope, receive, sending)
        except asyncio.CancelledError:  # the server's patience at its end is shorter than the work
            if context.status:
                raise
            await problem_answer(stopped(), context)(scope, receive, sending)
        except Exception:
            log.exception("Request %s failed", context.request_id)
            context.code = "internal_error"
            if context.status:
                raise  # the answer has begun: all that is left is to close the connection
            await problem_answer(ProblemError("internal_error"), context)(scope, receive, sending)

    def _check(self, scope: Scope) -> None:
        headers, path, settings = Headers(scope=scope), scope["path"], self.service.settings
        if (
            settings.allowed_hosts
            and path not in PROBES
            and not _named(headers.get("host", ""), settings.allowed_hosts)
        ):
            reason = "The service does not answer to this name; start it with --allowed-host to let it."
            raise ProblemError("unknown_host", reason)
        method = scope["method"]  # OPTIONS comes from browsers, without the token
        is_open = method == "OPTIONS" or (method == "GET" and (path in OPEN_PATHS or path.startswith("/static/")))
        if self._token is not None and not is_open:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(sha256(given.strip().encode("latin-1")), self._token)
            if not same or scheme.lower() != "bearer":
                reason = "This service needs a token: send the header Authorization: Bearer TOKEN."
                raise ProblemError("unauthorized", reason, {"WWW-Authenticate": 'Bearer realm="catchline"'})
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > settings.max_body_bytes:
            raise too_large(settings.max_body_bytes)

    def _log(self, scope: Scope, context: RequestContext, path: str, seconds: float) -> None:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "id": context.request_id,
            "client": (scope.get("client") or ("", 0))[0],
            "method": scope["method"],
            "path": path if path != "other" else scope["path"][:100],
            "status": context.status or CLIENT_GONE,
            "ms": round(seconds * 1000, 1),
            "bytes_out": context.bytes_out,
            **context.about,
            **({"code": context.code} if context.code else {}),
            **(context.texts if self.service.settings.log_text else {}),
        }
        access.info(json.dumps(line))


def problem_answer(problem: ProblemError, context: RequestContext) -> Response:
    """An error as an answer; the context keeps its code."""
    context.code = problem.code
    body = json.dumps(problem.body(context.request_id), ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, problem.status, problem.headers, "application/json")


def too_large(limit: int) -> ProblemError:
    return ProblemError("body_too_large", f"The body is larger than the limit of {limit:,} bytes.")


def _named(host: str, allowed: tuple[str, ...]) -> bool:
    """Is the ``Host`` header, its port aside, one of the names?"""
    name = re.sub(r":\d*\Z", "", host[:300]).lower().removesuffix(".")
    return any(name == one.lower() or (one.startswith("*.") and name.endswith(one[1:].lower())) for one in allowed)
