"""What the service counts, in Prometheus's text format. Labels have few values, and never a client's text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from catchline.server.batching import Batcher, Job

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DOCUMENTS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self.requests = counter("catchline_requests", "Answered requests.", ["path", "method", "status"])
        self.seconds = histogram("catchline_request_seconds", "Time to answer.", ["path"], buckets=_SECONDS)
        self.open = gauge("catchline_requests_open", "Requests being answered.")
        self.problems = counter("catchline_problems", "Requests refused or failed.", ["code"])
        self.documents = counter("catchline_documents", "Documents, by how they ended.", ["model", "outcome"])
        self.batch_documents = histogram(
            "catchline_batch_documents", "Documents worked on together.", ["model"], buckets=_DOCUMENTS
        )
        self.batch_seconds = histogram("catchline_batch_seconds", "Time of a batch.", ["model"], buckets=_SECONDS)
        self.queue_seconds = histogram(
            "catchline_queue_seconds", "Time a document waited.", ["model"], buckets=_SECONDS
        )
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
