"""A broker on ZooKeeper whose cluster goes to a quorum, or back (KIP-866): where its images come from, and who decides.

Such a broker takes part in both. In the tree it does as any broker on ZooKeeper, and may be the controller as long as
no quorum has the claim; the quorum's log it follows as an observer, on its disk. Each has a publisher of its own, and
what one of them publishes is also the broker's. At first that is the tree. The quorum rules once it has `/controller`
and its log holds the whole tree, which it does after the claim only: a broker that can't reach ZooKeeper when its log
comes to hold it need not hear of the claim. The tree rules again when a broker has the claim and that reign's first
image is here. In between nobody does, and what needs the controller waits.

Invariants:
- Before the quorum has the whole tree nothing of its log is the broker's.
- Offsets only rise: an image of the quorum's gets the controller's epoch in its upper half, as those of a reign have
  it, and whoever claims `/controller`, broker or quorum, raises that epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import PeerConnection, Peers
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.difference import changes_since
from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.metadata.log import NO_NODE, LeaderAndEpoch, LeadershipListener, MetadataLog, SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion
from ottla.zookeeper.log import ZooKeeperLog, epoch_of, first_offset

logger = logging.getLogger(__name__)


class MigratingLog:
    """One broker's part in the tree and in the quorum. Implements `MetadataLog`, and `LeadershipListener` for both.

    All methods belong to the loop.
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
        "quorum_rules",
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
        """`publisher` takes what the broker follows. `on_failure` is told when one of its listeners raised."""
        self._tree = tree
        self.tree_images = tree_images
        self.quorum = quorum
        self.quorum_images = quorum_images
        self._publisher = publisher
        self._on_failure = on_failure
        self._claim: int | None = None
        """The controller's epoch with which the quorum has the claim, or an earlier one after that of any broker; None
        while it hasn't."""
        self._seen_waiting = False
        """Whether the quorum's log has said here that it waits for the tree."""
        self.quorum_rules = False
        """Whether what is published last is the quorum's."""
        self._tree_active = False
        self._known = (LeaderAndEpoch(NO_NODE, 0), False)
        self._listeners: list[LeadershipListener] = []
        tree.claimed_by_quorum = self._claim_read
        tree_images.register(self._tree_published)
        quorum_images.register(self._quorum_published)
        tree.listen(_Heard(self._tree_led))
        quorum.listen(_Heard(lambda _active: self._tell()))

    # -- whose images ----------------------------------------------------------------------------------------------

    def _claim_read(self, controller_epoch: int | None) -> None:
        """What `/controller` says: a quorum is it since that epoch, or none is."""
        is_new = self._claim is None and controller_epoch is not None
        self._claim = controller_epoch
        image = self.quorum_images.image
        if is_new and image.zk_migration_complete:
            try:
                self._quorum_succeeds(image)
            except Exception as error:
                # Some parts of the broker follow this image and some don't: no further change may build on it.
                self._on_failure(error)
                raise
        self._tell()

    def _quorum_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        was_waiting, self._seen_waiting = self._seen_waiting, image.zk_migration_state is ZkMigrationState.PRE_MIGRATION
        if not image.zk_migration_complete:
            return
        if self._claim is None and was_waiting and not self._tree.session_id:
            self._claim = max(self._tree.leader.epoch, epoch_of(self._publisher.image.offset)) + 1
        if self._claim is None:
            return
        if self.quorum_rules:
            self._publish(image, changes)
        else:
            self._quorum_succeeds(image)

    def _quorum_succeeds(self, image: MetadataImage) -> None:
        if not self.quorum_rules:
            logger.info("a quorum keeps the cluster now: this broker follows it")
            self.quorum_rules = True
        self._publish(image, _succession(self._publisher.image, image))

    def _publish(self, image: MetadataImage, changes: MetadataChanges) -> None:
        claim = self._claim or 0
        self._publisher.publish(replace(image, offset=first_offset(claim) + image.offset), changes)
        self._tell()

    def _tree_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        if self._claim is not None:
            return  # of a reign that is over
        if self.quorum_rules:
            logger.warning("ZooKeeper keeps the cluster again: this broker follows the controller there")
            self.quorum_rules = False
            changes = _succession(self._publisher.image, image)
        self._publisher.publish(image, changes)

    # -- who leads -------------------------------------------------------------------------------------------------

    def _tree_led(self, active: bool) -> None:
        self._tree_active = active
        self._tell()

    def _tell(self) -> None:
        known = (self.leader, self._tree_active and self._claim is None)
        if known != self._known:
            self._known = known
            for listener in list(self._listeners):
                listener.on_leader_change(*known)

    @property
    def leader(self) -> LeaderAndEpoch:
        """Nobody while the quorum has the claim, but not the tree."""
        if self._claim is None:
            return self._tree.leader
        return self.quorum.leader if self.quorum_rules else LeaderAndEpoch(NO_NODE, self._tree.leader.epoch)

    def leader_endpoint(self) -> Endpoint | None:
        """See `MetadataLog`; on the listener of the controllers where that is the quorum's."""
        if self._claim is None:
            return self._tree.leader_endpoint()
        return self.quorum.leader_endpoint() if self.quorum_rules else None

    def listen(self, listener: LeadershipListener) -> None:
        """See `MetadataLog`."""
        self._listeners.append(listener)
        if self._known[0].leader_id != NO_NODE:
            listener.on_leader_change(*self._known)

    # -- the tree's, where this node is its controller -------------------------------------------------------------

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

    def submit(self, records: Sequence[ApiMessageAndVersion], done: SubmitDone) -> None:
        """See `ZooKeeperLog`."""
        self._tree.submit(records, done)

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """See `ZooKeeperLog`."""
        self._tree.submit_start(batches, done)

    # -- start and end ---------------------------------------------------------------------------------------------

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Open the quorum's log, and connect; `endpoints` are those of the controller in the tree."""
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
    """From the last image of one to the first of the other, who counts the changes of partitions anew."""
    changes = changes_since(old, new)
    changes.renumbered = True
    changes.changed_partitions = [(topic, index) for topic in new.topics.values() for index in topic.partitions]
    return changes


class ToController:
    """The way to whoever decides, by the listener of brokers or by that of controllers. Implements `PeerNetwork`."""

    __slots__ = ("_log", "_peers")

    def __init__(self, log: MigratingLog, peers: Peers) -> None:
        """Connects to the leader of `log`, as it is then."""
        self._log = log
        self._peers = peers

    def connect(self, host: str, port: int) -> PeerConnection:
        """See `PeerNetwork`."""
        network = self._peers.controllers if self._log.quorum_rules else self._peers.brokers
        return network.connect(host, port)


class _Heard:
    """A `LeadershipListener` that tells whether this node leads."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell

    def on_leader_change(self, _leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`."""
        self._tell(active)
