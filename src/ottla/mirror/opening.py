"""Start of a session: topics of the target, committed progress, and the resume position of each partition.

The order ensures exactly-once: first a new epoch of every transactional id is taken (`producers`), so that no earlier
mirror can commit progress. Only then progress is read, up to the current end of the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import BatchProducer
from ottla.client.librdkafka.consumer import RecordConsumer
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ConfigEntry, ResourceType, TopicInfo
from ottla.client.wire.outage import Notify
from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.mirror.progress import Journal, Progress
from ottla.mirror.refusals import explained
from ottla.mirror.routes import (
    BROKER_DEFAULTS,
    PROGRESS_TOPIC,
    Origin,
    Route,
    TargetSettings,
    copied_settings,
    refuse_cycle,
)

PROGRESS: TopicPartition = (PROGRESS_TOPIC, 0)
COMPACT = "compact"
POLICY = "cleanup.policy"
MAX_REQUEST = "socket.request.max.bytes"
PROGRESS_BATCH_BYTES = "1048588"
"""Kafka's default, used also if the target's is smaller."""
CREATION_REFUSALS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ACLs: CREATE on the cluster",
    ErrorCode.INVALID_CONFIG: "the limits of the setting",
    ErrorCode.INVALID_PARTITIONS: "the limits of partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "default.replication.factor",
    ErrorCode.POLICY_VIOLATION: "create.topic.policy.class.name",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ACLs: CREATE on the topic",
}
"""Settings by which brokers reject the creation of a topic."""
PATIENCE_S = 0.5
"""Longest wait for data before `while_waiting` is called again."""


class Endpoint(NamedTuple):
    """One of the two clusters."""

    bootstrap_servers: str
    security: ClientSecurity


class ResumePosition(NamedTuple):
    """The resume position of a route."""

    progress: Progress
    known: bool
    """Progress is stored in the progress topic unchanged."""
    target_count: int
    stale: tuple[int, ...]
    """Start offsets of transactions with runs that are no longer valid."""


class ProgressTopic:
    """The progress topic of the target, as of the first session: a replacement would lack earlier progress.

    It is identified by its topic id. Without ids (before Apache Kafka 2.8), or just after a deletion, it is identified
    by the offsets of written records, which only increase.
    """

    def __init__(self) -> None:
        self._topic_id: Uuid | None = None
        self._end = 0

    def require_same(self, topic_id: Uuid | None) -> None:
        """Raise OperatorError if the id differs from that of the first call, or is None now."""
        if self._topic_id is None:
            self._topic_id = topic_id
        if topic_id != self._topic_id:
            raise _progress_lost()

    def reached(self, end: int) -> None:
        """The topic end is at least this offset."""
        self._end = max(self._end, end)

    def written(self, offset: int) -> None:
        """A record got this offset. Raises OperatorError for an offset that was assigned before."""
        if offset < self._end:
            raise _progress_lost()
        self._end = offset + 1


def _progress_lost() -> OperatorError:
    return OperatorError(
        f"topic {PROGRESS_TOPIC!r} of the target was deleted or lost records while this mirror ran, so the "
        "progress is unknown and the mirror stops: restart it to see the affected topics"
    )


class JournalReader:
    """Reads the progress topic of a cluster."""

    def __init__(self, endpoint: Endpoint, cluster: Cluster, notify: Notify) -> None:
        self._endpoint = endpoint
        self._cluster = cluster
        self._notify = notify
        self._journal = Journal()
        self._next: int | None = None

    def read(self, isolation: str, while_waiting: Callable[[], None] = lambda: None) -> Journal:
        """The committed state below the current end of the topic; returns the same object each time.

        Waits for the read_uncommitted end, below which open transactions must be completed first. Meanwhile
        `while_waiting` is called repeatedly; it may raise.
        """
        if self._next is None:
            self._next = self._cluster.records.list_offsets({PROGRESS: EARLIEST_TIMESTAMP})[PROGRESS].offset
        end = self._cluster.records.list_offsets({PROGRESS: LATEST_TIMESTAMP}, isolation=isolation)[PROGRESS].offset
        consumer = RecordConsumer(
            self._endpoint.bootstrap_servers,
            {PROGRESS: self._next},
            ends={PROGRESS: end},
            notify=self._notify,
            security=self._endpoint.security,
        )
        with consumer:
            while not consumer.is_done:
                for records in consumer.batches(idle_timeout_s=PATIENCE_S):
                    for record in records:
                        self._journal.replay(record.offset, record.key, record.value)
                while_waiting()
        self._next = max(self._next, end)
        return self._journal

    @property
    def end(self) -> int:
        """End of the part that was read."""
        return self._next or 0


def origins(
    endpoint: Endpoint, source: Cluster, names: Iterable[str], ids: tuple[str, str], notify: Notify
) -> dict[str, frozenset[Origin]]:
    """The origins of the records of each topic. Raises OperatorError for a cycle."""
    source_id, target_id = ids
    journal = Journal()
    if PROGRESS_TOPIC in source.topics.all():
        journal = JournalReader(endpoint, source, notify).read("read_committed")
    found = {name: journal.origins_of(source_id, name) for name in names}
    for name, came_from in found.items():
        refuse_cycle(name, target_id, came_from)
    return found


def make_topics(
    source: Cluster, target: Cluster, names: Mapping[str, str], chosen: Mapping[str, TopicInfo], kept: ProgressTopic
) -> None:
    """Create missing topics of the target. Raises OperatorError for a progress topic that may lose or has lost
    progress."""
    there = target.topics.all()
    if PROGRESS_TOPIC not in there:
        _create(target, PROGRESS_TOPIC, 1, {POLICY: COMPACT, "max.message.bytes": PROGRESS_BATCH_BYTES})
    entries = target.configs.describe(ResourceType.TOPIC, PROGRESS_TOPIC)
    info = target.topics.get(PROGRESS_TOPIC)
    kept.require_same(info.topic_id)
    if [entry.value for entry in entries if entry.name == POLICY] != [COMPACT] or len(info.partitions) != 1:
        raise OperatorError(
            f"topic {PROGRESS_TOPIC!r} of the target must have one partition and {POLICY}={COMPACT} to store "
            "progress: change it, or delete the topic if no mirror uses it"
        )
    missing = {name: info for name, info in chosen.items() if names[name] not in there}
    known = _target_settings(target, entries) if missing else None
    for name, info in missing.items():
        if known is not None:
            settings = copied_settings(source.configs.describe(ResourceType.TOPIC, name), known)
            _create(target, names[name], len(info.partitions), settings)


def _target_settings(target: Cluster, progress: Sequence[ConfigEntry]) -> TargetSettings:
    """The settings of the target, from those of the progress topic, and of its broker if the user may describe it."""
    defaults = {entry.name: entry.value for entry in progress if entry.value is not None and entry.source != "topic"}
    for entry in _broker_settings(
        target, target.topics.get(PROGRESS_TOPIC).partitions[0].leader, list(BROKER_DEFAULTS)
    ):
        if entry.value is not None:
            defaults[BROKER_DEFAULTS[entry.name]] = entry.value
    return TargetSettings(frozenset(entry.name for entry in progress), defaults)


def _broker_settings(target: Cluster, node_id: int, names: Sequence[str]) -> list[ConfigEntry]:
    """Settings of a broker; empty if the user may not describe them or the broker cannot."""
    try:
        return target.configs.describe(ResourceType.BROKER, str(node_id), names)
    except KafkaError:
        return []


def _create(cluster: Cluster, name: str, count: int, settings: Mapping[str, str]) -> None:
    try:
        cluster.topics.create(name, count, configs=settings)
    except KafkaError as error:
        if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise OperatorError(
                f"{error.message}; choose another --rename, or leave that topic out of --topics"
            ) from error
        if error.code in CREATION_REFUSALS:
            given = ", ".join(f"{key}={value}" for key, value in sorted(settings.items())) or "no settings"
            raise KafkaError(
                error.code,
                f"the target rejected creation of topic {name!r} with {count} partitions and {given}: {error.message}; "
                f"create it there with settings that are accepted, or allow this ({CREATION_REFUSALS[error.code]})",
            ) from error
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # created by another mirror
            raise


def take_ids(target: Cluster, routes: Sequence[Route]) -> dict[Route, BatchProducer]:
    """Take new epochs of the transactional ids, which fences earlier mirrors. Raises KafkaError."""
    limit = _max_request_bytes(target, routes)
    producers = {route: BatchProducer(target, route.transactional_id, limit) for route in routes}
    for route, producer in producers.items():
        try:
            producer.initialize()
        except KafkaError as error:
            raise explained(error, route) from error
    return producers


def _max_request_bytes(target: Cluster, routes: Iterable[Route]) -> int | None:
    """The smallest `socket.request.max.bytes` of the leaders of target partitions; None if it is not visible."""
    names = sorted({route.target for route in routes})
    leaders = {each.leader for name in names for each in target.topics.get(name).partitions if each.is_led}
    entries = [entry for node_id in sorted(leaders) for entry in _broker_settings(target, node_id, [MAX_REQUEST])]
    return min((int(entry.value) for entry in entries if entry.value is not None), default=None)


def filled_topics(target: Cluster, routes: Iterable[Route]) -> frozenset[str]:
    """The topics of the target that contain records now.

    Called before progress is read, because progress of other mirrors that is written later would be missed.
    """
    counts = {name: len(target.topics.get(name).partitions) for name in sorted({route.target for route in routes})}
    keys = [(name, index) for name, count in counts.items() for index in range(count)]
    ends = target.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP), isolation="read_committed")
    return frozenset(name for (name, _), info in ends.items() if info.offset > 0)


def require_known(journal: Journal, routes: Iterable[Route], filled: frozenset[str]) -> None:
    """Raise OperatorError if a topic of the target has records, but no progress of a copy into it.

    Progress of one partition is enough, since others may have been added later. Progress from another source is enough,
    too: several sources may be copied to one topic.
    """
    known = {route.target for route in journal.progress}
    unknown = {route._replace(partition=0) for route in routes if route.target in filled - known}
    if unknown:
        first = min(unknown)
        others = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise OperatorError(
            f"topic {first.target!r} of the target contains records, but topic {PROGRESS_TOPIC!r} has no "
            f"progress for a copy of {first.topic!r} of the source{others}: a copy from the beginning could duplicate "
            "records; delete the topic in the target to copy it again, choose another --rename, or use --append to "
            "append to the existing records"
        )


def starts(
    source: Cluster,
    target: Cluster,
    journal: Journal,
    routes: Sequence[Route],
    came_from: Mapping[str, frozenset[Origin]],
    notify: Notify,
    *,
    with_map: bool,
) -> dict[Route, ResumePosition]:
    """The resume position of each route; extends topics of the target that grow with the source.

    `with_map`: start storing runs, if they were not stored yet.

    Raises OperatorError for a source that lost copied records.
    """
    names = {(route.cluster_id, route.topic, route.target) for route in routes}
    targets = {
        name: target.topics.get(name) for *_, name in sorted(names)
    }  # before the source, which is extended first
    sources = {topic: source.topics.get(topic) for _, topic, _ in sorted(names)}
    latest = {
        route: _valid(progress, sources[route.topic], targets[route.target])
        for route, progress in journal.progress.items()
        if (route.cluster_id, route.topic, route.target) in names
    }
    together = {(route.topic, route.target) for route, progress in latest.items() if progress and progress.in_step}
    for topic, name in sorted(together):
        count = len(sources[topic].partitions)
        if len(targets[name].partitions) < count:
            targets[name] = _grown(target, name, count)
    keys = [(route.topic, route.partition) for route in routes]
    firsts = source.records.list_offsets(dict.fromkeys(keys, EARLIEST_TIMESTAMP))
    ends = source.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP))
    found: dict[Route, ResumePosition] = {}
    for route in routes:
        key, before = (route.topic, route.partition), journal.progress.get(route)
        first, offset = firsts[key].offset, firsts[key].offset
        progress = latest.get(route)
        if progress is not None:
            offset = _resumed(route, progress.offset, first, ends[key].offset, notify)
        elif before is not None:
            notify(
                f"{route.topic}-{route.partition} is copied from its start: the source or target topic was recreated"
            )
        count = len(targets[route.target].partitions)
        in_step = count == len(sources[route.topic].partitions)
        mapped_from = _mapped_from(progress, offset, first, in_step=in_step) if with_map else None
        now = Progress(
            offset,
            sources[route.topic].topic_id,
            targets[route.target].topic_id,
            in_step,
            came_from[route.topic],
            mapped_from,
            () if progress is None else progress.target_ends,
            0 if progress is None else progress.skipped,
        )
        continued = progress is not None and mapped_from is not None and progress.mapped_from == mapped_from
        stale = [] if continued else sorted(journal.runs.get(route, {}))
        found[route] = ResumePosition(now, now == before and not stale, count, tuple(stale))
    return found


def _grown(target: Cluster, name: str, count: int) -> TopicInfo:
    try:
        target.topics.create_partitions(name, count)
    except KafkaError as error:
        if error.code != ErrorCode.INVALID_PARTITIONS:  # extended by another mirror
            raise
    found = target.topics.get(name)
    if len(found.partitions) < count:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} of the target lacks its new partitions yet")
    return found


def _mapped_from(progress: Progress | None, offset: int, first: int, *, in_step: bool) -> int:
    """The first source offset with runs: unchanged, unless merged partitions no longer are. At the start of the source
    nothing is missing."""
    if progress is not None and progress.mapped_from is not None and progress.in_step >= in_step:
        return progress.mapped_from
    return 0 if offset == first and progress is None else offset


def _valid(progress: Progress | None, source: TopicInfo, target: TopicInfo) -> Progress | None:
    """Progress, unless it belongs to earlier topics with the same names."""
    if progress is None or (progress.source_topic_id, progress.target_topic_id) != (source.topic_id, target.topic_id):
        return None
    return progress


def _resumed(route: Route, offset: int, first: int, end: int, notify: Notify) -> int:
    where = f"{route.topic}-{route.partition}"
    if offset > end:
        raise OperatorError(
            f"{where} of the source ends at offset {end}, but was copied up to {offset}: the source lost records and "
            f"reused their offsets; delete topic {route.target!r} of the target to copy it again"
        )
    if offset < first:
        notify(
            f"{where} of the source now starts at offset {first}: {first - offset} offsets were deleted before they "
            "were copied"
        )
    return max(offset, first)
