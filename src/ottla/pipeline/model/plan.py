"""Plan of a load: committed offsets and the partitions' ends -> ranges, divided into tasks by bytes.

The table is the source of truth. Each topic partition has an application id, `pipeline/topic id/partition`, whose
committed version is the next offset. A topic that was deleted and recreated has a new id, so it loads from its start. A
topic of another cluster is refused if the table has rows of a topic of that name, since rows of both would look alike.
A second application id stores the leader epoch in which that offset was the end: after an unclean election or a lost
disk other records can have the same offsets, and only the epoch distinguishes them (KIP-320).

**Invariants:** the tasks of a partition cover its range without gap or overlap; ranges end where they were planned to
end, regardless of records that arrive meanwhile; nothing is planned past the last stable offset under read_committed;
no record below the table's offset that was written after a truncation is skipped: the load is refused, or starts at the
truncation offset.

A range starts at the committed offset. Exceptions: the first load of a pipeline id, a truncated log, and skipped data
loss.

Sizes are estimated by small fetches at points spread over a range, since no request returns the bytes between two
offsets; a wrong estimate makes tasks uneven, never wrong. Planning uses only requests; the tasks may read segment files
(`sources/segments`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from ottla.client.wire.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_OFFSET,
    ClusterInfo,
    FetchResult,
    OffsetInfo,
    TopicInfo,
)
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, OttlaError
from ottla.common.kafka.ids import Uuid, uuid_from_string, uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.runbooks import LOAD_REFUSED
from ottla.pipeline.model.rollback import LoadRefusedError
from ottla.record.legacy.stored import iter_any_batches

if TYPE_CHECKING:
    from ottla.pipeline.model.rollback import Rollback
    from ottla.pipeline.model.row_bounds import RowBounds

DEFAULT_MAX_BYTES_PER_TASK = 256 << 20
MIN_BYTES_PER_TASK = 8 << 20
"""Below this a range is not cut only to keep another core busy: tiny files cost every later reader."""
SAMPLE_POINTS = 8
SAMPLE_BYTES = 64 << 10
SAMPLE_WAIT_MS = 100

PIPELINE_ID = re.compile(r"[^/]{1,200}")

OnDataLoss = Literal["fail", "skip"]
OnRollback = Literal["fail", "skip"]
OnMismatch = Literal["dead-letter", "null"]
SourceKind = Literal["auto", "fetch", "segments"]
"""Source of records: segment files of local brokers where they exist and brokers otherwise, brokers, segment files
only."""


SKIP_DATA_LOSS = "set failOnDataLoss to false"
"""The remedy of a DataLossError, with the option of the Spark data source; commands replace it by their own option."""


class DataLossError(OttlaError):
    """Records were deleted before they were loaded, or replaced afterwards; the message names partition, offsets and
    the remedy."""

    runbook = LOAD_REFUSED


class TopicView(Protocol):
    """The part of `Cluster.topics` that planning and landing use."""

    def get(self, name: str) -> TopicInfo: ...


class RecordView(Protocol):
    """The part of `Cluster.records` that planning and landing use."""

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, isolation: str = ...
    ) -> dict[tuple[str, int], OffsetInfo]: ...
    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]: ...
    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        isolation: str,
        topic_id: Uuid | None,
    ) -> FetchResult: ...


class ClusterView(Protocol):
    """The part of `Cluster` that planning and landing use."""

    def describe(self) -> ClusterInfo: ...
    @property
    def topics(self) -> TopicView: ...
    @property
    def records(self) -> RecordView: ...


@dataclass(frozen=True, slots=True)
class Boundary:
    """Start of the loads of a pipeline id, or end of one: an offset, or a time as in ListOffsets (milliseconds from the
    epoch, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)."""

    offset: int | None = None
    timestamp: int = EARLIEST_TIMESTAMP

    def precedes(self, other: Boundary) -> bool:
        """True where the order does not depend on the log's content: between two offsets, and between two times."""
        if self.offset is not None and other.offset is not None:
            return self.offset < other.offset
        return self.offset is None and other.offset is None and self._instant < other._instant

    @property
    def _instant(self) -> float:
        return _INSTANTS.get(self.timestamp, self.timestamp)

    def resolve(
        self, cluster: ClusterView, ends: Mapping[TopicPartition, OffsetInfo], isolation: str
    ) -> dict[TopicPartition, int]:
        """Offset per partition; for a time, of the first record with that timestamp or a later one, else the end."""
        if self.offset is not None:
            return dict.fromkeys(ends, self.offset)
        found = cluster.records.list_offsets(dict.fromkeys(ends, self.timestamp), isolation=isolation)
        return {key: ends[key].offset if info.offset == NO_OFFSET else info.offset for key, info in found.items()}


_INSTANTS = {EARLIEST_TIMESTAMP: -math.inf, LATEST_TIMESTAMP: math.inf}


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """The topics that a table has rows of, by their latest loads."""

    ids: Mapping[str, str] = field(default_factory=dict)
    """Topic name -> id."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Topic name -> id of its cluster; absent for topics that were loaded before tables stored it."""


class TableState(Protocol):
    """Progress of earlier loads that a table stores."""

    def committed_offsets(self, app_ids: Iterable[str]) -> dict[str, int | None]: ...
    def known_topics(self) -> KnownTopics: ...


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start_offset, end_offset) of one partition; `size_bytes` is an estimate of the stored bytes.

    `leader_epoch`: that of the leader that returned the end, -1 if it returned none.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    leader_epoch: int = -1

    @property
    def offsets(self) -> int:
        return self.end_offset - self.start_offset


def fetch_planned(
    cluster: ClusterView, whole: OffsetRange, offset: int, isolation: str, *, max_bytes: int, max_wait_ms: int
) -> FetchResult:
    """Fetch once from `offset` on, from the planned topic id; a recreated topic of the same name raises.

    Raises TopicNotFound, TopicReplaced, KafkaError.
    """
    return cluster.records.fetch(
        whole.topic,
        whole.partition,
        offset,
        max_bytes=max_bytes,
        max_wait_ms=max_wait_ms,
        isolation=isolation,
        topic_id=uuid_from_string(whole.topic_id),
    )


@dataclass(slots=True)
class LetterPlan:
    """Plan for the table of dead letters, which is committed first, and only if there are any.

    `held`: its offsets where a load died between both commits or lost a race; those letters are not written twice.
    """

    held: dict[TopicPartition, int] = field(default_factory=dict)
    expected: dict[str, int | None] = field(default_factory=dict)
    following: dict[str, int] = field(default_factory=dict)
    accepted_rollback: Rollback | None = None


@dataclass(slots=True)
class LoadPlan:
    """`expected` and `following` are the table's offsets and epochs before and after the commit, by application id."""

    pipeline_id: str
    isolation: str
    ranges: list[OffsetRange] = field(default_factory=list)
    tasks: list[OffsetRange] = field(default_factory=list)
    expected: dict[str, int | None] = field(default_factory=dict)
    following: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    cluster_id: str = ""
    """Id of the cluster that is read, empty if it returns none."""
    reached: dict[TopicPartition, int] = field(default_factory=dict)
    """The table's next offset in every partition after the load, including those that the load does not move."""
    letters: LetterPlan = field(default_factory=LetterPlan)
    notes: list[str] = field(default_factory=list)
    """Facts for the operator: recreated topics, skipped offsets."""
    skipped_offsets: int = 0
    bounds: RowBounds | None = None
    """Selects records of the ranges; None: all."""
    accepted_rollback: Rollback | None = None
    """The table's rollback that the operator accepts; its rows stay missing."""

    @property
    def is_empty(self) -> bool:
        """True when a commit would change nothing."""
        return not self.following and self.accepted_rollback is None

    @property
    def offsets(self) -> int:
        return sum(part.offsets for part in self.ranges)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.ranges)

    @property
    def readable_ranges(self) -> dict[str, tuple[int, int]]:
        """`topic/partition` -> offsets [start, end)."""
        return {f"{part.topic}/{part.partition}": (part.start_offset, part.end_offset) for part in self.ranges}

    def move(self, name: str, offset: int, leader_epoch: int, committed: Mapping[str, int | None]) -> None:
        """Let the commit move an application id from its `committed` offset to `offset`, the end of that epoch."""
        self.expected[name] = committed[name]
        self.following[name] = offset
        if leader_epoch >= 0:
            self.expected[epoch_app_id(name)] = committed[epoch_app_id(name)]
            self.following[epoch_app_id(name)] = leader_epoch


class DeadLettersError(OttlaError):
    """A load has more dead letters than its limit; nothing was committed."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class LetterLimit:
    """The maximum number of dead letters of a load, or their maximum percentage of its records."""

    count: int | None = None
    percent: float = 100.0

    def check(self, letters: int, rows: int) -> None:
        """Raise DeadLettersError for more dead letters; `rows` are the other records."""
        if self.count is not None:
            if letters <= self.count:
                return
            limit = f"{self.count:,}"
        else:
            if letters * 100 <= self.percent * (letters + rows):
                return
            limit = f"{self.percent:g}%"
        raise DeadLettersError(
            f"{letters:,} of {letters + rows:,} records can't be stored, and --max-dead-letters is {limit}: nothing "
            "was committed; correct --decode or --schema, or raise the limit to load the other records"
        )


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Settings of a plan. `parallelism` is the number of concurrent tasks."""

    pipeline_id: str = "default"
    isolation: str = "read_committed"
    max_bytes_per_task: int = DEFAULT_MAX_BYTES_PER_TASK
    parallelism: int = 1
    on_data_loss: OnDataLoss = "fail"
    on_rollback: OnRollback | None = None
    """Reaction to a table that was rolled back below its newest load; None where the load must fail."""
    source: SourceKind = "fetch"
    start: Boundary | None = None
    """Where the first load of the pipeline id starts, in place of the start of the log; refused for a later one."""
    end: Boundary | None = None
    """Where this load ends, if that is before the end of the log."""
    on_mismatch: OnMismatch = "dead-letter"
    """Place of a record that can't be decoded: the table of dead letters, or the table, with nulls."""
    max_dead_letters: LetterLimit | None = None
    """Dead letters beyond which nothing is committed; None without a limit."""
    follows_log: bool = False
    """The table mirrors the log exactly: a truncated log is read again from its start."""

    def __post_init__(self) -> None:
        if not PIPELINE_ID.fullmatch(self.pipeline_id) or not self.pipeline_id.isprintable():
            raise OperatorError(
                f"the pipeline id {self.pipeline_id!r} must have 1 to 200 characters, none of them '/' or a control "
                "character"
            )
        if self.max_bytes_per_task < 1:
            raise OperatorError("--max-bytes-per-task must be at least 1")
        if self.start is not None and self.end is not None and self.end.precedes(self.start):
            raise OperatorError("--to is before --from, so nothing would be loaded; exchange them")


def app_id(pipeline_id: str, topic_id: str, partition: int) -> str:
    """The application id of one partition in the table's transaction log."""
    return f"{pipeline_id}/{topic_id}/{partition}"


def epoch_app_id(name: str) -> str:
    """The application id beside `app_id`: its version is the leader epoch in which the committed offset was the end."""
    return f"{name}/leader-epoch"


def make_plan(
    cluster: ClusterView,
    table: TableState,
    topics: Sequence[str],
    settings: PlanSettings,
    dead_letters: TableState | None = None,
) -> LoadPlan:
    """Plan one load of `topics` into `table` and, beside it, `dead_letters`.

    Raises DataLossError, TopicNotFound, KafkaError, and OperatorError for topics of another cluster.
    """
    plan = LoadPlan(settings.pipeline_id, settings.isolation, cluster_id=cluster.describe().cluster_id or "")
    known = table.known_topics()
    for name in dict.fromkeys(topics):
        topic = cluster.topics.get(name)
        topic_id = uuid_to_string(topic.topic_id)
        plan.topic_ids[name] = topic_id
        require_cluster(name, known.clusters.get(name, ""), plan.cluster_id)
        if known.ids.get(name, topic_id) != topic_id:
            what = _replaced_text(known.clusters.get(name, ""))
            plan.notes.append(
                f"topic {name!r} {what} since the last load (id {known.ids[name]}, now {topic_id}): its records load "
                "from the first one, the rows of the old topic " + ("are void" if settings.follows_log else "stay")
            )
        ends = _plan_topic(cluster, table, topic, topic_id, settings, plan)
        if dead_letters is not None:
            plan_letters(cluster, dead_letters, name, topic_id, ends, plan)
    cut_into_tasks(cluster, plan, settings)
    return plan


def require_cluster(topic: str, before: str, cluster_id: str) -> None:
    """Raise OperatorError where a topic was read of one cluster and is now of another; empty ids are not known."""
    if before and cluster_id and before != cluster_id:
        raise LoadRefusedError(
            f"topic {topic!r} was loaded from cluster {before}, but --bootstrap-server names cluster {cluster_id}, "
            f"where that name is a different topic: name a server of cluster {before}, or load from {cluster_id} into "
            "another table"
        )


def _replaced_text(cluster_id: str) -> str:
    """Reason for a changed topic id; if the id of the cluster is not known, it may also be another cluster."""
    return "was deleted and created again" + ("" if cluster_id else ", or its cluster is another one,")


def cut_into_tasks(cluster: ClusterView, plan: LoadPlan, settings: PlanSettings) -> None:
    """Set the sizes of the plan's ranges, and cut them into tasks."""
    profiles = _measure_all(cluster, plan)
    per_task = min(settings.max_bytes_per_task, max(MIN_BYTES_PER_TASK, plan.size_bytes // settings.parallelism + 1))
    for whole, profile in zip(plan.ranges, profiles, strict=True):
        plan.tasks += split(whole, profile, per_task)
    plan.tasks.sort(key=lambda task: task.size_bytes, reverse=True)  # the longest first: no straggler at the end


def _plan_topic(
    cluster: ClusterView, table: TableState, topic: TopicInfo, topic_id: str, settings: PlanSettings, plan: LoadPlan
) -> dict[TopicPartition, OffsetInfo]:
    """Add the topic's ranges to the plan; returns the ends of its partitions."""
    keys = [(topic.name, info.index) for info in topic.partitions]
    starts = cluster.records.list_offsets(dict.fromkeys(keys, EARLIEST_TIMESTAMP))
    ends = cluster.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP), isolation=settings.isolation)
    names = {key: app_id(settings.pipeline_id, topic_id, key[1]) for key in keys}
    committed = table.committed_offsets([*names.values(), *map(epoch_app_id, names.values())])
    held = {key: before for key, name in names.items() if (before := committed[name]) is not None}
    truncated = find_truncations(cluster, held, {key: committed[epoch_app_id(names[key])] for key in held}, ends)
    first = _first_offsets(cluster, held, starts, ends, settings)
    stops = settings.end.resolve(cluster, ends, settings.isolation) if settings.end else {}
    moved: list[TopicPartition] = []
    idle: list[TopicPartition] = []
    for key in names:
        log_start, end = starts[key].offset, ends[key].offset
        end = min(end, stops.get(key, end))
        before = held.get(key)
        start = first[key] if before is None else before
        if key in truncated:
            start = log_start if settings.follows_log else truncated[key]
            _note(_truncation_text(key, truncated[key], held[key]), f"load from offset {start} on", settings, plan)
        lost = max(log_start - start, 0)
        if lost:
            plan.skipped_offsets += lost
            what = f"{_where(key)}: offsets {start} to {log_start - 1} were deleted before they were loaded"
            _note(what, "load the remaining records", settings, plan)
            start = log_start
        plan.reached[key] = max(start, end)
        if start < end:
            moved.append(key)
            epoch = ends[key].leader_epoch
            plan.ranges.append(OffsetRange(key[0], topic_id, key[1], start, end, 0, epoch))
        elif before is None and settings.start is None and not lost:
            idle.append(key)
        elif start != before:
            moved.append(key)
    if moved:  # an idle partition's start reveals later deletions above it
        for key in (*moved, *idle):
            plan.move(names[key], plan.reached[key], ends[key].leader_epoch, committed)
    return ends


def _first_offsets(
    cluster: ClusterView,
    held: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, OffsetInfo],
    ends: Mapping[TopicPartition, OffsetInfo],
    settings: PlanSettings,
) -> dict[TopicPartition, int]:
    """Start offsets of partitions that the table has no offset for. Raises OperatorError if --from can't apply."""
    if settings.start is None:  # a partition that was added later loads from its first record
        return {key: 0 if held else info.offset for key, info in starts.items()}
    for key, before in held.items():
        raise OperatorError(
            f"the pipeline id {settings.pipeline_id!r} has loaded {_where(key)} up to offset {before}, and --from "
            "sets only the start of a new pipeline id. Leave --from out to continue, or load the earlier records "
            "under another --pipeline-id into another table"
        )
    found = settings.start.resolve(cluster, ends, settings.isolation)
    for key, offset in found.items():
        if offset > ends[key].offset:
            raise OperatorError(f"{_where(key)}: --from offset {offset} is beyond its end, offset {ends[key].offset}")
    return found


def plan_letters(
    cluster: ClusterView,
    letters: TableState,
    topic: str,
    topic_id: str,
    ends: Mapping[TopicPartition, OffsetInfo],
    plan: LoadPlan,
) -> None:
    """Plan where the dead letters of a topic's ranges resume. A log truncated below them has other records from there
    on."""
    names = {key: app_id(plan.pipeline_id, topic_id, key[1]) for key in ends}
    names = {key: name for key, name in names.items() if name in plan.following}
    committed = letters.committed_offsets([*names.values(), *map(epoch_app_id, names.values())])
    held = {key: offset for key, name in names.items() if (offset := committed[name]) is not None}
    truncated = find_truncations(cluster, held, {key: committed[epoch_app_id(names[key])] for key in held}, ends)
    plan.letters.held |= held | truncated
    for key, name in names.items():
        plan.letters.expected |= {one: committed[one] for one in (name, epoch_app_id(name)) if one in plan.following}
        plan.letters.following[name] = max(plan.following[name], plan.letters.held.get(key, 0))
        if epoch_app_id(name) in plan.following:
            plan.letters.following[epoch_app_id(name)] = plan.following[epoch_app_id(name)]


def find_truncations(
    cluster: ClusterView,
    held: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, OffsetInfo],
) -> dict[TopicPartition, int]:
    """Ends of logs that are shorter than the table's offsets: above them the log differs from the table.

    Raises DataLossError for a log whose leader epochs went back, since the point of divergence is then unknown.
    """
    asked: dict[TopicPartition, int] = {}
    for key in held:
        epoch, newest = epochs[key], ends[key].leader_epoch
        if epoch is not None and 0 <= newest < epoch:
            raise DataLossError(
                f"{_where(key)}: the table was loaded up to leader epoch {epoch}, but the newest is {newest}: the "
                "topic was reverted to an older state, so the records that the table lacks are unknown; load it "
                "from its start under another --pipeline-id or into another table"
            )
        if newest >= 0:
            asked[key] = newest if epoch is None else epoch  # the end of the newest epoch is the log end
    known = cluster.records.epoch_ends(asked) if asked else {}
    found = {}
    for key, before in held.items():
        log_end = known.get(key, NO_OFFSET)
        if log_end == NO_OFFSET:
            log_end = ends[key].offset
        if log_end < before:
            found[key] = log_end
    return found


def _where(key: TopicPartition) -> str:
    return f"topic {key[0]!r} partition {key[1]}"


def _truncation_text(key: TopicPartition, log_end: int, before: int) -> str:
    return (
        f"{_where(key)}: the log was truncated to offset {log_end}, but the table has offsets up to {before}: its rows "
        f"of offsets {log_end} to {before - 1} are of lost records, and other records have these offsets now"
    )


def _note(what: str, way_out: str, settings: PlanSettings, plan: LoadPlan) -> None:
    """Record a data loss that the operator accepts, else raise DataLossError."""
    if settings.on_data_loss == "fail":
        raise DataLossError(f"{what}; {way_out} with --on-data-loss skip")
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
    return replace(whole, size_bytes=math.ceil(sum(profile)))


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
    """(offset after the sample, its bytes): whole batches only, so the first offset may be before the requested one."""
    following, size = offset, 0
    try:
        result = fetch_planned(cluster, whole, offset, isolation, max_bytes=SAMPLE_BYTES, max_wait_ms=SAMPLE_WAIT_MS)
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return following, size  # deleted since planning: the task that reads this offset reports the loss
    try:
        for batch in iter_any_batches(result.records):
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
        replace(whole, start_offset=start, end_offset=end, size_bytes=share)
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
