"""What the progress topic holds and how it is read: the state of all mirrors that write to a cluster.

A record is in the transaction whose writes it tells of, so that both are there or neither. Two kinds, told apart by the
first word of the key, a JSON array:

    ["progress", cluster id, topic, partition, target topic] -> {"offset": the next to copy, ids of both topics, ...}
    ["map", cluster id, topic, partition, target topic, first offset] -> {"runs": [[partition, ...], ...]}

The second exist while groups are mirrored, until nobody needs them (`translation`). `Journal` changes by `replay` only.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ottla.common.errors import DAMAGED_JSON, OperatorError
from ottla.common.kafka.ids import Uuid, uuid_from_string, uuid_to_string
from ottla.mirror.routes import PROGRESS_TOPIC, Origin, Route
from ottla.record.builder import RecordData

_PROGRESS = "progress"
_MAP = "map"


class Run(NamedTuple):
    """Where records of one source partition lie in a partition of the target, one behind the other.

    So many `records` of the offsets from `source_first` on and below `source_end`, at `target_first` and behind. Where
    no source offset is left out, which record lies where is known exactly.
    """

    partition: int
    source_first: int
    source_end: int
    target_first: int
    records: int


class Progress(NamedTuple):
    """How far a route was copied; it counts between these two topics only, not for others of their names."""

    offset: int
    """Of the source, the next to copy."""
    source_topic_id: Uuid
    target_topic_id: Uuid
    in_step: bool
    """The partitions of both topics were the same, so that the target's shall grow with the source's."""
    origins: frozenset[Origin]
    """Where the records come from, the route's own source included."""
    mapped_from: int | None = None
    """The source offset from which on the runs are kept; None where they are not."""
    target_ends: tuple[tuple[int, int], ...] = ()
    """(partition, offset behind the last record that was written there) of the target; none of earlier releases."""
    skipped: int = 0
    """Records that the target refused and that were left out, since the copy began."""


class Journal:
    """The latest of each key. Raises OperatorError for a record that no mirror wrote."""

    def __init__(self) -> None:
        self.progress: dict[Route, Progress] = {}
        self.runs: dict[Route, dict[int, tuple[Run, ...]]] = {}
        """By the first source offset of a transaction."""

    def replay(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """A committed record of the progress topic, in the order of their offsets."""
        try:
            kind, *rest = json.loads(key or b"")
            route = Route(str(rest[0]), str(rest[1]), int(rest[2]), str(rest[3]))
            content = None if value is None else json.loads(value)
            if kind == _PROGRESS:
                self._replay_progress(route, content)
            elif kind == _MAP:
                self._replay_map(route, int(rest[4]), content)
        except DAMAGED_JSON as error:
            raise OperatorError(
                f"the record at offset {offset} of topic {PROGRESS_TOPIC!r} is none that a mirror wrote ({error}): "
                "somebody else uses the topic; let only mirrors write there"
            ) from error

    def _replay_progress(self, route: Route, content: Any) -> None:
        if content is None:
            self.progress.pop(route, None)
            return
        self.progress[route] = Progress(
            int(content["offset"]),
            uuid_from_string(content["source_topic_id"]),
            uuid_from_string(content["target_topic_id"]),
            bool(content["in_step"]),
            frozenset(Origin(str(cluster), str(topic)) for cluster, topic in content["origins"]),
            None if content["mapped_from"] is None else int(content["mapped_from"]),
            tuple((int(partition), int(end)) for partition, end in content.get("target_ends", ())),
            int(content.get("skipped", 0)),
        )

    def _replay_map(self, route: Route, first: int, content: Any) -> None:
        if content is None:
            self.runs.get(route, {}).pop(first, None)
            return
        self.runs.setdefault(route, {})[first] = tuple(Run(*map(int, run)) for run in content["runs"])

    def origins_of(self, cluster_id: str, topic: str) -> frozenset[Origin]:
        """All that a topic of the cluster that keeps this journal holds: itself, and what was mirrored into it."""
        found = {Origin(cluster_id, topic)}
        for route, progress in self.progress.items():
            if route.target == topic:
                found |= progress.origins
        return frozenset(found)


def progress_record(route: Route, progress: Progress, timestamp_ms: int) -> RecordData:
    """The record that `Journal.replay` takes for this progress."""
    content = {
        "offset": progress.offset,
        "source_topic_id": uuid_to_string(progress.source_topic_id),
        "target_topic_id": uuid_to_string(progress.target_topic_id),
        "in_step": progress.in_step,
        "origins": sorted(progress.origins),
        "mapped_from": progress.mapped_from,
        "target_ends": progress.target_ends,
        "skipped": progress.skipped,
    }
    return RecordData(timestamp_ms, _json([_PROGRESS, *route]), _json(content))


def map_record(route: Route, first: int, runs: tuple[Run, ...] | None, timestamp_ms: int) -> RecordData:
    """The record for the runs of a transaction that began at a source offset; None: they are not needed any more."""
    value = None if runs is None else _json({"runs": runs})
    return RecordData(timestamp_ms, _json([_MAP, *route, first]), value)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
