"""A broker that follows the controller: it fetches the log of the controller term as an observer of a quorum does.

The reader of the claim provides leader and epoch, the registration of that broker its address. Data of an older term
has an older epoch, so the controller sends a snapshot; within the same term fetching continues at the end of the image.
Nothing is stored on disk: the tree is the truth, and the controller reads it.

Invariants:
- Published images belong to the followed term, are complete up to the tree's state at the time of the request, and are
  never older than earlier images of this node, as a follower or as the controller.
- Records that don't follow the local log are not published: fetching restarts from the snapshot until they do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, ProtocolError
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import BlockingPool, Scheduler, TimerHandle
from ottla.common.platform.disk import Buffer
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import Address, PeerNetwork
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.publisher import MetadataPublisher
from ottla.quorum.config import QuorumConfig
from ottla.quorum.fetcher import Fetcher
from ottla.quorum.network import QuorumNetwork
from ottla.quorum.raft_types import OffsetAndEpoch, Peer, QuorumStatistics, ReplicaKey
from ottla.quorum.replay import MESSAGES_PER_TURN, Replay, batch_content_by_record
from ottla.quorum.snapshot_file import SnapshotId
from ottla.quorum.snapshot_image import LoadedSnapshot
from ottla.record.batch import BatchView, iter_batches
from ottla.storage.log.flush import FlushDone

logger = logging.getLogger(__name__)

RETRY_S = 0.5
"""Delay in seconds before fetching restarts after data that does not fit."""


class FollowedTerm:
    """The followed leader and the progress of this node: implements `Leadership` and `FollowedLog` without Raft and
    files.
    """

    __slots__ = ("_scheduler", "address", "end_offset", "high_watermark", "last_epoch", "leader", "replica")

    follows = True
    seeks_leader = True
    failed = False

    def __init__(self, replica: ReplicaKey, leader: LeaderAndEpoch, image: MetadataImage, scheduler: Scheduler) -> None:
        """`image` is the newest image of this node, of any term."""
        self._scheduler = scheduler
        self.replica = replica
        self.leader = leader
        self.address: Address | None = None
        self.end_offset = image.offset + 1
        self.last_epoch = max(image.epoch, 0)
        self.high_watermark = self.end_offset

    @property
    def epoch(self) -> int:
        """The controller's."""
        return self.leader.epoch

    def fetch_from(self, now: float) -> Address | None:
        """See `Leadership`: None before the controller is registered."""
        return self.address

    def fetch_answered(self, now: float, asked_epoch: int, error: ErrorCode, peer: Peer) -> bool:
        """See `FetchAnswered`."""
        return error is ErrorCode.NONE and asked_epoch == self.epoch and peer.leader == self.leader

    def end_offset_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """See `FollowedLog`: nothing before the end is stored."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def request_flush(self, pool: BlockingPool, done: FlushDone) -> None:
        """See `FollowedLog`: nothing is stored."""
        self._scheduler.call_soon(done, None)

    def write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """See `FollowedLog`: nothing is stored."""


class TermLogFollower:
    """Follows one term on one node. Implements `FetcherOwner`. All methods run on the loop."""

    __slots__ = (
        "_cluster_id",
        "_fetcher",
        "_followed",
        "_network",
        "_on_failure",
        "_peers",
        "_publisher",
        "_replay",
        "_replays_later",
        "_retry",
        "_runtime",
        "_stopped",
        "endpoint",
    )

    def __init__(
        self,
        broker_id: int,
        leader: LeaderAndEpoch,
        *,
        cluster_id: str,
        peers: PeerNetwork,
        publisher: MetadataPublisher,
        runtime: NodeRuntime,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Fetches from `found` on. `on_failure` is called when a listener of `publisher` raised."""
        self._cluster_id = cluster_id
        self._peers = peers
        self._publisher = publisher
        self._runtime = runtime
        self._on_failure = on_failure
        self._stopped = False
        self._retry: TimerHandle | None = None
        self._replays_later = False
        """Whether received records are replayed further in a later turn of the loop."""
        self.endpoint: Endpoint | None = None
        """Address of the controller; None before it is known."""
        self._followed = FollowedTerm(ReplicaKey(broker_id), leader, publisher.image, runtime.scheduler)
        self._begin()

    @property
    def leader(self) -> LeaderAndEpoch:
        """The followed leader."""
        return self._followed.leader

    @property
    def trouble(self) -> str:
        """Why the controller is not followed; "" if it is followed or the reason is unknown."""
        reason = self._fetcher.trouble
        if isinstance(reason, ErrorCode):
            return reason.name
        return "" if reason is None else str(reason)

    def found(self, endpoint: Endpoint | None) -> None:
        """The address of the controller, or None if it is unknown."""
        self.endpoint = endpoint
        self._followed.address = None if endpoint is None else (endpoint.host, endpoint.port)
        self.act()

    def stop(self) -> None:
        """Stop following: pending responses are dropped."""
        self._stopped = True
        self._fetcher.stop()
        self._network.close()
        if self._retry is not None:
            self._retry.cancel()

    def _begin(self) -> None:
        """Continue from `_followed`: by records of the same term, which follow the published image, or by a
        snapshot."""
        self._network = QuorumNetwork(self._peers, QuorumStatistics())
        self._replay = Replay(self._publisher)
        self._replay.load(self._publisher.image)
        self._replay.quiet = False
        self._fetcher = Fetcher(
            self,
            self._followed,
            self._followed,
            self._network,
            runtime=self._runtime,
            quorum=QuorumConfig(self._cluster_id),
            bootstrap=list,
            fetch_answered=self._followed.fetch_answered,
        )

    # -- fetched data ----------------------------------------------------------------------------------------------

    def replicated(self, data: Buffer) -> Iterator[None]:
        """See `FetcherOwner`. Raises ProtocolError."""
        try:
            for batch in iter_batches(data):
                yield from self._append(batch)
        except (KafkaError, InvariantError) as error:
            raise ProtocolError(f"the records can't be read: {error}") from error

    def _append(self, batch: BatchView) -> Iterator[None]:
        followed = self._followed
        if (batch.base_offset, batch.partition_leader_epoch) != (followed.end_offset, followed.epoch):
            raise ProtocolError(
                f"a batch at {batch.base_offset} of epoch {batch.partition_leader_epoch} does not follow "
                f"{followed.end_offset} of epoch {followed.epoch}"
            )
        if followed.last_epoch != followed.epoch or batch.is_control or not batch.crc_matches():
            raise ProtocolError(f"the batch at {batch.base_offset} is damaged or not from a controller term")
        messages, _ = yield from batch_content_by_record(batch)
        self._replay.appended(batch.next_offset, followed.epoch, messages)
        followed.end_offset = batch.next_offset

    def cut(self, end_offset: int) -> None:
        """See `FetcherOwner`. Raises ProtocolError: the log of a term is never truncated."""
        raise ProtocolError(f"the controller requested a truncation to {end_offset}")

    def loaded(self, snapshot: SnapshotId, content: LoadedSnapshot) -> None:
        """See `FetcherOwner`. Raises ProtocolError. Published once the records after it are received too."""
        followed = self._followed
        if snapshot.epoch != followed.epoch:
            raise ProtocolError(f"snapshot {snapshot.file_name} is of another controller term than {followed.epoch}")
        self._replay = Replay(self._publisher)
        self._replay.load(content.image)
        followed.end_offset, followed.last_epoch = snapshot.end_offset, snapshot.epoch

    def high_watermark_received(self, high_watermark: int) -> None:
        """See `FetcherOwner`. Raises ProtocolError: the end of a term's log is its high watermark."""
        followed = self._followed
        if high_watermark < followed.end_offset or high_watermark <= self._publisher.image.offset:
            raise ProtocolError(f"log end {high_watermark} is below the offset of the received records")
        followed.high_watermark = followed.end_offset
        if high_watermark == followed.end_offset:
            self._replay.leader_heard()

    def act(self) -> None:
        """See `FetcherOwner`: publish received records, many of them over several turns, and request more."""
        if self._stopped or self._retry is not None:
            return
        before = self._publisher.image
        try:
            self._advance()
        except Exception as error:
            if self._publisher.image is not before:
                # Only some components of the broker have applied this image: no further change may build on it.
                self._on_failure(error)
                raise
            self.failed(error)
            return
        self._fetcher.poll()

    def _advance(self) -> None:
        if self._replays_later:
            return
        high_watermark = self._followed.high_watermark
        self._replays_later = self._replay.advance(high_watermark, leading=False, limit=MESSAGES_PER_TURN)
        if self._replays_later:
            self._runtime.scheduler.call_soon(self._replay_more)

    def _replay_more(self) -> None:
        self._replays_later = False
        self.act()

    def failed(self, error: BaseException) -> None:
        """See `FetcherOwner`: drop the local state, and restart with a snapshot after a delay."""
        if self._stopped or self._retry is not None:
            return
        logger.error("fetching the controller's metadata again: %s", error, extra=RATE_LIMITED)
        self._fetcher.stop()
        self._network.close()
        self._retry = self._runtime.scheduler.call_later(RETRY_S, self._restart)

    def _restart(self) -> None:
        self._retry = None
        followed = self._followed
        followed.end_offset = followed.last_epoch = followed.high_watermark = 0
        self._begin()
        self.act()
