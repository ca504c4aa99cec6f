"""A broker on ZooKeeper while its cluster migrates to a quorum or back (KIP-866): source of its images, and controller.

Such a broker is in both. In the tree it acts like any broker on ZooKeeper, and may be the controller as long as no
quorum has the claim. It follows the quorum's log as an observer, on its disk. Each source has its own publisher, and
one of them at a time is forwarded to the broker. Initially that is the tree. The quorum takes over once it has
`/controller` and its log contains the whole tree, which is always after the claim: a broker that can't reach ZooKeeper
at that time need not see the claim. The tree takes over again once a broker has the claim and the first image of that
term is published. In between no broker is the controller, and its requests wait.

Invariants:
- Before the quorum has the whole tree nothing of its log is forwarded to the broker.
- Offsets only increase: the offset of a quorum image gets the controller epoch in its upper half, like the offsets of a
  term. Each claim of `/controller`, by broker or quorum, raises that epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import PeerConnection, Peers
from ottla.metadata.delta import AllPartitions, MetadataChanges
from ottla.metadata.difference import changes_since
from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.metadata.log import NO_NODE, LeaderAndEpoch, LeadershipListener, MetadataLog, Submission, SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion
from ottla.zookeeper.log import ZooKeeperLog, epoch_of, first_offset

logger = logging.getLogger(__name__)


class MigratingLog:
    """The tree and the quorum as one metadata log of a broker. Implements `MetadataLog`, and `LeadershipListener` for
    both.

    All methods run on the loop.
    """

    __slots__ = (
        "_claim",
        "_known",
        "_listeners",
        "_on_failure",
        "_publisher",
        "_seen_waiting",
        "_tree",
        "_tree_active",
        "quorum",
        "quorum_images",
        "quorum_is_owner",
        "tree_images",
    )

    def __init__(
        self,
        tree: ZooKeeperLog,
        tree_images: MetadataPublisher,
        quorum: MetadataLog,
        quorum_images: MetadataPublisher,
        publisher: MetadataPublisher,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`publisher` receives the images for the broker. `on_failure` is called when one of its listeners raised."""
        self._tree = tree
        self.tree_images = tree_images
        self.quorum = quorum
        self.quorum_images = quorum_images
        self._publisher = publisher
        self._on_failure = on_failure
        self._claim: int | None = None
        """The controller epoch with which the quorum has the claim, or an earlier one after every broker's; None
        without a claim of the quorum.
        """
        self._seen_waiting = False
        """Whether the quorum's log is known to wait for the tree."""
        self.quorum_is_owner = False
        """Whether the image published last is the quorum's."""
        self._tree_active = False
        self._known = (LeaderAndEpoch(NO_NODE, 0), False)
        self._listeners: list[LeadershipListener] = []
        tree.claimed_by_quorum = self._claim_read
        tree_images.register(self._tree_published)
        quorum_images.register(self._quorum_published)
        tree.listen(_LeadershipWatch(self._tree_led))
        quorum.listen(_LeadershipWatch(lambda _active: self._notify()))

    # -- source of the images --------------------------------------------------------------------------------------

    def _claim_read(self, controller_epoch: int | None) -> None:
        """`/controller` was read: a quorum has it since that epoch, or no quorum has it."""
        is_new = self._claim is None and controller_epoch is not None
        self._claim = controller_epoch
        image = self.quorum_images.image
        if is_new and image.zk_migration_complete:
            try:
                self._quorum_succeeds(image)
            except Exception as error:
                # Only some components of the broker have applied this image: no further change may build on it.
                self._on_failure(error)
                raise
        self._notify()

    def _quorum_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        was_waiting, self._seen_waiting = self._seen_waiting, image.zk_migration_state is ZkMigrationState.PRE_MIGRATION
        if not image.zk_migration_complete:
            return
        if self._claim is None and was_waiting and not self._tree.session_id:
            self._claim = max(self._tree.leader.epoch, epoch_of(self._publisher.image.offset)) + 1
        if self._claim is None:
            return
        if self.quorum_is_owner:
            self._publish(image, changes)
        else:
            self._quorum_succeeds(image)

    def _quorum_succeeds(self, image: MetadataImage) -> None:
        if not self.quorum_is_owner:
            logger.info("the cluster has migrated to a quorum: this broker follows the quorum")
            self.quorum_is_owner = True
        self._publish(image, _succession(self._publisher.image, image))

    def _publish(self, image: MetadataImage, changes: MetadataChanges) -> None:
        claim = self._claim or 0
        self._publisher.publish(replace(image, offset=first_offset(claim) + image.offset), changes)
        self._notify()

    def _tree_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        if self._claim is not None:
            return  # of a term that is over
        if self.quorum_is_owner:
            logger.warning("the cluster has reverted to ZooKeeper: this broker follows the controller in ZooKeeper")
            self.quorum_is_owner = False
            changes = _succession(self._publisher.image, image)
        self._publisher.publish(image, changes)

    # -- leadership ------------------------------------------------------------------------------------------------

    def _tree_led(self, active: bool) -> None:
        self._tree_active = active
        self._notify()

    def _notify(self) -> None:
        known = (self.leader, self._tree_active and self._claim is None)
        if known != self._known:
            self._known = known
            for listener in list(self._listeners):
                listener.on_leader_change(*known)

    @property
    def leader(self) -> LeaderAndEpoch:
        """None while the quorum has the claim, but not the tree."""
        if self._claim is None:
            return self._tree.leader
        return self.quorum.leader if self.quorum_is_owner else LeaderAndEpoch(NO_NODE, self._tree.leader.epoch)

    def leader_endpoint(self) -> Endpoint | None:
        """See `MetadataLog`; on the controller listener if that is the quorum's."""
        if self._claim is None:
            return self._tree.leader_endpoint()
        return self.quorum.leader_endpoint() if self.quorum_is_owner else None

    def listen(self, listener: LeadershipListener) -> None:
        """See `MetadataLog`."""
        self._listeners.append(listener)
        if self._known[0].leader_id != NO_NODE:
            listener.on_leader_change(*self._known)

    # -- of the tree, if this node is its controller ---------------------------------------------------------------

    @property
    def latest(self) -> MetadataImage:
        """See `MetadataLog`."""
        return self._tree.latest if self._tree_active else self._publisher.image

    @property
    def bootstrap(self) -> Sequence[ApiMessageAndVersion]:
        """See `ZooKeeperLog`."""
        return self._tree.bootstrap

    @property
    def kraft_version(self) -> int:
        """See `ZooKeeperLog`."""
        return self._tree.kraft_version

    @property
    def brokers_have_sessions(self) -> bool:
        """See `ZooKeeperLog`."""
        return self._tree.brokers_have_sessions

    @property
    def next_offset(self) -> int:
        """See `ZooKeeperLog`."""
        return self._tree.next_offset

    def check_voters(self) -> None:
        """See `ZooKeeperLog`."""
        self._tree.check_voters()

    def name_voters(self) -> None:
        """See `ZooKeeperLog`."""
        self._tree.name_voters()

    def submit(self, records: Submission, done: SubmitDone) -> None:
        """See `ZooKeeperLog`."""
        self._tree.submit(records, done)

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """See `ZooKeeperLog`."""
        self._tree.submit_start(batches, done)

    # -- start and end ---------------------------------------------------------------------------------------------

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Open the quorum's log, and connect; `endpoints` are those of the controller in ZooKeeper."""
        self.quorum.start(())
        return self._tree.start(endpoints)

    def stop(self, done: SubmitDone) -> None:
        """See `MetadataLog`."""
        self._tree.stop(lambda _error: self.quorum.stop(done))

    def close(self) -> None:
        """See `MetadataLog`."""
        self._tree.close()
        self.quorum.close()


def _succession(old: MetadataImage, new: MetadataImage) -> MetadataChanges:
    """Changes from the last image of one source to the first of the other, which numbers partition epochs
    differently."""
    changes = changes_since(old, new)
    changes.renumbered = True
    changes.changed_partitions = AllPartitions(new.topics.values())
    return changes


class ToController:
    """Connection to the current controller, on the broker or the controller listener. Implements `PeerNetwork`."""

    __slots__ = ("_log", "_peers")

    def __init__(self, log: MigratingLog, peers: Peers) -> None:
        """Connects to the leader of `log` at the time of the connection."""
        self._log = log
        self._peers = peers

    def connect(self, host: str, port: int) -> PeerConnection:
        """See `PeerNetwork`."""
        network = self._peers.controllers if self._log.quorum_is_owner else self._peers.brokers
        return network.connect(host, port)


class _LeadershipWatch:
    """A `LeadershipListener` that reports whether this node leads."""

    __slots__ = ("_notify",)

    def __init__(self, notify: Callable[[bool], None]) -> None:
        self._notify = notify

    def on_leader_change(self, _leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`."""
        self._notify(active)
