"""Translation of group offsets to the target, with the runs that were committed with the records.

A run maps contiguous source offsets to target offsets. A translated offset is exact within a run without gaps; in a run
with gaps it is the start of the run, so some records are read again and none is skipped.

Merged partitions: the smallest of the translated offsets applies, and a partition without a committed offset counts as
offset 0. One source partition whose runs are not stored from its offset on leaves the whole topic untranslated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.mirror.progress import Journal, Progress, Run
from ottla.mirror.routes import Route

KEPT_TRANSACTIONS = 100
"""Transactions stored per route, also if all groups have passed them."""
FORGOTTEN_TOGETHER = 50
"""Minimum number of transactions to delete at once."""
MAX_TRANSACTIONS = 100_000
"""Beyond it the oldest are deleted, even if a group is still there."""


class RouteMap:
    """Runs of one route by transaction, complete from a source offset."""

    def __init__(self, complete_from: int, target_count: int, *, in_step: bool) -> None:
        self.complete_from = complete_from
        self.target_count = target_count
        self.in_step = in_step
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._runs: dict[int, list[Run]] = {}

    def add(self, first: int, runs: Iterable[Run]) -> None:
        """Add the runs of the next transaction, which starts at that source offset."""
        self._firsts.append(first)
        end = first
        for run in runs:
            self._runs.setdefault(run.partition, []).append(run)
            end = max(end, run.source_end)
        self._ends.append(end)

    def translated(self, offset: int, partition: int) -> int | None:
        """The target offset of the first record at or after a source offset, in a partition of the target.

        None if this route has no record there. `offset` must not be below `complete_from`.
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
        """Drop transactions that groups no longer need or beyond the limit; returns their start offsets."""
        count = bisect_right(self._ends, needed, 0, max(0, len(self._ends) - KEPT_TRANSACTIONS))
        count = max(count, len(self._firsts) - MAX_TRANSACTIONS)
        if count < FORGOTTEN_TOGETHER:
            return []
        doomed = self._firsts[:count]
        self.complete_from = self._ends[count - 1]  # no record was copied up to the next transaction
        del self._firsts[:count], self._ends[:count]
        for partition, runs in self._runs.items():
            self._runs[partition] = [run for run in runs if run.source_first >= self.complete_from]
        return doomed


def kept_map(progress: Progress, complete_from: int, runs: Mapping[int, Iterable[Run]], target_count: int) -> RouteMap:
    """The map of a route from the journal: runs of transactions by their source start offsets."""
    found = RouteMap(complete_from, target_count, in_step=progress.in_step)
    for first in sorted(runs):
        found.add(first, runs[first])
    return found


def maps_of_topic(journal: Journal, first: Route, count: int, target_count: int) -> dict[Route, RouteMap]:
    """The maps of all partitions of a topic, which are merged, from all mirrors; `first` is the route of one.

    Empty if the map of one is missing: its records may precede those of the others.
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
    """Translated offsets of a group, and topics that cannot be translated yet."""

    offsets: dict[TopicPartition, int]
    behind: frozenset[str]


def translate(committed: Mapping[TopicPartition, int], maps: Mapping[Route, RouteMap]) -> Translation:
    """Translate the source offsets of a group."""
    found: dict[TopicPartition, int] = {}
    behind: set[str] = set()
    topics = {topic for topic, _ in committed}
    for route, kept in maps.items():
        if route.topic not in topics:
            continue
        offset = committed.get((route.topic, route.partition))
        if offset is None and kept.in_step:
            continue
        offset = 0 if offset is None else offset  # merged partitions are read from the start, not skipped
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
