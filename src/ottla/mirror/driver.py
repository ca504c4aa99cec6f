"""Fetches, writes and commits what the pure parts decide: one transaction for each fetch of a partition that brought
something, under the partition's own transactional id, with its progress.

Whatever fails while a transaction is open ends the session: the next one takes all ids anew, which decides what was
open, and reads how far it came. So no outcome has to be guessed, and there is one way to resume, after a lost
connection as after kill -9. It is also how several share the work: a session copies what a consumer group of the source
gave, ends when the group takes it back, and who does not know yet that it did is fenced by whoever has it now.
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
from ottla.client.wire.model import LATEST_TIMESTAMP, FetchResult, Position, TopicInfo
from ottla.client.wire.outage import OutageReporter, Tell
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, OttlaError
from ottla.mirror.acls import AclMirror
from ottla.mirror.copying import PartitionCopy, Step
from ottla.mirror.groups import GroupMirror
from ottla.mirror.opening import (
    PROGRESS,
    Endpoint,
    JournalReader,
    ProgressTopic,
    Start,
    filled_topics,
    make_topics,
    origins,
    require_known,
    starts,
    take_ids,
)
from ottla.mirror.progress import Progress, Run, map_record, progress_record
from ottla.mirror.put_back import require_kept
from ottla.mirror.refusals import (
    FENCED_ERRORS,
    PASSING_ERRORS,
    STOP,
    RecordRefused,
    Refusals,
    Written,
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
"""Of all partitions together, and so about the most that a transaction holds."""
FETCH_WAIT_MS = 500
REFRESH_S = 30.0
"""How often topics that came, grew or went are looked for, and cycles."""
CARRY_S = 5.0
"""How often offsets of groups are carried over."""
RECORDS_IN_BATCH = 1_000
"""Of the progress topic."""
JOIN_LIMIT_S = 60.0
"""How long it takes until a group that gives nothing is told as an outage."""
POLL_S = 0.5
LAST_WORDS_S = 5.0
"""How long the end may take to abort what is open."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class Settings(NamedTuple):
    """What is copied, and until when."""

    pattern: re.Pattern[str]
    template: str
    once: bool
    interval_s: float
    """Between reports."""
    groups: re.Pattern[str] | None = None
    """Whose offsets are carried over."""
    acls: bool = False
    append: bool = False
    """Behind what a topic of the target holds though no progress is known of it."""
    share: str | None = None
    """The consumer group of the source by which several mirrors share the work; not with `once`."""
    on_refused: str = STOP
    """`refusals.STOP` or `refusals.SKIP`: whether a record that the target refuses ends the mirror or is skipped."""


class Totals:
    """What was copied since the start; `lags` are the offsets of each topic that are still to come. `skipped` are the
    records of each partition that the target refused, also those of earlier runs."""

    def __init__(self) -> None:
        self.begun_s = time.monotonic()
        self.records = 0
        self.bytes = 0
        self.transactions = 0
        self.lags: dict[Position, int] = {}
        self.skipped: dict[Position, int] = {}

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begun_s


class _Changed(Exception):
    """Other topics or partitions are to be copied than when the session began, or by somebody else."""


class _NothingToCopy(OperatorError):
    """No topic has a name that matches, which at the start is a mistake."""


class Mirror:
    """From one cluster to another, until what was there is copied (`once`) or for ever."""

    def __init__(
        self, source: Endpoint, target: Endpoint, settings: Settings, tell: Tell, report: Callable[[Totals], None]
    ) -> None:
        """`tell` gets sentences about what an operator should know, `report` the totals now and then."""
        self._ends: tuple[Endpoint, Endpoint] = source, target
        self._settings = settings
        self._tell = tell
        self._report = report
        self._totals = Totals()
        self._goals: dict[Position, int] = {}
        """With `once`: where the partitions ended at the start."""
        self._progress_topic = ProgressTopic()
        self._members: Membership | None = None
        if settings.share is not None:
            self._members = Membership(
                source.bootstrap_servers, settings.share, client_id=CLIENT_ID, security=source.security
            )

    def run(self) -> None:
        """Copy. Raises OperatorError, KafkaError and BrokerUnreachable where waiting does not help."""
        try:
            self._run()
        finally:
            if self._members is not None:
                self._members.leave()

    def _run(self) -> None:
        outage, pause_s, begun = OutageReporter(self._tell), FIRST_PAUSE_S, False
        copied = gone = False
        while True:
            source_end, target_end = self._ends
            with _cluster(source_end) as source, _cluster(target_end) as target:
                session = Session(
                    source, target, self._ends, self._settings, self._members, self._progress_topic, self._tell
                )
                try:
                    session.open(self._goals)
                    outage.ended()
                    pause_s, copied, gone = FIRST_PAUSE_S, True, False
                    session.copy(self._totals, self._report)
                    return
                except _Changed:
                    continue
                except _NothingToCopy:
                    if self._settings.once or not copied:
                        raise
                    if not gone:
                        gone = True
                        self._tell("no topic of the source has a name that matches --topics any more; it waits for one")
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
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _fenced(self, error: KafkaError) -> None:
        """Among several, ask the group anew; what it gave before may be somebody else's. Raises KafkaError alone."""
        told = (
            "another mirror took over what this one copies, or this one stood still for longer than "
            f"{TRANSACTION_TIMEOUT_MS // 1000} s within a transaction: {error.message}"
        )
        if self._members is None:
            raise KafkaError(error.code, told) from error
        self._tell(f"{told}; it joins group {self._settings.share!r} again")
        self._members.leave()


class Session:
    """Copies as long as nothing fails."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        ends: tuple[Endpoint, Endpoint],
        settings: Settings,
        members: Membership | None,
        progress_topic: ProgressTopic,
        tell: Tell,
    ) -> None:
        self._source = source
        self._target = target
        self._ends = ends
        self._settings = settings
        self._members = members
        self._progress_topic = progress_topic
        self._given: frozenset[Position] | None = None
        """By the group, which may take it back."""
        self._tell = tell
        self._ids = ("", "")
        self.reached = False
        """Both clusters answered, so that it is no mistake of the operator where one does not later."""
        self._topics: dict[str, tuple[bytes, int]] = {}
        self._names: dict[str, str] = {}
        self._producers: dict[Route, BatchProducer] = {}
        self._starts: dict[Route, Start] = {}
        self._copies: dict[Position, PartitionCopy] = {}
        self._goals: Mapping[Position, int] = {}
        self._acls = AclMirror(tell) if settings.acls else None
        self._groups = None if settings.groups is None else GroupMirror(settings.groups, tell)
        self._journal = JournalReader(ends[1], target, tell)
        """What others write too, for groups where partitions flow together."""
        self._maps: dict[Route, RouteMap] = {}
        self._target_ends: dict[Route, dict[int, int]] = {}
        self._skipped: dict[Route, int] = {}
        self._refusals = Refusals(target, settings.on_refused, tell, monotonic=time.monotonic, time_s=time.time)

    def open(self, goals: dict[Position, int]) -> None:
        """See `opening`; `goals` gets the ends of partitions that it lacks."""
        self._ids = require_two_clusters(self._source.describe().cluster_id, self._target.describe().cluster_id)
        self.reached = True
        chosen = chosen_topics(self._source.topics(), self._settings.pattern)
        if not chosen:
            raise _NothingToCopy(
                f"no topic of the source has a name that matches --topics {self._settings.pattern.pattern!r}; "
                "see ottla topic list"
            )
        self._topics = {name: (info.topic_id, len(info.partitions)) for name, info in chosen.items()}
        self._names = {name: renamed(name, self._settings.template) for name in chosen}
        came_from = self._require_no_cycle(chosen)
        make_topics(self._source, self._target, self._names, chosen, self._progress_topic)
        self._copy_acls()
        routes = self._own_routes(chosen)
        self._producers = take_ids(self._target, routes)
        filled = filled_topics(self._target, routes)
        reader = JournalReader(self._ends[1], self._target, self._tell)
        journal = reader.read("read_uncommitted", self._require_given)
        self._progress_topic.reached(reader.end)
        if not self._settings.append:
            require_known(journal, routes, filled)
        self._starts = starts(
            self._source, self._target, journal, routes, came_from, self._tell, with_map=self._groups is not None
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
            found = self._source.list_offsets(dict.fromkeys(self._copies, LATEST_TIMESTAMP), isolation="read_committed")
            goals |= {key: info.offset for key, info in found.items()}
        self._goals = goals

    def _own_routes(self, chosen: Mapping[str, TopicInfo]) -> list[Route]:
        """All of them, or among several what the group gives. Raises KafkaError, _Changed."""
        if self._members is not None:
            self._members.join(chosen)
            until_s = time.monotonic() + JOIN_LIMIT_S
            while self._members.assignment is None:
                if time.monotonic() > until_s:
                    reason = f"group {self._settings.share!r} gives this mirror no partitions"
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
        """Raises _Changed where the group took back what this session copies, which it is asked here."""
        if self._members is not None:
            self._members.poll(wait_s)
            if self._members.assignment is not self._given:
                raise _Changed

    def _copy_acls(self) -> None:
        if self._acls is not None:
            self._acls.copy(self._source, self._target, self._names)

    def _require_no_cycle(self, names: Iterable[str]) -> dict[str, frozenset[Origin]]:
        return origins(self._ends[0], self._source, names, self._ids, self._tell)

    def copy(self, totals: Totals, report: Callable[[Totals], None]) -> None:
        """Until the goals are reached; else for ever. Raises what the clusters answer."""
        refresh_s = report_s = carry_s = time.monotonic()
        totals.lags = {key: lag for key, lag in totals.lags.items() if key in self._copies}
        totals.skipped = {key: self._skipped[copy.route] for key, copy in self._copies.items()}
        while (wanted := self._wanted()) or not self._settings.once:
            if wanted:
                self._copy_on(wanted, totals)
            else:  # there are more mirrors than partitions
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

    def _copy_on(self, wanted: Mapping[Position, int], totals: Totals) -> None:
        """One fetch, and a transaction for each partition that it brought something of."""
        answers = self._source.fetch_several(
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

    def _wanted(self) -> dict[Position, int]:
        """Where to fetch, in turns."""
        goals = self._goals
        return {
            key: copy.position
            for key, copy in self._copies.items()
            if not self._settings.once or copy.position < goals.get(key, 0)
        }

    def _take(self, key: Position, result: FetchResult, totals: Totals) -> None:
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
        """Write all batches together, or each alone in a second transaction if one is refused; the step as written.

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
            if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:  # Apache Kafka's answer to records that it cannot read
                require_readable(copy.route, step)
            raise explained(error, copy.route, step.first_offset) from error

    def _send_together(self, producer: BatchProducer, copy: PartitionCopy, step: Step) -> Written:
        batches: dict[int, list[BatchView]] = {}
        for write in step.writes:
            batches.setdefault(write.partition, []).append(write.batch)
        sent = {
            partition: iter(producer.send((copy.route.target, partition), found))
            for partition, found in batches.items()
        }
        return Written(step, [next(sent[write.partition]) for write in step.writes], 0)

    def _write(
        self, copy: PartitionCopy, step: Step, send: Callable[[BatchProducer, PartitionCopy, Step], Written]
    ) -> Step:
        """One transaction: the writes of a step with the progress behind it."""
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
        """One transaction of progress alone, which drops the runs of transactions that began at these offsets."""
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
        """Carry over offsets, and forget the runs that no group needs any more."""
        if self._groups is None or not self._maps:
            return
        least = self._groups.carry(self._source, self._target, *self._whole_maps())
        for key, copy in self._copies.items():
            forgotten = self._maps[copy.route].forget(least.get(key, copy.position))
            if forgotten:
                self._write_progress(copy, forgotten)

    def _whole_maps(self) -> tuple[dict[Route, RouteMap], dict[Position, int]]:
        """By what groups are translated, and where partitions of the target end for those that others write to too.

        Where partitions flow together and others copy some of them, the one that copies the first translates for all,
        by what all have committed. What is open in the target is in no map yet and may lie before what is: so ends of
        what is decided there are taken first, no group goes beyond them, and below them the journal knows everything.
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
        ends = self._target.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP), isolation="read_committed")
        journal = self._journal.read("read_uncommitted", self._require_given)
        for route, target_count in firsts.items():
            maps |= maps_of_topic(journal, route, self._topics[route.topic][1], target_count)
        return maps, {key: info.offset for key, info in ends.items()}

    def _refresh(self) -> None:
        """Raises _Changed, OperatorError for a cycle that came and for progress that went."""
        there = self._target.topics().get(PROGRESS_TOPIC)
        self._progress_topic.require_same(None if there is None else there.topic_id)
        chosen = chosen_topics(self._source.topics(), self._settings.pattern)
        if self._topics != {name: (info.topic_id, len(info.partitions)) for name, info in chosen.items()}:
            raise _Changed
        self._copy_acls()
        came_from = self._require_no_cycle(chosen)
        if any(came_from[route.topic] != start.progress.origins for route, start in self._starts.items()):
            raise _Changed

    def leave(self) -> None:
        """What was open belongs to somebody else now, who must not be shut out in his turn."""
        self._producers.clear()

    def close(self) -> None:
        """Abort what is open, so that readers don't wait for it; where that fails, its timeout does it.

        What the group took back its new owner aborts.
        """
        left = [route for route, producer in self._producers.items() if producer.is_open]
        if not left or (self._members is not None and self._members.assignment is not self._given):
            return
        with contextlib.suppress(OttlaError), _cluster(self._ends[1], LAST_WORDS_S) as target:
            for route in left:
                target.terminate_transaction(route.transactional_id, TRANSACTION_TIMEOUT_MS)


def _cluster(endpoint: Endpoint, timeout_s: float = 30.0) -> Cluster:
    return Cluster(endpoint.bootstrap_servers, client_id=CLIENT_ID, timeout_s=timeout_s, security=endpoint.security)
