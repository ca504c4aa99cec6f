"""One partition on this broker, as leader or follower: epochs, in-sync replicas, high watermark, append and read.

The partition owns its replication state. The log stores one number of it, the high watermark, with its other offsets: a
truncation of the log lowers it there, and only the partition raises it. On the leader it is the lowest log end of the
maximal ISR and of replicas about to join it (`replica.leadership`; not needed with one replica). It never passes a
flush that is due: when an append reaches `flush.messages`, consumers and acknowledgements wait for the fsync, which
runs in the pool. On a follower the leader provides it.

Invariants: the high watermark decreases only with a truncation; `leader_epoch` only rises; clients append only while
this broker leads, followers only in the epoch of their fetch. Requests are in `server`, files in `storage`, and
fetching from a leader in `replica.fetcher`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.internal_topics import INTERNAL_TOPICS
from ottla.common.platform.clock import BlockingPool
from ottla.common.platform.disk import Buffer
from ottla.record.batch import BASE_OFFSET, LAST_OFFSET_DELTA
from ottla.record.control import MARKER_SIZE, EndMarker
from ottla.record.legacy.stored import header_of_any
from ottla.replica.leadership import Eligible, IdleFollower, IsrChange, Leadership
from ottla.replica.purgatory import Purgatory, Watch
from ottla.storage.files.off_loop import Known
from ottla.storage.log.aborted_transactions import ListedTransactions
from ottla.storage.log.log import Log
from ottla.storage.log.verification import VerificationGuard
from ottla.storage.segment.results import AppendResult, ReadResult

NO_LEADER = -1
NO_EPOCH = -1
NO_OFFSET = -1

READ_COMMITTED = 1

HighWatermarkListener = Callable[[int, int], None]
"""Called with the partition's number and its high watermark after each rise, also within an append."""


class PartitionState(NamedTuple):
    """State of a partition in the metadata log."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class LeaderContext(NamedTuple):
    """Broker services that a leader needs."""

    monotonic: Callable[[], float]
    max_lag_s: float
    eligible: Eligible
    alive: Callable[[int], bool]
    """Whether a broker is registered and not fenced."""
    propose: Callable[[Partition, IsrChange], None]
    """Proposes an ISR to the controller; `isr_committed` or `isr_not_attempted` follow, or a new state."""
    suspect: Callable[[Partition, int], None]
    """Called when a follower cannot fetch beyond an offset that this log has."""


class EpochEnd(NamedTuple):
    """The largest epoch not above the requested one and its end; both -1 when unknown."""

    leader_epoch: int
    end_offset: int


class Partition:
    """A replica of one partition on this broker."""

    __slots__ = (
        "_alone_in_sync",
        "_flush_owed",
        "_leader_context",
        "_pool",
        "_purgatory",
        "appended_bytes",
        "cut_count",
        "fetch_watch",
        "follower_watch",
        "high_watermark_listener",
        "index",
        "is_internal",
        "is_leader",
        "leader_epoch_start_offset",
        "leader_since",
        "leadership",
        "log",
        "node_id",
        "offline",
        "offsets",
        "produce_watch",
        "state",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: Uuid,
        log: Log,
        node_id: int,
        purgatory: Purgatory,
        pool: BlockingPool,
        high_watermark: int,
        leader_context: LeaderContext,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.offsets = log.offsets
        """Offsets of the log, for fast access, including the high watermark."""
        self.node_id = node_id
        self.state = PartitionState(NO_LEADER, NO_EPOCH, NO_EPOCH, (), ())
        self.is_internal = topic in INTERNAL_TOPICS
        self.is_leader = False
        self.offline = False
        self.leader_epoch_start_offset = 0
        self.leader_since = NO_EPOCH
        """First epoch of this broker's uninterrupted leadership: the log contains everything appended since then."""
        self.leadership: Leadership | None = None
        """State of the other replicas; None on a follower or with a single replica."""
        self.offsets.begin_high_watermark(high_watermark)
        self.high_watermark_listener: HighWatermarkListener | None = None
        """The coordinator of this partition; set once, by `ReplicaManager.listen`."""
        self.fetch_watch = Watch()
        """Watch of consumers, which may read up to the high watermark."""
        self.follower_watch = Watch()
        """Watch of followers, which read fresh appends; touched by all news for a follower that has everything."""
        log.start_listener = self._log_start_moved
        self.produce_watch = Watch()
        self.appended_bytes = 0
        self.cut_count = 0
        """Number of possible truncations: a copy is compared with the log after each of them."""
        self._alone_in_sync = False
        self._flush_owed = 0
        self._purgatory = purgatory
        self._pool = pool
        self._leader_context = leader_context

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index})"

    # --- replication state -----------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """End of the committed records, which consumers may read."""
        return self.offsets.high_watermark

    @property
    def leader_epoch(self) -> int:
        """Epoch in which this broker leads, or the latest known one."""
        return self.state.leader_epoch

    def update_state(self, state: PartitionState) -> None:
        """Apply the state of the metadata log; ignores states older than the known one.

        The controller's response to an ISR change may arrive before the metadata with the same state.
        """
        known = self.state
        if state.leader_epoch < known.leader_epoch:
            raise InvariantError(f"{self}: leader epoch went from {known.leader_epoch} to {state.leader_epoch}")
        if state.partition_epoch < known.partition_epoch:
            return
        new_epoch = state.leader_epoch != known.leader_epoch
        led = self.is_leader
        self.state = state
        self.is_leader = state.leader_id == self.node_id
        if new_epoch:
            if self.is_leader:
                if not led or state.leader_epoch != known.leader_epoch + 1:
                    # Another broker may have led between the two epochs, unknown to this one.
                    self.leader_since = state.leader_epoch
                self._begin_epoch(state.leader_epoch)
            self._answer_all()
        self._follow_replicas(state, new_epoch)
        self._maybe_advance_high_watermark()

    def renumber(self) -> None:
        """Reset partition epochs after a change of the metadata store, which counts changes of partitions differently.

        The next state is newer than the known one, and a proposal to the previous controller is void.
        """
        self.state = self.state._replace(partition_epoch=-1)
        if self.leadership is not None:
            self.leadership.partition_epoch = -1

    def _begin_epoch(self, leader_epoch: int) -> None:
        self.log.assign_leader_epoch(leader_epoch)
        self.leader_epoch_start_offset = self.log.log_end_offset
        if self.log.log_end_offset - self.log.flushed_offset >= self.log.config.flush_messages:
            # After a crash before a due fsync, other replicas must not rely on this one until that fsync is done.
            self._request_flush(self.log.log_end_offset)

    def _follow_replicas(self, state: PartitionState, new_epoch: bool) -> None:
        """Update the view of the other replicas to the current leader and replica set."""
        if not self.is_leader or state.replicas == (self.node_id,):
            self.leadership = None
        else:
            context = self._leader_context
            if new_epoch or self.leadership is None:
                self.leadership = Leadership(
                    self.node_id,
                    state.leader_epoch,
                    self.leader_epoch_start_offset,
                    max_lag_s=context.max_lag_s,
                    eligible=context.eligible,
                )
            self.leadership.committed(state.partition_epoch, state.replicas, state.isr, context.monotonic())
            self._purgatory.touch(self.produce_watch)
        self._alone_in_sync = self.is_leader and self.leadership is None
        self._purgatory.touch(self.follower_watch)

    def isr_committed(self, change: IsrChange, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]) -> None:
        """Apply the controller's response to `change`, unless the metadata was faster."""
        state, leadership = self.state, self.leadership
        if leadership is None or leader_epoch != state.leader_epoch or partition_epoch < state.partition_epoch:
            return
        leadership.not_attempted(change)
        self.state = state._replace(partition_epoch=partition_epoch, isr=isr)
        leadership.committed(partition_epoch, state.replicas, isr, self._leader_context.monotonic())
        self._isr_changed()

    def isr_not_attempted(self, change: IsrChange) -> None:
        """Drop `change`, which the controller rejected for now: the committed ISR stays."""
        if self.proposal_stands(change) and self.leadership is not None:
            self.leadership.not_attempted(change)
            self._isr_changed()

    def _isr_changed(self) -> None:
        self._maybe_advance_high_watermark()
        self._purgatory.touch(self.produce_watch)
        self._purgatory.touch(self.follower_watch)

    def proposal_stands(self, change: IsrChange) -> bool:
        """Return whether `change` is still the proposal of this leader."""
        leadership = self.leadership
        return (
            leadership is not None
            and leadership.leader_epoch == change.leader_epoch
            and leadership.partition_epoch == change.partition_epoch
            and leadership.proposed is not None
        )

    def maybe_shrink_isr(self) -> None:
        """Propose an ISR without replicas that lagged for too long; called periodically."""
        leadership = self.leadership
        if leadership is None or self.offline:
            return
        change = leadership.shrinking(self.log.log_end_offset, self._leader_context.monotonic())
        if change is not None:
            self._leader_context.propose(self, change)
        # The joining replica failed to join, so the high watermark no longer waits for it.
        self._maybe_advance_high_watermark()

    def check_follower(self, current_leader_epoch: int, replica_id: int) -> None:
        """Raise KafkaError unless this broker leads, in that epoch, a partition with that replica."""
        self.check_leader(current_leader_epoch)
        leadership = self.leadership
        if leadership is None or replica_id not in leadership.followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} has no replica")

    def follower_fetched(
        self, replica_id: int, fetch_offset: int, log_start_offset: int, broker_epoch: int, now_s: float
    ) -> None:
        """Record a fetch of a checked follower: it has everything below `fetch_offset`, and requests the rest."""
        leadership = self.leadership
        if leadership is None:
            raise InvariantError(f"{self} has no followers")
        end = self.log.log_end_offset
        if log_start_offset != leadership.followers[replica_id].log_start_offset:
            self._purgatory.touch(self.produce_watch)
        moved = leadership.fetched(replica_id, fetch_offset, log_start_offset, end, now_s, broker_epoch)
        change = leadership.expansion(replica_id, self.high_watermark)
        if change is not None:
            self._leader_context.propose(self, change)
        if moved:
            self._maybe_advance_high_watermark()
        elif leadership.followers[replica_id].stalls:
            self._leader_context.suspect(self, fetch_offset)

    def mark_follower_idle(self, replica_id: int, fetch_offset: int, resting: IdleFollower) -> bool:
        """Return whether further fetches at `fetch_offset` have the same answer until `follower_watch` is touched.

        From then on `resting` has the time of the last of them.
        """
        leadership = self.leadership
        if leadership is None or replica_id not in leadership.isr:
            return False
        if not fetch_offset == self.high_watermark == self.log.log_end_offset:
            return False
        leadership.followers[replica_id].resting = resting
        return True

    def check_leader(self, current_leader_epoch: int = NO_EPOCH, *, or_follower: bool = False) -> None:
        """Raise KafkaError unless this broker leads, or follows, in the epoch that the client expects (KIP-320)."""
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if current_leader_epoch != NO_EPOCH:
            if current_leader_epoch < self.state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            if current_leader_epoch > self.state.leader_epoch:
                raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not self.is_leader and not or_follower:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _answer_all(self) -> None:
        """Answer all waiting requests with the current state."""
        for watch in (self.fetch_watch, self.follower_watch, self.produce_watch):
            self._purgatory.touch(watch, force=True)

    def check_readable(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise KafkaError unless a consumer may read here, from the leader or a follower (KIP-392)."""
        if self.is_leader or self.offline:
            self.check_leader(current_leader_epoch)
        elif self.state.leader_id == NO_LEADER or self.node_id not in self.state.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif current_leader_epoch != NO_EPOCH:
            self.check_leader(current_leader_epoch, or_follower=True)

    def stop(self) -> None:
        """Answer all waiting requests: the partition is deleted or moves away."""
        self.is_leader = False
        self.leadership = None
        self._alone_in_sync = False
        self.log.start_listener = None  # a cycle of partition and log would stay until a garbage collection
        self._answer_all()

    @property
    def enough_in_sync(self) -> bool:
        """Return whether acks=all may be served: `min.insync.replicas`, at most the number of replicas, are in sync."""
        state = self.state
        in_sync = len(state.isr)
        return in_sync >= self.log.config.min_insync_replicas or in_sync >= len(state.replicas) > 0

    @property
    def enough_after_append(self) -> bool:
        """The same check after replication: a member counts until its removal from the ISR is committed."""
        leadership = self.leadership
        if leadership is None:
            return self.enough_in_sync
        return len(leadership.maximal_isr) >= leadership.min_isr(self.log.config.min_insync_replicas)

    # --- append ----------------------------------------------------------------------------------------------------

    def append_records(
        self,
        buffer: bytearray,
        start: int,
        end: int,
        acks_all: bool,
        prepared: bool = False,
        *,
        client: bool = True,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append one batch; `buffer[start:end]` is patched in place. `prepared`, `client` and `guard` as for the log.

        Raises KafkaError with the code the producer gets. An OSError marks the replica offline.
        """
        if not self.is_leader or self.offline:
            self.check_leader()
        log = self.log
        if acks_all and not self._alone_in_sync and not self.enough_in_sync:
            raise self._not_enough_in_sync()
        result = log.writer.append_as_leader(
            buffer, start, end, self.state.leader_epoch, client=client, prepared=prepared, guard=guard
        )
        if result.duplicate:
            # The first attempt may still wait for its fsync: then this retry waits with it.
            result.needs_flush = result.last_offset < self._flush_owed
        else:
            self.appended_bytes += end - start
            if result.needs_flush:
                self._request_flush(result.last_offset + 1)
            elif self._alone_in_sync and self.offsets.flushed_offset >= self._flush_owed:
                end = result.last_offset + 1
                self.offsets.set_high_watermark(end)
                if self.high_watermark_listener is not None:
                    self.high_watermark_listener(self.index, end)
            elif self.leadership is not None:
                self._maybe_advance_high_watermark()
            watch = self.fetch_watch if self.leadership is None else self.follower_watch
            if watch.waiters or watch.subscribers is not None:
                self._purgatory.touch(watch)
        return result

    def _not_enough_in_sync(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{len(self.state.isr)} in sync, min.insync.replicas is {self.log.config.min_insync_replicas}",
        )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Return the guard with which a producer's batch begins a transaction here, after verification (KIP-890).

        `supports_epoch_bump`: the producer's epoch rises with each transaction. None if the transaction is open and
        needs no verification. Raises KafkaError INVALID_PRODUCER_EPOCH, and the errors of `check_leader`.
        """
        self.check_leader()
        return self.log.begin_verification(
            producer_id, producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump
        )

    def check_end_marker(self, marker: EndMarker) -> None:
        """Raise KafkaError unless this broker leads and the marker may end a transaction of its producer here.

        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, and as `append_records`.
        """
        self.check_leader()
        if not self._alone_in_sync and not self.enough_in_sync:
            raise self._not_enough_in_sync()
        self.log.check_marker(marker)

    def append_end_markers(self, markers: Sequence[EndMarker]) -> AppendResult:
        """End transactions here, each of another producer, after `check_end_marker` of each.

        A transaction that is already closed gets another marker, as in Apache Kafka. Acknowledged like acks=all.
        Raises KafkaError KAFKA_STORAGE_ERROR, with none of the markers in the log.
        """
        result = self.log.writer.append_end_markers(markers, self.state.leader_epoch)
        self.appended_bytes += len(markers) * MARKER_SIZE
        if result.needs_flush:
            self._request_flush(result.last_offset + 1)
        self._maybe_advance_high_watermark()
        self._purgatory.touch(self.follower_watch)
        return result

    def append_end_marker(self, marker: EndMarker) -> AppendResult:
        """End one transaction here. Raises as both methods above."""
        self.check_end_marker(marker)
        return self.append_end_markers((marker,))

    def acknowledged(self, result: AppendResult, acks_all: bool) -> bool:
        """Return whether `result` may be acknowledged: replicated for acks=all, flushed if a flush is due."""
        if acks_all and self.offsets.high_watermark <= result.last_offset:
            return False
        return not result.needs_flush or self.offsets.flushed_offset > result.last_offset

    def _log_start_moved(self) -> None:
        self._purgatory.touch(self.fetch_watch)
        self._purgatory.touch(self.follower_watch)

    def _request_flush(self, up_to_offset: int) -> None:
        self._flush_owed = max(self._flush_owed, up_to_offset)
        self.log.request_flush(self._pool, partial(self._flush_done, self.log))

    def _flush_done(self, log: Log, error: BaseException | None) -> None:
        if log is not self.log:
            return  # the log was replaced by a moved one, and the flush belonged to the old one
        if error is not None:
            self.mark_offline()
            return
        self._maybe_advance_high_watermark()
        self._purgatory.touch(self.produce_watch)

    def mark_offline(self) -> None:
        """Take the replica offline after a disk error: all requests get KAFKA_STORAGE_ERROR from now on."""
        self.offline = True
        self._answer_all()

    def _maybe_advance_high_watermark(self) -> None:
        if not self.is_leader:
            return
        offsets = self.offsets
        end = offsets.flushed_offset if offsets.flushed_offset < self._flush_owed else offsets.log_end_offset
        leadership = self.leadership
        if leadership is not None:
            now_s = self._leader_context.monotonic()
            min_isr = self.log.config.min_insync_replicas
            end = leadership.next_high_watermark(end, offsets.log_end_offset, min_isr, now_s)
        if end > offsets.high_watermark:
            offsets.set_high_watermark(end)
            self._purgatory.touch(self.fetch_watch)
            self._purgatory.touch(self.produce_watch)
            if self.high_watermark_listener is not None:
                self.high_watermark_listener(self.index, end)

    # --- as a follower ---------------------------------------------------------------------------------------------

    def append_as_follower(self, records: Buffer, *, gaps_allowed: bool = False) -> AppendResult:
        """Append bytes of the leader unchanged. Raises KafkaError CORRUPT_MESSAGE and KAFKA_STORAGE_ERROR.

        `gaps_allowed`: offsets may be missing although the topic is not compacted, since it was earlier.
        """
        log = self.log
        header = header_of_any(records, 0)
        if header and header[BASE_OFFSET] < log.log_end_offset <= header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]:
            # The leader's log starts within this batch, which can only be stored whole. Local records with its offsets
            # belong to another history; the leader dropped that epoch with the records below its start.
            self.cut_count += 1
            if log.log_start_offset == log.log_end_offset:
                log.truncate_fully_and_start_at(header[BASE_OFFSET])
            else:
                self.truncate_to(header[BASE_OFFSET])
        self.appended_bytes += len(records)
        return log.writer.append_as_follower(
            records, 0, len(records), leader_epoch=self.state.leader_epoch, gaps_allowed=gaps_allowed
        )

    def follow_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """Apply the leader's high watermark and log start offset, as far as this log reaches."""
        offsets = self.offsets
        known = min(high_watermark, offsets.log_end_offset)
        if known > offsets.high_watermark:
            offsets.set_high_watermark(known)
            self._purgatory.touch(self.fetch_watch)
        if offsets.log_start_offset < log_start_offset <= offsets.log_end_offset:
            self.log.maybe_increment_log_start_offset(log_start_offset)

    def truncate_to(self, offset: int) -> None:
        """Truncate records that the leader does not have. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self.cut_count += 1
        try:
            self.log.truncate_to(offset)
        finally:  # a failed truncation may have changed the log all the same
            self._flush_owed = min(self._flush_owed, self.offsets.log_end_offset)

    def restart_at(self, offset: int) -> None:
        """Drop all records: the leader's log begins after the end of this one. Raises KafkaError
        KAFKA_STORAGE_ERROR.
        """
        self.cut_count += 1
        self.log.truncate_fully_and_start_at(offset)
        self._flush_owed = min(self._flush_owed, offset)

    def when_durable(self, done: Callable[[BaseException | None], None]) -> None:
        """Call `done` once everything appended so far is durable; a failure takes this replica offline first."""

        log = self.log

        def flushed(error: BaseException | None) -> None:
            if log is not self.log:
                self.when_durable(done)
                return
            if error is not None:
                self.mark_offline()
            done(error)

        log.request_flush(self._pool, flushed)

    def replace_log(self, log: Log) -> None:
        """Replace the log with `log`, a copy in another directory that is equal offset by offset.

        State outside of batches moves too: settings, the high watermark, epochs without records, verifications.
        """
        old, self.log, self.offsets = self.log, log, log.offsets
        log.config = old.config
        log.learn_epochs(log.log_start_offset, log.log_end_offset, old.epochs.entries())
        log.producers.verifications = old.producers.verifications
        log.offsets.begin_high_watermark(old.offsets.high_watermark)
        old.start_listener, log.start_listener = None, self._log_start_moved
        if self._flush_owed > log.flushed_offset:
            self._request_flush(self._flush_owed)
        self._maybe_advance_high_watermark()  # a due flush may be done by that
        self._purgatory.touch(self.produce_watch)

    # --- read ------------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """End of the records that read_committed consumers may see."""
        return self.log.last_stable_offset(self.offsets.high_watermark)

    def read_end(self, isolation_level: int) -> int:
        """End of the records that a consumer with this isolation level may see."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.offsets.high_watermark

    def read(
        self, offset: int, max_bytes: int, min_one_batch: bool, isolation_level: int, known: Known | None = None
    ) -> ReadResult:
        """Stored batches from `offset` on, up to the high watermark or the last stable offset.

        Raises KafkaError OFFSET_OUT_OF_RANGE, and WouldBlock as `Log.read` does; OFFSET_NOT_AVAILABLE at a follower
        that has not reached the offset. The caller has called `check_leader` or `check_readable`.
        """
        if offset > self.offsets.log_end_offset and not self.is_leader:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        end = self.read_end(isolation_level)
        result = self.log.reader.read(offset, max_bytes, max_offset=end, min_one_batch=min_one_batch, known=known)
        if result.records is not None:
            result.records.committed = True
        return result

    def aborted_transactions(self, offset: int, found: ReadResult, known: Known | None = None) -> ListedTransactions:
        """Return the aborted transactions that a read_committed consumer needs for the records that `read` has `found`.

        Raises KafkaError KAFKA_STORAGE_ERROR, and WouldBlock as `read` does.
        """
        return self.log.aborted.within(offset, found, self.last_stable_offset, known)

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Return where the fetcher's log diverges from this one, or None (KIP-595).

        Raises KafkaError OFFSET_OUT_OF_RANGE if that is unknown.
        """
        offsets = self.offsets
        if fetch_offset < offsets.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if last_fetched_epoch == self.state.leader_epoch and fetch_offset <= offsets.log_end_offset:
            return None  # no object for each partition of each fetch
        found = self.epoch_end_offset(last_fetched_epoch)
        if found.end_offset == NO_OFFSET or found.leader_epoch == NO_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the epoch of the last fetched record is not known here")
        if found.leader_epoch < last_fetched_epoch or found.end_offset < fetch_offset:
            return found
        return None

    def follower_divergence(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Return `diverging_epoch` for a follower, which truncates its log by it, so this log is checked too.

        If the batch before `fetch_offset` in this log has the same epoch, both logs agree. In that case entries missing
        in `leader-epoch-checkpoint` are added.
        """
        diverging = self.diverging_epoch(fetch_offset, last_fetched_epoch)
        if diverging is None or fetch_offset > self.offsets.log_end_offset:
            return diverging
        if not self.log.shares_epoch(last_fetched_epoch, fetch_offset - 1):
            return diverging
        return self.diverging_epoch(fetch_offset, last_fetched_epoch)

    def epoch_end_offset(self, leader_epoch: int) -> EpochEnd:
        """Return the end of the largest epoch that is not above `leader_epoch` (KIP-101, KIP-279)."""
        if leader_epoch == self.state.leader_epoch:
            return EpochEnd(leader_epoch, self.log.log_end_offset)
        epoch, end_offset = self.log.epoch_end_offset(leader_epoch)
        return EpochEnd(epoch, end_offset)

    @property
    def low_watermark(self) -> int:
        """Smallest log start offset of the live replicas; -1 while one of them has not fetched."""
        own = self.log.log_start_offset
        return own if self.leadership is None else self.leadership.lowest_log_start(own, self._leader_context.alive)

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to `offset` (-1: the high watermark); returns the new low watermark.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark or below -1, POLICY_VIOLATION unless the topic's
        cleanup policy includes `delete`.
        """
        self.check_leader()
        if not self.log.config.deleted_by_age_or_size:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "records of a topic that is only compacted are not deleted")
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self.log.delete_records(target)
