"""Snapshots of the metadata log: when to take one, encoding in steps on the loop, writing in the pool, deleting old
ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ottla.common.errors import KafkaError, ProtocolError
from ottla.common.platform.clock import BlockingPool, Clock, Scheduler, TimerHandle
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ApiMessageAndVersion
from ottla.metadata.snapshot import image_records
from ottla.quorum.metadata_log import MetadataLogConfig, ReplicaLog
from ottla.quorum.raft_types import Voter
from ottla.quorum.snapshot_file import SnapshotBuilder, SnapshotId

logger = logging.getLogger(__name__)
_SNAPSHOT_STEP = 200
"""Number of snapshot records that are encoded in one turn of the loop: well under a millisecond for a few dozen."""

SnapshotSource = Callable[[], "tuple[MetadataImage, tuple[Voter, ...]]"]


def encode_in_steps(
    builder: SnapshotBuilder,
    records: Iterator[ApiMessageAndVersion],
    scheduler: Scheduler,
    done: Callable[[bytes], None],
    is_given_up: Callable[[], bool],
) -> None:
    """Add the records, yielding to the loop between steps, and finish; perhaps before this returns."""
    if is_given_up():
        return
    if builder.add_step(records, _SNAPSHOT_STEP):
        scheduler.call_soon(encode_in_steps, builder, records, scheduler, done, is_given_up)
    else:
        done(builder.finish())


class SnapshotTaker:
    """Takes the snapshots of one replica, by size of the log since the last one and by time."""

    __slots__ = (
        "_bytes_since",
        "_clock",
        "_config",
        "_log",
        "_pool",
        "_running",
        "_scheduler",
        "_source",
        "_stopped",
        "_timer",
        "last_timestamp_ms",
    )

    def __init__(
        self,
        log: ReplicaLog,
        config: MetadataLogConfig,
        source: SnapshotSource,
        *,
        clock: Clock,
        scheduler: Scheduler,
        pool: BlockingPool,
    ) -> None:
        """`source` returns the committed image and its voters."""
        self._log = log
        self._config = config
        self._source = source
        self._clock = clock
        self._scheduler = scheduler
        self._pool = pool
        self._bytes_since = 0
        self._running = False
        self._stopped = False
        self._timer: TimerHandle | None = None
        self.last_timestamp_ms = 0

    @property
    def bytes_since(self) -> int:
        """Bytes of log since the last snapshot was started."""
        return self._bytes_since

    def appended(self, size: int, timestamp_ms: int) -> None:
        """A batch was appended."""
        self._bytes_since += size
        self.last_timestamp_ms = max(self.last_timestamp_ms, timestamp_ms)

    def start(self) -> None:
        """Take snapshots periodically."""
        interval_ms = self._config.snapshot_interval_ms
        if interval_ms > 0 and not self._stopped:
            self._timer = self._scheduler.call_later(interval_ms / 1000, self._due)

    def stop(self) -> None:
        """Stop taking snapshots; one that is being encoded is abandoned."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        if self._bytes_since:
            self.take()
        self.start()

    def take_if_large(self) -> None:
        """Take a snapshot if enough was appended since the last one."""
        if self._bytes_since >= self._config.snapshot_bytes:
            self.take()

    def take(self) -> bool:
        """Start a snapshot of the committed image, unless one is in progress; returns whether it started.

        It is encoded in steps on the loop and written in the pool; then old snapshots and segments are deleted as
        configured. The log up to its end is synced first: a start does not check it below the newest snapshot, and
        followers read it.
        """
        image, voters = self._source()
        if self._running or self._stopped or image.offset < 0:
            return False
        self._running = True
        covered_bytes, self._bytes_since = self._bytes_since, 0
        builder = SnapshotBuilder(image.epoch, self.last_timestamp_ms, self._clock.time_ms(), voters)
        snapshot, log = SnapshotId(image.offset + 1, image.epoch), self._log

        def written(_: None, error: BaseException | None) -> None:
            self._written(snapshot, covered_bytes, error)

        def encoded(data: bytes) -> None:
            def flushed(error: BaseException | None) -> None:
                if error is not None:
                    written(None, error)
                else:
                    self._pool.submit(lambda: log.write_snapshot(snapshot, data), written)

            log.request_flush(self._pool, flushed)

        encode_in_steps(builder, image_records(image), self._scheduler, encoded, lambda: self._stopped)
        return True

    def _written(self, snapshot: SnapshotId, covered_bytes: int, error: BaseException | None) -> None:
        """A failed snapshot only leaves a longer log: the next attempt follows after the same amount of data."""
        self._running = False
        if self._stopped:
            return
        try:
            if error is not None:
                raise error
            if snapshot.end_offset < self._log.start_offset:
                return  # meanwhile a newer snapshot of the leader replaced the log
            self._log.add_snapshot(snapshot)
            self._log.roll(self._config.snapshot_bytes)
            self._log.clean(self._config)
        except (OSError, KafkaError, ProtocolError) as failure:
            logger.warning("metadata snapshot %s failed: %s", snapshot.file_name, failure)
        else:
            logger.debug("metadata snapshot %s covers %d bytes of log", snapshot.file_name, covered_bytes)
