"""Request times by phase with quantiles, computed at a scrape from the histograms of the APIs.

Phases are those of Apache Kafka that exist here. `localtimems` is the time on the event loop until the request is
answered or parked. `remotetimems` is 0 for a request that was not parked, else its whole time. `totaltimems` has all.
There are no queues of requests and responses, and no separate sender, so their three phases are absent.
`messageconversionstimems` covers the requests of Produce and Fetch in versions that convert records.

A quantile is that of the last one to two minutes, interpolated inside a bucket of the histogram. It is absent for an
API without requests in that time. `_sum` and `_count` are counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.common.platform.clock import Clock
from ottla.metrics.registry import LATENCY_BOUNDS_MS, Histogram
from ottla.metrics.series import FamilyStart, Step
from ottla.server.requests.statistics import ApiStatistics, BrokerStatistics

WINDOW_S = 60.0
"""Shortest time that a quantile covers; the longest is twice as long, or the time between two scrapes."""
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""Label values of Apache Kafka's reporters."""

_PREFIX = "kafka_network_requestmetrics_"


class _Times(NamedTuple):
    """Observations of one phase since the start."""

    counts: tuple[int, ...]
    sum_ms: float

    @property
    def total(self) -> int:
        return sum(self.counts)


_NONE = _Times((0,) * (len(LATENCY_BOUNDS_MS) + 1), 0.0)


class _Phases(NamedTuple):
    """Times of one API since the start."""

    total: _Times
    local: _Times
    remote: _Times
    conversions: _Times | None
    """None for APIs without conversions."""


_FAMILIES = (
    ("totaltimems", "Time of requests to the response, in ms, by quantile of the last minutes."),
    ("localtimems", "Time of requests on the event loop until they are answered or parked, in ms."),
    ("remotetimems", "Time of parked requests to the response, in ms; 0 for requests that were not parked."),
    ("messageconversionstimems", "Time of requests for the conversion of records between message formats, in ms."),
)


def _phases(api: ApiStatistics, converted: Histogram | None) -> _Phases:
    total = _Times(tuple(api.latency_ms.counts), api.latency_ms.sum)
    conversions = None if converted is None else _Times(tuple(converted.counts), converted.sum)
    if api.parked is None:
        return _Phases(total, total, _NONE, conversions)
    local, parked = api.parked.local, api.parked.total
    direct = [max(0, whole - some) for whole, some in zip(total.counts, parked.counts, strict=True)]
    return _Phases(
        total,
        _Times(
            tuple(some + more for some, more in zip(direct, local.counts, strict=True)),
            max(0.0, total.sum_ms - parked.sum) + local.sum,
        ),
        _Times((parked.counts[0] + sum(direct), *parked.counts[1:]), max(0.0, parked.sum - local.sum)),
        conversions,
    )


def quantile(counts: Sequence[int], share: float) -> float:
    """The quantile, in ms, of observations by bucket of `LATENCY_BOUNDS_MS`; interpolated linearly in its bucket.

    The last bucket has no upper bound: a quantile in it is its lower one.
    """
    rank = share * sum(counts)
    below = 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            lower = LATENCY_BOUNDS_MS[index - 1] if index else 0.0
            upper = LATENCY_BOUNDS_MS[index] if index < len(LATENCY_BOUNDS_MS) else lower
            return lower + (upper - lower) * (rank - below) / count
        below += count
    return 0.0


class RequestSeries:
    """Collector of the request times of one broker; keeps the times of two earlier scrapes."""

    __slots__ = ("_base", "_clock", "_newest", "_newest_s", "_statistics")

    def __init__(self, statistics: BrokerStatistics, clock: Clock) -> None:
        self._statistics = statistics
        self._clock = clock
        self._base: dict[str, _Phases] = {}
        self._newest: dict[str, _Phases] = {}
        self._newest_s = clock.monotonic()

    def __call__(self) -> Iterator[Step]:
        """The families, one after the other."""
        now: dict[str, _Phases] = {}
        for api in list(self._statistics.apis.values()):
            if api.latency_ms.total:
                now[api.name] = _phases(api, self._statistics.conversion_times(api.name))
            yield None
        self._rotate(now)
        base = self._base
        for phase, (name, text) in enumerate(_FAMILIES):
            yield FamilyStart(f"{_PREFIX}{name}", text, "summary")
            for api_name, times in now.items():
                of_phase = times[phase]
                if of_phase is not None:
                    before = base[api_name][phase] if api_name in base else None
                    yield from _summary(api_name, of_phase, before or _NONE)

    def _rotate(self, now: dict[str, _Phases]) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._newest_s >= WINDOW_S:
            self._base, self._newest, self._newest_s = self._newest, now, now_s


def _summary(name: str, times: _Times, before: _Times) -> Iterator[Step]:
    recent = [max(0, new - old) for new, old in zip(times.counts, before.counts, strict=True)]
    if any(recent):
        for text in QUANTILES:
            yield f'{{quantile="{text}",request="{name}"}}', round(quantile(recent, float(text)), 3)
    yield f'_sum{{request="{name}"}}', times.sum_ms
    yield f'_count{{request="{name}"}}', times.total
