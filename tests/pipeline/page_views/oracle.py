"""Expected results of the streams of examples/streams, computed from the records in plain Python: dictionaries, loops.

Its watermark follows the documentation: the newest event of the earlier runs, minus ten minutes. Older views are late,
and a window is closed, and its row written, once the watermark of all events has passed its end.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

WATERMARK_S = 600
Row = tuple[Any, ...]
Records = Mapping[str, Iterable[tuple[bytes, bytes]]]
"""Topic -> keys and values."""

VIEW_COLUMNS = ("id", "at", "user", "client", "page", "status", "seconds", "bytes", "shown")
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_ACCESS = re.compile(rf"(\S+) \S+ \S+ \[([^]]+)] {_QUOTED} (\d+) (\d+|-)(?: {_QUOTED} {_QUOTED})?(?: .*)?")


class AccessLine(NamedTuple):
    """A line of an access log; `size` and `agent` are None where the server wrote none."""

    client: str
    at: int
    request: str
    status: int
    size: int | None
    agent: str | None


@dataclass(slots=True)
class Clock:
    """Clock of one stream: `watermark` applies to the records of a run, `newest` is the newest event of all."""

    newest: int = 0
    watermark: int = 0

    def is_late(self, at: int) -> bool:
        self.newest = max(self.newest, at)
        return at < self.watermark

    def next_run(self) -> None:
        self.watermark = self.newest - WATERMARK_S


@dataclass
class Oracle:
    """Takes the records of each run, then returns the rows of each stream; times are seconds since 1970."""

    views: Clock = field(default_factory=Clock)
    impressions: Clock = field(default_factory=Clock)
    access: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seen: set[str] = set()
        self.decoded = 0
        """Sum of the hashes of all views, which identifies a set regardless of its order."""
        self.feed: Counter[tuple[str, int]] = Counter()
        self.feed_last: dict[tuple[str, int], Row] = {}
        self.by_hour: Counter[tuple[int, str]] = Counter()
        self.latency: dict[int, list[float]] = defaultdict(list)
        self.failed: Counter[int] = Counter()
        self.shown: list[tuple[str, int, str]] = []
        self.followed: dict[str, int] = {}
        self.asked: Counter[tuple[str, int]] = Counter()
        self.refused: Counter[tuple[str, int]] = Counter()
        self.visits: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.latest: dict[bytes, bytes] = {}

    def run(self, records: Records) -> None:
        """Process the records of one run of all streams."""
        for clock in (self.views, self.impressions, self.access):
            clock.next_run()
        takers: dict[str, Callable[[bytes, bytes], None]] = {
            "views": self._view,
            "impressions": self._impression,
            "access": self._access,
        }
        for topic, found in records.items():
            take = takers[topic]
            for key, value in found:
                take(key, value)
                self.counts[topic] += 1

    def _view(self, key: bytes, value: bytes) -> None:
        self.latest[key] = value
        view = json.loads(value)
        at, page, user = seconds(view["at"]), view["page"], view["user"]
        decoded_view = {**view, "at": at, "seconds": round(view["seconds"] * 1e6)}
        self.decoded += hash(tuple(decoded_view[name] for name in VIEW_COLUMNS))
        if self.views.is_late(at):
            return
        window = at - at % 300
        self.latency[window].append(view["seconds"])
        self.failed[window] += view["status"] >= 500
        if view["id"] in self.seen:
            return
        self.seen.add(view["id"])
        self.by_hour[at - at % 3600, page] += 1
        if view["shown"]:
            self.followed[view["shown"]] = at
        if user:
            activity = (user, at - at % 900)
            self.feed[activity] += 1
            self.feed_last[activity] = max(self.feed_last.get(activity, (0,)), (at, view["id"], page))

    def _impression(self, key: bytes, value: bytes) -> None:
        shown = json.loads(value)
        at = seconds(shown["at"])
        if not self.impressions.is_late(at):
            self.shown.append((shown["id"], at, shown["page"]))

    def _access(self, key: bytes, value: bytes) -> None:
        line = access_line(value)
        if self.access.is_late(line.at):
            return
        for window in sliding(line.at, 600, 300):
            self.asked[line.client, window] += 1
            self.refused[line.client, window] += 400 <= line.status < 500
        if "bot" not in (line.agent or "").lower():
            self.visits[line.client].append((line.at, line.size or 0))

    def activity(self) -> set[Row]:
        """(user, since, until, views, page)"""
        return {
            (user, since, since + 900, views, self.feed_last[user, since][2])
            for (user, since), views in self.feed.items()
            if since + 900 <= self.views.newest - WATERMARK_S
        }

    def top_pages(self) -> set[Row]:
        """(since, place, page, views)"""
        hours: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for (since, page), views in self.by_hour.items():
            if since + 3600 <= self.views.newest - WATERMARK_S:
                hours[since].append((-views, page))
        return {
            (since, place, page, -views)
            for since, pages in hours.items()
            for place, (views, page) in enumerate(sorted(pages)[:10], start=1)
        }

    def monitoring(self) -> set[Row]:
        """(since, requests, failed, p50, p95, p99), the latencies in whole microseconds; including open windows."""
        return {
            (since, len(found), self.failed[since], *(round(each * 1e6) for each in np.percentile(found, (50, 95, 99))))
            for since, found in self.latency.items()
        }

    def relevance(self) -> set[Row]:
        """(since, until, page, shown, followed)"""
        shown: Counter[tuple[int, str]] = Counter()
        followed: Counter[tuple[int, str]] = Counter()
        for number, at, page in self.shown:
            click = self.followed.get(number)
            for window in sliding(at, 3600, 1800):
                shown[window, page] += 1
                followed[window, page] += click is not None and at <= click <= at + 600
        over = min(self.views.newest, self.impressions.newest) - WATERMARK_S
        return {
            (since, since + 3600, page, count, followed[since, page])
            for (since, page), count in shown.items()
            if since + 3600 <= over
        }

    def alerts(self) -> set[Row]:
        """(client, since, until, requests, refused)"""
        return {
            (client, since, since + 600, count, self.refused[client, since])
            for (client, since), count in self.asked.items()
            if (count > 100 or self.refused[client, since] > 30) and since + 600 <= self.access.newest - WATERMARK_S
        }

    def reporting(self) -> set[Row]:
        """(client, since, until, views, bytes)"""
        over = self.access.newest - WATERMARK_S
        return {
            (client, *session)
            for client, views in self.visits.items()
            for session in sessions(views, 1800)
            if session[1] <= over
        }


def access_line(value: bytes) -> AccessLine:
    found = _ACCESS.fullmatch(value.decode())
    assert found is not None, value
    client, time, request, status, size, _, agent = found.groups()
    at = int(datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").timestamp())
    return AccessLine(
        client, at, request, int(status), None if size == "-" else int(size), None if agent == "-" else agent
    )


def seconds(text: str) -> int:
    """Seconds since 1970."""
    return int(datetime.fromisoformat(text).timestamp())


def sliding(at: int, length: int, step: int) -> Iterator[int]:
    """Starts of the windows that contain a moment."""
    return iter(range(at - at % step, at - length, -step))


def sessions(views: Iterable[tuple[int, int]], gap: int) -> Iterator[Row]:
    """(since, until, views, bytes) of visits; a visit ends one gap after its last view."""
    since = until = count = total = 0
    for at, size in sorted(views):
        if count and at > until:
            yield since, until, count, total
            count = 0
        if not count:
            since = at
            total = 0
        until, count, total = at + gap, count + 1, total + size
    if count:
        yield since, until, count, total
