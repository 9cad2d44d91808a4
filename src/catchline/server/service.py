"""From checked requests to summaries: limits, queues, cancellation. Nothing here knows HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from catchline.errors import CatchlineError
from catchline.explain.record import support_to_dict, to_dict
from catchline.metrics.support import SourceFacts, check_support
from catchline.server.batching import AbandonedError, Batcher, Job
from catchline.server.catalogue import Catalogue, Served
from catchline.server.metrics import Metrics
from catchline.server.schemas import Document, Format, ProblemError
from catchline.server.settings import Settings
from catchline.summarizer import Summarizer, or_decline
from catchline.text.markdown import markdown_text
from catchline.text.reading import as_prose
from catchline.text.sentences import split_sentences
from catchline.types import Record, Summary

T = TypeVar("T")
CHARACTERS_A_TOKEN = 5  # to guess a length without tokenizing
SHORT = 20_000  # characters of a text that is read in tenths of a second, whatever they are
_SENTENCE_ENDS = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\u0964\u061f]+|\n+")


class ClientGoneError(Exception):
    """Nobody waits for the answer."""


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request; ``kinds`` says as what each of its documents was read."""

    served: Served
    options: Any
    records: tuple[Record, ...]
    kinds: tuple[str, ...]
    explain: bool = False
    attention: bool = False
    stream: bool = False
    always_write: bool = False

    @property
    def key(self) -> str:
        """Documents of orders with equal keys may be worked on together."""
        described = self.served.system.describe(self.options)
        return json.dumps([self.served.name, self.explain, self.stream, described], sort_keys=True, default=str)


@dataclass(slots=True)
class OrderResult:
    """The summaries of an order and how long its first document waited."""

    summaries: list[Summary]
    queue_seconds: float
    seconds: float


@dataclass(slots=True)
class Running:
    """An order at work: its jobs, and the results to wait for."""

    jobs: list[Job]
    results: asyncio.Future[list[Summary]]

    def outcome(self) -> OrderResult:
        """What came out, once ``results`` is done.

        Raises:
            ProblemError: a document cannot be summarized, or the service stopped before.
        """
        if self.results.cancelled():
            raise stopped()
        if error := self.results.exception():
            raise as_problem(error) from error
        started, submitted = min(job.started for job in self.jobs), self.jobs[0].submitted
        return OrderResult(self.results.result(), started - submitted, time.monotonic() - submitted)


class Service:
    """The models, one worker for those with weights, one for the extractive methods."""

    def __init__(self, models: Mapping[str, Summarizer], settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.catalogue = Catalogue(models, self.settings)
        self.draining = self.abandoned = False
        self.open_requests = 0
        self.metrics = Metrics()
        self.metrics.open.set_function(lambda: self.open_requests)
        # a long text can be made to take seconds to read: short ones, which cannot, wait for none of these
        self._readers = [ThreadPoolExecutor(1, f"catchline-reading-{texts}") for texts in ("short", "long")]
        # nothing is gained by picking sentences of several documents at once
        alone = self.settings.model_copy(update={"max_batch": 1, "batch_wait": 0.0})
        self._batchers: dict[str, Batcher] = {}
        for kind, limits in (("neural", self.settings), ("extractive", alone)):
            self._batchers[kind] = Batcher(kind, _work, limits, self.metrics.on_batch)
            self.metrics.watch(self._batchers[kind])

    def start(self) -> None:
        for batcher in self._batchers.values():
            batcher.start()

    def stop(self, timeout: float) -> bool:
        """Finish what is queued and end the workers; false if that took too long."""
        return all([batcher.stop(timeout) for batcher in self._batchers.values()])

    def abandon(self) -> None:
        """Give up everything that waits or runs, or comes later; its requests are answered with an error."""
        self.abandoned = True
        for batcher in self._batchers.values():
            batcher.abandon()

    @property
    def status(self) -> str:
        """``ready``, ``draining``, or ``broken`` when a worker has died."""
        if self.draining:
            return "draining"
        return "ready" if all(batcher.alive for batcher in self._batchers.values()) else "broken"

    async def order(
        self,
        documents: Sequence[str | Document],
        *,
        model: str | None = None,
        options: Mapping[str, Any] | None = None,
        format: Format = "text",
        stream: bool = False,
        **shown: bool,
    ) -> Order:
        """Check everything that can be checked without a model; ``shown`` are fields of an `Order`.

        Raises:
            ProblemError: with the first thing that is wrong.
        """
        served = self.catalogue.get(model)
        if not documents:
            raise ProblemError("empty_document", "The list of documents is empty; give at least one text.")
        if len(documents) > self.settings.max_documents:
            reason = f"{len(documents)} documents are more than the {self.settings.max_documents} of one request"
            raise ProblemError("too_many_documents", f"{reason}; send several.")
        if stream and len(documents) > 1:
            raise ProblemError("invalid_request", "Only one document at a time can be streamed.")
        given = [Document(document=one) if isinstance(one, str) else one for one in documents]
        try:
            async with asyncio.timeout(self.settings.request_timeout):
                read = [await self._record(one, format, number, served) for number, one in enumerate(given, 1)]
        except TimeoutError:
            raise self.too_late() from None
        records, kinds = zip(*read, strict=True)
        return Order(served, served.parse(options or {}, stream=stream), records, kinds, stream=stream, **shown)

    async def _record(self, given: Document, format: Format, number: int, served: Served) -> tuple[Record, str]:
        kind, text, most = "text", given.document, self.settings.max_characters
        if len(text) > most:
            reason = f"Document {number} has {len(text):,} characters; the limit is {most:,}."
            raise ProblemError("document_too_long", reason)
        if format != "text":
            kind, text = await self._aside(_read, text, format)
        if not text.strip():
            raise ProblemError("empty_document", f"Document {number} is empty; there is nothing to summarize.")
        most = self.settings.max_sentences
        ends = 0 if served.is_neural else len(_SENTENCE_ENDS.findall(text))
        if ends > most and (ends := len(await self._aside(split_sentences, text))) > most:  # which are never more
            reason = f"Document {number} has {ends:,} sentences; extractive methods compare all of them, and the"
            raise ProblemError("document_too_long", f"{reason} limit is {most:,}.")
        return Record(text, id=given.id, origin=str(number)), kind

    async def _aside(self, work: Callable[..., T], text: str, *arguments: Any) -> T:
        """``work(text, ...)`` in a thread, where it holds up nobody but texts of this length."""
        return await asyncio.get_running_loop().run_in_executor(
            self._readers[len(text) > SHORT], work, text, *arguments
        )

    @asynccontextmanager
    async def running(self, order: Order, on_text: Callable[[str], None] | None = None) -> AsyncIterator[Running]:
        """Queue the order's documents; whatever is not done when the context ends is given up. ``on_text`` is given
        the summary so far of each.

        Raises:
            ProblemError: the service has given up, or the queue is full.
        """
        if self.abandoned:
            raise stopped()
        longest = order.served.about["max_source_tokens"] or self.settings.max_characters
        key = order.key
        jobs = [
            Job(key, min(len(record.document) // CHARACTERS_A_TOKEN + 1, longest), (order, record, on_text))
            for record in order.records
        ]
        self._batchers[order.served.kind].submit(jobs)
        results = asyncio.gather(*(asyncio.wrap_future(job.future) for job in jobs))
        results.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be there to be told
        try:
            yield Running(jobs, results)
        finally:
            for job in jobs:
                if not job.future.done():
                    job.abandon()
            results.cancel()
            self._count(order, jobs)

    async def run(self, order: Order) -> OrderResult:
        """The summaries of an order.

        Raises:
            ProblemError: a document cannot be summarized, or not in time.
        """
        async with self.running(order) as running:
            await asyncio.wait([running.results], timeout=self.settings.request_timeout)
            if not running.results.done():
                raise self.too_late()
            return running.outcome()

    def too_late(self) -> ProblemError:
        """The problem of a request that took too long."""
        return ProblemError("timeout", f"The answer was not ready within {self.settings.request_timeout:g} seconds.")

    def _count(self, order: Order, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job.abandoned or job.future.cancelled():
                outcome = "abandoned"
            else:
                outcome = "failed" if job.future.exception() else "done"
            self.metrics.documents.labels(order.served.name, outcome).inc()


def _read(text: str, format: Format) -> tuple[str, str]:
    """As what a text was read, and what was read: the text itself where nothing is found."""
    if format == "markdown":
        return format, markdown_text(text)
    with suppress(ModuleNotFoundError):  # of what reads pages
        kind, said = as_prose(text)
        if said.strip():
            return kind, said
    return "text", text


def stopped() -> ProblemError:
    """The problem of a request that the service gave up."""
    return ProblemError("draining", "The service stopped before the answer was ready; try another instance.")


def as_problem(error: BaseException) -> BaseException:
    """What went wrong with a document, as an answer; bugs stay what they are."""
    if isinstance(error, AbandonedError | asyncio.CancelledError):  # while it was worked on; while it waited
        return stopped()
    if isinstance(error, CatchlineError):
        code = "empty_document" if "nothing to summarize" in str(error) else "invalid_option"
        return ProblemError(code, str(error))
    if isinstance(error, MemoryError):
        return ProblemError("document_too_long", "There is not enough memory for this document; send a shorter one.")
    return error


def rendered(order: Order, summaries: Iterable[Summary]) -> list[dict[str, Any]]:
    """The summaries as the answer shows them."""
    records = []
    for summary, kind in zip(summaries, order.kinds, strict=True):
        shown = summary if order.explain else replace(summary, words=())  # which extracts always have
        record = to_dict(shown, document=order.explain or kind != "text", attention=order.explain and order.attention)
        record |= {"format": kind} if kind != "text" else {}
        source = SourceFacts(summary.document) if order.explain else None
        for values in (record, *record.get("alternatives", ())):
            values["model"] = order.served.name  # which need not be the one in its folder
            if source is not None:
                values["support"] = support_to_dict(check_support(values["summary"], source))
        records.append(record)
    return records


def _work(jobs: Sequence[Job], check: Callable[[], None]) -> list[Summary]:
    """What the workers do with a batch: in as many parts as can be worked on at once, alike in their lengths."""
    first: Order = jobs[0].payload[0]
    system, summaries = first.served.system, list[Any](jobs)
    count = system.batches_at_once(len(jobs), first.options)
    parts = [jobs[part::count] for part in range(count)]
    with closing(system.in_threads(partial(_part, check), parts, count)) as found:
        for part, made in enumerate(found):
            summaries[part::count] = made
    return summaries


def _part(check: Callable[[], None], jobs: Sequence[Job], go_on: Callable[[], None]) -> list[Summary]:
    """Of some documents. Where a model had better not answer, words of the document take the place."""
    orders, records, listeners = zip(*(job.payload for job in jobs), strict=True)
    first, system = orders[0], orders[0].served.system

    def step() -> None:
        go_on()
        check()

    written = system.summarize_batch(
        records,
        explain=first.explain,
        options=first.options,
        on_step=step,
        on_text=(lambda index, text: listeners[index](text)) if first.stream else None,
    )
    return [
        summary if order.always_write else or_decline(summary, system.calibration)
        for order, summary in zip(orders, written, strict=True)
    ]
