"""From checked requests to summaries: limits, queues, cancellation. Nothing here knows HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from catchline.errors import CatchlineError
from catchline.explain.record import support_to_dict, to_dict
from catchline.metrics.faithfulness import SourceFacts, check_support
from catchline.server.batching import AbandonedError, Batcher, Job, Worker, WorkerDiedError
from catchline.server.catalogue import Catalogue, Served
from catchline.server.schemas import Document, Format, ProblemError
from catchline.server.settings import Settings
from catchline.summarizer.summarize import Summarizer, or_extract
from catchline.text.length import Length
from catchline.text.markup import as_prose, markdown_text
from catchline.text.sentences import split_sentences
from catchline.types import Record, Summary

CHARACTERS_A_TOKEN = 5  # to guess a length without tokenizing
_SENTENCE_ENDS = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\u0964\u061f\n]")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ClientGoneError(Exception):
    """The client left before the answer was ready."""


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that can be worked on."""

    served: Served
    options: Any
    records: tuple[Record, ...]
    formats: tuple[str, ...]  # as what each document was read
    explain: bool = False
    attention: bool = False
    stream: bool = False
    always_write: bool = False

    @property
    def key(self) -> str:
        """Documents of requests with equal keys may share a batch."""
        described = self.served.system.describe(self.options)
        return json.dumps([self.served.name, self.explain, self.stream, described], sort_keys=True, default=str)


@dataclass(slots=True)
class RequestOutcome:
    """The summaries of a request and how long its first document waited."""

    summaries: list[Summary]
    queue_seconds: float
    seconds: float


@dataclass(slots=True)
class RunningRequest:
    """A request in work: its jobs, and the results to wait for."""

    jobs: list[Job]
    results: asyncio.Future[list[Summary]]

    def outcome(self) -> RequestOutcome:
        """The result, once ``results`` is done; a `ProblemError` where there is none."""
        if self.results.cancelled():
            raise stopped()
        if error := self.results.exception():
            raise as_problem(error) from error
        started, submitted = min(job.started for job in self.jobs), self.jobs[0].submitted
        return RequestOutcome(self.results.result(), started - submitted, time.monotonic() - submitted)


class Metrics:
    """Counts and times for Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        seconds = partial(Histogram, registry=registry, buckets=_SECONDS)
        self.requests = counter("catchline_requests", "Answered requests.", ["path", "method", "status"])
        self.seconds = seconds("catchline_request_seconds", "Time to answer.", ["path"])
        self.open = gauge("catchline_requests_open", "Requests being answered.")
        self.problems = counter("catchline_problems", "Requests refused or failed.", ["code"])
        self.documents = counter("catchline_documents", "Documents, by how they ended.", ["model", "outcome"])
        sizes = partial(seconds, buckets=(1, 2, 4, 8, 16, 32, 64))
        self.batch_documents = sizes("catchline_batch_documents", "Documents worked on together.", ["model"])
        self.batch_seconds = seconds("catchline_batch_seconds", "Time of a batch.", ["model"])
        self.queue_seconds = seconds("catchline_queue_seconds", "Time a document waited.", ["model"])
        self.waiting = gauge("catchline_queue_documents", "Documents waiting.", ["worker"])
        self.running = gauge("catchline_running_documents", "Documents worked on.", ["worker"])
        ProcessCollector(registry=registry)

    def watch(self, batcher: Batcher) -> None:
        """Show how many documents a worker has, at the time somebody asks."""
        self.waiting.labels(batcher.name).set_function(lambda: len(batcher.waiting))
        self.running.labels(batcher.name).set_function(lambda: len(batcher.running))

    def on_batch(self, jobs: Sequence[Job], seconds: float) -> None:
        model = jobs[0].payload[0].served.name
        self.batch_documents.labels(model).observe(len(jobs))
        self.batch_seconds.labels(model).observe(seconds)
        for job in jobs:
            self.queue_seconds.labels(model).observe(job.started - job.submitted)

    def on_request(self, path: str, method: str, status: int, seconds: float) -> None:
        """A request has been answered; ``path`` is a route, not what the client wrote."""
        self.requests.labels(path, method if method in METHODS else "other", str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Service:
    """The models. A thread decodes; a process runs the extractive methods and another one reads documents."""

    def __init__(self, models: Mapping[str, Summarizer], settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.catalogue = Catalogue(models, self.settings)
        self.abandoned = False
        self.metrics = Metrics()
        self.extractor, self.reader = Worker(), Worker()
        self._reading = ThreadPoolExecutor(1, "catchline-reading")
        # nothing is gained by extracting from several documents at once
        alone = self.settings.model_copy(update={"max_batch": 1, "batch_wait": 0.0})
        extract = partial(_extract_batch, self.extractor, self.settings.max_sentences)
        self._batchers = {
            "neural": Batcher("neural", _decode_batch, self.settings, self.metrics.on_batch),
            "extractive": Batcher("extractive", extract, alone, self.metrics.on_batch),
        }
        for batcher in self._batchers.values():
            self.metrics.watch(batcher)

    def start(self) -> None:
        for batcher in self._batchers.values():
            batcher.start()

    def stop(self, timeout: float) -> bool:
        """Give up what waits or runs, and end the workers; false if that took too long."""
        self.abandoned = True
        for batcher in self._batchers.values():
            batcher.abandon()
        stopped_in_time = all([batcher.stop(timeout) for batcher in self._batchers.values()])
        for worker in (self.extractor, self.reader):
            worker.stop()
        return stopped_in_time

    @property
    def status(self) -> str:
        """``ready``, or ``broken`` when a thread has died."""
        return "ready" if all(batcher.alive for batcher in self._batchers.values()) else "broken"

    async def check(
        self,
        documents: Sequence[str | Document],
        *,
        model: str | None = None,
        options: Mapping[str, Any] | None = None,
        format: Format = "text",
        stream: bool = False,
        **shown: bool,
    ) -> CheckedRequest:
        """Check all that can be checked without a model; ``shown`` are fields of a `CheckedRequest`.

        Raises:
            ProblemError: the first thing that is wrong.
        """
        served, most = self.catalogue.get(model), self.settings.max_documents
        if not documents:
            raise ProblemError("empty_document", "The list of documents is empty; give at least one text.")
        if len(documents) > most:
            reason = f"{len(documents)} documents are more than the {most} of one request; send several requests."
            raise ProblemError("too_many_documents", reason)
        if stream and len(documents) > 1:
            raise ProblemError("invalid_request", "Only one document at a time can be streamed.")
        parsed = served.parse(options or {}, stream=stream)
        given = [Document(document=one) if isinstance(one, str) else one for one in documents]
        read = [await self._record(one, format, number) for number, one in enumerate(given, 1)]
        records, formats = zip(*read, strict=True)
        return CheckedRequest(served, parsed, records, formats, stream=stream, **shown)

    async def _record(self, given: Document, format: Format, number: int) -> tuple[Record, str]:
        kind, text, most = "text", given.document, self.settings.max_characters
        if len(text) > most:
            reason = f"Document {number} has {len(text):,} characters; the limit is {most:,}."
            raise ProblemError("document_too_long", reason)
        if format != "text":
            kind, text = await self._apart(number, read_format, text, format)
        if not text.strip():
            raise ProblemError("empty_document", f"Document {number} is empty; there is nothing to summarize.")
        return Record(text, id=given.id, origin=str(number)), kind

    async def support(self, summary: str, document: str) -> dict[str, Any]:
        """What the document supports of a summary, as JSON values.

        Raises:
            ProblemError: a text is empty, too long, or not read in time.
        """
        for text in (summary, document):
            if len(text) > (most := self.settings.max_characters):
                raise ProblemError("document_too_long", f"A text has {len(text):,} characters; the limit is {most:,}.")
            if not text.strip():
                raise ProblemError("empty_document", "The summary or the document is empty; there is nothing to check.")
        values: dict[str, Any] = await self._apart(1, supported, summary, document)
        return values

    async def _apart(self, number: int, work: Callable[..., Any], *given: Any) -> Any:
        """The result of ``work`` in a process that ends at the deadline."""
        until = list[float]()

        def check() -> None:
            until[:] = until or [time.monotonic() + self.settings.reading_timeout]
            if time.monotonic() > until[0]:
                reason = f"Document {number} was not read within {self.settings.reading_timeout:g} seconds"
                raise ProblemError("document_too_long", f"{reason}; send it as plain text.")

        call = partial(self.reader.call, check, work, *given)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, call)
        except WorkerDiedError as error:
            raise ProblemError("document_too_long", f"Document {number} cannot be read: {error}") from error

    @asynccontextmanager
    async def running(
        self, request: CheckedRequest, on_text: Callable[[str], None] | None = None
    ) -> AsyncIterator[RunningRequest]:
        """Queue the documents; what is not done when the context ends is given up. ``on_text`` receives the summary so
        far of each.

        Raises:
            ProblemError: the service has given up, or the queue is full.
        """
        if self.abandoned:
            raise stopped()
        longest, key = request.served.about["max_source_tokens"] or self.settings.max_characters, request.key
        sizes = [min(len(record.document) // CHARACTERS_A_TOKEN + 1, longest) for record in request.records]
        jobs = [Job(key, size, (request, one, on_text)) for size, one in zip(sizes, request.records, strict=True)]
        self._batchers[request.served.kind].submit(jobs)
        results = asyncio.gather(*(asyncio.wrap_future(job.future) for job in jobs))
        results.add_done_callback(lambda done: done.cancelled() or done.exception())  # the client may have left
        try:
            yield RunningRequest(jobs, results)
        finally:
            for job in jobs:
                if not job.future.done():
                    job.abandon()
                given_up = job.abandoned or job.future.cancelled()
                outcome = "abandoned" if given_up else "failed" if job.future.exception() else "done"
                self.metrics.documents.labels(request.served.name, outcome).inc()
            results.cancel()

    async def run(self, request: CheckedRequest) -> RequestOutcome:
        """The summaries of a request.

        Raises:
            ProblemError: a document cannot be summarized, or not in time.
        """
        async with self.running(request) as running:
            await asyncio.wait([running.results], timeout=self.settings.request_timeout)
            if not running.results.done():
                raise self.too_late()
            return running.outcome()

    def too_late(self) -> ProblemError:
        """The problem of a request that took too long."""
        return ProblemError("timeout", f"The answer was not ready within {self.settings.request_timeout:g} seconds.")


def stopped() -> ProblemError:
    """The problem of a request that the service gave up."""
    return ProblemError("stopping", "The service stopped before the answer was ready; try another instance.")


def as_problem(error: BaseException) -> BaseException:
    """An error of a document as an answer; bugs are returned unchanged."""
    if isinstance(error, AbandonedError | asyncio.CancelledError):
        return stopped()
    if isinstance(error, CatchlineError):
        code = "empty_document" if "nothing to summarize" in str(error) else "invalid_option"
        return ProblemError(code, str(error))
    if isinstance(error, MemoryError | WorkerDiedError):
        return ProblemError("document_too_long", "There is not enough memory for this document; send a shorter one.")
    return error


def rendered(request: CheckedRequest, summaries: Iterable[Summary]) -> list[dict[str, Any]]:
    """The summaries as the answer shows them."""
    explain, records = request.explain, []
    for summary, format in zip(summaries, request.formats, strict=True):
        shown = summary if explain else replace(summary, words=())  # which extracts always have
        record = to_dict(shown, document=explain or format != "text", attention=explain and request.attention)
        record |= {"format": format} if format != "text" else {}
        source = SourceFacts(summary.document) if explain else None
        for values in (record, *record.get("alternatives", ())):
            values["model"] = request.served.name  # which may differ from the name in its folder
            if source is not None:
                values["support"] = support_to_dict(check_support(values["summary"], source))
        records.append(record)
    return records


# -------------------------------------------------------------------------------------------- the workers


def read_format(text: str, format: Format) -> tuple[str, str]:
    """The format that a text was read as, and its prose; the text itself where there is none."""
    if format == "markdown":
        return format, markdown_text(text)
    kind, prose = as_prose(text)
    return (kind, prose) if prose.strip() else ("text", text)


def supported(summary: str, document: str) -> dict[str, Any]:
    """`catchline.check_support` as JSON values."""
    return support_to_dict(check_support(summary, document))


def _extract_batch(worker: Worker, most: int, jobs: Sequence[Job], check: Callable[[], None]) -> list[Summary]:
    """Run an extractive method on the documents, in its process."""
    summaries = []
    for job in jobs:
        request, record, on_text = job.payload
        arguments = request.served.system, record, request.options, request.explain, most
        summaries.append(worker.call(check, extract, *arguments))
        if on_text:
            on_text(summaries[-1].text)
    return summaries


def extract(system: Any, record: Record, options: Any, explain: bool, most: int) -> Summary:
    """The summary by an extractive method; a `ProblemError` of more than ``most`` sentences."""
    if len(_SENTENCE_ENDS.findall(record.document)) > most and (count := len(split_sentences(record.document))) > most:
        reason = f"Document {record.origin} has {count:,} sentences; extractive methods compare all of them"
        raise ProblemError("document_too_long", f"{reason}, and the limit is {most:,}.")
    summary: Summary = system.summarize_batch([record], explain=explain, options=options)[0]
    return summary


def _decode_batch(jobs: Sequence[Job], check: Callable[[], None]) -> list[Summary]:
    """Decode a batch, divided among threads into parts of documents of similar lengths."""
    first: CheckedRequest = jobs[0].payload[0]
    system, summaries = first.served.system, list[Any](jobs)
    count = system.batches_at_once(len(jobs), first.options)
    parts = [jobs[part::count] for part in range(count)]
    with closing(system.in_threads(partial(_decode_part, check), parts, count)) as results:
        for part, made in enumerate(results):
            summaries[part::count] = made
    return summaries


def _decode_part(check: Callable[[], None], jobs: Sequence[Job], check_thread: Callable[[], None]) -> list[Summary]:
    requests, records, listeners = zip(*(job.payload for job in jobs), strict=True)
    first, system = requests[0], requests[0].served.system

    def on_step() -> None:
        check_thread()
        check()

    on_text = (lambda index, text: listeners[index](text)) if first.stream else None
    given = {"explain": first.explain, "options": first.options, "on_step": on_step, "on_text": on_text}
    return [
        summary if request.always_write else or_extract(summary, system.calibration, Length.of(first.options))
        for request, summary in zip(requests, system.summarize_batch(records, **given), strict=True)
    ]
