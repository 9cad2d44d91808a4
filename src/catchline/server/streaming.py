"""A summary as it is written: server-sent events.

====  ======================================================================================
start    ``{"model", "request_id"}``, at once
text     ``{"delta"}``: the new end of the summary
summary  ``{"model", "options", "summary", "timing", "request_id"}``: the whole record; the last event
error    ``{"error", "code", "request_id"}``: instead of ``summary``
====  ======================================================================================

While a document waits, a comment line every few seconds keeps proxies from closing the connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from fastapi.sse import format_sse_event

from catchline.server.middleware import RequestContext
from catchline.server.schemas import ProblemError
from catchline.server.service import CheckedRequest, RequestOutcome, RunningRequest, Service, rendered

log = logging.getLogger(__name__)
KEEP_ALIVE = 10.0
COMMENT = b": waiting\n\n"


def _deltas_into(queue: asyncio.Queue[str | None]) -> Callable[[str], None]:
    """A callback for the worker's thread, which receives the text so far and queues what to append.

    Where the tokenizer changes what it has written (a half character), it waits until the text begins with what was
    sent; the record at the end has the text as it is.
    """
    loop, sent = asyncio.get_running_loop(), ""

    def on_text(text: str) -> None:
        nonlocal sent
        text = text.rstrip("\ufffd")
        if text.startswith(sent) and text != sent:
            delta, sent = text[len(sent) :], text
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(queue.put_nowait, delta)

    return on_text


async def events(service: Service, request: CheckedRequest, context: RequestContext) -> AsyncGenerator[bytes]:
    """The events of one request. Closing the iterator gives the work up.

    Raises:
        ProblemError: before the first event, which comes when the document is queued: the queue is full, or the
            service stops.
    """
    request_id = context.request_id
    deltas: asyncio.Queue[str | None] = asyncio.Queue()
    async with service.running(request, _deltas_into(deltas)) as running:
        yield event("start", {"model": request.served.name, "request_id": request_id})
        try:
            async for chunk in _texts(service, running, deltas):
                yield chunk
            outcome = running.outcome()
            context.add_outcome(outcome)
            [record] = await asyncio.to_thread(rendered, request, outcome.summaries)
            yield event("summary", answer_of(request, outcome, request_id, summary=record))
        except Exception as error:
            if not isinstance(error, ProblemError):
                log.exception("A stream failed (request %s)", request_id)
                error = ProblemError("internal_error")
            context.code = error.code
            service.metrics.problems.labels(error.code).inc()
            yield event("error", error.body(request_id))


async def _texts(service: Service, running: RunningRequest, deltas: asyncio.Queue[str | None]) -> AsyncIterator[bytes]:
    """The deltas until the result is there; comments while none arrives."""
    until = time.monotonic() + service.settings.request_timeout
    running.results.add_done_callback(lambda _: deltas.put_nowait(None))  # behind the last delta
    while True:
        done, left = running.results.done(), until - time.monotonic()
        if left <= 0 and not done:
            raise service.too_late()
        try:
            delta = await asyncio.wait_for(deltas.get(), None if done else min(left, KEEP_ALIVE))
        except TimeoutError:
            yield COMMENT
            continue
        if delta is None:
            return
        yield event("text", {"delta": delta})


def event(name: str, data: dict[str, Any]) -> bytes:
    """One server-sent event; JSON in ASCII has no line breaks of any kind."""
    return bytes(format_sse_event(event=name, data_str=json.dumps(data)))


def answer_of(request: CheckedRequest, outcome: RequestOutcome, request_id: str, **summaries: Any) -> dict[str, Any]:
    """The whole answer to a request, ``summaries`` under the name that they have in it."""
    return {
        "model": request.served.name,
        "options": request.served.system.describe(request.options),
        **summaries,
        "timing": {"queue_ms": round(outcome.queue_seconds * 1000, 2), "total_ms": round(outcome.seconds * 1000, 2)},
        "request_id": request_id,
    }
