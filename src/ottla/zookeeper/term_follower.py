"""A broker that follows the controller: it fetches the log of the reign as an observer fetches a quorum's.

It is told of leader and epoch by whoever reads the claim, and of the place by the registration of that broker. What it
has of an older reign ends in an older epoch, so the controller sends it a snapshot; of the same reign it goes on where
its image ends. Nothing of this is kept on disk: the tree is the truth, and the controller reads it.

Invariants:
- What it publishes is of the reign that it follows, whole up to what was in the tree when it asked, and never older
  than what was published before, by this node as a follower or as the controller.
- What does not follow from what is here is not published: it is fetched anew, from the snapshot on, until that fits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

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
from ottla.quorum.opening import image_of
from ottla.quorum.raft_types import OffsetAndEpoch, Peer, ReplicaKey
from ottla.quorum.replay import Replay, batch_content
from ottla.quorum.snapshot_file import Snapshot, SnapshotId
from ottla.record.batch import BatchView, iter_batches
from ottla.storage.log.flush import FlushDone

logger = logging.getLogger(__name__)

RETRY_S = 0.5
"""After something that does not fit, before all is fetched anew."""


class Followed:
    """Whom this node follows, and how far it is: implements `Leadership` and `FollowedLog` without Raft and a file."""

    __slots__ = ("_scheduler", "address", "end_offset", "high_watermark", "last_epoch", "leader", "replica")

    follows = True
    seeks_leader = True
    failed = False

    def __init__(self, replica: ReplicaKey, leader: LeaderAndEpoch, image: MetadataImage, scheduler: Scheduler) -> None:
        """`image` is what this node has, of whatever reign."""
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
        """See `Leadership`."""
        return error is ErrorCode.NONE and asked_epoch == self.epoch and peer.leader == self.leader

    def end_offset_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """See `FollowedLog`: what is before the end is not here any more."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def request_flush(self, pool: BlockingPool, done: FlushDone) -> None:
        """See `FollowedLog`: nothing is stored."""
        self._scheduler.call_soon(done, None)

    def write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """See `FollowedLog`: nothing is stored."""


class TermLogFollower:
    """One node's following of one reign. Implements `FetcherOwner`. All methods belong to the loop."""

    __slots__ = (
        "_cluster_id",
        "_fetcher",
        "_followed",
        "_machine",
        "_network",
        "_on_failure",
        "_peers",
        "_publisher",
        "_replay",
        "_retry",
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
        machine: NodeRuntime,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Fetches from `found` on. `on_failure` is told when a listener of `publisher` raised."""
        self._cluster_id = cluster_id
        self._peers = peers
        self._publisher = publisher
        self._machine = machine
        self._on_failure = on_failure
        self._stopped = False
        self._retry: TimerHandle | None = None
        self.endpoint: Endpoint | None = None
        """Where the controller listens; None before that is known."""
        self._followed = Followed(ReplicaKey(broker_id), leader, publisher.image, machine.scheduler)
        self._begin()

    @property
    def leader(self) -> LeaderAndEpoch:
        """Whom it follows."""
        return self._followed.leader

    @property
    def trouble(self) -> str:
        """Why the controller is not followed; "" where it is, or nobody knows yet."""
        reason = self._fetcher.trouble
        if isinstance(reason, ErrorCode):
            return reason.name
        return "" if reason is None else str(reason)

    def found(self, endpoint: Endpoint | None) -> None:
        """The controller is there, or nobody knows where."""
        self.endpoint = endpoint
        self._followed.address = None if endpoint is None else (endpoint.host, endpoint.port)
        self.act()

    def stop(self) -> None:
        """Follow no more: what is under way is never heard of."""
        self._stopped = True
        self._fetcher.stop()
        self._network.close()
        if self._retry is not None:
            self._retry.cancel()

    def _begin(self) -> None:
        """Go on from `_followed`: by records of the same reign, which follow what is published, or by a snapshot."""
        self._network = QuorumNetwork(self._peers)
        self._replay = Replay(self._publisher)
        self._replay.load(self._publisher.image)
        self._replay.quiet = False
        self._fetcher = Fetcher(
            self,
            self._followed,
            self._followed,
            self._network,
            machine=self._machine,
            quorum=QuorumConfig(self._cluster_id),
            bootstrap=list,
        )

    # -- what is fetched -------------------------------------------------------------------------------------------

    def replicated(self, data: Buffer) -> None:
        """See `FetcherOwner`. Raises ProtocolError."""
        try:
            for batch in iter_batches(data):
                self._append(batch)
        except (KafkaError, InvariantError) as error:
            raise ProtocolError(f"the records can't be read: {error}") from error

    def _append(self, batch: BatchView) -> None:
        followed = self._followed
        if (batch.base_offset, batch.partition_leader_epoch) != (followed.end_offset, followed.epoch):
            raise ProtocolError(
                f"a batch at {batch.base_offset} of epoch {batch.partition_leader_epoch} does not follow "
                f"{followed.end_offset} of epoch {followed.epoch}"
            )
        if followed.last_epoch != followed.epoch or batch.is_control or not batch.crc_matches():
            raise ProtocolError(f"the batch at {batch.base_offset} is damaged, or none of a reign")
        messages, _ = batch_content(batch)
        self._replay.appended(batch.next_offset, followed.epoch, messages)
        followed.end_offset = batch.next_offset

    def cut(self, end_offset: int) -> None:
        """See `FetcherOwner`. Raises ProtocolError: a reign's log is never cut."""
        raise ProtocolError(f"the log is to be cut at {end_offset}")

    def loaded(self, snapshot: SnapshotId, content: Snapshot) -> None:
        """See `FetcherOwner`. Raises ProtocolError. Published once what follows it is here, too."""
        followed = self._followed
        if snapshot.epoch != followed.epoch:
            raise ProtocolError(f"snapshot {snapshot.file_name} is of another reign than {followed.epoch}")
        try:
            image = image_of(snapshot, content.records)
        except InvariantError as error:
            raise ProtocolError(str(error)) from error
        self._replay = Replay(self._publisher)
        self._replay.load(image)
        followed.end_offset, followed.last_epoch = snapshot.end_offset, snapshot.epoch

    def leader_told(self, high_watermark: int) -> None:
        """See `FetcherOwner`. Raises ProtocolError: the end of a reign's log is its high watermark."""
        followed = self._followed
        if high_watermark < followed.end_offset or high_watermark <= self._publisher.image.offset:
            raise ProtocolError(f"the log ends at {high_watermark}, before what was told of it")
        followed.high_watermark = followed.end_offset
        if high_watermark == followed.end_offset:
            self._replay.leader_heard()

    def act(self) -> None:
        """See `FetcherOwner`: publish what came, and ask for more."""
        if self._stopped or self._retry is not None:
            return
        before = self._publisher.image
        try:
            self._replay.advance(self._followed.high_watermark, leading=False)
        except Exception as error:
            if self._publisher.image is not before:
                # Some parts of the broker follow this image and some don't: no further change may build on it.
                self._on_failure(error)
                raise
            self.failed(error)
            return
        self._fetcher.poll()

    def failed(self, error: BaseException) -> None:
        """See `FetcherOwner`: forget where this is, and begin anew with a snapshot a while later."""
        if self._stopped or self._retry is not None:
            return
        logger.error("what the controller sends is fetched again: %s", error, extra=RATE_LIMITED)
        self._fetcher.stop()
        self._network.close()
        self._retry = self._machine.scheduler.call_later(RETRY_S, self._begin_anew)

    def _begin_anew(self) -> None:
        self._retry = None
        followed = self._followed
        followed.end_offset = followed.last_epoch = followed.high_watermark = 0
        self._begin()
        self.act()
