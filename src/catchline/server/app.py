"""The addresses of the service. `create_app` gives the application; `catchline serve` runs it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from fastapi.security import HTTPBearer
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from catchline import __version__
from catchline.errors import CatchlineError
from catchline.server import openai, schemas
from catchline.server.catalogue import hub_options
from catchline.server.run import CLIENT_GONE, CONTEXT, RequestContext, RequestMiddleware, too_large
from catchline.server.schemas import CODES, ErrorBody, Health, HubRequest, ProblemError, SummarizeRequest
from catchline.server.service import CONTENT_TYPE, CheckedRequest, ClientGoneError, RequestOutcome, Service, rendered
from catchline.server.settings import Settings
from catchline.summarizer import Summarizer

T = TypeVar("T")
log = logging.getLogger(__name__)
DESCRIPTION = (
    "Summaries by the models and methods of this process, with the places in the text that each word came from. "
    "Every error has one sentence (`error`), a code for programs (`code`) and the request's id."
)
EVENT = {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}}
NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
LAST_SECONDS = 5.0  # for the workers to end
LIMITS = (
    *("max_body_bytes", "max_documents", "max_characters", "max_beam_size", "max_summary_tokens", "max_queue"),
    "request_timeout",
)
KEEP_ALIVE = 10.0  # seconds between comments while a stream has nothing to say, so that proxies keep it open
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
    """The application over ``models``; the first answers requests that name none.

    ``token``: what ``Authorization: Bearer`` must carry; ``None`` lets everybody in. The service behind it is
    ``app.state.service``; its workers run from the application's start-up to its shutdown.
    """
    service = Service(models, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await asyncio.to_thread(service.stop, LAST_SECONDS)

    app = FastAPI(
        title="Catchline",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        separate_input_output_schemas=False,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    app.state.service = service
    named = [] if token is None else [Depends(HTTPBearer(auto_error=False))]  # the middleware asks for the token
    _add_handlers(app, service)
    _add_summaries(app, service, named)
    _add_descriptions(app, service, named)
    _add_page(app)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=service.settings.max_body_bytes)
    if service.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
            expose_headers=["X-Request-ID", "Retry-After"],
        )
    app.add_middleware(RequestMiddleware, service=service, token=token)
    return app


def declared_json(request: Request) -> None:
    """A page of another site may send a form, never JSON, without asking the service first."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ProblemError("unsupported_media_type", "Send JSON, with the header Content-Type: application/json.")


# ------------------------------------------------------------------------------------------------ summaries


def _add_summaries(app: FastAPI, service: Service, named: list[Any]) -> None:
    errors = _errors(*{status for status, _ in CODES.values()} - {500})
    streams = errors | {200: {"content": {EventSourceResponse.media_type: {"schema": EVENT}}}}
    post = partial(app.post, dependencies=[Depends(declared_json), *named], responses=streams, tags=["summaries"])
    whole: dict[str, Any] = {"response_model": schemas.SummarizeResponse, "response_model_exclude_none": True}

    @post("/v1/summarize", summary="Summarize one text or several", **whole)
    async def summarize(body: SummarizeRequest, request: Request) -> Response:
        return await _summarize(service, body, request, stream=body.stream)

    @post("/v1/summarize/stream", response_class=StreamingResponse, summary="Summarize one text, word by word")
    async def stream(body: SummarizeRequest, request: Request) -> Response:
        """Greedy decoding as server-sent events: start, text (a delta each), summary; or error."""
        return await _summarize(service, body, request, stream=True)

    @post(openai.PATH, summary="OpenAI's chat completions: a title of what the messages hold")
    async def chat(body: openai.ChatRequest, request: Request) -> Response:
        return await _chat(service, body, request)

    @post("/v1/check", response_model=schemas.Support, summary="What a document supports of a summary")
    async def check(body: schemas.CheckRequest, request: Request) -> Response:
        return _json(await _unless_gone(request, service.support(body.summary, body.document)))

    @post("/", response_model=list[dict[str, str]], summary="The hub's summarization task, with the first model")
    async def hub(body: HubRequest, request: Request) -> Response:
        documents = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        checked = await service.check(documents, options=hub_options(body.parameters or {}))
        outcome = await _outcome(service, checked, request, _context(request, checked))
        return _json([{"summary_text": summary.text} for summary in outcome.summaries])


async def _chat(service: Service, body: openai.ChatRequest, request: Request) -> Response:
    """The model's own line: a chat needs a title, and has no use for a sentence of the text."""
    text, key = openai.asked(body)
    served, options = service.catalogue.get(body.model), dict[str, Any]()
    if served.is_neural:
        limit = body.max_completion_tokens or body.max_tokens
        options = {"num_return": body.n} if body.n > 1 else {}
        options |= {"max_length": min(limit, int(served.options["max_length"].default or limit))} if limit else {}
    checked = await service.check([text], model=served.name, options=options, always_write=True)
    context = _context(request, checked)
    [summary] = (await _outcome(service, checked, request, context)).summaries
    answer = openai.completion(body, served.name, context.request_id, key, summary)
    headers = {openai.IGNORED: ", ".join(ignored)} if (ignored := sorted(body.model_extra or ())) else {}
    if not body.stream:
        return _json(answer, headers=headers)

    async def sent() -> AsyncIterator[bytes]:
        for chunk in openai.chunks(body, answer):
            yield format_sse_event(data_str=chunk)

    return EventSourceResponse(sent(), headers=headers)


async def _summarize(service: Service, body: SummarizeRequest, request: Request, *, stream: bool) -> Response:
    if (body.document is None) == (body.documents is None):
        raise ProblemError("invalid_request", "Give either document, one text, or documents, a list of them.")
    documents = [body.document] if body.document is not None else body.documents or []
    fields = body.model_dump(exclude={"document", "documents", "stream"})
    checked = await _unless_gone(request, service.check(documents, stream=stream, **fields))
    context = _context(request, checked)
    if stream:
        return await _event_stream(events(service, checked, context))
    outcome = await _outcome(service, checked, request, context)

    def answer() -> Response:
        return _json(answer_of(checked, outcome, context.request_id, summaries=rendered(checked, outcome.summaries)))

    return await asyncio.to_thread(answer) if checked.explain else answer()


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
    context.texts = {"texts": [record.document for record in checked.records]}
    return context


async def _outcome(
    service: Service, checked: CheckedRequest, request: Request, context: RequestContext
) -> RequestOutcome:
    outcome = await _unless_gone(request, service.run(checked))
    context.add_outcome(outcome)
    return outcome


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is given up when the client leaves.

    Raises:
        ClientGoneError: the client left.
    """

    async def left() -> None:  # the body has been read, so that is all that can still arrive
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch, task = asyncio.ensure_future(left()), asyncio.ensure_future(work)
    try:
        await asyncio.wait([task, watch], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        watch.cancel()
        task.cancel()


# -------------------------------------------------------------------------------------------------- streams


async def _event_stream(stream: AsyncGenerator[bytes]) -> Response:
    first = await anext(stream)  # a full queue is an ordinary error, not an event

    async def chunks() -> AsyncIterator[bytes]:
        async with aclosing(stream):
            yield first
            async for chunk in stream:
                yield chunk

    return EventSourceResponse(chunks(), headers={"X-Accel-Buffering": "no"})


async def events(service: Service, request: CheckedRequest, context: RequestContext) -> AsyncGenerator[bytes]:
    """A summary as it is written, as server-sent events: ``start`` at once, a ``text`` with each ``delta``, and
    ``summary`` with the whole record, or ``error``. Closing the iterator gives the work up.

    Raises:
        ProblemError: before the first event, which comes when the document is queued: the queue is full, or the
            service stops.
    """
    loop, texts, sent = asyncio.get_running_loop(), asyncio.Queue[str | None](), ""

    def on_text(text: str) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(texts.put_nowait, text)

    async with service.running(request, on_text) as running:
        running.results.add_done_callback(lambda _: texts.put_nowait(None))  # behind the last text
        yield _event("start", {"model": request.served.name, "request_id": context.request_id})
        until = time.monotonic() + service.settings.request_timeout
        try:
            while True:
                left = until - time.monotonic()
                try:
                    text = await asyncio.wait_for(texts.get(), max(0.0, min(left, KEEP_ALIVE)))
                except TimeoutError:
                    if left <= KEEP_ALIVE:
                        raise service.too_late() from None
                    yield b": waiting\n\n"
                    continue
                if text is None:
                    break
                text = text.rstrip("\ufffd")  # half a character
                if text.startswith(sent) and text != sent:  # the tokenizer may change what it has written
                    yield _event("text", {"delta": text.removeprefix(sent)})
                    sent = text
            outcome = running.outcome()
            context.add_outcome(outcome)
            [record] = await asyncio.to_thread(rendered, request, outcome.summaries)
            yield _event("summary", answer_of(request, outcome, context.request_id, summary=record))
        except Exception as error:
            if not isinstance(error, ProblemError):
                log.exception("A stream failed (request %s)", context.request_id)
                error = ProblemError("internal_error")
            context.code = error.code
            yield _event("error", error.body(context.request_id))


def _event(name: str, data: dict[str, Any]) -> bytes:
    return bytes(format_sse_event(event=name, data_str=json.dumps(data)))  # in ASCII: no line breaks of any kind


# --------------------------------------------------------------------------------- descriptions and the page


def _add_descriptions(app: FastAPI, service: Service, named: list[Any]) -> None:
    get = partial(app.get, tags=["service"])

    @get("/v1/models", summary="List the models, methods and limits", responses=_errors(401), dependencies=named)
    async def models() -> schemas.ModelList:
        return schemas.ModelList(
            version=__version__,
            models=[served.info(served.name == service.catalogue.default) for served in service.catalogue],
            limits={name: getattr(service.settings, name) for name in LIMITS},
            data=[schemas.OpenAIModel(id=served.name) for served in service.catalogue],
        )

    @get("/health", summary="Is the process alive?", responses={503: {"model": Health}})
    async def health() -> Response:
        broken = service.status == "broken"
        return _json({"status": "broken" if broken else "ok"}, 503 if broken else 200)

    @get("/ready", summary="Does it take requests?", response_model=Health, responses={503: {"model": Health}})
    async def ready() -> Response:
        return _json({"status": service.status}, 200 if service.status == "ready" else 503)

    @get(
        "/metrics",
        summary="For Prometheus",
        response_class=PlainTextResponse,
        responses=_errors(401),
        dependencies=named,
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


class PageFiles(StaticFiles):
    """The page's own files and, below ``view/``, those it shares with the reports of `catchline.explain`."""

    def __init__(self) -> None:
        super().__init__(packages=[("catchline.server", "static"), ("catchline.explain", "view")])

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path.removeprefix("view/"), scope)
        answer.headers.update(PAGE_HEADERS)
        return answer


def _add_page(app: FastAPI) -> None:
    page = PageFiles()
    app.mount("/static", page)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)


# --------------------------------------------------------------------------------------------------- errors


def _add_handlers(app: FastAPI, service: Service) -> None:
    def add(kind: type[Exception], translate: Callable[[Any], ProblemError]) -> None:
        async def handler(request: Request, error: Exception) -> Response:
            context: RequestContext = request.scope[CONTEXT]
            return context.answer(translate(error))

        app.add_exception_handler(kind, handler)

    add(ProblemError, lambda error: error)
    add(RequestValidationError, _of_validation)
    add(HTTPException, lambda error: _of_http(error, service.settings.max_body_bytes))
    add(CatchlineError, lambda error: ProblemError("invalid_option", str(error)))

    @app.exception_handler(ClientGoneError)
    async def gone(request: Request, error: Exception) -> Response:
        request.scope[CONTEXT].code = "client_gone"
        return Response(status_code=CLIENT_GONE)


def _of_validation(error: RequestValidationError) -> ProblemError:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = str(first["ctx"]["error"]).removesuffix(" at")
        return ProblemError("invalid_json", f"The body is not JSON: {reason} at character {first['loc'][-1]}.")
    place, message = first["loc"], str(first["msg"])
    if place[-1] == "bool":  # an option may be of several types, of which it has none
        finite = any(each["type"] == "finite_number" for each in error.errors())
        place, message = place[:-1], f"It should be {'finite' if finite else 'a number, a text, true or false'}"
    where = ".".join(str(part)[:60] for part in place[1:] if part not in schemas.TAGS)
    if first["type"] == "missing" and not where:
        return ProblemError("invalid_request", "The body is empty; send a JSON object.")
    if first["type"] == "extra_forbidden":
        unknown = [each["loc"][-1] for each in error.errors() if each["type"] == "extra_forbidden"]
        return ProblemError("invalid_request", schemas.unknown_field(where, error.body, unknown))
    return ProblemError("invalid_request", f"{where or 'The body'}: {message[:1].lower()}{message[1:300]}.")


def _of_http(error: HTTPException, limit: int) -> ProblemError:
    if error.status_code == 413:
        return too_large(limit)
    if error.status_code == 404:
        return ProblemError("not_found", "There is nothing at this address; GET /openapi.json lists all.")
    if error.status_code == 405:
        return ProblemError("method_not_allowed", headers=error.headers)
    cause = error.__cause__
    if isinstance(cause, ValueError) and not isinstance(cause, UnicodeDecodeError):  # Python's limit for whole numbers
        return ProblemError("invalid_request", "A number in the body has more than the 4,300 digits that are read.")
    if isinstance(cause, RecursionError):
        return ProblemError("invalid_json", "The body is nested too deeply to be read.")
    return ProblemError("invalid_json", "The body is not JSON in UTF-8.")


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of an address for the OpenAPI document."""
    described: dict[int, list[str]] = {}
    for code, (status, sentence) in CODES.items():
        described.setdefault(status, []).append(f"`{code}`: {sentence}")
    return {status: {"model": ErrorBody, "description": " ".join(described[status])} for status in sorted(statuses)}


def _json(values: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    content = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return Response(content, status, headers, media_type="application/json")
