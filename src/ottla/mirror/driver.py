"""Fetches, writes and commits the decisions of the pure modules: one transaction per fetch of a partition with data,
under the partition's own transactional id, together with its progress.

A failure during a transaction ends the session. The next session takes new epochs of all transactional ids, which
completes open transactions, and reads the committed progress. No outcome is guessed, and recovery after a lost
connection and after kill -9 are the same. This is also how several mirrors share the work: a session copies the
partitions that a consumer group of the source assigned, and ends when the group revokes them. A mirror that misses the
revocation is fenced by the new owner.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import TRANSACTION_TIMEOUT_MS, BatchProducer, BatchRefused
from ottla.client.librdkafka.membership import Membership
from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.model import LATEST_TIMESTAMP, FetchResult, TopicInfo
from ottla.client.wire.outage import Notify, OutageReporter
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, OttlaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.mirror.acls import AclMirror
from ottla.mirror.copying import PartitionCopy, Step
from ottla.mirror.groups import GroupMirror
from ottla.mirror.opening import (
    PROGRESS,
    Endpoint,
    JournalReader,
    ProgressTopic,
    ResumePosition,
    filled_topics,
    make_topics,
    origins,
    require_known,
    starts,
    take_ids,
)
from ottla.mirror.option_values import STOP
from ottla.mirror.progress import Progress, Run, map_record, progress_record
from ottla.mirror.put_back import require_kept
from ottla.mirror.refusals import (
    FENCED_ERRORS,
    PASSING_ERRORS,
    RecordRefused,
    Refusals,
    WrittenStep,
    explained,
    progress_refused,
    require_readable,
)
from ottla.mirror.routes import PROGRESS_TOPIC, Origin, Route, chosen_topics, renamed, require_two_clusters
from ottla.mirror.translation import RouteMap, kept_map, maps_of_topic
from ottla.record.batch import BatchView
from ottla.record.builder import build_batch

CLIENT_ID = "ottla-mirror"
FETCH_BYTES = 8 * 1024 * 1024
"""For all partitions together, and so about the largest transaction."""
FETCH_WAIT_MS = 500
REFRESH_S = 30.0
"""Interval for checks of new, extended and deleted topics, and of cycles."""
CARRY_S = 5.0
"""Interval for copying group offsets."""
RECORDS_IN_BATCH = 1_000
"""Maximum number of progress records in one batch."""
JOIN_LIMIT_S = 60.0
"""Wait for an assignment of the group before it is reported as an outage."""
POLL_S = 0.5
LAST_WORDS_S = 5.0
"""Time limit for aborting open transactions at the end."""
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0


class Settings(NamedTuple):
    """Options of the mirror."""

    pattern: re.Pattern[str]
    template: str
    once: bool
    interval_s: float
    """Seconds between reports."""
    groups: re.Pattern[str] | None = None
    """Groups to copy offsets of."""
    acls: bool = False
    append: bool = False
    """Append to target topics with records but without known progress."""
    share: str | None = None
    """Consumer group of the source with which several mirrors share the work; not with `once`."""
    on_refused: str = STOP
    """`STOP` or `SKIP` of `option_values`: stop or skip the record when the target rejects one."""


class Totals:
    """Totals since the start; `lags` are the offsets left to copy by topic. `skipped` are the rejected records by
    partition, including those of earlier runs."""

    def __init__(self) -> None:
        self.begun_s = time.monotonic()
        self.records = 0
        self.bytes = 0
        self.transactions = 0
        self.lags: dict[TopicPartition, int] = {}
        self.skipped: dict[TopicPartition, int] = {}

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begun_s


class _AssignmentChanged(Exception):
    """The topics or partitions to copy have changed since the session started, or their owner has."""


class _NothingToCopy(OperatorError):
    """No topic name matches, which is an error at the start."""


class Mirror:
    """Copies from one cluster to another, to the current end (`once`) or forever."""

    def __init__(
        self, source: Endpoint, target: Endpoint, settings: Settings, notify: Notify, report: Callable[[Totals], None]
    ) -> None:
        """`notify` receives messages for the operator, `report` the totals periodically."""
        self._ends: tuple[Endpoint, Endpoint] = source, target
        self._settings = settings
        self._notify = notify
        self._report = report
        self._totals = Totals()
        self._goals: dict[TopicPartition, int] = {}
        """With `once`: the ends of the partitions at the start."""
        self._progress_topic = ProgressTopic()
        self._members: Membership | None = None
        if settings.share is not None:
            self._members = Membership(
                source.bootstrap_servers, settings.share, client_id=CLIENT_ID, security=source.security
            )

    def run(self) -> None:
        """Copy. Raises OperatorError, KafkaError and BrokerUnreachable for permanent errors."""
        try:
            self._run()
        finally:
            if self._members is not None:
                self._members.leave()

    def _run(self) -> None:
        outage, pause_s, begun = OutageReporter(self._notify), FIRST_PAUSE_S, False
        copied = gone = False
        while True:
            source_end, target_end = self._ends
            with _cluster(source_end) as source, _cluster(target_end) as target:
                session = Session(
                    source, target, self._ends, self._settings, self._members, self._progress_topic, self._notify
                )
                try:
                    session.open(self._goals)
                    outage.ended()
                    pause_s, copied, gone = FIRST_PAUSE_S, True, False
                    session.copy(self._totals, self._report)
                    return
                except _AssignmentChanged:
                    continue
                except _NothingToCopy:
                    if self._settings.once or not copied:
                        raise
                    if not gone:
                        gone = True
                        self._notify("no topic of the source matches --topics any more, waiting for one")
                except (BrokerUnreachable, KafkaError) as error:
                    begun = begun or session.reached
                    if isinstance(error, KafkaError) and error.code in FENCED_ERRORS:
                        session.leave()
                        self._fenced(error)
                    elif not begun or (isinstance(error, KafkaError) and error.code not in PASSING_ERRORS):
                        raise
                    else:
                        outage.failed(str(error))
                finally:
                    session.close()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _fenced(self, error: KafkaError) -> None:
        """Rejoin the group after being fenced by another mirror. Raises KafkaError for a mirror without a group."""
        reason = (
            "another mirror has taken over these partitions, or this one paused for longer than "
            f"{TRANSACTION_TIMEOUT_MS // 1000} s in a transaction: {error.message}"
        )
        if self._members is None:
            raise KafkaError(error.code, reason) from error
        self._notify(f"{reason}; rejoining group {self._settings.share!r}")
        self._members.leave()


class Session:
    """Copies until something fails."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        ends: tuple[Endpoint, Endpoint],
        settings: Settings,
        members: Membership | None,
        progress_topic: ProgressTopic,
        notify: Notify,
    ) -> None:
        self._source = source
        self._target = target
        self._ends = ends
        self._settings = settings
        self._members = members
        self._progress_topic = progress_topic
        self._given: frozenset[TopicPartition] | None = None
        """Assigned by the group, which may revoke it."""
        self._notify = notify
        self._ids = ("", "")
        self.reached = False
        """Both clusters have responded, so a later failure is not a mistake of the operator."""
        self._topics: dict[str, tuple[bytes, int]] = {}
        self._names: dict[str, str] = {}
        self._producers: dict[Route, BatchProducer] = {}
        self._starts: dict[Route, ResumePosition] = {}
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._goals: Mapping[TopicPartition, int] = {}
        self._acls = AclMirror(notify) if settings.acls else None
        self._groups = None if settings.groups is None else GroupMirror(settings.groups, notify)
        self._journal = JournalReader(ends[1], target, notify)
        """Progress of other writers, for groups of merged partitions."""
        self._maps: dict[Route, RouteMap] = {}
        self._target_ends: dict[Route, dict[int, int]] = {}
        self._skipped: dict[Route, int] = {}
        self._refusals = Refusals(target, settings.on_refused, notify, monotonic=time.monotonic, time_s=time.time)

    def open(self, goals: dict[TopicPartition, int]) -> None:
        """See `opening`; adds missing partition ends to `goals`."""
        self._ids = require_two_clusters(self._source.describe().cluster_id, self._target.describe().cluster_id)
        self.reached = True
        chosen = chosen_topics(self._source.topics.all(), self._settings.pattern)
        if not chosen:
            raise _NothingToCopy(
                f"no topic of the source matches --topics {self._settings.pattern.pattern!r}; see ottla topic list"
            )
        self._topics = {name: (info.topic_id, len(info.partitions)) for name, info in chosen.items()}
        self._names = {name: renamed(name, self._settings.template) for name in chosen}
        came_from = self._require_no_cycle(chosen)
        make_topics(self._source, self._target, self._names, chosen, self._progress_topic)
        self._copy_acls()
        routes = self._own_routes(chosen)
        self._producers = take_ids(self._target, routes)
        filled = filled_topics(self._target, routes)
        reader = JournalReader(self._ends[1], self._target, self._notify)
        journal = reader.read("read_uncommitted", self._require_given)
        self._progress_topic.reached(reader.end)
        if not self._settings.append:
            require_known(journal, routes, filled)
        self._starts = starts(
            self._source, self._target, journal, routes, came_from, self._notify, with_map=self._groups is not None
        )
        require_kept(self._target, {route: start.progress for route, start in self._starts.items()}, self._producers)
        for route, start in self._starts.items():
            progress = start.progress
            self._target_ends[route] = dict(progress.target_ends)
            self._skipped[route] = progress.skipped
            copy = PartitionCopy(route, progress.offset, start.target_count, in_step=progress.in_step)
            self._copies[route.topic, route.partition] = copy
            if progress.mapped_from is not None:
                runs = {} if start.stale else journal.runs.get(route, {})
                self._maps[route] = kept_map(progress, progress.mapped_from, runs, start.target_count)
            if not start.known:
                self._write_progress(copy, start.stale)
        if self._settings.once and not goals:
            found = self._source.records.list_offsets(
                dict.fromkeys(self._copies, LATEST_TIMESTAMP), isolation="read_committed"
            )
            goals |= {key: info.offset for key, info in found.items()}
        self._goals = goals

    def _own_routes(self, chosen: Mapping[str, TopicInfo]) -> list[Route]:
        """The routes of this mirror: all, or those that the group assigned. Raises KafkaError."""
        if self._members is not None:
            self._members.join(chosen)
            until_s = time.monotonic() + JOIN_LIMIT_S
            while self._members.assignment is None:
                if time.monotonic() > until_s:
                    reason = f"group {self._settings.share!r} assigned no partitions to this mirror"
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
                self._members.poll(POLL_S)
            self._given = self._members.assignment
        return [
            Route(self._ids[0], name, index, self._names[name])
            for name, info in chosen.items()
            for index in range(len(info.partitions))
            if self._given is None or (name, index) in self._given
        ]

    def _require_given(self, wait_s: float = 0.0) -> None:
        """Poll the group. Raises _AssignmentChanged if it has revoked partitions of this session."""
        if self._members is not None:
            self._members.poll(wait_s)
            if self._members.assignment is not self._given:
                raise _AssignmentChanged

    def _copy_acls(self) -> None:
        if self._acls is not None:
            self._acls.copy(self._source, self._target, self._names)

    def _require_no_cycle(self, names: Iterable[str]) -> dict[str, frozenset[Origin]]:
        return origins(self._ends[0], self._source, names, self._ids, self._notify)

    def copy(self, totals: Totals, report: Callable[[Totals], None]) -> None:
        """Copy until the goals are reached, or forever. Raises errors of the clusters."""
        refresh_s = report_s = carry_s = time.monotonic()
        totals.lags = {key: lag for key, lag in totals.lags.items() if key in self._copies}
        totals.skipped = {key: self._skipped[copy.route] for key, copy in self._copies.items()}
        while (wanted := self._wanted()) or not self._settings.once:
            if wanted:
                self._copy_on(wanted, totals)
            else:  # more mirrors than partitions
                self._require_given(POLL_S)
            now = time.monotonic()
            if now - report_s >= self._settings.interval_s:
                report_s = now
                self._refusals.log_rest()
                report(totals)
            if now - carry_s >= CARRY_S:
                carry_s = now
                self._carry_groups()
            if now - refresh_s >= REFRESH_S and not self._settings.once:
                refresh_s = now
                self._refresh()
        self._carry_groups()
        self._refusals.log_rest()
        report(totals)

    def _copy_on(self, wanted: Mapping[TopicPartition, int], totals: Totals) -> None:
        """One fetch, with a transaction for each partition that returned data."""
        answers = self._source.records.fetch_several(
            wanted,
            max_bytes=FETCH_BYTES,
            max_wait_ms=FETCH_WAIT_MS,
            isolation="read_committed",
            topic_ids={name: topic_id for name, (topic_id, _) in self._topics.items()},
        )
        for key, answer in answers.items():
            if isinstance(answer, KafkaError):
                raise answer
            self._require_given()
            self._take(key, answer, totals)

    def _wanted(self) -> dict[TopicPartition, int]:
        """Fetch positions, in turns."""
        goals = self._goals
        return {
            key: copy.position
            for key, copy in self._copies.items()
            if not self._settings.once or copy.position < goals.get(key, 0)
        }

    def _take(self, key: TopicPartition, result: FetchResult, totals: Totals) -> None:
        copy = self._copies[key]
        step = copy.take(result)
        if step.writes:
            step = self._write_step(copy, step)
            totals.skipped[key] = self._skipped[copy.route]
            self._copies[key] = self._copies.pop(key)
            totals.transactions += 1
            totals.records += sum(write.batch.records_count for write in step.writes)
            totals.bytes += sum(write.batch.size_bytes for write in step.writes)
        copy.committed(step)
        totals.lags[key] = max(0, result.high_watermark - copy.position)

    def _write_step(self, copy: PartitionCopy, step: Step) -> Step:
        """Write all batches together; if one is rejected, each alone in a second transaction. Returns the written step.

        Raises RecordRefused, KafkaError, BrokerUnreachable.
        """
        producer = self._producers[copy.route]
        try:
            try:
                return self._write(copy, step, self._send_together)
            except BatchRefused:
                producer.abort()
            try:
                return self._write(copy, step, self._refusals.write)
            except RecordRefused:
                producer.abort()
                raise
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:  # Apache Kafka's response to undecodable records
                require_readable(copy.route, step)
            raise explained(error, copy.route, step.first_offset) from error

    def _send_together(self, producer: BatchProducer, copy: PartitionCopy, step: Step) -> WrittenStep:
        batches: dict[int, list[BatchView]] = {}
        for write in step.writes:
            batches.setdefault(write.partition, []).append(write.batch)
        sent = {
            partition: iter(producer.send((copy.route.target, partition), found))
            for partition, found in batches.items()
        }
        return WrittenStep(step, [next(sent[write.partition]) for write in step.writes], 0)

    def _write(
        self, copy: PartitionCopy, step: Step, send: Callable[[BatchProducer, PartitionCopy, Step], WrittenStep]
    ) -> Step:
        """One transaction: the writes of a step, and the progress after it."""
        route = copy.route
        producer = self._producers[route]
        partitions = sorted({write.partition for write in step.writes})
        producer.begin([*((route.target, partition) for partition in partitions), PROGRESS])
        step, base_offsets, skipped = send(producer, copy, step)
        ends = self._target_ends[route] | {
            write.partition: base + write.batch.last_offset_delta + 1
            for write, base in zip(step.writes, base_offsets, strict=True)
        }
        progress = self._starts[route].progress._replace(
            offset=step.next_offset,
            target_ends=tuple(sorted(ends.items())),
            skipped=self._skipped[route] + skipped,
        )
        kept = self._maps.get(route)
        if kept is None:
            self._commit(route, progress, [])
        else:
            runs = step.runs(base_offsets)
            self._commit(route, progress, [(step.first_offset, runs)])
            kept.add(step.first_offset, runs)
        self._target_ends[route] = ends
        self._skipped[route] += skipped
        return step

    def _write_progress(self, copy: PartitionCopy, forgotten: Iterable[int]) -> None:
        """One transaction with progress only, which deletes the runs of transactions with these start offsets."""
        route = copy.route
        self._producers[route].begin([PROGRESS])
        progress = self._starts[route].progress._replace(
            offset=copy.position,
            target_ends=tuple(sorted(self._target_ends[route].items())),
            skipped=self._skipped[route],
        )
        self._commit(route, progress, [(first, None) for first in forgotten])

    def _commit(self, route: Route, progress: Progress, runs: Iterable[tuple[int, tuple[Run, ...] | None]]) -> None:
        """Write progress to the open transaction and commit it. Raises RecordRefused, KafkaError, OperatorError."""
        kept = self._maps.get(route)
        progress = progress._replace(mapped_from=None if kept is None else kept.complete_from)
        now_ms = int(time.time() * 1000)
        records = [progress_record(route, progress, now_ms)]
        records += [map_record(route, first, found, now_ms) for first, found in runs]
        producer = self._producers[route]
        batches = [
            BatchView(build_batch(records[start : start + RECORDS_IN_BATCH]))
            for start in range(0, len(records), RECORDS_IN_BATCH)
        ]
        try:
            offset, *_ = producer.send(PROGRESS, batches)
        except BatchRefused as refusal:
            raise progress_refused(refusal) from refusal
        self._progress_topic.written(offset)
        producer.commit()

    def _carry_groups(self) -> None:
        """Copy group offsets, and delete runs that are no longer needed."""
        if self._groups is None or not self._maps:
            return
        least = self._groups.carry(self._source, self._target, *self._whole_maps())
        for key, copy in self._copies.items():
            forgotten = self._maps[copy.route].forget(least.get(key, copy.position))
            if forgotten:
                self._write_progress(copy, forgotten)

    def _whole_maps(self) -> tuple[dict[Route, RouteMap], dict[TopicPartition, int]]:
        """Maps for the translation of group offsets, and the ends of target partitions that others write to, too.

        For merged partitions that several mirrors copy, the mirror of the first one translates, with the committed runs
        of all. Open transactions of the target are in no map yet, but may precede known records. So the stable ends are
        read first, no group is moved beyond them, and the journal is complete below them.
        """
        own = Counter(route.topic for route in self._maps)
        split = {name for name, (_, count) in self._topics.items() if own[name] < count}
        maps, firsts = {}, {}
        for route, kept in self._maps.items():
            if kept.in_step or route.topic not in split:
                maps[route] = kept
            elif route.partition == 0:
                firsts[route] = kept.target_count
        keys = [(route.target, index) for route, count in firsts.items() for index in range(count)]
        if not keys:
            return maps, {}
        ends = self._target.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP), isolation="read_committed")
        journal = self._journal.read("read_uncommitted", self._require_given)
        for route, target_count in firsts.items():
            maps |= maps_of_topic(journal, route, self._topics[route.topic][1], target_count)
        return maps, {key: info.offset for key, info in ends.items()}

    def _refresh(self) -> None:
        """Compare the topics and origins with those at the start of the session, and copy ACLs.

        Raises _AssignmentChanged if they differ, OperatorError for a new cycle or lost progress.
        """
        there = self._target.topics.all().get(PROGRESS_TOPIC)
        self._progress_topic.require_same(None if there is None else there.topic_id)
        chosen = chosen_topics(self._source.topics.all(), self._settings.pattern)
        if self._topics != {name: (info.topic_id, len(info.partitions)) for name, info in chosen.items()}:
            raise _AssignmentChanged
        self._copy_acls()
        came_from = self._require_no_cycle(chosen)
        if any(came_from[route.topic] != start.progress.origins for route, start in self._starts.items()):
            raise _AssignmentChanged

    def leave(self) -> None:
        """Release revoked partitions without an abort: their new owner must not be fenced."""
        self._producers.clear()

    def close(self) -> None:
        """Abort open transactions, so that consumers do not wait for them; on failure the transaction timeout does it.

        The new owner aborts those of revoked partitions.
        """
        left = [route for route, producer in self._producers.items() if producer.is_open]
        if not left or (self._members is not None and self._members.assignment is not self._given):
            return
        with contextlib.suppress(OttlaError), _cluster(self._ends[1], LAST_WORDS_S) as target:
            for route in left:
                target.transactions.terminate(route.transactional_id, TRANSACTION_TIMEOUT_MS)


def _cluster(endpoint: Endpoint, timeout_s: float = 30.0) -> Cluster:
    return Cluster(endpoint.bootstrap_servers, client_id=CLIENT_ID, timeout_s=timeout_s, security=endpoint.security)
