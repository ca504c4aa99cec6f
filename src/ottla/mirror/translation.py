"""Where a group goes on in the target: offsets translated by the runs that were committed with the records.

Exact where a target partition holds one source partition: the group goes on at the record that it would read next.
Where several flow together it goes on at the least of theirs, so that nothing is skipped and some records come again.
Never a guess: an offset from before the runs that are kept is not translated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.wire.model import Position
from ottla.mirror.progress import Journal, Progress, Run
from ottla.mirror.routes import Route

KEPT_TRANSACTIONS = 100
"""Of each route, also when every group is behind them."""
FORGOTTEN_TOGETHER = 50
"""No transaction is made to forget fewer."""
MAX_TRANSACTIONS = 100_000
"""Beyond it the oldest are forgotten, though a group may stand there."""


class RouteMap:
    """The runs of one route by the transactions that wrote them, complete from a source offset on."""

    def __init__(self, complete_from: int, target_count: int, *, in_step: bool) -> None:
        self.complete_from = complete_from
        self.target_count = target_count
        self.in_step = in_step
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._runs: dict[int, list[Run]] = {}

    def add(self, first: int, runs: Iterable[Run]) -> None:
        """Of the next transaction, which began at that source offset."""
        self._firsts.append(first)
        end = first
        for run in runs:
            self._runs.setdefault(run.partition, []).append(run)
            end = max(end, run.source_end)
        self._ends.append(end)

    def translated(self, offset: int, partition: int) -> int | None:
        """Where the first record of a source offset from this one on lies, or will lie, in a partition of the target.

        None where nothing of this route lies there. The offset is not below `complete_from`.
        """
        runs = self._runs.get(partition)
        if not runs:
            return None
        index = bisect_right(runs, offset, key=lambda run: run.source_end)
        if index == len(runs):
            return runs[-1].target_first + runs[-1].records
        run = runs[index]
        is_exact = run.source_end - run.source_first == run.records
        return run.target_first + max(0, offset - run.source_first) * is_exact

    def forget(self, needed: int) -> list[int]:
        """Drop transactions that lie below what groups need, and those beyond the bound; their first offsets."""
        count = bisect_right(self._ends, needed, 0, max(0, len(self._ends) - KEPT_TRANSACTIONS))
        count = max(count, len(self._firsts) - MAX_TRANSACTIONS)
        if count < FORGOTTEN_TOGETHER:
            return []
        doomed = self._firsts[:count]
        self.complete_from = self._ends[count - 1]  # up to the next transaction no record was copied
        del self._firsts[:count], self._ends[:count]
        for partition, runs in self._runs.items():
            self._runs[partition] = [run for run in runs if run.source_first >= self.complete_from]
        return doomed


def kept_map(progress: Progress, complete_from: int, runs: Mapping[int, Iterable[Run]], target_count: int) -> RouteMap:
    """What the journal keeps of a route: the runs of transactions by the source offsets that these began at."""
    found = RouteMap(complete_from, target_count, in_step=progress.in_step)
    for first in sorted(runs):
        found.add(first, runs[first])
    return found


def maps_of_topic(journal: Journal, first: Route, count: int, target_count: int) -> dict[Route, RouteMap]:
    """Of all partitions of a topic, which flow together, whoever copies them; `first` is the route of one.

    None where one is not kept: its records may lie before those of the others.
    """
    mine = journal.progress.get(first)
    found: dict[Route, RouteMap] = {}
    for index in range(count):
        route = first._replace(partition=index)
        progress = journal.progress.get(route)
        if mine is None or progress is None or progress.mapped_from is None or progress.in_step:
            return {}
        if (progress.source_topic_id, progress.target_topic_id) != (mine.source_topic_id, mine.target_topic_id):
            return {}
        found[route] = kept_map(progress, progress.mapped_from, journal.runs.get(route, {}), target_count)
    return found


class Translation(NamedTuple):
    """Of one group: where it goes on, and topics that it can't be told for yet."""

    offsets: dict[Position, int]
    behind: frozenset[str]


def translate(committed: Mapping[Position, int], maps: Mapping[Route, RouteMap]) -> Translation:
    """The offsets of a group in the source as those of the target."""
    found: dict[Position, int] = {}
    behind: set[str] = set()
    topics = {topic for topic, _ in committed}
    for route, kept in maps.items():
        if route.topic not in topics:
            continue
        offset = committed.get((route.topic, route.partition))
        if offset is None and kept.in_step:
            continue
        offset = 0 if offset is None else offset  # what flows together is read from its beginning, not skipped
        if offset < kept.complete_from:
            behind.add(route.topic)
            continue
        for partition in [route.partition] if kept.in_step else range(kept.target_count):
            there = kept.translated(offset, partition)
            if there is not None:
                key = route.target, partition
                found[key] = min(there, found.get(key, there))
    merged = {route.target for route, kept in maps.items() if route.topic in behind and not kept.in_step}
    return Translation({key: offset for key, offset in found.items() if key[0] not in merged}, frozenset(behind))
