"""One repair attempt of a replica: damaged segments are fetched again from the leader and replace the old ones.

The replica fetches like a consumer, so that the leader learns nothing about its progress. It is out of the ISR and
fetches nothing else meanwhile, and receives only committed records. Whole segments are fetched, since the end of a
damaged range is unknown. For a log that was compacted that means all segments: two replicas drop their records and
tombstones at different times, so a mix of both could resurrect deleted keys. The cleaner then restarts there from the
beginning, and its checkpoint is reset before the log changes.

The swap has the steps of the cleaner's (`storage.log.swap`): a crash before the first sync leaves the log unchanged,
a crash after it makes the next start complete the swap. Records that the leader's log no longer has (retention,
DeleteRecords) are dropped. Records above the leader's high watermark are truncated and fetched normally.

Scheduling of repairs is in `replica.replica_repair`, writing the files in `storage.repair.replacement`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import BlockingPool
from ottla.common.platform.peer import PeerConnection
from ottla.net.peer_messages import send_message
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.replica.offsets import EARLIEST_TIMESTAMP
from ottla.replica.partition import Partition
from ottla.storage.compaction.cleaning import CleanedGroup
from ottla.storage.compaction.sources import Source, aborted_transactions
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.log.log import Log
from ottla.storage.repair.replacement import Replacement
from ottla.storage.segment.index import IndexCorruption
from ottla.storage.segment.transactions import CompletedTransaction

FETCH_BYTES = 4 * 1024 * 1024
TIMEOUT_S = 30.0

RepairEnded = Callable[[str], None]
"""Called once at the end of an attempt: with an empty string if the log is repaired, else with the reason."""


class SegmentRepair:
    """One repair attempt. Owned by the loop; blocking work runs in the pool."""

    __slots__ = (
        "_cleaning",
        "_connection",
        "_ended",
        "_index_is_lost",
        "_log",
        "_logs",
        "_partition",
        "_pool",
        "_replacement",
        "_start_offset",
        "_truncation_offset",
        "leader_epoch",
    )

    def __init__(
        self,
        partition: Partition,
        first_offset: int,
        last_offset: int,
        *,
        compacted_in: LogManager | None,
        connection: PeerConnection,
        pool: BlockingPool,
        ended: RepairEnded,
    ) -> None:
        """Repair the segments from `first_offset` to `last_offset`, or all if the log was ever compacted.

        `compacted_in` are the logs with its cleaner entry then; None if it was never compacted. Raises KafkaError if
        the log is busy.
        """
        was_compacted = compacted_in is not None
        self._logs = compacted_in
        self._partition = partition
        self._connection = connection
        self._pool = pool
        self._ended = ended
        self.leader_epoch = partition.leader_epoch
        self._truncation_offset: int | None = None
        self._start_offset = 0
        self._index_is_lost = was_compacted
        log = self._log = partition.log
        if log.cleaning is not None or log.cleaner_works:
            raise KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the log is being cleaned")
        sources = _sources(log, first_offset, last_offset, everything=was_compacted)
        self._cleaning = log.begin_cleaning()
        self._replacement = Replacement(
            log.folder.disk,
            log.directory,
            sources,
            () if was_compacted else self._aborted(sources),
            index_interval_bytes=log.config.index_interval_bytes,
            gaps_allowed=was_compacted,
        )
        self._ask_start()

    def _aborted(self, sources: list[Source]) -> list[CompletedTransaction]:
        """Completed transactions of the transaction indexes, which were written at the append."""
        try:
            return aborted_transactions(self._log.folder, [source.base_offset for source in sources])
        except (OSError, IndexCorruption):
            self._index_is_lost = True
            return []

    def cancel(self) -> None:
        """Leave the log unchanged; `ended` is called when no work for it is left."""
        self._connection.close()

    # -- fetching ----------------------------------------------------------------------------------------------------

    def _ask_start(self) -> None:
        partition = self._partition
        asked = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=self.leader_epoch, timestamp=EARLIEST_TIMESTAMP
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])])

        def answered(response: ListOffsetsResponse | None, error: BaseException | None) -> None:
            answer = None if response is None else response.topics[0].partitions[0]
            if answer is None or answer.error_code != ErrorCode.NONE:
                self._end(f"the leader did not return its log start offset: {_why(error, answer)}")
            else:
                self._start_offset = answer.offset
                self._fetch(max(answer.offset, self._replacement.next_offset))

        send_message(self._connection, request, answered, TIMEOUT_S)

    def _fetch(self, offset: int) -> None:
        """Fetch the rest from `offset` on; a leader with a log that starts behind all of it has no records for it."""
        if offset >= self._replacement.end_offset:
            self._complete()
            return
        partition = self._partition
        asked = FetchPartition(
            partition=partition.index,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic_id=partition.topic_id, partitions=[asked])],
        )

        def answered(response: FetchResponse | None, error: BaseException | None) -> None:
            data = response.responses[0].partitions[0] if response is not None and response.responses else None
            if data is None or data.error_code != ErrorCode.NONE:
                self._end(f"the leader returned no records: {_why(error, data)}")
            else:
                self._take(offset, data)

        send_message(self._connection, request, answered, TIMEOUT_S)

    def _take(self, offset: int, data: PartitionData) -> None:
        replacement = self._replacement
        if not data.records:
            if data.high_watermark < min(replacement.end_offset, self._partition.high_watermark):
                self._end("the leader does not know its high watermark yet")
                return
            if data.high_watermark < replacement.end_offset:
                self._truncation_offset = offset
            self._fetch(replacement.end_offset)
            return
        records = bytes(data.records)  # the view is valid during this call only

        def written(_: None) -> None:
            if replacement.next_offset <= offset:
                self._end(f"the leader has no whole batch at offset {offset}")
            else:
                self._fetch(replacement.next_offset)

        self._in_pool(lambda: replacement.write(records), written)

    def _complete(self) -> None:
        replacement = self._replacement
        permit = [] if self._logs is None else self._permit_gaps(self._logs)

        def complete() -> CleanedGroup:
            for write in permit:
                write()
            return replacement.complete()

        self._in_pool(complete, self._stage)

    def _permit_gaps(self, logs: LogManager) -> list[Callable[[], object]]:
        """Writes that must precede a log with the leader's gaps: only with them does a start accept the gaps."""
        key, checkpoint = (self._partition.topic, self._partition.index), logs.cleaner_checkpoint
        checkpoint.put(key, self._log.log_start_offset)
        due, points = checkpoint.due(), logs.before_gaps(key, self._replacement.end_offset)
        writes: list[Callable[[], object]] = [] if points is None else [points]
        if due is not None:
            writes.append(lambda: checkpoint.write(due))
        return writes

    # -- swapping ----------------------------------------------------------------------------------------------------

    def _stage(self, group: CleanedGroup) -> None:
        self._on_log(lambda: self._cleaning.stage(group), lambda: self._sync(lambda: self._take_in(group)))

    def _sync(self, then: Callable[[], None]) -> None:
        self._in_pool(self._cleaning.sync, lambda _: then())

    def _take_in(self, group: CleanedGroup) -> None:
        truncation_offset = self._truncation_offset

        def take_in() -> None:
            log, replacement = self._log, self._replacement
            self._cleaning.take_in()
            log.learn_epochs(group.sources[0].base_offset, replacement.end_offset, replacement.epochs)
            log.maybe_increment_log_start_offset(min(self._start_offset, log.log_end_offset))
            if self._index_is_lost:
                bases = set(group.outputs)
                log.aborted.rebuild([segment for segment in log.segments if segment.base_offset in bases])
            if truncation_offset is not None:
                # In the same tick: the received records end there, and no reader may find the log to be longer.
                self._partition.truncate_to(truncation_offset)

        settle = self._end if truncation_offset is not None else lambda: self._sync(self._settle)
        self._on_log(take_in, settle)

    def _settle(self) -> None:
        self._on_log(self._cleaning.settle, self._end)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _in_pool(self, work: Callable[[], object], then: Callable[..., None]) -> None:
        def done(result: object, error: BaseException | None) -> None:
            if error is None:
                then(result)
            elif isinstance(error, (KafkaError, OSError)):
                self._end(str(error))
            else:
                raise error

        self._pool.submit(work, done)

    def _on_log(self, act: Callable[[], None], then: Callable[[], None]) -> None:
        """Run `act` unless the log was truncated or closed meanwhile, or this was cancelled."""
        if self._cleaning.is_over or self._connection.failed:
            self._end("the log has changed meanwhile")
            return
        try:
            act()
        except (KafkaError, OSError) as error:
            self._end(str(error))
            return
        then()

    def _end(self, reason: str = "") -> None:
        """End the attempt; `reason` is why the log is not repaired, empty on success."""
        self._connection.close()
        if self._log.cleaning is self._cleaning:
            try:
                self._log.end_cleaning()
            except KafkaError as error:
                reason = reason or error.message
        self._ended(reason)


def _sources(log: Log, first_offset: int, last_offset: int, *, everything: bool) -> list[Source]:
    """Return the inactive segments of a range. Raises KafkaError."""
    if everything or last_offset >= log.active_segment.base_offset:
        log.roll()
    sources = [
        Source(segment.base_offset, following.base_offset, segment.data.size_bytes, 0, 0)
        for segment, following in pairwise(log.segments)
        if everything or (segment.base_offset <= last_offset and following.base_offset > first_offset)
    ]
    if not sources:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the log does not have the range any more")
    return sources


def _why(error: BaseException | None, answer: ListOffsetsPartitionResponse | PartitionData | None) -> str:
    return str(error) if answer is None else ErrorCode.for_code(answer.error_code).name
