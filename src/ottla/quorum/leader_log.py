"""The local log as written by the leader: the first batch of its epoch, then records and voters, each one batch.

Invariants:
- Nothing is appended in an epoch before `quorum-state` durably contains it: the driver takes over after that.
- A batch is replayed before it is written, so one that does not fit the image changes nothing.
- Only record versions that the finalized metadata.version allows are written and replayed.
- Batches are synced together while a sync runs (`storage.log.flush`). The number of pending submissions is bounded by
  the number of pending requests, each of which blocks its connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Clock
from ottla.metadata.bounds import check_batch_bytes
from ottla.metadata.log import Submission, SubmitDone, prepare_all
from ottla.metadata.records import ApiMessageAndVersion
from ottla.quorum.control import leader_change, voter_records
from ottla.quorum.metadata_log import ReplicaLog
from ottla.quorum.raft import Raft
from ottla.quorum.raft_types import Voter
from ottla.quorum.raft_voters import BOOTSTRAP_OFFSET
from ottla.quorum.replay import Replay
from ottla.quorum.snapshots import SnapshotTaker
from ottla.quorum.voter_changes import named_voters
from ottla.record.builder import RecordData

_SNAPSHOT_AT_START_BYTES = 1024 * 1024
"""Each start adds a record for each partition: with many of them, a few starts would slow down the next ones."""


class LeaderLog:
    """Passes the leader's batches to log, rules and images together."""

    __slots__ = ("_appended", "_clock", "_log", "_own", "_raft", "_replay", "_request_flush", "_snapshots")

    def __init__(
        self,
        log: ReplicaLog,
        raft: Raft,
        replay: Replay,
        snapshots: SnapshotTaker,
        *,
        clock: Clock,
        own: Voter,
        request_flush: Callable[[], None],
    ) -> None:
        """`own` is this replica as a voter; `request_flush` syncs appended batches and notifies the rules."""
        self._log = log
        self._raft = raft
        self._replay = replay
        self._snapshots = snapshots
        self._clock = clock
        self._own = own
        self._request_flush = request_flush
        self._appended: deque[tuple[int, float]] = deque()
        """End offset of each uncommitted batch of this leader, and when it was appended."""

    def begin(self, epoch: int) -> None:
        """Append the first batch of `epoch`: the leader, and the voters if the log lacks them or has an old entry of
        this one.

        Raises KafkaError for a disk error.
        """
        self._appended.clear()
        log, raft = self._log, self._raft
        self._replay.lead(log.end_offset, epoch)
        now = self._clock.time_ms()
        records = [leader_change(self._own.voter_id, [voter.voter_id for voter in raft.state.voters], now)]
        sets = raft.state.voter_sets
        voters = tuple(self._own if voter.key == raft.state.local else voter for voter in sets.recorded)
        if voters and (sets.latest_offset == BOOTSTRAP_OFFSET or voters != sets.recorded):
            records += voter_records(voters, now)
        self._append(records, epoch, is_control=True)
        if len(records) > 1:
            raft.replication.voters_appended(self._clock.monotonic(), log.end_offset - 1, voters)
        self._replay.begun(log.end_offset, epoch)

    def append_records(self, records: Submission, epoch: int) -> None:
        """Append the records as one batch of the epoch that this replica leads; InvariantError if they don't fit the
        image.

        Raises KafkaError RECORD_LIST_TOO_LARGE for more bytes than a batch may have, and for a disk error.
        """
        prepared = prepare_all(self._replay.latest, records)
        check_batch_bytes(prepared.values)
        now = self._clock.time_ms()
        self._append([RecordData(now, None, value) for value in prepared.values], epoch, is_control=False)
        end_offset, newest_epoch = self._log.end_offset, self._raft.state.epoch
        image, changes = prepared.delta.apply(end_offset - 1, newest_epoch)
        self._replay.submitted(end_offset, newest_epoch, prepared.messages, image, changes)

    def append_split(self, records: Sequence[ApiMessageAndVersion], epoch: int) -> None:
        """Append records that need not be atomic in as many batches as their size requires. Raises as
        `append_records`."""
        try:
            self.append_records(records, epoch)
        except KafkaError as error:
            if error.code is not ErrorCode.RECORD_LIST_TOO_LARGE or len(records) == 1:
                raise
            half = len(records) // 2
            self.append_split(records[:half], epoch)
            self.append_split(records[half:], epoch)

    def append_voters(self, voters: tuple[Voter, ...], epoch: int) -> None:
        """Append another set of voters, which is in force from now on. Raises KafkaError for a disk error."""
        self._append(voter_records(voters, self._clock.time_ms())[1:], epoch, is_control=True)
        self._raft.replication.voters_appended(self._clock.monotonic(), self._log.end_offset - 1, voters)

    def name_voters(self, epoch: int) -> None:
        """Append the configured voters with their directories (kraft.version 1), which are in force from now on.

        Raises KafkaError as `voter_changes.named_voters`, and for a disk error.
        """
        voters = named_voters(self._raft.state, self._own)
        self._append(voter_records(voters, self._clock.time_ms()), epoch, is_control=True)
        self._raft.replication.voters_appended(self._clock.monotonic(), self._log.end_offset - 1, voters)

    def check_voters(self) -> None:
        """Raises KafkaError as `voter_changes.named_voters`."""
        named_voters(self._raft.state, self._own)

    def await_commit(self, done: SubmitDone) -> None:
        """Call `done` once all that was appended is committed and published."""
        self._replay.await_commit(self._log.end_offset, self._raft.state.epoch, done)
        if self._log.flushed_offset < self._log.end_offset:
            self._request_flush()

    def note_commits(self) -> None:
        """Measure the batches that were committed since the last call; those of a lost leadership are dropped."""
        appended, state = self._appended, self._raft.state
        if not appended:
            return
        if state.leading is None:
            appended.clear()
            return
        now_s = self._clock.monotonic()
        while appended and appended[0][0] <= state.high_watermark:
            _, appended_s = appended.popleft()
            state.statistics.commits.add(now_s - appended_s)

    def await_start(self, done: SubmitDone) -> None:
        """As `await_commit`, for all records of a single node's start: the first published image contains all of
        them."""

        def started(error: BaseException | None) -> None:
            done(error)
            if self._snapshots.bytes_since >= _SNAPSHOT_AT_START_BYTES:
                self._snapshots.take()

        self._replay.await_commit(self._log.end_offset, self._raft.state.epoch, started)
        self._replay.publish_at_once()
        self._request_flush()

    def _append(self, data: Sequence[RecordData], epoch: int, *, is_control: bool) -> None:
        size = self._log.append(data, epoch, is_control=is_control)
        self._appended.append((self._log.end_offset, self._clock.monotonic()))
        self._snapshots.appended(size, data[-1].timestamp_ms)
