"""Format of the progress topic: the state of all mirrors that write to a cluster.

A record is in the same transaction as the writes that it describes, so both are committed or neither. The first word of
the key, a JSON array, selects one of two kinds:

    ["progress", cluster id, topic, partition, target topic] -> {"offset": the next to copy, ids of both topics, ...}
    ["map", cluster id, topic, partition, target topic, first offset] -> {"runs": [[partition, ...], ...]}

The second kind exists while group offsets are copied, as long as a group needs it (`translation`). Only `replay`
changes a `Journal`.
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
    """Contiguous records of one source partition in a partition of the target.

    `records` records with offsets from `source_first` to below `source_end`, at `target_first` and after. Without gaps
    in the source offsets, the position of each record is known exactly.
    """

    partition: int
    source_first: int
    source_end: int
    target_first: int
    records: int


class Progress(NamedTuple):
    """Progress of a route; valid only for these two topics, not for later ones with the same names."""

    offset: int
    """Next source offset to copy."""
    source_topic_id: Uuid
    target_topic_id: Uuid
    in_step: bool
    """Both topics had the same number of partitions, so the target is extended with the source."""
    origins: frozenset[Origin]
    """Origins of the records, including the source of the route."""
    mapped_from: int | None = None
    """First source offset with stored runs; None if runs are not stored."""
    target_ends: tuple[tuple[int, int], ...] = ()
    """(partition, offset after the last record written there) of the target; empty for earlier releases."""
    skipped: int = 0
    """Number of records that the target rejected and that were skipped, since the copy started."""


class Journal:
    """The latest value of each key. Raises OperatorError for a record that was not written by a mirror."""

    def __init__(self) -> None:
        self.progress: dict[Route, Progress] = {}
        self.runs: dict[Route, dict[int, tuple[Run, ...]]] = {}
        """By the first source offset of a transaction."""

    def replay(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a committed record of the progress topic; must be called in offset order."""
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
                f"the record at offset {offset} of topic {PROGRESS_TOPIC!r} was not written by a mirror ({error}): "
                "restrict WRITE on this topic to mirrors"
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
        """All origins of a topic in the journal's cluster: itself, and the topics mirrored into it."""
        found = {Origin(cluster_id, topic)}
        for route, progress in self.progress.items():
            if route.target == topic:
                found |= progress.origins
        return frozenset(found)


def progress_record(route: Route, progress: Progress, timestamp_ms: int) -> RecordData:
    """The progress as a record for `Journal.replay`."""
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
    """The record for the runs of a transaction with this source offset; None deletes them."""
    value = None if runs is None else _json({"runs": runs})
    return RecordData(timestamp_ms, _json([_MAP, *route, first]), value)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
