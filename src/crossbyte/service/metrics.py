"""Keep metrics for Prometheus: requests, times by route and by step, documents, generation, lost shards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

STEPS = ("encode", "scan", "payload", "total")
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "crossbyte_requests",
            "Answered requests",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._latency = Histogram(
            "crossbyte_request_seconds",
            "Time of an answer",
            ("route",),
            buckets=_BOUNDS,
            registry=self._registry,
        )
        self._steps = Histogram(
            "crossbyte_search_step_seconds",
            "Time of one step of a search",
            ("step",),
            buckets=_BOUNDS,
            registry=self._registry,
        )
        self._step_times = {step: self._steps.labels(step) for step in STEPS}  # looked up by each search
        self._documents = Gauge("crossbyte_documents", "Documents of the index", registry=self._registry)
        self._generation = Gauge("crossbyte_generation", "Commit that is served", registry=self._registry)
        self._lost = Gauge("crossbyte_lost_shards", "Shards that do not answer", registry=self._registry)
        self._partial = Counter(
            "crossbyte_partial_answers", "Answers without a lost shard", registry=self._registry
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(method, route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    @contextmanager
    def time_step(self, name: str) -> Iterator[None]:
        """Time one step of a search: one of ``STEPS``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._step_times[name].observe(time.perf_counter() - start)

    def count_partial(self) -> None:
        """Count one answer in which a shard is missing."""
        self._partial.inc()

    def to_text(self, documents: int, generation: int, lost: int = 0) -> bytes:
        """Write all metrics in Prometheus' own format."""
        self._documents.set(documents)
        self._generation.set(generation)
        self._lost.set(lost)
        return generate_latest(self._registry)
