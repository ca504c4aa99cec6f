"""The local log as written by a follower: the leader's batches, truncation where the logs differ, or a snapshot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ottla.common.errors import ProtocolError
from ottla.common.platform.clock import Clock
from ottla.common.platform.disk import Buffer
from ottla.quorum.metadata_log import ReplicaLog
from ottla.quorum.raft import Raft
from ottla.quorum.replay import Replay, batch_content_by_record
from ottla.quorum.snapshot_file import SnapshotId
from ottla.quorum.snapshot_image import LoadedSnapshot
from ottla.quorum.snapshots import SnapshotTaker
from ottla.record.batch import iter_batches

logger = logging.getLogger(__name__)


class FollowerLog:
    """Implements `FetcherOwner`: fetched data is passed to log, rules and images together."""

    __slots__ = ("_clock", "_log", "_raft", "_replay", "_snapshots", "act", "failed")

    def __init__(
        self,
        log: ReplicaLog,
        raft: Raft,
        replay: Replay,
        snapshots: SnapshotTaker,
        clock: Clock,
        *,
        act: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`act` is called after each event for the rules, `failed` when the log can no longer be used."""
        self._log = log
        self._raft = raft
        self._replay = replay
        self._snapshots = snapshots
        self._clock = clock
        self.act = act
        self.failed = failed

    def replicated(self, data: Buffer) -> Iterator[None]:
        """See `FetcherOwner`."""
        log, raft = self._log, self._raft
        for batch in iter_batches(data):
            epoch = batch.partition_leader_epoch
            if batch.base_offset != log.end_offset or not log.last_epoch <= epoch <= raft.state.epoch:
                raise ProtocolError(
                    f"the leader sent a batch at {batch.base_offset} of epoch {epoch}, which does not follow "
                    f"{log.end_offset} of epoch {log.last_epoch}"
                )
            messages, sets = yield from batch_content_by_record(batch)
            log.append_replicated(batch.to_bytes())
            self._replay.appended(batch.next_offset, epoch, messages)
            for offset, voters in sets:
                raft.replication.voters_appended(self._clock.monotonic(), offset, voters)
            self._snapshots.appended(batch.size_bytes, batch.max_timestamp)

    def cut(self, end_offset: int) -> None:
        """See `FetcherOwner`."""
        log = self._log
        logger.info("truncating the metadata log to offset %d, where it differs from the leader's", end_offset)
        try:
            log.truncate_to(end_offset)
        finally:  # a disk error in the middle may have truncated the log all the same
            self._raft.replication.truncated(log.end_offset)
            self._replay.truncated(log.end_offset)

    def loaded(self, snapshot: SnapshotId, content: LoadedSnapshot) -> None:
        """See `FetcherOwner`."""
        raft = self._raft
        if raft.state.leading is not None or snapshot.end_offset <= raft.state.high_watermark:
            return
        self._log.start_from(snapshot)
        raft.state.voter_sets.reset(snapshot.end_offset - 1, content.voters)
        raft.replication.leader_says(snapshot.end_offset)
        self._replay.load(content.image)

    def high_watermark_received(self, high_watermark: int) -> None:
        """See `FetcherOwner`."""
        self._raft.replication.leader_says(high_watermark)
        if 0 <= high_watermark <= self._log.end_offset:
            self._replay.leader_heard()
