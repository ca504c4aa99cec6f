"""What a load will read: committed offsets and the partitions' ends -> ranges, cut into tasks by bytes.

The table is the truth. Each topic partition is one application id, `pipeline/topic id/partition`, whose committed
version is the next offset. A topic that was deleted and made again has a new id, so it starts anew by itself.

**Invariants:** the tasks of a partition cover its range without gap or overlap; ranges end where they were planned to
end, whatever arrives meanwhile; nothing is planned past the last stable offset under read_committed.

Sizes are estimated by small fetches at points spread over a range, since no request tells the bytes between two
offsets; a wrong estimate makes tasks uneven, never wrong. Left out: reading segment files, and any start other than
the committed offset (the log start offset the first time).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ottla.client.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FetchResult, OffsetInfo, TopicInfo
from ottla.common.errors import KafkaError, OperatorError, OttlaError
from ottla.common.ids import uuid_to_string
from ottla.record.batch import iter_batches

DEFAULT_MAX_BYTES_PER_TASK = 256 << 20
MIN_BYTES_PER_TASK = 8 << 20
"""Below this a range is not cut only to keep another core busy: tiny files cost every later reader."""
SAMPLE_POINTS = 8
SAMPLE_BYTES = 64 << 10
SAMPLE_WAIT_MS = 100

OnDataLoss = Literal["fail", "skip"]


class DataLossError(OttlaError):
    """Records were deleted before they were loaded; the message names partition, offsets and the way on."""


class ClusterView(Protocol):
    """The part of `ottla.client.Cluster` that planning and landing use."""

    def topic(self, name: str) -> TopicInfo: ...
    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, isolation: str = ...
    ) -> dict[tuple[str, int], OffsetInfo]: ...
    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int, isolation: str
    ) -> FetchResult: ...


class TableState(Protocol):
    """What a table remembers of earlier loads."""

    def committed_offsets(self, app_ids: Iterable[str]) -> dict[str, int | None]: ...
    def known_topic_ids(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start_offset, end_offset) of one partition; `size_bytes` is an estimate of what is stored for them."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int

    @property
    def offsets(self) -> int:
        return self.end_offset - self.start_offset


@dataclass(slots=True)
class LoadPlan:
    """`expected` and `following` are the table's offsets before and after the commit, by application id."""

    pipeline_id: str
    isolation: str
    ranges: list[OffsetRange] = field(default_factory=list)
    tasks: list[OffsetRange] = field(default_factory=list)
    expected: dict[str, int | None] = field(default_factory=dict)
    following: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What an operator should know: recreated topics, skipped offsets."""
    skipped_offsets: int = 0

    @property
    def is_empty(self) -> bool:
        """True when a commit would change nothing."""
        return not self.following

    @property
    def offsets(self) -> int:
        return sum(part.offsets for part in self.ranges)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.ranges)


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How to plan. `parallelism` is the number of tasks that can run at once."""

    pipeline_id: str = "default"
    isolation: str = "read_committed"
    max_bytes_per_task: int = DEFAULT_MAX_BYTES_PER_TASK
    parallelism: int = 1
    on_data_loss: OnDataLoss = "fail"

    def __post_init__(self) -> None:
        if not self.pipeline_id or "/" in self.pipeline_id:
            raise OperatorError(f"the pipeline id {self.pipeline_id!r} must have no '/' and at least one character")
        if self.max_bytes_per_task < 1:
            raise OperatorError("--max-bytes-per-task must be at least 1")


def app_id(pipeline_id: str, topic_id: str, partition: int) -> str:
    """The application id of one partition in the table's transaction log."""
    return f"{pipeline_id}/{topic_id}/{partition}"


def make_plan(cluster: ClusterView, table: TableState, topics: Sequence[str], settings: PlanSettings) -> LoadPlan:
    """Plan one load of `topics`. Raises DataLossError, TopicNotFound, KafkaError."""
    plan = LoadPlan(settings.pipeline_id, settings.isolation)
    known_ids = table.known_topic_ids()
    for name in dict.fromkeys(topics):
        topic = cluster.topic(name)
        topic_id = uuid_to_string(topic.topic_id)
        plan.topic_ids[name] = topic_id
        if known_ids.get(name, topic_id) != topic_id:
            plan.notes.append(
                f"topic {name!r} was deleted and created again since the last load (id {known_ids[name]}, now "
                f"{topic_id}): its records load from the first one, the rows of the old topic stay"
            )
        _plan_topic(cluster, table, topic, topic_id, settings, plan)
    profiles = _measure_all(cluster, plan)
    per_task = min(settings.max_bytes_per_task, max(MIN_BYTES_PER_TASK, plan.size_bytes // settings.parallelism + 1))
    for whole, profile in zip(plan.ranges, profiles, strict=True):
        plan.tasks += split(whole, profile, per_task)
    plan.tasks.sort(key=lambda task: task.size_bytes, reverse=True)  # the longest first: no straggler at the end
    return plan


def _plan_topic(
    cluster: ClusterView, table: TableState, topic: TopicInfo, topic_id: str, settings: PlanSettings, plan: LoadPlan
) -> None:
    keys = [(topic.name, info.index) for info in topic.partitions]
    starts = cluster.list_offsets(dict.fromkeys(keys, EARLIEST_TIMESTAMP))
    ends = cluster.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP), isolation=settings.isolation)
    app_ids = {key: app_id(settings.pipeline_id, topic_id, key[1]) for key in keys}
    committed = table.committed_offsets(app_ids.values())
    for key in keys:
        log_start, end = starts[key].offset, ends[key].offset
        before = committed[app_ids[key]]
        start = log_start if before is None else before
        if start < log_start or start > end:
            _note_data_loss(key, start, log_start, end, settings, plan)
            start = max(start, log_start)
        if start < end:
            plan.ranges.append(OffsetRange(key[0], topic_id, key[1], start, end, 0))
        elif before is None or start <= before:
            continue
        plan.expected[app_ids[key]] = before
        plan.following[app_ids[key]] = max(start, end)


def _note_data_loss(
    key: tuple[str, int], committed: int, log_start: int, end: int, settings: PlanSettings, plan: LoadPlan
) -> None:
    where = f"topic {key[0]!r} partition {key[1]}"
    if committed < log_start:
        what = f"{where}: offsets {committed} to {log_start - 1} were deleted before they were loaded"
        plan.skipped_offsets += log_start - committed
    else:
        what = f"{where}: the log ends at offset {end}, but the table already holds it up to {committed}"
    if settings.on_data_loss == "fail":
        raise DataLossError(f"{what}; load what is there with --on-data-loss skip")
    plan.notes.append(what)


# Sizes

Profile = list[float]
"""Estimated bytes in each of equally long slices of a range."""


def _measure_all(cluster: ClusterView, plan: LoadPlan) -> list[Profile]:
    """One profile a range; the ranges of the plan get their sizes."""
    profiles = []
    for position, whole in enumerate(plan.ranges):
        profile = measure(cluster, whole, plan.isolation)
        profiles.append(profile)
        plan.ranges[position] = _resized(whole, profile)
    return profiles


def _resized(whole: OffsetRange, profile: Profile) -> OffsetRange:
    return OffsetRange(
        whole.topic, whole.topic_id, whole.partition, whole.start_offset, whole.end_offset, math.ceil(sum(profile))
    )


def measure(cluster: ClusterView, whole: OffsetRange, isolation: str) -> Profile:
    """Estimate the bytes of a range by fetching a little at up to SAMPLE_POINTS places."""
    covered, size = _sample(cluster, whole, whole.start_offset, isolation)
    if covered >= whole.end_offset:
        return [float(size)]
    points = min(SAMPLE_POINTS, whole.offsets)
    density = size / max(covered - whole.start_offset, 1)
    profile = []
    for point in range(points):
        offset = whole.start_offset + whole.offsets * point // points
        following = whole.start_offset + whole.offsets * (point + 1) // points
        if point:
            covered, size = _sample(cluster, whole, offset, isolation)
            if covered > offset:
                density = size / (covered - offset)
        profile.append(density * (following - offset))
    return profile


def _sample(cluster: ClusterView, whole: OffsetRange, offset: int, isolation: str) -> tuple[int, int]:
    """(offset after the sample, its bytes): whole batches only, so the first offset may lie before the one asked."""
    result = cluster.fetch(
        whole.topic,
        whole.partition,
        offset,
        max_bytes=SAMPLE_BYTES,
        max_wait_ms=SAMPLE_WAIT_MS,
        isolation=isolation,
    )
    following, size = offset, 0
    try:
        for batch in iter_batches(result.records):
            share = (batch.next_offset - max(offset, batch.base_offset)) / max(batch.next_offset - batch.base_offset, 1)
            following, size = batch.next_offset, size + int(batch.size_bytes * share)
    except KafkaError:
        pass  # only an estimate; the task that meets the batch reports it with its place
    return following, size


def split(whole: OffsetRange, profile: Profile, max_bytes: int) -> list[OffsetRange]:
    """Cut a range into pieces of about equal bytes, by the estimate at most `max_bytes` each; no gap, no overlap."""
    total = sum(profile)
    pieces = min(math.ceil(total / max_bytes), whole.offsets) if total > 0 else 1
    borders = [whole.start_offset]
    for piece in range(1, pieces):
        border = max(_offset_at(whole, profile, total * piece / pieces), borders[-1] + 1)
        if border < whole.end_offset:
            borders.append(border)
    borders.append(whole.end_offset)
    share = math.ceil(total / max(len(borders) - 1, 1))
    return [
        OffsetRange(whole.topic, whole.topic_id, whole.partition, start, end, share)
        for start, end in itertools.pairwise(borders)
    ]


def _offset_at(whole: OffsetRange, profile: Profile, wanted: float) -> int:
    """The offset before which about `wanted` bytes of the range lie."""
    slices = len(profile)
    passed = 0.0
    for number, size in enumerate(profile):
        if passed + size >= wanted and size > 0:
            within = (wanted - passed) / size
            return whole.start_offset + int(whole.offsets * (number + within) / slices)
        passed += size
    return whole.end_offset
