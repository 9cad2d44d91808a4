"""From checked requests to summaries: limits, queues, cancellation. Nothing here knows HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from catchline.data.lines import document_text
from catchline.errors import CatchlineError, ModelError, missing_package
from catchline.explain.record import support_to_dict, to_dict
from catchline.metrics.faithfulness import SourceFacts, check_support
from catchline.search.scorers import Length
from catchline.server.batching import Batcher, Job, Worker, WorkerDiedError
from catchline.server.catalogue import Catalogue, Served
from catchline.server.schemas import Document, Format, ProblemError, Settings
from catchline.summarizer.summarize import Summarizer, or_extract
from catchline.text.markup import as_prose, markdown_text
from catchline.text.sentences import split_sentences
from catchline.types import Record, Summary

log = logging.getLogger(__name__)
CHARACTERS_A_TOKEN = 5  # to guess a length without tokenizing
_SENTENCE_ENDS = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\u0964\u061f\n]")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


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


class Metrics:
    """Counts and times for Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        seconds = partial(Histogram, registry=registry, buckets=_SECONDS)
        self.requests = seconds("catchline_requests", "Seconds to answer.", ["path", "status"])
        self.documents = Counter(
            "catchline_documents", "Documents, by how they ended.", ["model", "outcome"], registry=registry
        )
        self.batches = seconds("catchline_batch_seconds", "Seconds of a batch.", ["model"])
        self.sizes = seconds(
            "catchline_batch_documents", "Documents of a batch.", ["model"], buckets=(1, 2, 4, 8, 16, 32, 64)
        )
        self.queued = seconds("catchline_queue_seconds", "Seconds that a document waited.", ["model"])
        self.waiting = Gauge("catchline_queue_documents", "Documents that wait.", ["worker"], registry=registry)
        self.running = Gauge("catchline_running_documents", "Documents in work.", ["worker"], registry=registry)
        ProcessCollector(registry=registry)

    def watch(self, batcher: Batcher) -> None:
        """Show how many documents a worker has, at the time somebody asks."""
        self.waiting.labels(batcher.name).set_function(lambda: len(batcher.waiting))
        self.running.labels(batcher.name).set_function(lambda: len(batcher.running))

    def on_batch(self, jobs: Sequence[Job], seconds: float) -> None:
        model = jobs[0].payload[0].served.name
        self.batches.labels(model).observe(seconds)
        self.sizes.labels(model).observe(len(jobs))
        for job in jobs:
            self.queued.labels(model).observe(job.started - job.submitted)


class Service:
    """The models. A thread decodes; a process runs the extractive methods and another one reads documents."""

    def __init__(self, models: Mapping[str, Summarizer], settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.catalogue = Catalogue(models, self.settings)
        self.metrics = Metrics()
        self.extractor, self.reader = Worker(), Worker()
        self._reading = ThreadPoolExecutor(1, "catchline-reading")
        # nothing is gained by extracting from several documents at once
        alone = self.settings.model_copy(update={"max_batch": 1, "batch_wait": 0.0})
        extract = partial(_extract_batch, self.extractor, self.settings.max_sentences)
        self.batchers = {
            "neural": Batcher("neural", _decode_batch, self.settings, self.metrics.on_batch),
            "extractive": Batcher("extractive", extract, alone, self.metrics.on_batch),
            "prompted": Batcher("prompted", _decode_batch, self.settings, self.metrics.on_batch),
        }
        for batcher in self.batchers.values():
            self.metrics.watch(batcher)

    def start(self) -> None:
        for batcher in self.batchers.values():
            batcher.start()

    async def stop(self) -> None:
        """Give up what waits or runs, and end the workers."""
        for batcher in self.batchers.values():
            await batcher.stop()
        for worker in (self.extractor, self.reader):
            worker.stop()

    @property
    def alive(self) -> bool:
        return all(batcher.alive for batcher in self.batchers.values())

    async def check(
        self,
        documents: Sequence[Document],
        *,
        model: str | None = None,
        options: Mapping[str, Any] | None = None,
        format: Format = "text",
        stream: bool = False,
        **shown: bool,
    ) -> CheckedRequest:
        """Check all that can be checked without a model; ``shown`` are fields of a `CheckedRequest`. Raises
        ProblemError: the first thing that is wrong."""
        served, most = self.catalogue.get(model), self.settings.max_documents
        if not documents:
            raise ProblemError("empty_document", "The list of documents is empty; give at least one text.")
        if len(documents) > most:
            reason = f"{len(documents)} documents are more than the {most} of one request; send several requests."
            raise ProblemError("too_many_documents", reason)
        if stream and len(documents) > 1:
            raise ProblemError("invalid_request", "Only one document at a time can be streamed.")
        parsed = served.parse(options or {}, stream=stream)
        read = [await self._record(document, format, number) for number, document in enumerate(documents, 1)]
        records, formats = zip(*read, strict=True)
        return CheckedRequest(served, parsed, records, formats, stream=stream, **shown)

    async def _record(self, given: Document, format: Format, number: int) -> tuple[Record, str]:
        name, kind, text = f"Document {number}", "text", given.document
        self._fits(name, text)
        if format != "text":
            kind, text = await self._apart(name, read_format, text, format)
            self._fits(name, text)
        return Record(text, id=given.id, origin=str(number)), kind

    def _fits(self, name: str, text: str) -> None:
        if len(text) > (most := self.settings.max_characters):
            raise ProblemError("document_too_long", f"{name} has {len(text):,} characters; the limit is {most:,}.")
        if not text.strip():
            raise ProblemError("empty_document", f"{name} is empty; there is nothing to summarize.")

    async def read(self, raw: bytes, name: str) -> dict[str, str]:
        """Format and text of a file. Raises ProblemError: it cannot be read, or not in time, or holds too much."""
        try:
            kind, text = await self._apart("The file", document_text, raw, name)
        except (CatchlineError, ModuleNotFoundError) as error:
            raise ProblemError("unreadable_file", missing_package(error) or str(error)) from error
        self._fits("The file", text)
        return {"format": kind, "document": text}

    async def support(self, summary: str, document: str) -> dict[str, Any]:
        """What the document supports of a summary, as JSON values. Raises ProblemError: a text is empty, too long, or
        not read in time."""
        self._fits("The summary", summary)
        self._fits("The document", document)
        values: dict[str, Any] = await self._apart("The document", supported, summary, document)
        return values

    async def _apart(self, name: str, work: Callable[..., Any], *given: Any) -> Any:
        """The result of ``work`` in a process that ends at the deadline."""

        def check(seconds: float) -> None:
            if seconds > (most := self.settings.reading_timeout):
                reason = f"{name} was not read within {most:g} seconds; send it as plain text."
                raise ProblemError("document_too_long", reason)

        call = partial(self.reader.call, check, work, *given)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, call)
        except WorkerDiedError as error:
            raise ProblemError("document_too_long", f"{name} cannot be read: {error}") from error

    def submit(self, request: CheckedRequest, on_text: Callable[[str], object] | None = None) -> list[Job]:
        """Queue the documents. ``on_text`` receives the summary so far. Raises ProblemError: the queue is full."""
        longest, key = request.served.about["max_source_tokens"] or self.settings.max_characters, request.key
        sizes = [min(len(record.document) // CHARACTERS_A_TOKEN + 1, longest) for record in request.records]
        jobs = [Job(key, size, (request, one, on_text)) for size, one in zip(sizes, request.records, strict=True)]
        self.batchers[request.served.kind].submit(jobs)
        return jobs

    async def outcome(self, jobs: Sequence[Job]) -> RequestOutcome:
        """The summaries of a request that was submitted; what is not done when this ends is given up. Raises
        ProblemError: a document cannot be summarized, or not in time."""
        try:
            async with asyncio.timeout(self.settings.request_timeout):
                summaries = await asyncio.gather(*(job.future for job in jobs))
        except TimeoutError:
            reason = f"The answer was not ready within {self.settings.request_timeout:g} seconds."
            raise ProblemError("timeout", reason) from None
        except Exception as error:
            raise as_problem(error) from error
        finally:
            for job in jobs:
                job.future.cancel()
                given_up = job.future.cancelled()
                outcome = "abandoned" if given_up else "failed" if job.future.exception() else "done"
                self.metrics.documents.labels(job.payload[0].served.name, outcome).inc()
        started, submitted = min(job.started for job in jobs), jobs[0].submitted
        return RequestOutcome(summaries, started - submitted, time.monotonic() - submitted)


def as_problem(error: Exception) -> Exception:
    """An error of a document as an answer; bugs are returned unchanged."""
    if isinstance(error, ModelError):
        log.error("%s", error)
        return ProblemError("unavailable")
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
    if not prose.strip():
        return "text", text
    return "plain" if kind == "text" and prose != text else kind, prose


def supported(summary: str, document: str) -> dict[str, Any]:
    """`catchline.check_support` as JSON values."""
    return support_to_dict(check_support(summary, document))


def _extract_batch(worker: Worker, most: int, jobs: Sequence[Job], check: Callable[[], None]) -> list[Summary]:
    """Run an extractive method on the documents, in its process."""
    summaries = []
    for job in jobs:
        request, record, on_text = job.payload
        arguments = request.served.system, record, request.options, request.explain, most
        summaries.append(worker.call(lambda _: check(), extract, *arguments))
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


def _decode_part(check: Callable[[], None], jobs: Sequence[Job], go_on: Callable[[], None] | None) -> list[Summary]:
    requests, records, listeners = zip(*(job.payload for job in jobs), strict=True)
    first, system = requests[0], requests[0].served.system

    def on_step() -> None:
        if go_on is not None:
            go_on()
        check()

    on_text = (lambda index, text: listeners[index](text)) if first.stream else None
    given = {"explain": first.explain, "options": first.options, "on_step": on_step, "on_text": on_text}
    return [
        summary if request.always_write else or_extract(summary, system.calibration, Length.of(first.options))
        for request, summary in zip(requests, system.summarize_batch(records, **given), strict=True)
    ]
