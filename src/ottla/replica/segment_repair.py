"""One try to mend a replica: segments with damage are fetched anew from the leader and take the place of the old ones.

The leader is asked as a consumer asks, so that it learns nothing of this replica's progress, which is out of the ISR
and fetches nothing else meanwhile; what it gives is committed. Whole segments are fetched, since where a damaged one
goes on is not known. Of a log that was compacted that is all of them: two replicas drop their records and tombstones at
different times, so a part of the one beside a part of the other could bring back what was deleted. The cleaner begins
there from the start then, and knows so before the log is another.

The steps of the swap are those of the cleaner (`storage.log.swap`): a crash before the first sync leaves the log as
it was, one behind it has the next start finish the swap. What the leader's log does not have any more (retention,
DeleteRecords) is not there afterwards either. What lies above the leader's high watermark is cut, and fetched as ever.

Left out: when to mend and when to try again (`replica.replica_repair`), writing the files
(`storage.repair.replacement`).
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

MendEnded = Callable[[str], None]
"""Told once how a try ended: an empty string when the log is whole, else why it is not."""


class SegmentRepair:
    """See the module. Owned by the loop; what blocks runs in the pool."""

    __slots__ = (
        "_cleaning",
        "_connection",
        "_cut_offset",
        "_ended",
        "_index_is_lost",
        "_log",
        "_logs",
        "_partition",
        "_pool",
        "_replacement",
        "_start_offset",
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
        ended: MendEnded,
    ) -> None:
        """Begin with the segments from `first_offset` to `last_offset`, all where the log was ever compacted.

        `compacted_in` are the logs that have it then; None where it never was. Raises KafkaError where the log can't be
        worked at now.
        """
        was_compacted = compacted_in is not None
        self._logs = compacted_in
        self._partition = partition
        self._connection = connection
        self._pool = pool
        self._ended = ended
        self.leader_epoch = partition.leader_epoch
        self._cut_offset: int | None = None
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
        """What the transaction indexes say, which were written when the batches came."""
        try:
            return aborted_transactions(self._log.folder, [source.base_offset for source in sources])
        except (OSError, IndexCorruption):
            self._index_is_lost = True
            return []

    def cancel(self) -> None:
        """Leave the log as it is; `ended` is told when nothing of it is at work any more."""
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
                self._end(f"the leader does not say where its log begins: {_why(error, answer)}")
            else:
                self._start_offset = answer.offset
                self._fetch(max(answer.offset, self._replacement.next_offset))

        send_message(self._connection, request, answered, TIMEOUT_S)

    def _fetch(self, offset: int) -> None:
        """The rest from `offset` on; a leader whose log begins behind all of it has nothing to give."""
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
                self._end(f"the leader gives nothing: {_why(error, data)}")
            else:
                self._take(offset, data)

        send_message(self._connection, request, answered, TIMEOUT_S)

    def _take(self, offset: int, data: PartitionData) -> None:
        replacement = self._replacement
        if not data.records:
            if data.high_watermark < min(replacement.end_offset, self._partition.high_watermark):
                self._end("the leader does not know yet how far its log is committed")
                return
            if data.high_watermark < replacement.end_offset:
                self._cut_offset = offset
            self._fetch(replacement.end_offset)
            return
        records = bytes(data.records)  # which is good during this call only

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
        """What has to be written before the log has the leader's gaps. Only then does a start believe them."""
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
        cut_offset = self._cut_offset

        def take_in() -> None:
            log, replacement = self._log, self._replacement
            self._cleaning.take_in()
            log.learn_epochs(group.sources[0].base_offset, replacement.end_offset, replacement.epochs)
            log.maybe_increment_log_start_offset(min(self._start_offset, log.log_end_offset))
            if self._index_is_lost:
                bases = set(group.outputs)
                log.aborted.rebuild([segment for segment in log.segments if segment.base_offset in bases])
            if cut_offset is not None:
                # In the same turn: what was taken in ends there, and nobody may find the log to be longer.
                self._partition.truncate_to(cut_offset)

        settle = self._end if cut_offset is not None else lambda: self._sync(self._settle)
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
        """`act` unless the log was cut or closed meanwhile, or this was cancelled."""
        if self._cleaning.is_over or self._connection.failed:
            self._end("the log is another by now")
            return
        try:
            act()
        except (KafkaError, OSError) as error:
            self._end(str(error))
            return
        then()

    def _end(self, reason: str = "") -> None:
        """`reason` is why the log is not whole, if it is not."""
        self._connection.close()
        if self._log.cleaning is self._cleaning:
            try:
                self._log.end_cleaning()
            except KafkaError as error:
                reason = reason or error.message
        self._ended(reason)


def _sources(log: Log, first_offset: int, last_offset: int, *, everything: bool) -> list[Source]:
    """The segments of a range, none of which is appended to any more. Raises KafkaError."""
    if everything or last_offset >= log.active_segment.base_offset:
        log.roll()
    sources = [
        Source(segment.base_offset, following.base_offset, segment.size_bytes, 0, 0)
        for segment, following in pairwise(log.segments)
        if everything or (segment.base_offset <= last_offset and following.base_offset > first_offset)
    ]
    if not sources:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the log does not have the range any more")
    return sources


def _why(error: BaseException | None, answer: ListOffsetsPartitionResponse | PartitionData | None) -> str:
    return str(error) if answer is None else ErrorCode.for_code(answer.error_code).name
