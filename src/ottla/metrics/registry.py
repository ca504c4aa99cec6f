"""Counters, gauges and histograms as plain integers on slots objects.

The hot path does `counter.value += 1` and nothing else; names, labels and text exist only in the registry and when a
scrape renders them (`ottla.metrics.exposition`). All of it belongs to one event loop.

Invariants: a name has one kind and one set of label names; the number of series is bounded by `MAX_SERIES`, so that a
client that creates topics can't grow the registry without limit.

Rates are computed by the scraper from the counters. Unlike prometheus-client it needs no threads and locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from ottla.common.errors import InvariantError

MAX_SERIES = 200_000

LATENCY_BOUNDS_MS: tuple[float, ...] = (
    0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000,
)  # fmt: skip
"""Upper bounds in milliseconds, 1-2-5 steps: fine enough for a dashboard's quantile within a factor of two."""

Labels = tuple[tuple[str, str], ...]


class Counter:
    """Counter that only grows. Write `value` directly."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value = 0


class Gauge:
    """Gauge: write `value`, or pass a function that a scrape calls on the loop (it must be cheap)."""

    __slots__ = ("_read", "value")
    kind = "gauge"

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self.value: float = 0
        self._read = read

    def current(self) -> float:
        """Current value."""
        return self.value if self._read is None else self._read()


class ReadCounter(Gauge):
    """Counter of the operating system, read at each scrape."""

    __slots__ = ()
    kind = "counter"


class Histogram:
    """Counts of observations by upper bound (inclusive), their sum and number."""

    __slots__ = ("bounds", "counts", "sum", "total")
    kind = "histogram"

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_MS) -> None:
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise InvariantError("histogram bounds must rise")
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum: float = 0
        self.total = 0

    def observe(self, value: float) -> None:
        """Count one observation, in the unit of the bounds."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
        self.total += 1


Metric = Counter | Gauge | Histogram


class Family:
    """All series of one name."""

    __slots__ = ("help", "kind", "label_names", "name", "series")

    def __init__(self, name: str, help_text: str, kind: str, label_names: tuple[str, ...]) -> None:
        self.name = name
        self.help = help_text
        self.kind = kind
        self.label_names = label_names
        self.series: dict[Labels, Metric] = {}


class MetricsRegistry:
    """Factory and list of metrics. The same name and labels return the same object."""

    __slots__ = ("_families", "_overflow", "_series_count")

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._series_count = 0
        self._overflow: dict[str, Metric] = {}

    def counter(self, name: str, help_text: str, labels: Mapping[str, str] | None = None) -> Counter:
        """Return a counter; its name should end in `_total`."""
        metric = self._get(name, help_text, labels, Counter.kind, Counter)
        if not isinstance(metric, Counter):
            raise InvariantError(f"{name} is not a counter")
        return metric

    def gauge(
        self,
        name: str,
        help_text: str,
        labels: Mapping[str, str] | None = None,
        read: Callable[[], float] | None = None,
    ) -> Gauge:
        """Return a gauge, written by its owner or read by `read` at each scrape."""
        metric = self._get(name, help_text, labels, Gauge.kind, lambda: Gauge(read))
        if not isinstance(metric, Gauge):
            raise InvariantError(f"{name} is not a gauge")
        return metric

    def read_counter(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Add a counter that `read` returns at each scrape; its name should end in `_total`."""
        self._get(name, help_text, None, ReadCounter.kind, lambda: ReadCounter(read))

    def histogram(
        self,
        name: str,
        help_text: str,
        labels: Mapping[str, str] | None = None,
        bounds: Sequence[float] = LATENCY_BOUNDS_MS,
    ) -> Histogram:
        """Return a histogram with the given upper bounds."""
        metric = self._get(name, help_text, labels, Histogram.kind, lambda: Histogram(bounds))
        if not isinstance(metric, Histogram):
            raise InvariantError(f"{name} is not a histogram")
        return metric

    def remove(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Remove one series (a deleted topic); an unknown one is ignored."""
        family = self._families.get(name)
        if family is not None and family.series.pop(_label_key(labels), None) is not None:
            self._series_count -= 1

    def families(self) -> Iterator[Family]:
        """Return all families by name."""
        for name in sorted(self._families):
            yield self._families[name]

    def _get(
        self, name: str, help_text: str, labels: Mapping[str, str] | None, kind: str, make: Callable[[], Metric]
    ) -> Metric:
        key = _label_key(labels)
        label_names = tuple(label for label, _ in key)
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, help_text, kind, label_names)
        elif family.kind != kind or family.label_names != label_names:
            raise InvariantError(f"metric {name} was declared as {family.kind} with labels {family.label_names}")
        metric = family.series.get(key)
        if metric is not None:
            return metric
        if self._series_count >= MAX_SERIES:
            # Counted in a series that is never rendered: losing a label is better than growing without limit.
            return self._overflow.setdefault(name, make())
        metric = family.series[key] = make()
        self._series_count += 1
        return metric


def _label_key(labels: Mapping[str, str] | None) -> Labels:
    return tuple(sorted(labels.items())) if labels else ()
