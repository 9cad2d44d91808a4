"""The addresses of the service. `create_app` gives the application; `catchline serve` runs it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import cache, partial
from importlib.resources import files
from typing import Any, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import EventSourceResponse
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match

from catchline import __version__
from catchline.errors import CatchlineError
from catchline.explain.html import view_files
from catchline.files import sha256
from catchline.server import schemas
from catchline.server.catalogue import hub_options
from catchline.server.middleware import (
    CLIENT_GONE,
    CONTEXT,
    RequestContext,
    RequestMiddleware,
    problem_answer,
    too_large,
)
from catchline.server.schemas import CODES, ErrorBody, Health, HubRequest, ProblemError, SummarizeRequest
from catchline.server.service import CONTENT_TYPE, CheckedRequest, ClientGoneError, RequestOutcome, Service, rendered
from catchline.server.settings import Settings
from catchline.server.streaming import answer_of, events
from catchline.summarizer import Summarizer

T = TypeVar("T")
DESCRIPTION = (
    "Summaries by the models and methods of this process, with the places in the text that each word came from. "
    "Every error has one sentence (`error`), a code for programs (`code`) and the request's id."
)
EVENT = {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}}
NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
LAST_SECONDS = 5.0  # for the workers to end


MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
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
    _add_handlers(app, service)
    _add_summaries(app, service)
    _add_descriptions(app, service)
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
    _describe_token(app, token)
    return app


def declared_json(request: Request) -> None:
    """A page of another site may send a form, never JSON, without asking the service first."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ProblemError("unsupported_media_type", "Send JSON, with the header Content-Type: application/json.")


def _add_summaries(app: FastAPI, service: Service) -> None:
    errors = _errors(*{status for status, _ in CODES.values()} - {500})
    streams = errors | {200: {"content": {EventSourceResponse.media_type: {"schema": EVENT}}}}
    json_only = [Depends(declared_json)]
    post = partial(app.post, tags=["summaries"], responses=streams, dependencies=json_only)
    whole: dict[str, Any] = {"response_model": schemas.SummarizeResponse, "response_model_exclude_none": True}

    @post("/v1/summarize", summary="Summarize one text or several", **whole)
    async def summarize(body: SummarizeRequest, request: Request) -> Response:
        return await _summarize(service, body, request, stream=body.stream)

    @post(
        "/v1/summarize/stream",
        summary="Summarize one text, word by word",
        description="Greedy decoding as server-sent events: start, text (a delta each), summary; or error.",
        response_class=StreamingResponse,
    )
    async def stream(body: SummarizeRequest, request: Request) -> Response:
        return await _summarize(service, body, request, stream=True)

    @app.post(
        "/",
        summary="The hub's summarization task, with the first model",
        description="The body and the answer of the summarization task of the Hugging Face hub's clients.",
        tags=["hub"],
        response_model=list[schemas.HubSummary],
        responses=errors,
        dependencies=json_only,
    )
    async def hub(body: HubRequest, request: Request) -> Response:
        documents = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        options = hub_options(body.parameters, service.catalogue.get(None))
        checked = await service.check(documents, options=options)
        outcome = await _outcome(service, checked, request, _context(request, checked))
        return _json([{"summary_text": summary.text} for summary in outcome.summaries])


async def _summarize(service: Service, body: SummarizeRequest, request: Request, *, stream: bool) -> Response:
    if (body.document is None) == (body.documents is None):
        raise ProblemError("invalid_request", "Give either document, one text, or documents, a list of them.")
    documents = [body.document] if body.document is not None else body.documents or []
    fields = body.model_dump(exclude={"document", "documents", "stream"})
    checked = await _unless_gone(request, service.check(documents, stream=stream, **fields))
    context = _context(request, checked)
    if stream:
        return await _event_stream(service, checked, context)
    outcome = await _outcome(service, checked, request, context)

    def answer() -> Response:
        return _json(answer_of(checked, outcome, context.request_id, summaries=rendered(checked, outcome.summaries)))

    return await asyncio.to_thread(answer) if checked.explain else answer()


async def _event_stream(service: Service, checked: CheckedRequest, context: RequestContext) -> Response:
    stream = events(service, checked, context)
    first = await anext(stream)  # a full queue is an ordinary error, not an event

    async def chunks() -> AsyncIterator[bytes]:
        async with aclosing(stream):
            yield first
            async for chunk in stream:
                yield chunk

    return EventSourceResponse(chunks(), headers={"X-Accel-Buffering": "no"})


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


def _add_descriptions(app: FastAPI, service: Service) -> None:
    get = partial(app.get, tags=["service"])

    @get("/v1/models", summary="List the models, methods and limits", responses=_errors(401))
    async def models() -> schemas.ModelList:
        return schemas.ModelList(
            version=__version__,
            models=[served.info(served.name == service.catalogue.default) for served in service.catalogue],
            limits=schemas.Limits.model_validate(service.settings, from_attributes=True),
        )

    @get("/health", summary="Is the process alive?", responses={503: {"model": Health}})
    async def health() -> Response:
        broken = service.status == "broken"
        return _json({"status": "broken" if broken else "ok"}, 503 if broken else 200)

    @get("/ready", summary="Does it take requests?", response_model=Health, responses={503: {"model": Health}})
    async def ready() -> Response:
        return _json({"status": service.status}, 200 if service.status == "ready" else 503)

    text: dict[int | str, Any] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @get("/metrics", summary="Counts and times for Prometheus", response_class=Response, responses=_errors(401) | text)
    async def metrics() -> Response:
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Every file with its media type by its name below ``/static/``: ``index.html``, ``view/panel.js``, ..."""
    own = {file.name: file.read_text(encoding="utf-8") for file in (files("catchline.server") / "static").iterdir()}
    shared = {f"view/{name}": text for name, text in view_files().items()}
    return {name: (text.encode(), MEDIA_TYPES[name.rpartition(".")[2]]) for name, text in (own | shared).items()}


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    @app.get("/static/{name:path}", include_in_schema=False)
    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in assets():
            raise ProblemError("not_found", "There is no such file.")
        body, media_type = assets()[name]
        headers = {**PAGE_HEADERS, "ETag": f'"{sha256(body)[:24]}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, headers={**headers, "Content-Type": media_type})


def _add_handlers(app: FastAPI, service: Service) -> None:
    def add(kind: type[Exception], translate: Callable[[Any], ProblemError]) -> None:
        async def handler(request: Request, error: Exception) -> Response:
            problem = translate(error)
            if problem.code == "method_not_allowed":  # an address may have several routes
                routes = [route for route in app.routes if route.matches(request.scope)[0] is not Match.NONE]
                methods = {method for route in routes for method in getattr(route, "methods", ())}
                problem.headers["Allow"] = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
            return problem_answer(problem, request.scope[CONTEXT])

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
        return ProblemError("method_not_allowed")
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


def _describe_token(app: FastAPI, token: str | None) -> None:
    """Name the bearer token in the OpenAPI document where the service asks for one."""
    if token is None:
        return
    schema = app.openapi()
    schema.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in schema["paths"].items():
        for description in methods.values():
            if path not in ("/health", "/ready"):
                description["security"] = [{"token": []}]


def _json(values: Any, status: int = 200) -> Response:
    content = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return Response(content, status, media_type="application/json")
