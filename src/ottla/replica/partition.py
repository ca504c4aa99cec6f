"""One partition as its leader sees it: epochs, in-sync replicas, high watermark, append and read.

The partition owns its replication state; the log below knows nothing of it. The high watermark is the smallest log end
of the in-sync replicas, here computed for the local replica alone, and it never passes what the flush policy still
owes: when an append reached `flush.messages`, consumers and acknowledgements wait for the fsync, which runs in the
pool.

Invariants: the high watermark never goes back while this broker leads; `leader_epoch` only rises; an append happens
only while this broker leads. Left out: what requests look like (server), file handling (storage).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.common.clock import BlockingPool
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.ids import Uuid
from ottla.metadata.topic_names import INTERNAL_TOPICS
from ottla.replica.purgatory import Purgatory, Watch
from ottla.storage.log import AppendResult, Log, ReadResult
from ottla.storage.off_loop import Known

NO_LEADER = -1
NO_EPOCH = -1
NO_OFFSET = -1

READ_COMMITTED = 1

HighWatermarkListener = Callable[[int, int], None]
"""Called with the partition's number and its high watermark after each rise, also from inside an append."""


class PartitionState(NamedTuple):
    """What the metadata log says about a partition."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for and where it ends; both -1 when unknown."""

    leader_epoch: int
    end_offset: int


class Partition:
    """A replica of one partition on this broker."""

    __slots__ = (
        "_alone_in_sync",
        "_flush_owed",
        "_pool",
        "_purgatory",
        "appended_bytes",
        "fetch_watch",
        "high_watermark",
        "high_watermark_listener",
        "index",
        "is_internal",
        "is_leader",
        "leader_epoch_start_offset",
        "log",
        "node_id",
        "offline",
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
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.state = PartitionState(NO_LEADER, NO_EPOCH, NO_EPOCH, (), ())
        self.is_internal = topic in INTERNAL_TOPICS
        self.is_leader = False
        self.offline = False
        self.leader_epoch_start_offset = 0
        self.high_watermark = log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.high_watermark_listener: HighWatermarkListener | None = None
        """A coordinator that lives on this partition; set once, by `ReplicaManager.listen`."""
        self.fetch_watch = Watch()
        log.start_listener = self._log_start_moved
        self.produce_watch = Watch()
        self.appended_bytes = 0
        self._alone_in_sync = False
        self._flush_owed = 0
        self._purgatory = purgatory
        self._pool = pool

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index})"

    # --- replication state -----------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The epoch this broker leads in, or the last it heard of."""
        return self.state.leader_epoch

    def update_state(self, state: PartitionState) -> None:
        """Take over what the metadata log says; ignores what is older than what is known."""
        if state.leader_epoch < self.state.leader_epoch:
            raise InvariantError(f"{self}: leader epoch went from {self.state.leader_epoch} to {state.leader_epoch}")
        new_epoch = state.leader_epoch != self.state.leader_epoch
        self.state = state
        self.is_leader = state.leader_id == self.node_id
        self._alone_in_sync = self.is_leader and state.isr == (self.node_id,)
        if new_epoch:
            if self.is_leader:
                self.log.assign_leader_epoch(state.leader_epoch)
                self.leader_epoch_start_offset = self.log.log_end_offset
                if self.log.log_end_offset - self.log.recovery_point >= self.log.config.flush_messages:
                    # A kill came before the fsync that is due; until that is made up for, nobody may rely on this.
                    self._request_flush(self.log.log_end_offset)
            self._purgatory.touch(self.fetch_watch, force=True)
            self._purgatory.touch(self.produce_watch, force=True)
        self._maybe_advance_high_watermark()

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise KafkaError unless this broker leads in the epoch that the client believes in (KIP-320)."""
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if current_leader_epoch != NO_EPOCH:
            if current_leader_epoch < self.state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            if current_leader_epoch > self.state.leader_epoch:
                raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop(self) -> None:
        """The partition is deleted or moves away: whoever waits is answered."""
        self.is_leader = False
        self._alone_in_sync = False
        self._purgatory.touch(self.fetch_watch, force=True)
        self._purgatory.touch(self.produce_watch, force=True)

    @property
    def enough_in_sync(self) -> bool:
        """Whether acks=all may be served; a partition with fewer replicas than `min.insync.replicas` needs them all."""
        state = self.state
        in_sync = len(state.isr)
        return in_sync >= self.log.config.min_insync_replicas or in_sync >= len(state.replicas) > 0

    # --- append ----------------------------------------------------------------------------------------------------

    def append_records(
        self, buffer: bytearray, start: int, end: int, acks_all: bool, prepared: bool = False, *, client: bool = True
    ) -> AppendResult:
        """Append one batch; `buffer[start:end]` is patched in place. `prepared` and `client` as for the log.

        Raises KafkaError with the code the producer gets. An OSError marks the replica offline.
        """
        if not self.is_leader or self.offline:
            self.check_leader()
        log = self.log
        if acks_all and not self.enough_in_sync:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.state.isr)} in sync, min.insync.replicas is {log.config.min_insync_replicas}",
            )
        result = log.append_as_leader(buffer, start, end, self.state.leader_epoch, client=client, prepared=prepared)
        if result.duplicate:
            # The first attempt may still wait for its fsync: then this one waits with it.
            result.needs_flush = result.last_offset < self._flush_owed
        else:
            self.appended_bytes += end - start
            if result.needs_flush:
                self._request_flush(result.last_offset + 1)
            elif self._alone_in_sync and log.recovery_point >= self._flush_owed:
                self.high_watermark = log.high_watermark = log.log_end_offset
                if self.high_watermark_listener is not None:
                    self.high_watermark_listener(self.index, self.high_watermark)
            watch = self.fetch_watch
            if watch.waiters or watch.subscribers is not None:
                self._purgatory.touch(watch)
        return result

    def acknowledged(self, result: AppendResult, acks_all: bool) -> bool:
        """Whether the producer of `result` may be answered: replicated where it asked for that, flushed where due."""
        if acks_all and self.high_watermark <= result.last_offset:
            return False
        return not result.needs_flush or self.log.recovery_point > result.last_offset

    def _log_start_moved(self) -> None:
        self._purgatory.touch(self.fetch_watch)

    def _request_flush(self, up_to_offset: int) -> None:
        self._flush_owed = max(self._flush_owed, up_to_offset)
        self.log.request_flush(self._pool, self._flush_done)

    def _flush_done(self, error: BaseException | None) -> None:
        if error is not None:
            self.mark_offline()
            return
        self._maybe_advance_high_watermark()
        self._purgatory.touch(self.produce_watch)

    def mark_offline(self) -> None:
        """The disk failed under this replica: everything is answered KAFKA_STORAGE_ERROR from now on."""
        self.offline = True
        self._purgatory.touch(self.fetch_watch, force=True)
        self._purgatory.touch(self.produce_watch, force=True)

    def _maybe_advance_high_watermark(self) -> None:
        if not self._alone_in_sync:
            return
        flush_owed = self.log.recovery_point < self._flush_owed
        end = self.log.recovery_point if flush_owed else self.log.log_end_offset
        if end > self.high_watermark:
            self.high_watermark = self.log.high_watermark = end
            self._purgatory.touch(self.fetch_watch)
            self._purgatory.touch(self.produce_watch)
            if self.high_watermark_listener is not None:
                self.high_watermark_listener(self.index, end)

    # --- read ------------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed may see."""
        return self.log.last_stable_offset(self.high_watermark)

    def read_end(self, isolation_level: int) -> int:
        """The end of what a consumer may see."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def read(
        self, offset: int, max_bytes: int, min_one_batch: bool, isolation_level: int, known: Known | None = None
    ) -> ReadResult:
        """Stored batches from `offset` on, up to the high watermark or the last stable offset.

        Raises KafkaError OFFSET_OUT_OF_RANGE, and OffLoop as `Log.read` does. Leadership was checked before by
        `check_leader`.
        """
        end = self.read_end(isolation_level)
        return self.log.read(offset, max_bytes, max_offset=end, min_one_batch=min_one_batch, known=known)

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Where the fetcher's log left ours, None when it did not (KIP-595). Raises OFFSET_OUT_OF_RANGE if unknown."""
        found = self.epoch_end_offset(last_fetched_epoch)
        if found.end_offset == NO_OFFSET or found.leader_epoch == NO_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the epoch of the last fetched record is not known here")
        if found.leader_epoch < last_fetched_epoch or found.end_offset < fetch_offset:
            return found
        return None

    def epoch_end_offset(self, leader_epoch: int) -> EpochEnd:
        """The end of the largest epoch that is not above `leader_epoch` (KIP-101, KIP-279)."""
        if leader_epoch == self.state.leader_epoch:
            return EpochEnd(leader_epoch, self.log.log_end_offset)
        epoch, end_offset = self.log.epoch_end_offset(leader_epoch)
        return EpochEnd(epoch, end_offset)

    def delete_records(self, offset: int) -> int:
        """Raise the log start to `offset` (-1: the high watermark); returns the new low watermark.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark or below -1, POLICY_VIOLATION unless the topic's
        cleanup policy is `delete`.
        """
        self.check_leader()
        if not self.log.config.deleted_by_age_or_size:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "records of a topic that is only compacted are not deleted")
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self.log.delete_records(target)
