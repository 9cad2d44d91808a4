"""The addresses of the service. `create_app` gives the application; `catchline serve` runs it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.sse import EventSourceResponse, format_sse_event
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from catchline import __version__
from catchline.errors import did_you_mean
from catchline.server import openai
from catchline.server.catalogue import hub_options
from catchline.server.run import CONTEXT, RequestContext, RequestMiddleware
from catchline.server.schemas import (
    CheckRequest,
    Document,
    ErrorBody,
    HubRequest,
    ProblemError,
    Settings,
    SummarizeRequest,
)
from catchline.server.service import CheckedRequest, RequestOutcome, Service, rendered
from catchline.summarizer import Summarizer

T = TypeVar("T")
log = logging.getLogger(__name__)
DESCRIPTION = (
    "Summaries by the models and methods of this process, with the places in the text that each word came from. "
    "Every error has one sentence (`error`), a code for programs (`code`) and the request's id."
)
NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
LIMITS = (
    *("max_body_bytes", "max_file_bytes", "max_documents", "max_characters", "max_beam_size", "max_summary_tokens"),
    *("max_queue", "request_timeout"),
)
READ, BINARY = "/v1/read", "application/octet-stream"
LEFT_SECONDS = 0.2  # how often a request that waits looks whether its client has left
STREAMS: Any = {200: {"content": {EventSourceResponse.media_type: {}}}}
HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
FIELDS = {*SummarizeRequest.model_fields, *CheckRequest.model_fields, *HubRequest.model_fields, "id"}
# Nothing inline, nothing from elsewhere: what a model wrote can never run, and the page asks only its own server.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
}


def create_app(
    models: Mapping[str, Summarizer], settings: Settings | None = None, *, token: str | None = None
) -> FastAPI:
    """The application over ``models``; the first answers requests that name none. ``token``: what ``Authorization:
    Bearer`` must carry; ``None`` lets everybody in. The service behind it is ``app.state.service``; its workers run
    from the application's start-up to its shutdown."""
    service = Service(models, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="Catchline",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
        responses={"default": {"model": ErrorBody}},
        exception_handlers={RequestValidationError: _of_validation, HTTPException: _of_http},  # for the middleware
    )
    app.state.service = service
    _add_summaries(app, service)
    _add_descriptions(app, service)
    app.add_middleware(BodyLimits, settings=service.settings)
    app.add_middleware(RequestMiddleware, service=service, token=token)
    if service.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
            expose_headers=["X-Request-ID", "Retry-After"],
        )
    return app


class BodyLimits:
    """Files may be larger than JSON."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        sizes = (settings.max_body_bytes, settings.max_file_bytes)
        self.json, self.file = (RequestBodyLimitMiddleware(app, max_body_size=size) for size in sizes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.file if scope.get("path") == READ else self.json)(scope, receive, send)


# ------------------------------------------------------------------------------------------------ summaries


def _add_summaries(app: FastAPI, service: Service) -> None:
    @app.post("/v1/summarize", responses=STREAMS, summary="Summarize one text or several")
    async def summarize(body: SummarizeRequest, request: Request) -> Response:
        if (body.document is None) == (body.documents is None):
            raise ProblemError("invalid_request", "Give either document, one text, or documents, a list of them.")
        documents = body.documents or [] if body.document is None else [Document(document=body.document)]
        fields = body.model_dump(exclude={"document", "documents"})
        checked = await _unless_gone(request, service.check(documents, **fields))
        context = _context(request, checked)
        if body.stream:
            return await _event_stream(events(service, checked, context))
        outcome = await _outcome(service, checked, request, context)

        def answer() -> Response:
            records = rendered(checked, outcome.summaries)
            return JSONResponse(answer_of(checked, outcome, context.request_id, summaries=records))

        return await asyncio.to_thread(answer) if checked.explain else answer()

    errors = {"default": {"description": "An error as OpenAI describes it."}}

    @app.post(openai.PATH, responses=STREAMS | errors, summary="OpenAI's chat completions: a title of the messages")
    async def chat(body: openai.ChatRequest, request: Request) -> Response:
        return await _chat(service, body, request)

    @app.post("/v1/check", summary="What a document supports of a summary")
    async def check(body: CheckRequest, request: Request) -> Response:
        return JSONResponse(await _unless_gone(request, service.support(body.summary, body.document)))

    binary = {"requestBody": {"content": {BINARY: {}}, "required": True}}

    @app.post(READ, openapi_extra=binary, summary="The text of a PDF, DOCX, PPTX, EPUB, HTML, mail or notebook file")
    async def read(request: Request, name: str = Query("file", max_length=200)) -> Response:
        if request.headers.get("content-type") != BINARY:
            raise ProblemError("unsupported_media_type", f"Send the file with the header Content-Type: {BINARY}.")
        return JSONResponse(await _unless_gone(request, service.read(await request.body(), name)))

    @app.post("/", summary="The hub's summarization task, with the first model")
    async def hub(body: HubRequest, request: Request) -> Response:
        documents = [Document(document=text) for text in body.inputs]
        checked = await service.check(documents, options=hub_options(body.parameters or {}))
        outcome = await _outcome(service, checked, request, _context(request, checked))
        return JSONResponse([{"summary_text": summary.text} for summary in outcome.summaries])


async def _chat(service: Service, body: openai.ChatRequest, request: Request) -> Response:
    """The model's own line: a chat needs a title, and has no use for a sentence of the text."""
    text, key = openai.asked(body)
    served, options = service.catalogue.get(body.model), dict[str, Any]()
    if served.is_neural:
        limit = body.max_completion_tokens or body.max_tokens
        options = {"num_return": body.n} if body.n > 1 else {}
        options |= {"max_length": min(limit, int(served.options["max_length"]["default"]))} if limit else {}
    documents = [Document(document=text)]
    checked = await service.check(documents, model=served.name, options=options, always_write=True)
    context = _context(request, checked)
    [summary] = (await _outcome(service, checked, request, context)).summaries
    answer = openai.completion(body, served.name, context.request_id, key, summary)
    names = [quote(name[:40], errors="replace") for name in sorted(body.model_extra or ())[:20]]  # of any characters
    headers = {openai.IGNORED: ", ".join(names)} if names else {}
    if not body.stream:
        return JSONResponse(answer, headers=headers)
    chunks = (format_sse_event(data_str=chunk) for chunk in openai.chunks(body, answer))
    return EventSourceResponse(chunks, headers=headers)


def answer_of(request: CheckedRequest, outcome: RequestOutcome, request_id: str, **summaries: Any) -> dict[str, Any]:
    """The whole answer to a request, ``summaries`` under the name that they have in it."""
    return {
        "model": request.served.name,
        "options": request.served.system.describe(request.options),
        **summaries,
        "timing": {"queue_ms": round(outcome.queue_seconds * 1000, 2), "total_ms": round(outcome.seconds * 1000, 2)},
        "request_id": request_id,
    }


def _context(request: Request, checked: CheckedRequest) -> RequestContext:
    context: RequestContext = request.scope[CONTEXT]
    context.about = {"model": checked.served.name, "documents": len(checked.records)}
    return context


async def _outcome(
    service: Service, checked: CheckedRequest, request: Request, context: RequestContext
) -> RequestOutcome:
    outcome = await _unless_gone(request, service.outcome(service.submit(checked)))
    context.about["queue_ms"] = round(outcome.queue_seconds * 1000, 1)
    return outcome


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is given up when the client leaves. Raises ProblemError: the client left."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=LEFT_SECONDS))[0]:
            if await request.is_disconnected():
                raise ProblemError("client_gone")
        return task.result()
    finally:
        task.cancel()


# -------------------------------------------------------------------------------------------------- streams


async def _event_stream(stream: AsyncGenerator[bytes]) -> Response:
    first = await anext(stream)  # a full queue is an ordinary error, not an event

    async def chunks() -> AsyncIterator[bytes]:
        yield first
        async for chunk in stream:
            yield chunk

    return EventSourceResponse(chunks(), headers={"X-Accel-Buffering": "no"})


async def events(service: Service, request: CheckedRequest, context: RequestContext) -> AsyncGenerator[bytes]:
    """A summary as it is written, as server-sent events: ``start`` at once, a ``text`` with each ``delta``, and
    ``summary`` with the whole record, or ``error``. Closing the iterator gives the work up. Raises ProblemError: the
    queue is full; before the first event."""
    loop, texts, sent = asyncio.get_running_loop(), asyncio.Queue[str | None](), ""
    jobs = service.submit(request, lambda text: loop.call_soon_threadsafe(texts.put_nowait, text))
    work = asyncio.ensure_future(service.outcome(jobs))
    work.add_done_callback(lambda _: texts.put_nowait(None))  # behind the last text
    try:
        yield _event("start", {"model": request.served.name, "request_id": context.request_id})
        while (text := await texts.get()) is not None:
            text = text.rstrip("\ufffd")  # half a character
            if text.startswith(sent) and text != sent:  # the tokenizer may change what it has written
                yield _event("text", {"delta": text.removeprefix(sent)})
                sent = text
        outcome = await work
        context.about["queue_ms"] = round(outcome.queue_seconds * 1000, 1)
        [record] = await asyncio.to_thread(rendered, request, outcome.summaries)
        yield _event("summary", answer_of(request, outcome, context.request_id, summary=record))
    except Exception as error:
        if not isinstance(error, ProblemError):
            log.exception("A stream failed (request %s)", context.request_id)
            error = ProblemError("internal_error")
        yield _event("error", context.body(error))
    finally:
        work.cancel()


def _event(name: str, data: dict[str, Any]) -> bytes:
    return bytes(format_sse_event(event=name, data_str=json.dumps(data)))  # in ASCII: no line breaks of any kind


# --------------------------------------------------------------------------------- descriptions and the page


def _add_descriptions(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models", summary="List the models, methods and limits")
    async def models() -> Response:
        entries = [served.info(served.name == service.catalogue.default) for served in service.catalogue]
        shape = {"object": "model", "created": 0, "owned_by": "catchline"}
        return JSONResponse(
            {
                "version": __version__,
                "models": entries,
                "limits": {name: getattr(service.settings, name) for name in LIMITS},
                "object": "list",  # from here on as OpenAI lists them
                "data": [{"id": entry["name"], **shape} for entry in entries],
            }
        )

    @app.get("/health", summary="Does the process work?")
    async def health() -> Response:
        return JSONResponse({"status": "ok"}) if service.alive else JSONResponse({"status": "broken"}, 503)

    @app.get("/metrics", summary="For Prometheus", responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    page = PageFiles()
    app.mount("/static", page)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)


class PageFiles(StaticFiles):
    """The page's own files and, below ``view/``, those it shares with the reports of `catchline.explain`."""

    def __init__(self) -> None:
        super().__init__(packages=[("catchline.server", "static"), ("catchline.explain", "view")])

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path.removeprefix("view/"), scope)
        answer.headers.update(PAGE_HEADERS)
        return answer


# --------------------------------------------------------------------------------------------------- errors


async def _of_validation(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    where, message = ".".join(str(part)[:60] for part in first["loc"][1:]), str(first["msg"])
    if isinstance(error.body, bytes) and error.body:  # a page of another site may send a form without asking first
        raise ProblemError("unsupported_media_type")
    if first["type"] == "json_invalid":
        reason = str(first["ctx"]["error"]).removesuffix(" at")
        raise ProblemError("invalid_json", f"The body is not JSON: {reason} at character {where}.")
    if first["type"] == "extra_forbidden":
        raise ProblemError("invalid_request", f"Unknown field {where}.{did_you_mean(where.split('.')[-1], FIELDS)}")
    raise ProblemError("invalid_request", f"{where or 'The body'}: {message[:1].lower()}{message[1:300]}.")


async def _of_http(request: Request, error: Any) -> Response:
    raise ProblemError(HTTP_CODES.get(error.status_code, "invalid_json"), headers=error.headers)
