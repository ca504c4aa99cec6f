"""Fetcher of a follower from one leader: a connection, a fetch session, and the partitions led there.

One Fetch is in flight at a time; it waits at the leader until there are records. Received batches are appended
unchanged, then the next Fetch carries the new log end, which is how the leader learns it. A request contains only
changed partitions (KIP-227). A partition that cannot be fetched now (an error, a due fsync, a throttle) leaves the
session and returns by a timer or an event; the others continue. A Fetch that waits at the leader is abandoned when a
partition is added that it does not contain, so that an election does not wait for the end of a long poll.

Invariants:
- The log changes only by a response to a request at its present end, in the current leader epoch.
- The leader gets an offset only when everything below it is as durable as the topic requires (`flush.messages`).
- Records that the leader also has are never truncated (`replica.truncation`).

Not here: the assignment of partitions to leaders (`replica.fetchers`), and the log itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import TimerHandle
from ottla.common.platform.peer import Address, PeerConnection
from ottla.net.peer_messages import send_message
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.replica.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, MAX_EPOCH
from ottla.replica.fetcher_context import FetcherContext, Key
from ottla.replica.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.replica.partition import Partition
from ottla.replica.truncation import first_fetch_offset, truncation_offset

logger = logging.getLogger(__name__)

FIRST_RETRY_S = 0.02
"""First backoff of a partition or connection; it doubles with each failure, up to `backoff_s`."""
THROTTLE_CHECK_S = 0.2
REFUSED_GAPS = 30
"""Number of times that a follower rejects batches with offset gaps before it accepts that the log was compacted."""
PATIENCE_S = 0.05
"""Minimum age of a Fetch that is abandoned for new partitions; a younger one may return soon."""
IDLE_BYTES = 64 * 1024
"""A Fetch counts as waiting only after a response smaller than this; a stream of data is not interrupted."""

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a broker, leader or follower, that does not have the newest metadata yet."""


class _RequestedPosition(NamedTuple):
    """Position of a partition in a request."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class _FetcherPartition:
    """One partition of this fetcher."""

    __slots__ = (
        "asked",
        "cut_committed_to",
        "gaps_allowed",
        "lag",
        "leader_epoch",
        "partition",
        "refusals",
        "refuses_leader",
        "retries",
        "timer",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.asked: _RequestedPosition | None = None
        """Position in the session; None while the session does not contain the partition."""
        self.lag = 0
        """Number of records up to the leader's high watermark, as of its last response."""
        self.retries = 0
        self.refusals = 0
        """Number of consecutive rejections by the log."""
        self.gaps_allowed = False
        """The leader has had time to check whether offsets that it omits are missing."""
        self.cut_committed_to: int | None = None
        """Offset of a truncation below the high watermark, under this leader and epoch."""
        self.refuses_leader = False
        """Whether the leader requested such a truncation again, for records that it had sent."""
        self.timer: TimerHandle | None = None

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index

    def wanted(self) -> _RequestedPosition:
        log = self.partition.log
        return _RequestedPosition(self.leader_epoch, log.log_end_offset, log.leader_epoch, log.log_start_offset)

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ReplicaFetcher:
    """Fetcher of the partitions that one leader leads; see the module."""

    __slots__ = (
        "_brought_bytes",
        "_changed",
        "_closed",
        "_connection",
        "_context",
        "_followed",
        "_forgotten",
        "_host",
        "_hurried",
        "_in_flight",
        "_port",
        "_ready",
        "_renewing",
        "_retries",
        "_scheduled",
        "_sent_s",
        "_session_epoch",
        "_session_id",
        "_sessionless",
        "_timer",
        "leader_id",
        "request_number",
    )

    def __init__(self, leader_id: int, host: str, port: int, context: FetcherContext) -> None:
        self.leader_id = leader_id
        self._host = host
        self._port = port
        self._context = context
        self._connection: PeerConnection | None = None
        self._followed: dict[Key, _FetcherPartition] = {}
        self._ready: dict[Key, _FetcherPartition] = {}
        self._changed: dict[Key, None] = {}
        """Ready partitions with an outdated position in the session."""
        self._forgotten: dict[Key, None] = {}
        """Partitions to remove from the session."""
        self._session_id = INVALID_SESSION_ID
        self._session_epoch = INITIAL_EPOCH
        self._sessionless = False
        """Whether the leader has no session slot, so that every request contains all partitions."""
        self._in_flight = False
        self.request_number = 0
        """Of the newest Fetch; counts them."""
        self._hurried = 0
        """Newest request that carries an urgent change."""
        self._sent_s = 0.0
        self._brought_bytes = 0
        self._renewing = False
        self._scheduled = False
        self._closed = False
        self._retries = 0
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def address(self) -> Address:
        return self._host, self._port

    def max_lag(self) -> int:
        """Maximum lag of a partition behind the leader's high watermark in records, as of the last responses."""
        return max((followed.lag for followed in self._followed.values()), default=0)

    # --- partitions ------------------------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Add a partition, in its current leader epoch."""
        key = (partition.topic_id, partition.index)
        self.forget(key)
        followed = self._followed[key] = _FetcherPartition(partition)
        log = partition.log
        offset = first_fetch_offset(log.log_end_offset, log.leader_epoch, partition.high_watermark)
        if offset < log.log_end_offset and not self._cut(followed, offset):
            return
        if log.log_end_offset - log.flushed_offset >= log.config.flush_messages:
            # After a crash before a due fsync, the leader must not count on this replica until that fsync is done.
            partition.when_durable(lambda error: self._wake(followed))
        else:
            self._make_ready(followed)
            self._hurry()

    def _hurry(self) -> None:
        """Abandon a Fetch that waits at the leader, unless it is young enough to return soon."""
        if self._in_flight and self._hurried != self.request_number:
            self._hurried = self.request_number
            age_s = self._context.monotonic() - self._sent_s
            self._context.scheduler.call_later(max(0.0, PATIENCE_S - age_s), self._break_off, self.request_number)

    def _break_off(self, request_number: int) -> None:
        """Abandon a Fetch if it is still in flight, waits, and does not contain a partition."""
        connection = self._connection
        opens = self._session_epoch == INITIAL_EPOCH and not self._sessionless
        waits = self._in_flight and self.request_number == request_number and self._brought_bytes < IDLE_BYTES
        if waits and not opens and self._changed and not self._closed and connection is not None:
            self._renewing = True
            connection.close()

    def forget(self, key: Key) -> None:
        """Remove a partition."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.cancel()
            self._make_unready(followed)

    def close(self) -> None:
        """Close the connection and remove all partitions."""
        self._closed = True
        for followed in self._followed.values():
            followed.cancel()
        self._followed.clear()
        self._ready.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()

    def _make_ready(self, followed: _FetcherPartition) -> None:
        key = followed.key
        self._ready[key] = followed
        self._changed[key] = None
        self._forgotten.pop(key, None)
        self._schedule()

    def _make_unready(self, followed: _FetcherPartition) -> None:
        key = followed.key
        self._ready.pop(key, None)
        self._changed.pop(key, None)
        if followed.asked is not None:
            followed.asked = None
            self._forgotten[key] = None

    def _retry_later(self, followed: _FetcherPartition) -> None:
        self._make_unready(followed)
        delay_s = min(self._context.settings.backoff_s, FIRST_RETRY_S * (1 << min(followed.retries, 10)))
        followed.retries += 1
        self._wake_later(followed, delay_s)

    def _wake_later(self, followed: _FetcherPartition, delay_s: float) -> None:
        followed.cancel()
        followed.timer = self._context.scheduler.call_later(delay_s, self._wake, followed)

    def _wake(self, followed: _FetcherPartition) -> None:
        followed.timer = None
        if self._current(followed) and not followed.partition.offline:
            self._make_ready(followed)
            if followed.retries:
                self._hurry()

    def _current(self, followed: _FetcherPartition) -> bool:
        """Return whether this fetcher still fetches the partition, in the same leader epoch."""
        return self._followed.get(followed.key) is followed and followed.partition.leader_epoch == followed.leader_epoch

    # --- requests --------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Send at the end of this tick, when all changes of one metadata update are known."""
        if not self._scheduled and not self._in_flight and self._timer is None and not self._closed:
            self._scheduled = True
            self._context.scheduler.call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        if self._closed or self._in_flight or self._timer is not None:
            return
        self._hold_back_throttled()
        if not self._ready:
            return
        connection = self._connection
        if connection is None or connection.failed:
            self._session_epoch = INITIAL_EPOCH
            connection = self._connection = self._context.membership.peers.connect(self._host, self._port)
        settings, membership = self._context.settings, self._context.membership
        # A request that opens a session does not wait: if it were abandoned, the session could not be closed.
        opens = self._session_epoch == INITIAL_EPOCH and not self._sessionless
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=membership.node_id, replica_epoch=membership.broker_epoch()),
            max_wait_ms=0 if opens else settings.wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._topics(),
            forgotten_topics_data=self._forgotten_topics(),
        )
        self._in_flight = True
        self.request_number += 1
        self._sent_s = self._context.monotonic()
        send_message(
            connection, request, lambda response, error: self._answered(connection, response, error), settings.timeout_s
        )

    def _topics(self) -> list[FetchTopic]:
        """Changes since the last request; all partitions when a session opens."""
        topics: dict[bytes, FetchTopic] = {}
        size = self._context.settings.partition_max_bytes
        for key in self._ready if self._session_epoch == INITIAL_EPOCH else self._changed:
            followed = self._ready[key]
            followed.asked = asked = followed.wanted()
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(topic_id=key[0])
            topic.partitions.append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=asked.leader_epoch,
                    fetch_offset=asked.fetch_offset,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    log_start_offset=asked.log_start_offset,
                    partition_max_bytes=size,
                )
            )
        self._changed.clear()
        return list(topics.values())

    def _forgotten_topics(self) -> list[ForgottenTopic]:
        topics: dict[bytes, ForgottenTopic] = {}
        if self._session_epoch != INITIAL_EPOCH:
            for topic_id, index in self._forgotten:
                topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        self._forgotten.clear()
        return list(topics.values())

    def _reset_session(self) -> None:
        self._session_id = INVALID_SESSION_ID
        self._session_epoch = INITIAL_EPOCH

    def _back_off(self) -> None:
        """Retry later: the connection or the session failed."""
        self._reset_session()
        delay_s = min(self._context.settings.backoff_s, FIRST_RETRY_S * (1 << min(self._retries, 10)))
        self._retries += 1
        self._timer = self._context.scheduler.call_later(delay_s, self._again)

    def _again(self) -> None:
        self._timer = None
        self._schedule()

    def _hold_back_throttled(self) -> None:
        quota = self._context.quota
        if not quota.limited or not quota.exceeded(self._context.monotonic()):
            return
        for followed in list(self._ready.values()):
            partition = followed.partition
            in_sync = self._context.membership.node_id in partition.state.isr
            if not in_sync and self._context.throttled(partition):
                self._make_unready(followed)
                self._wake_later(followed, THROTTLE_CHECK_S)

    # --- responses -------------------------------------------------------------------------------------------------

    def _answered(
        self, connection: PeerConnection, response: FetchResponse | None, error: BaseException | None
    ) -> None:
        self._in_flight = False
        renewing, self._renewing = self._renewing, False
        if self._closed:
            return
        if response is None and renewing:
            # A Fetch that opens a session ends the session that it names.
            self._session_epoch = INITIAL_EPOCH
            self._send()
            return
        if response is None:
            logger.info("fetch from broker %d failed: %s", self.leader_id, error, extra=RATE_LIMITED)
            connection.close()
            self._back_off()
            return
        if response.error_code != ErrorCode.NONE:
            if response.error_code not in SESSION_ERRORS:
                logger.warning(
                    "broker %d rejected a fetch: %s", self.leader_id, response.error_code, extra=RATE_LIMITED
                )
            self._back_off()
            return
        self._retries = 0
        self._session_id = response.session_id
        self._sessionless = response.session_id == INVALID_SESSION_ID
        if response.session_id == INVALID_SESSION_ID:
            self._session_epoch = INITIAL_EPOCH
        else:
            self._session_epoch = 1 if self._session_epoch == MAX_EPOCH else self._session_epoch + 1
        self._brought_bytes = 0
        for topic in response.responses:
            for data in topic.partitions:
                self._brought_bytes += len(data.records or b"")
                followed = self._ready.get((topic.topic_id, data.partition_index))
                if followed is None or not self._current(followed):
                    continue
                if followed.asked == followed.wanted():
                    self._take(followed, data)
                else:  # the log changed on its own meanwhile, as by retention: fetch at its present end
                    self._changed[followed.key] = None
        self._send()

    def _take(self, followed: _FetcherPartition, data: PartitionData) -> None:
        """Process one partition's response to a request at its present end."""
        code = data.error_code
        if code == ErrorCode.NONE:
            try:
                if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                    self._diverged(followed, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                else:
                    self._append(followed, data)
            except KafkaError as error:
                self._failed(followed, error)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._find_place(followed)
        else:
            if code not in EXPECTED_ERRORS:
                logger.warning(
                    "%r: broker %d returned %s", followed.partition, self.leader_id, code, extra=RATE_LIMITED
                )
            self._retry_later(followed)

    def _append(self, followed: _FetcherPartition, data: PartitionData) -> None:
        partition = followed.partition
        records = data.records
        needs_flush = False
        if records:
            result = partition.append_as_follower(records, gaps_allowed=followed.gaps_allowed)
            needs_flush = result.needs_flush
            if self._context.quota.limited and self._context.throttled(partition):
                self._context.quota.record(len(records), self._context.monotonic())
        followed.retries = followed.refusals = 0
        partition.follow_leader(data.high_watermark, data.log_start_offset)
        followed.lag = max(0, data.high_watermark - partition.log.log_end_offset)
        if needs_flush:
            self._make_unready(followed)
            partition.when_durable(lambda error: self._wake(followed))
        elif followed.asked != followed.wanted():
            self._changed[followed.key] = None

    def _failed(self, followed: _FetcherPartition, error: KafkaError) -> None:
        """Handle a failed append: permanent after a disk error, else retried.

        A damaged batch from the leader is rejected each time and logged once. The repeated requests for it make the
        leader check its log (`Partition.follower_fetched`) and resign if it is damaged.
        """
        if followed.partition.log.failed:
            logger.error("%r can't follow: %s", followed.partition, error, extra=RATE_LIMITED)
            followed.partition.mark_offline()
            self._make_unready(followed)
            return
        if not followed.refusals:
            logger.error("%r rejects records of broker %d: %s", followed.partition, self.leader_id, error)
        followed.refusals += 1
        followed.gaps_allowed = followed.refusals >= REFUSED_GAPS
        self._retry_later(followed)

    def _diverged(self, followed: _FetcherPartition, epoch: int, end_offset: int) -> None:
        partition = followed.partition
        log = partition.log
        own = log.epoch_end_offset(epoch)
        offset = truncation_offset((epoch, end_offset), own, log.log_end_offset, log.log_end_offset)
        log_divergence = logger.debug if followed.refuses_leader else logger.info
        log_divergence(
            "%r diverged from the leader's log in epoch %d at %d: truncated from %d to %d",
            partition,
            epoch,
            end_offset,
            log.log_end_offset,
            offset,
        )
        if self._cut(followed, offset):
            followed.retries = 0
            self._changed[followed.key] = None

    def _cut(self, followed: _FetcherPartition, offset: int) -> bool:
        partition = followed.partition
        if offset < partition.high_watermark and not self._may_cut_committed(followed, offset):
            return False
        try:
            partition.truncate_to(offset)
        except KafkaError as error:
            self._failed(followed, error)
            return False
        return True

    def _may_cut_committed(self, followed: _FetcherPartition, offset: int) -> bool:
        """Return whether to truncate below the high watermark, as after an unclean election: once only.

        A leader that requests it again contradicts itself; this replica then waits unchanged for another leader.
        """
        partition, before = followed.partition, followed.cut_committed_to
        if before is None or offset < before:
            followed.cut_committed_to = offset
            self._context.committed_truncations.value += 1
            logger.error(
                "%r is truncated from %d to %d, below its high watermark %d, since the log of leader %d differs from "
                "there on: committed records are lost unless the leader has them",
                partition,
                partition.log.log_end_offset,
                offset,
                partition.high_watermark,
                self.leader_id,
            )
            return True
        if not followed.refuses_leader:
            followed.refuses_leader = True
            logger.error(
                "%r is not truncated to %d again: leader %d has sent records from there on and denies them; check its "
                "leader-epoch-checkpoint with `ottla log scrub`",
                partition,
                offset,
                self.leader_id,
            )
        self._retry_later(followed)
        return False

    # --- offsets that the leader does not have ---------------------------------------------------------------------

    def _find_place(self, followed: _FetcherPartition) -> None:
        """Look up the leader's log range, since the leader has no record at this log's end."""
        self._make_unready(followed)
        self._ask_offset(followed, EARLIEST_TIMESTAMP, lambda first: self._found_start(followed, first))

    def _found_start(self, followed: _FetcherPartition, first: int) -> None:
        partition = followed.partition
        if first > partition.log.log_end_offset:
            logger.warning("%r restarts at offset %d, the leader's log start offset", partition, first)
            self._then_ready(followed, lambda: partition.restart_at(first))
        else:
            self._ask_offset(followed, LATEST_TIMESTAMP, lambda end: self._found_end(followed, end))

    def _found_end(self, followed: _FetcherPartition, end: int) -> None:
        partition = followed.partition
        if end < partition.log.log_end_offset:
            logger.warning("%r is truncated to %d, the leader's log end offset", partition, end)
            self._then_ready(followed, lambda: partition.truncate_to(end))
        else:
            self._retry_later(followed)

    def _then_ready(self, followed: _FetcherPartition, change: Callable[[], None]) -> None:
        try:
            change()
        except KafkaError as error:
            self._failed(followed, error)
            return
        self._make_ready(followed)

    def _ask_offset(self, followed: _FetcherPartition, timestamp: int, found: Callable[[int], None]) -> None:
        """Send ListOffsets on the same connection, before the next Fetch."""
        connection = self._connection
        if connection is None:
            self._retry_later(followed)
            return
        partition = followed.partition
        asked = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._context.membership.node_id,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])],
        )

        def answered(response: ListOffsetsResponse | None, error: BaseException | None) -> None:
            if not self._current(followed):
                return
            answer = None if response is None else response.topics[0].partitions[0]
            if answer is None or answer.error_code != ErrorCode.NONE or answer.offset < 0:
                self._retry_later(followed)
            else:
                found(answer.offset)

        send_message(connection, request, answered, self._context.settings.timeout_s)
