"""The follower side of the metadata log: sequential Fetch requests, truncation, and snapshots of a leader far ahead.

A replica without a known leader sends Fetch to the voters and bootstrap servers in random order; any of them returns
the leader. Voters do so too, since their own set of voters may be outdated. The leader is known from Raft's rules or
another source (`Leadership`); fetched data is stored in files or in memory (`FollowedLog`).

Invariants:
- No Fetch is sent before everything that the last one returned is on disk: its offset is a promise.
- A snapshot's file is durable and complete before it replaces the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Protocol

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import BlockingPool, TimerHandle
from ottla.common.platform.disk import Buffer
from ottla.common.platform.generation import Generation
from ottla.common.platform.peer import Address
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.quorum.announcer import announce_refusal
from ottla.quorum.config import QuorumConfig
from ottla.quorum.network import QuorumNetwork
from ottla.quorum.raft_types import OffsetAndEpoch, Peer, ReplicaKey
from ottla.quorum.rpc import (
    QuorumResponse,
    fetch_request,
    read_fetch,
    read_snapshot_piece,
    snapshot_request,
)
from ottla.quorum.snapshot_file import SnapshotId, batches_of
from ottla.quorum.snapshot_image import LoadedSnapshot, load_snapshot
from ottla.storage.log.flush import FlushDone

logger = logging.getLogger(__name__)

MAX_FETCH_WAIT_MS = 500
MAX_FETCH_BYTES = 1024 * 1024
RECORDS_PER_FETCH_TURN = 500
"""Records of a response that are decoded and appended in one turn of the loop, some 5 ms."""
MAX_SNAPSHOT_BYTES = 1 << 30
"""Snapshots are collected in memory; a snapshot that claims a larger size is rejected."""


FetchAnswered = Callable[[float, int, ErrorCode, Peer], bool]
"""Processes a response to Fetch or FetchSnapshot: (now, epoch of the request, error, sender) to whether it comes from
the leader that this replica follows.
"""


class Leadership(Protocol):
    """The leader and its address as known by this replica, e.g. `RaftState`.

    Implementations: in `quorum.raft_state` and `zookeeper.term_follower`.
    """

    @property
    def replica(self) -> ReplicaKey:
        """This replica as named in its requests."""
        ...

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def epoch(self) -> int: ...

    @property
    def high_watermark(self) -> int:
        """End of the part of the log that is known to be committed."""
        ...

    @property
    def follows(self) -> bool:
        """Whether this replica follows a leader."""
        ...

    @property
    def seeks_leader(self) -> bool:
        """Whether this replica follows a leader or searches for one."""
        ...

    def fetch_from(self, now: float) -> Address | None:
        """Address of the leader; None if it is unknown."""
        ...


class FollowedLog(Protocol):
    """The operations of the local log that the fetcher uses.

    Implementations: in `quorum.metadata_log` and `zookeeper.term_follower`.
    """

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int: ...

    @property
    def failed(self) -> bool:
        """Whether the log rejects all further writes."""
        ...

    def end_offset_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest known epoch that is not above `epoch`, and where it ended."""
        ...

    def request_flush(self, pool: BlockingPool, done: FlushDone) -> None:
        """Call `done(None)` once all appended data is stored; perhaps before this returns."""
        ...

    def write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """Store the file, before `FetcherOwner.loaded`; runs in the pool. Raises OSError."""
        ...


class FetcherOwner(Protocol):
    """The callbacks of the fetcher, implemented by its driver."""

    def replicated(self, data: Buffer) -> Iterator[None]:
        """Append the leader's batches, each after its last record was decoded; yields after every record. The caller
        may abandon the rest. Raises KafkaError, ProtocolError.
        """
        ...

    def cut(self, end_offset: int) -> None:
        """Truncate the log. Raises KafkaError."""
        ...

    def loaded(self, snapshot: SnapshotId, content: LoadedSnapshot) -> None:
        """Restart the log from a snapshot whose file exists. Raises OSError, KafkaError."""
        ...

    def high_watermark_received(self, high_watermark: int) -> None:
        """The response contained this high watermark of the leader."""
        ...

    def failed(self, error: BaseException) -> None:
        """The log can no longer be used."""
        ...

    def act(self) -> None:
        """The rules have processed an event."""
        ...


class _Download:
    """A snapshot that is being fetched."""

    __slots__ = ("data", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.data = bytearray()


class Fetcher:
    """Runs on the loop; `poll` is called after every event."""

    __slots__ = (
        "_address",
        "_asked",
        "_backoff_s",
        "_bootstrap",
        "_busy",
        "_clock",
        "_cluster_id",
        "_download",
        "_fetch_answered",
        "_generation",
        "_leadership",
        "_log",
        "_network",
        "_owner",
        "_pool",
        "_rest",
        "_rng",
        "_scheduler",
        "_steps",
        "_stopped",
        "_times",
        "trouble",
    )

    def __init__(
        self,
        owner: FetcherOwner,
        leadership: Leadership,
        log: FollowedLog,
        network: QuorumNetwork,
        *,
        runtime: NodeRuntime,
        quorum: QuorumConfig,
        bootstrap: Callable[[], list[Address]],
        fetch_answered: FetchAnswered,
    ) -> None:
        """`bootstrap` returns addresses of other nodes that may know the leader."""
        self._owner = owner
        self._leadership = leadership
        self._fetch_answered = fetch_answered
        self._log = log
        self._network = network
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._scheduler = runtime.scheduler
        self._pool = runtime.pool
        self._cluster_id = quorum.cluster_id
        self._times = quorum.times
        self._bootstrap = bootstrap
        self._busy = False
        self._generation = Generation()
        self._address: Address | None = None
        self._asked = LeaderAndEpoch(NO_NODE, -1)
        self._rest: TimerHandle | None = None
        self._backoff_s = self._times.retry_backoff_s
        self._download: _Download | None = None
        self._steps: Iterator[None] | None = None
        """The rest of a response with many records, which is appended in later turns of the loop."""
        self._stopped = False
        self.trouble: object = None
        """Why the last Fetch returned nothing; None if it did, or if none has completed yet."""

    def stop(self) -> None:
        """Send no more requests; pending responses are dropped."""
        self._stopped = True
        self._steps = None
        self._generation.renew()
        if self._rest is not None:
            self._rest.cancel()

    def poll(self) -> None:
        """Fetch, if this replica follows or searches for a leader and no request is pending."""
        if self._stopped:
            return
        leadership = self._leadership
        if leadership.leader != self._asked:
            if self._address is not None:
                # The response would belong to another epoch, and may take long.
                self._network.drop(self._address)
                self._forget()
            if self._rest is not None and leadership.follows:
                # The error belongs to another leader; a new one can commit nothing before it is followed.
                self._rest.cancel()
                self._rest = None
                self._backoff_s = self._times.retry_backoff_s
        if self._busy or self._rest is not None:
            return
        address = self._destination()
        if address is None:
            return
        self._busy = True
        self._address = address
        self._asked = leadership.leader
        if self._download is not None:
            self._ask_for_snapshot(self._download, address)
        else:
            self._ask(address)

    def _destination(self) -> Address | None:
        leadership = self._leadership
        address = leadership.fetch_from(self._clock.monotonic())
        if address is not None:
            return address
        self._download = None
        if not leadership.seeks_leader:
            return None
        known = self._bootstrap()
        return known[self._rng.randrange(len(known))] if known else None

    def _forget(self) -> None:
        self._generation.renew()
        self._busy = False
        self._address = None
        self._download = None

    def _ask(self, address: Address) -> None:
        leadership, log = self._leadership, self._log
        message = fetch_request(
            self._cluster_id,
            leadership.replica,
            leadership.epoch,
            OffsetAndEpoch(log.end_offset, log.last_epoch),
            leadership.high_watermark,
            max_wait_ms=MAX_FETCH_WAIT_MS,
            max_bytes=MAX_FETCH_BYTES,
        )
        self._send(address, message, read_fetch, self._fetched)

    def _ask_for_snapshot(self, download: _Download, address: Address) -> None:
        message = snapshot_request(
            self._cluster_id,
            self._leadership.replica,
            self._leadership.epoch,
            OffsetAndEpoch(*download.snapshot),
            len(download.data),
            MAX_FETCH_BYTES,
        )
        self._send(address, message, read_snapshot_piece, self._piece_arrived)

    def _send(
        self, address: Address, message: object, read: Callable[[Any], QuorumResponse], use: Callable[[Any], None]
    ) -> None:
        epoch = self._leadership.epoch

        def answered(response: Any, error: BaseException | None) -> None:
            self._address = None
            if error is not None:
                self._wait(error)
                return
            answer = read(response)
            if self._fetch_answered(self._clock.monotonic(), epoch, answer.error, answer.peer):
                self._use(partial(use, answer.partition))
                self.trouble = None
            else:
                self._download = None
                announce_refusal(address, answer.error)
                self._wait(answer.error)
            self._owner.act()

        timeout_s = self._times.request_s + MAX_FETCH_WAIT_MS / 1000
        self._network.send(address, message, self._generation.during(answered), timeout_s)

    def _use(self, use: Callable[[], None]) -> None:
        try:
            use()
        except KafkaError as error:
            if self._log.failed:
                self._owner.failed(error)
            else:  # usually a full disk: it may have room later
                logger.warning("the metadata log can't be written, retrying: %s", error, extra=RATE_LIMITED)
                self._pause()
        except (OSError, ProtocolError) as error:
            self._owner.failed(error)
        else:
            if self._steps is None:
                self._backoff_s = self._times.retry_backoff_s

    def _wait(self, reason: object) -> None:
        """Retry after the backoff, or at once if the response named another leader."""
        self._busy = False
        leadership = self._leadership
        if reason is not ErrorCode.NONE:
            self.trouble = reason
            logger.debug("fetch of metadata failed: %s", reason)
        if leadership.follows and leadership.leader != self._asked:
            self._backoff_s = self._times.retry_backoff_s
            return
        self._pause()

    def _pause(self) -> None:
        self._rest = self._scheduler.call_later(self._backoff_s, self._rested)
        self._backoff_s = min(self._backoff_s * 2, self._times.retry_backoff_max_s)

    def _rested(self) -> None:
        self._rest = None
        self._owner.act()

    # -- responses ---------------------------------------------------------------------------------------------------

    def _fetched(self, partition: Any) -> None:
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        self._busy = False
        if diverging.epoch >= 0:
            own = self._log.end_offset_of_epoch(diverging.epoch)
            self._owner.cut(min(own.end_offset, diverging.end_offset))
        elif snapshot.end_offset >= 0:
            found = SnapshotId(snapshot.end_offset, snapshot.epoch)
            if found.end_offset < self._leadership.high_watermark:
                raise ProtocolError(
                    f"the leader sent snapshot {found.file_name}, which ends below the high watermark here"
                )
            self._download = _Download(found)
        else:
            records = partition.records
            if records:
                self._busy = True
                self._steps = self._owner.replicated(records)
                self._replicate(partition.high_watermark, self._leadership.leader)
            else:
                self._owner.high_watermark_received(partition.high_watermark)

    def _replicate(self, high_watermark: int, leader: LeaderAndEpoch) -> None:
        """Append the next records of the response of `leader`, and the others in later turns of the loop.

        Another leader's log may differ from the end of this one, so the rest is dropped if this replica no longer
        follows `leader`.
        """
        steps, self._steps = self._steps, None
        leadership = self._leadership
        if steps is None:
            return  # stopped
        is_current = leadership.follows and leadership.leader == leader
        try:
            if is_current and sum(1 for _ in islice(steps, RECORDS_PER_FETCH_TURN)) == RECORDS_PER_FETCH_TURN:
                self._steps = steps
                self._scheduler.call_soon(self._replicate_more, high_watermark, leader)
        finally:  # includes the batches appended before a rejected one, or before a change of the leader
            if self._steps is None:
                self._log.request_flush(self._pool, self._flushed)
        if is_current and self._steps is None:
            self._owner.high_watermark_received(high_watermark)

    def _replicate_more(self, high_watermark: int, leader: LeaderAndEpoch) -> None:
        self._use(partial(self._replicate, high_watermark, leader))
        self._owner.act()

    def _flushed(self, error: BaseException | None) -> None:
        self._busy = False
        if error is not None:
            self._owner.failed(error)
        self._owner.act()

    def _piece_arrived(self, partition: Any) -> None:
        self._busy = False
        download = self._download
        piece = partition.unaligned_records
        if download is None:
            return
        if partition.position != len(download.data) or not piece or partition.size > MAX_SNAPSHOT_BYTES:
            logger.warning(
                "unexpected chunk of metadata snapshot %s: position %d, %d of %d bytes",
                download.snapshot.file_name,
                partition.position,
                len(piece or b""),
                partition.size,
            )
            self._download = None
            return
        download.data += piece
        if len(download.data) >= partition.size:
            self._download = None
            self._busy = True
            self._store(download)

    def _store(self, download: _Download) -> None:
        """Load and write the snapshot in the pool; the log is replaced only when the file exists."""
        log, snapshot, data = self._log, download.snapshot, bytes(download.data)

        def work() -> LoadedSnapshot:
            content = load_snapshot(snapshot, batches_of(data))
            log.write_snapshot(snapshot, data)
            return content

        def stored(content: LoadedSnapshot | None, error: BaseException | None) -> None:
            self._busy = False
            if self._stopped:
                return
            if isinstance(error, ProtocolError):
                logger.warning("received a damaged metadata snapshot %s: %s", snapshot.file_name, error)
            elif isinstance(error, OSError):
                logger.warning("metadata snapshot %s can't be stored: %s", snapshot.file_name, error)
                self._pause()
            elif error is not None or content is None:
                self._owner.failed(error or ProtocolError("the snapshot is empty"))
            else:
                self._use(partial(self._owner.loaded, snapshot, content))
            self._owner.act()

        self._pool.submit(work, stored)
