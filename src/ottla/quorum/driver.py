"""Drives the metadata log: replays it at the start, takes records, publishes images once they are committed.

Owner of two images: `latest` has every record that was appended, the publisher's every record that is committed (on
disk at a majority of the voters). The controller decides by `latest`, so that two requests in a row don't contradict;
everybody else sees committed images only. Both are made by the same replay.

Invariants:
- Callers hear of submissions in the order in which they were made, after the image with them was published.
- Nothing is appended in an epoch before `quorum-state` names it durably.
- A failed sync ends the driver: what is on disk is unknown, so every later submission fails and `on_failure` is told.
  So does a listener that raises, since then the broker's parts disagree about the cluster.
- Batches are synced together while one sync runs (`storage.flush`): the queue of waiting submissions is as long as the
  requests that wait for them, each of which holds back its connection.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ottla.common.clock import BlockingPool, Clock, Rng, Scheduler, TimerHandle
from ottla.common.disk import Disk
from ottla.common.disk_refusal import disk_refusal
from ottla.common.endpoint import Endpoint
from ottla.common.errors import ErrorCode, InvariantError, KafkaError, OperatorError, ProtocolError
from ottla.common.ids import Uuid
from ottla.metadata.delta import MetadataChanges, MetadataDelta, all_changes
from ottla.metadata.image import EMPTY_IMAGE, METADATA_VERSION, MetadataImage, VersionRange
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import SUPPORTED_FEATURES, ApiMessageAndVersion, decode_record, encode_record
from ottla.metadata.snapshot import image_records
from ottla.quorum.control import leader_change, read_voters, voter_records
from ottla.quorum.metadata_log import MetadataLog, MetadataLogConfig, open_metadata_log
from ottla.quorum.raft import LeaderState, Voter, elect_single_voter
from ottla.quorum.snapshot_file import SnapshotBuilder, SnapshotId
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData
from ottla.record.control import ControlRecordType, control_record_type

_LOGGER = logging.getLogger(__name__)
_SNAPSHOT_STEP = 200
"""Records of a snapshot that are encoded before the loop gets its turn: well under a millisecond each few dozen."""

_SNAPSHOT_AT_START_BYTES = 1024 * 1024
"""Each start adds a record for each partition: with many of them, a few starts would make the next ones slow."""

SubmitDone = Callable[[BaseException | None], None]


class _Pending(NamedTuple):
    """A submission that waits for the high watermark to reach `end_offset`; no image where it had no records."""

    end_offset: int
    published: tuple[MetadataImage, MetadataChanges] | None
    done: SubmitDone


class QuorumDriver:
    """The metadata quorum as this process sees it. All methods belong to the loop."""

    __slots__ = (
        "_bytes_since_snapshot",
        "_clock",
        "_config",
        "_data_dir",
        "_directory_id",
        "_disk",
        "_draining",
        "_failure",
        "_last_timestamp_ms",
        "_leader",
        "_log",
        "_node_id",
        "_on_failure",
        "_pending",
        "_pool",
        "_publisher",
        "_rng",
        "_scheduler",
        "_snapshot_running",
        "_snapshot_timer",
        "_voters",
        "latest",
    )

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        scheduler: Scheduler,
        pool: BlockingPool,
        data_dir: str,
        node_id: int,
        directory_id: Uuid,
        config: MetadataLogConfig,
        publisher: MetadataPublisher,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._scheduler = scheduler
        self._pool = pool
        self._data_dir = data_dir
        self._node_id = node_id
        self._directory_id = directory_id
        self._config = config
        self._publisher = publisher
        self._on_failure = on_failure
        self._log: MetadataLog | None = None
        self._leader: LeaderState | None = None
        self._voters: tuple[Voter, ...] = ()
        self._pending: deque[_Pending] = deque()
        self._draining = False
        self._failure: KafkaError | None = None
        self._bytes_since_snapshot = 0
        self._last_timestamp_ms = 0
        self._snapshot_running = False
        self._snapshot_timer: TimerHandle | None = None
        self.latest = EMPTY_IMAGE

    @property
    def log(self) -> MetadataLog:
        """The open log; raises InvariantError before `start`."""
        if self._log is None:
            raise InvariantError("the metadata log is not open yet")
        return self._log

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this node leads the quorum."""
        return self._state.epoch

    @property
    def high_watermark(self) -> int:
        """The end of what is committed."""
        return self._state.high_watermark

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self._voters

    @property
    def next_offset(self) -> int:
        """The offset that the next submitted record gets."""
        return self.log.end_offset

    @property
    def _state(self) -> LeaderState:
        if self._leader is None:
            raise InvariantError("the quorum has no leader yet")
        return self._leader

    # -- start -----------------------------------------------------------------------------------------------------

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Open the log, replay it, become leader of a new epoch; blocks, before anything else runs.

        `endpoints` are where this voter can be reached. Whether the cluster is new: then the caller submits its first
        records. Raises OperatorError for damaged or foreign files, for finalized features that this version doesn't
        have (before anything is written), and for a disk that refuses.
        """
        try:
            self._log = open_metadata_log(self._disk, self._clock, self._rng, self._data_dir, self._config)
            new = self.log.end_offset == 0 and not self.log.snapshots()
            self._replay()
            self._refuse_unknown_levels()
            self._become_leader(endpoints)
        except OSError as error:
            raise disk_refusal(error, self._data_dir) from error
        except KafkaError as error:
            path = self._log.directory if self._log else self._data_dir
            raise OperatorError(f"the metadata log in {path} can't be used: {error}") from error
        except (ProtocolError, InvariantError) as error:
            raise OperatorError(
                f"the metadata log in {self.log.directory} holds what this version can't apply: {error}; "
                "start the version that wrote it, or restore the directory from a copy"
            ) from error
        self._schedule_snapshot()
        return new

    def _replay(self) -> None:
        """Everything in the log is committed: this node is the only voter, and its log is all there is."""
        image, offset = EMPTY_IMAGE, 0
        snapshots = self.log.snapshots()
        if snapshots:
            snapshot = self.log.read_snapshot(snapshots[-1])
            delta = MetadataDelta(image)
            for record in snapshot.records:
                delta.replay(record.message)
            offset = snapshots[-1].end_offset
            image, _ = delta.apply(offset - 1, snapshots[-1].epoch)
            self._voters = snapshot.voters
        delta = MetadataDelta(image)
        last_offset, epoch = image.offset, image.epoch
        for batch in self.log.batches(offset):
            self._replay_batch(batch, delta)
            last_offset, epoch = batch.last_offset, batch.partition_leader_epoch
            self._bytes_since_snapshot += batch.size_bytes
            self._last_timestamp_ms = max(self._last_timestamp_ms, batch.max_timestamp)
        self.latest, _ = delta.apply(last_offset, epoch)

    def _replay_batch(self, batch: BatchView, delta: MetadataDelta) -> None:
        for record in batch.records():
            if not batch.is_control:
                delta.replay(decode_record(record.value or b"").message)
            elif control_record_type(record) is ControlRecordType.KRAFT_VOTERS:
                self._voters = read_voters(record)

    def _refuse_unknown_levels(self) -> None:
        """Records of another level would be read wrongly, or written so that the other broker can't read them."""
        features = self.latest.features
        for name in sorted(features, key=lambda name: (name != METADATA_VERSION, name)):
            level = features[name]
            supported = SUPPORTED_FEATURES.get(name, VersionRange(0, 0))
            if not supported.low <= level <= supported.high:
                raise OperatorError(
                    f"the metadata log in {self.log.directory} is at level {level} of {name}, and this version has "
                    f"levels {supported.low} to {supported.high}: start what wrote it, or set log.dirs (--data-dir) to "
                    "another directory"
                )

    def _become_leader(self, endpoints: Sequence[Endpoint]) -> None:
        log = self.log
        voter = Voter(
            self._node_id,
            self._directory_id,
            tuple((endpoint.listener_name, endpoint.host, endpoint.port) for endpoint in endpoints),
        )
        known = {(item.voter_id, item.directory_id) for item in self._voters}
        if known - {(self._node_id, self._directory_id)}:
            raise OperatorError(
                f"the metadata log in {log.directory} names other voters than this node and data directory, and this "
                "version is its own only voter; start it with the node.id and meta.properties it was made with"
            )
        election = elect_single_voter(
            log.read_election_state(),
            max(log.last_epoch, self.latest.epoch),
            self._node_id,
            self._directory_id,
            [voter],
        )
        if not self._voters and log.end_offset == 0:
            self._write_bootstrap_snapshot(voter)
        log.write_election_state(election)
        log.begin_epoch(election.leader_epoch)
        now = self._clock.time_ms()
        records = [leader_change(self._node_id, [self._node_id], now)]
        if self._voters != (voter,):
            records += voter_records([voter], now)
            self._voters = (voter,)
        self._leader = LeaderState(election.leader_epoch, log.end_offset, [self._node_id], log.end_offset)
        self._append(records, is_control=True)
        log.flush()
        self._state.update_end_offset(self._node_id, log.flushed_offset)
        self.latest, _ = MetadataDelta(self.latest).apply(log.end_offset - 1, election.leader_epoch)

    def _write_bootstrap_snapshot(self, voter: Voter) -> None:
        """What formatting a directory leaves (KIP-853): the voters, before the first epoch."""
        now = self._clock.time_ms()
        data = SnapshotBuilder(0, now, now, [voter]).finish()
        self.log.write_snapshot(SnapshotId(0, 0), data)

    # -- submitting ------------------------------------------------------------------------------------------------

    def submit(self, records: Sequence[ApiMessageAndVersion], done: SubmitDone) -> None:
        """Append the records as one batch and call `done(None)` once they are committed and published.

        Without records `done` is called once everything submitted before is committed. An error is a KafkaError for
        the client; then the records were not appended, or the driver failed and nobody knows. Records must fit
        `latest`: InvariantError otherwise, with nothing changed. `done` may be called before this returns.
        """
        if self._failure is not None:
            done(self._failure)
            return
        published = None
        if records:
            try:
                published = self._append_records(records)
            except KafkaError as error:
                done(error)
                return
        self._enqueue(published, done)

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """Submit the records of a start; the first image that is published is the one with all of them.

        Its changes name everything there is. Raises KafkaError when the disk refuses.
        """
        for records in batches:
            self._append_records(records)

        def started(error: BaseException | None) -> None:
            done(error)
            if self._bytes_since_snapshot >= _SNAPSHOT_AT_START_BYTES:
                self.take_snapshot()

        self._enqueue((self.latest, all_changes(self.latest)), started)

    def _append_records(self, records: Sequence[ApiMessageAndVersion]) -> tuple[MetadataImage, MetadataChanges]:
        delta = MetadataDelta(self.latest)
        for record in records:
            delta.replay(record.message)
        now = self._clock.time_ms()
        self._append([RecordData(now, None, encode_record(record)) for record in records], is_control=False)
        image, changes = delta.apply(self.log.end_offset - 1, self.leader_epoch)
        self.latest = image
        return image, changes

    def _enqueue(self, published: tuple[MetadataImage, MetadataChanges] | None, done: SubmitDone) -> None:
        self._pending.append(_Pending(self.log.end_offset, published, done))
        if published is None:
            self._drain()
        else:
            self.log.request_flush(self._pool, self._flushed)

    def _append(self, data: Sequence[RecordData], *, is_control: bool) -> None:
        self._bytes_since_snapshot += self.log.append(data, self.leader_epoch, is_control=is_control)
        self._last_timestamp_ms = max(self._last_timestamp_ms, data[-1].timestamp_ms)

    def _flushed(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._state.update_end_offset(self._node_id, self.log.flushed_offset)
        self._drain()

    def _drain(self) -> None:
        """Publish and answer what is committed, one after the other also when an answer submits again."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._pending and self._pending[0].end_offset <= self.high_watermark:
                pending = self._pending.popleft()
                if pending.published is not None:
                    try:
                        self._publisher.publish(*pending.published)
                    except Exception as error:
                        # Some parts of the broker follow this image and some don't: no further change may build on it.
                        self._pending.appendleft(pending)
                        self._fail(error)
                        raise
                pending.done(None)
        finally:
            self._draining = False
        self._maybe_snapshot_by_size()

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log failed: {error}")
        _LOGGER.error("the metadata log in %s failed: %s", self.log.directory, error)
        waiting = list(self._pending)
        self._pending.clear()
        for pending in waiting:
            pending.done(self._failure)
        self._on_failure(error)

    # -- snapshots -------------------------------------------------------------------------------------------------

    def _schedule_snapshot(self) -> None:
        interval_ms = self._config.snapshot_interval_ms
        if interval_ms > 0:
            self._snapshot_timer = self._scheduler.call_later(interval_ms / 1000, self._snapshot_due)

    def _snapshot_due(self) -> None:
        if self._bytes_since_snapshot:
            self.take_snapshot()
        self._schedule_snapshot()

    def _maybe_snapshot_by_size(self) -> None:
        if self._bytes_since_snapshot >= self._config.snapshot_bytes:
            self.take_snapshot()

    def take_snapshot(self) -> bool:
        """Begin a snapshot of the committed image, unless one is under way; whether it began.

        Encoded in steps on the loop, written in the pool; then old snapshots and segments go as configured.
        """
        image = self._publisher.image
        if self._snapshot_running or self._failure is not None or image.offset < 0:
            return False
        self._snapshot_running = True
        covered_bytes, self._bytes_since_snapshot = self._bytes_since_snapshot, 0
        builder = SnapshotBuilder(image.epoch, self._last_timestamp_ms, self._clock.time_ms(), self._voters)
        self._snapshot_step(SnapshotId(image.offset + 1, image.epoch), builder, image_records(image), covered_bytes)
        return True

    def _snapshot_step(
        self,
        snapshot: SnapshotId,
        builder: SnapshotBuilder,
        records: Iterator[ApiMessageAndVersion],
        covered_bytes: int,
    ) -> None:
        if self._failure is not None:
            return
        piece = list(islice(records, _SNAPSHOT_STEP))
        builder.add(piece)
        if len(piece) == _SNAPSHOT_STEP:
            self._scheduler.call_soon(self._snapshot_step, snapshot, builder, records, covered_bytes)
            return
        data = builder.finish()
        log = self.log

        def written(_: None, error: BaseException | None) -> None:
            self._snapshot_written(snapshot, covered_bytes, error)

        self._pool.submit(lambda: log.write_snapshot(snapshot, data), written)

    def _snapshot_written(self, snapshot: SnapshotId, covered_bytes: int, error: BaseException | None) -> None:
        """A snapshot that failed costs nothing but a longer log: it is tried again after as much as was due before."""
        self._snapshot_running = False
        if self._failure is not None or self._log is None:
            return
        try:
            if error is not None:
                raise error
            self._log.roll(self._config.snapshot_bytes)
            self._log.clean(self._config)
        except (OSError, KafkaError) as failure:
            _LOGGER.warning("metadata snapshot %s failed: %s", snapshot.file_name, failure)
        else:
            _LOGGER.debug("metadata snapshot %s covers %d bytes of log", snapshot.file_name, covered_bytes)

    # -- stop ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close; blocks. Not while a flush is under way, so call it when a submission was answered.

        Submissions that still wait get BROKER_NOT_AVAILABLE. Raises KafkaError when the disk refuses.
        """
        if self._snapshot_timer is not None:
            self._snapshot_timer.cancel()
        log, self._log = self._log, None
        self._failure = self._failure or KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is stopping")
        waiting = list(self._pending)
        self._pending.clear()
        for pending in waiting:
            pending.done(self._failure)
        if log is not None:
            log.close()
