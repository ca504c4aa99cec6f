"""Fetch (1): versions 4 to 18, long poll, sessions (KIP-227), topic ids from 13 on (KIP-516).

A request is answered at once when it finds `min_bytes`, an error, or may not wait; else it parks under the watches of
its partitions and reads again when they changed. The first batch is returned even when it is larger than all limits,
so that no consumer gets stuck (KIP-74). Stored bytes travel as file regions; nothing is copied here. Where finding
their place needs pages that are not cached, the request parks until the pool has read those, and begins again.

A follower's fetch is read by `server.handlers.data.follower_fetch`. From version 11 on a consumer may read from a
follower too, and may be sent to one in its rack (KIP-392).
"""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.channel import Part
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.fetch import (
    TOPIC_ID_FROM,
    FetchPartitionResult,
    ParsedFetchRequest,
    encode_fetch_response,
    parse_fetch,
)
from ottla.protocol.primitives import NodeEndpoint, Topic
from ottla.protocol.registry import ApiKey
from ottla.replica.fetch_session import FetchContext, SessionPartition
from ottla.replica.partition import READ_COMMITTED, Partition
from ottla.replica.purgatory import DelayedOperation, Watch
from ottla.server.api import HotApi
from ottla.server.authorization import Need
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.follower_fetch import Follower, read_for_follower
from ottla.server.request import Request
from ottla.storage.off_loop import Known, OffLoop, run_off_loop

FIRST_VERSION_WITH_FOLLOWERS = 11
FIRST_VERSION_WITH_ENDPOINTS = 16
MAX_READ_AHEAD = 64
"""Cold pages, one a partition, that a fetch has read by one job of the pool; each holds a file open."""
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Rows = list[tuple[SessionPartition, FetchPartitionResult]]


class ReadRound:
    """One pass over the partitions of a fetch: what was read, and whether it must be answered at once.

    `byte_count` is what the limits allow, which decides about waiting for more; what is sent may be less. A round
    counts for nothing when something is `needed` off the loop first.
    """

    __slots__ = ("byte_count", "needed", "rows", "urgent")

    def __init__(self) -> None:
        self.rows: Rows = []
        self.needed: list[OffLoop] = []
        self.byte_count = 0
        self.urgent = False

    @property
    def full(self) -> bool:
        """Whether no more is to be read ahead."""
        return len(self.needed) >= MAX_READ_AHEAD

    def release(self) -> None:
        """Give the regions back that will not be sent."""
        for _, result in self.rows:
            if result.records is not None and not isinstance(result.records, bytes):
                result.records.release()
        self.rows.clear()


class Fetch:
    """A fetch request with its session, ready to be read as often as needed."""

    __slots__ = ("_check", "_context", "_follower", "_known", "_message", "_request", "_session")

    def __init__(
        self,
        context: DataContext,
        request: Request,
        message: ParsedFetchRequest,
        session: FetchContext,
        follower: Follower | None,
    ) -> None:
        self._context = context
        self._request = request
        self._message = message
        self._session = session
        self._follower = follower
        old = request.api_version < FIRST_VERSION_WITH_FOLLOWERS
        self._check = Partition.check_leader if old else Partition.check_readable
        self._known: Known = {}

    def serve(self) -> list[Part] | None:
        """Answer, or park: for more records, or for pages that are not cached."""
        done = self.read(self._known)
        if done.needed:
            done.release()
            self._context.in_flight.begin()
            run_off_loop(done.needed, self._known, self._context.pool, self._resume)
            return None
        self._known.clear()
        if self._message.max_wait_ms <= 0 or self.finished(done):
            return self.encode(done)
        self.park(done)
        return None

    def _resume(self) -> None:
        """The pages are there: begin again, with what is in the logs by now."""
        try:
            if self._request.channel.closed:
                return
            parts = self.serve()
            if parts is not None:
                self._request.respond_parts(parts)
        except InvariantError:
            raise
        except Exception as error:
            self._context.failures("Fetch", error)
            self._request.channel.close("Fetch failed inside the broker")
        finally:
            self._context.in_flight.end()

    def read(self, known: Known | None = None) -> ReadRound:
        """Read all partitions in order, within the limits of request and partitions.

        Blocks on pages that are not cached, unless given what is `known`. What was parked needs no such care: its pages
        were read when it came, and what it waits for has just been written.
        """
        done = ReadRound()
        if self._follower is not None:
            read_for_follower(self._follower, self._session, done, known, self._failed)
            return done
        rows = done.rows
        incremental = self._session.incremental
        isolation_level = self._message.isolation_level
        aborted: tuple[tuple[int, int], ...] | None = () if isolation_level == READ_COMMITTED else None
        left = min(self._message.max_bytes, self._context.fetch_max_bytes)
        find = self._context.replicas.find
        check = self._check
        rack = self._message.rack_id
        new_tuple = tuple.__new__
        for asked in self._session.partitions:
            try:
                partition = find(asked.topic, asked.index)
                check(partition, asked.current_leader_epoch)
                log = partition.log
                high_watermark = partition.high_watermark
                log_start_offset = log.log_start_offset
                diverging = None
                region = None
                preferred = -1
                if log.log_end_offset == high_watermark:
                    asked.seen_bytes = partition.appended_bytes
                if asked.last_fetched_epoch >= 0:
                    diverging = partition.diverging_epoch(asked.fetch_offset, asked.last_fetched_epoch)
                if diverging is not None or (rack and (preferred := self._preferred(partition, asked)) >= 0):
                    done.urgent = True
                elif asked.fetch_offset != high_watermark:
                    limit = max(0, asked.max_bytes if asked.max_bytes < left else left)
                    at_least_one = done.byte_count == 0
                    found = partition.read(asked.fetch_offset, limit, at_least_one, isolation_level, known)
                    done.byte_count += found.length
                    region = found.records
                    if region is not None:
                        left -= region.length
                if (
                    region is None
                    and diverging is None
                    and preferred < 0
                    and incremental
                    and not asked.moved(high_watermark, log_start_offset)
                ):
                    if asked.fetch_offset == high_watermark:
                        asked.rest(partition.fetch_watch)
                    continue
                stable = log.last_stable_offset(high_watermark)
                # As a call of the class would, which takes three times as long.
                row = (
                    asked.index, 0, high_watermark, stable, log_start_offset, region, aborted, preferred, diverging,
                    None, None,
                )  # fmt: skip
                rows.append((asked, new_tuple(FetchPartitionResult, row)))
            except OffLoop as needed:
                done.needed.append(needed)
                if done.full:
                    break
            except Exception as error:
                done.urgent = True
                rows.append((asked, self._failed(asked, error)))
        return done

    def _preferred(self, partition: Partition, asked: SessionPartition) -> int:
        """The replica that this consumer had better read from; -1 for the one here."""
        return self._context.replicas.preferred_read_replica(partition, self._message.rack_id, asked.fetch_offset)

    def _failed(self, asked: SessionPartition, error: Exception) -> FetchPartitionResult:
        """The answer for a partition that could not be read; a defect is reported and answered, never raised."""
        if isinstance(error, KafkaError):
            code = error.code
        elif isinstance(error, InvariantError):
            raise error
        elif isinstance(error, OSError):
            code = ErrorCode.KAFKA_STORAGE_ERROR
            self._context.failures.complain("Fetch", f"partition {asked.index} can't be read: {error}")
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            self._context.failures("Fetch", error)
        self._request.count_error(code)
        leader = self._context.metadata.current_leader(asked.topic, asked.index) if code in _LEADER_ERRORS else None
        return FetchPartitionResult(asked.index, code, current_leader=leader)

    def finished(self, done: ReadRound) -> bool:
        """Whether `done` must be answered, as far as bytes and errors go."""
        return done.urgent or done.byte_count >= self._message.min_bytes or self._session.is_empty

    def encode(self, done: ReadRound) -> list[Part]:
        """The response; what was sent is noted in the session."""
        session = self._session
        remembered = session.session
        incremental = session.incremental
        topics: list[tuple[Topic, list[FetchPartitionResult]]] = []
        last_topic: Topic | None = None
        of_topic: list[FetchPartitionResult] = []
        served: list[SessionPartition] = []
        leaders: dict[int, None] = {}
        for asked, result in done.rows:
            if remembered is not None:
                has_records = result.records is not None
                news = asked.accept(result.error_code, result.high_watermark, result.log_start_offset, has_records)
                if result.diverging_epoch is not None and self._follower is not None:
                    # A follower that has to cut its log takes nothing else from the answer.
                    asked.tell_again()
                if has_records:
                    served.append(asked)
                elif incremental and not news and result.diverging_epoch is None and result.preferred_read_replica < 0:
                    continue
            if result.current_leader is not None:
                leaders[result.current_leader[0]] = None
            if asked.topic != last_topic:
                last_topic = asked.topic
                of_topic = []
                topics.append((last_topic, of_topic))
            of_topic.append(result)
        if self._follower is None:
            self._count(done.rows)
        if remembered is not None and served:
            remembered.move_to_end(served)
        endpoints: list[NodeEndpoint] = []
        if leaders and self._request.api_version >= FIRST_VERSION_WITH_ENDPOINTS:
            endpoints = [
                NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
                for broker in self._context.metadata.brokers_on(self._request.listener_name)
                if broker.node_id in leaders
            ]
        return encode_fetch_response(
            self._request.api_version, self._request.correlation_id, 0, 0, session.session_id, topics, endpoints
        )

    def _count(self, rows: Rows) -> None:
        """Add to the statistics, once for rows of one topic that follow each other."""
        topic: Topic = ""
        count = size = failed = 0
        for asked, result in rows:
            if asked.topic != topic:
                if count:
                    self._count_topic(topic, count, size, failed)
                topic = asked.topic
                count = size = failed = 0
            count += 1
            if result.records is not None and not isinstance(result.records, bytes):
                size += result.records.length
            if result.error_code != 0:
                failed += 1
        if count:
            self._count_topic(topic, count, size, failed)

    def _count_topic(self, topic: Topic, count: int, size: int, failed: int) -> None:
        context = self._context
        known = (
            context.metadata.image.topic(topic) if isinstance(topic, str) else context.metadata.image.topic_by_id(topic)
        )
        totals = [context.statistics.all_topics]
        if known is not None:
            totals.append(context.statistics.topic(known.name))
        for statistics in totals:
            statistics.fetches.value += count
            statistics.bytes_out.value += size
            statistics.failed_fetches.value += failed

    def missing_bytes(self, done: ReadRound) -> int:
        """How many bytes more `done` needed for an answer."""
        return self._message.min_bytes - done.byte_count

    def appended_bytes(self) -> int:
        """Bytes appended to what is read since it was read last."""
        find = self._context.replicas.find
        return sum(
            [find(asked.topic, asked.index).appended_bytes - asked.seen_bytes for asked in self._session.partitions]
        )

    def watches(self) -> list[Watch]:
        """Where to wait for news: at the session, which hears of its partitions, or at all that were named."""
        session = self._session.session
        if session is not None and self._session.incremental:
            self.listen()
            return [session.watch]
        find = self._context.replicas.find
        return [self._watch(find(asked.topic, asked.index)) for asked in self._session.partitions]

    def _watch(self, partition: Partition) -> Watch:
        """Where news for who asks shows: followers read what was just appended, consumers what is replicated."""
        return partition.fetch_watch if self._follower is None else partition.follower_watch

    def listen(self) -> None:
        """Let the session hear of its active partitions too; of the others it always does."""
        if self._session.incremental:
            find = self._context.replicas.find
            for asked in self._session.partitions:
                asked.listen(self._watch(find(asked.topic, asked.index)))

    def park(self, done: ReadRound) -> None:
        """Wait for more, at most the time that the request allows."""
        context = self._context
        watches = self.watches()
        operation = DelayedFetch(self, self._request, self.missing_bytes(done))
        done.release()
        context.purgatory.park(operation, watches, self._message.max_wait_ms / 1000)
        self._request.dispatcher.parked(self._request, operation)


class DelayedFetch(DelayedOperation):
    """A fetch that waits for records."""

    __slots__ = ("_fetch", "_missing_bytes", "_request")

    def __init__(self, fetch: Fetch, request: Request, missing_bytes: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._request = request
        self._missing_bytes = missing_bytes

    def try_complete(self, force: bool) -> bool:
        """Read again and answer when there is enough.

        Not before about as many bytes were appended as were missing: an estimate, since nothing but the read itself
        knows, and cheaper than it.
        """
        fetch = self._fetch
        if not force and self._missing_bytes > 1 and fetch.appended_bytes() < self._missing_bytes:
            fetch.listen()
            return False
        done = fetch.read()
        if not force and not fetch.finished(done):
            self._missing_bytes = fetch.missing_bytes(done)
            done.release()
            fetch.listen()
            return False
        self._request.respond_parts(fetch.encode(done))
        return True

    def expire(self) -> None:
        """The longest wait is over: answer with what there is."""
        self._request.respond_parts(self._fetch.encode(self._fetch.read()))

    def fail(self, error: Exception) -> None:
        """A defect: the session can't go on either."""
        self._request.channel.close("Fetch failed inside the broker")


def serve(context: DataContext, request: Request, buffer: bytearray, body_start: int, end: int) -> list[Part] | None:
    """Answer a fetch, or park it; see the module."""
    message = parse_fetch(request.api_version, buffer, body_start, end)
    context.check_partition_count(sum([len(partitions) for _, partitions in message.topics]))
    follower = None
    if message.replica_id >= 0:
        follower = Follower.identify(context, request, message)
        if follower is None:
            return _refuse(request, message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        session = context.sessions.open(
            message.session_id,
            message.session_epoch,
            message.topics,
            message.forgotten,
            uses_topic_ids=request.api_version >= TOPIC_ID_FROM,
            privileged=follower is not None,
            now_s=request.started_s,
            max_partitions=context.partition_limit(),
        )
    except KafkaError as error:
        request.count_error(error.code)
        return encode_fetch_response(request.api_version, request.correlation_id, 0, error.code, 0, [])
    return Fetch(context, request, message, session, follower).serve()


def _refuse(request: Request, message: ParsedFetchRequest, code: ErrorCode) -> list[Part]:
    request.count_error(code)
    topics = [
        (topic, [FetchPartitionResult(asked.partition, code) for asked in partitions])
        for topic, partitions in message.topics
    ]
    return encode_fetch_response(request.api_version, request.correlation_id, 0, 0, 0, topics)


FETCH = HotApi(
    ApiKey.FETCH,
    serve,
    item_needs=(Need(AclOperation.READ, ResourceType.TOPIC), Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)),
)
