"""The active controller's part in a migration from ZooKeeper (KIP-866): wait, claim, copy, and write to both.

A controller with `zookeeper.metadata.migration.enable` has one of these, idle as long as another is active. The
metadata log says how far the cluster has come (`ZkMigrationState`), so whichever is active next goes on from there:

- PRE_MIGRATION: ZooKeeper keeps the cluster. Once all brokers are registered with the quorum too, this node claims
  `/controller` in ZooKeeper, reads the tree, and commits all of it with MIGRATION, in one batch.
- MIGRATION: the quorum keeps the cluster. This node claims, reads the tree, brings it to what is committed, and then
  writes every change that is committed.

Invariants: nothing is written to the tree but by who has claimed in its own epoch of the quorum; nothing of the quorum
is written there that is not committed; after whatever fails, claim and reading come anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, ProtocolError
from ottla.common.ids import new_uuid
from ottla.common.machine import Machine
from ottla.common.rounds import Round
from ottla.controller.driver import Controller
from ottla.controller.migration_copy import (
    brokers_awaited,
    controllers_awaited,
    copy_tree,
    tree_awaited,
    tree_image,
)
from ottla.controller.result import ControllerResult
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.metadata.publisher import MetadataPublisher
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_cluster_id
from ottla.protocol.znodes.fields import MAX_INT32, decimal
from ottla.protocol.znodes.operations import Delete, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError, ZooKeeperSession
from ottla.zookeeper.claims import FIRST_EPOCH, Takeover, take_over
from ottla.zookeeper.dual_write import DualWriter
from ottla.zookeeper.reading import Cluster, Tree, read_cluster
from ottla.zookeeper.scan import TreeScan
from ottla.zookeeper.writing import TreeWriter

logger = logging.getLogger(__name__)


RETRY_S = 1.0
"""Between looks at who is there, and after whatever failed."""


class Migration:
    """One controller's. All methods belong to the loop. Implements `LeadershipListener` and `SessionListener`."""

    __slots__ = (
        "_active",
        "_cluster_id",
        "_connected",
        "_controller",
        "_following",
        "_leader",
        "_machine",
        "_publisher",
        "_round",
        "_session",
        "_told",
        "_voters",
        "_writer",
    )

    def __init__(
        self,
        *,
        session: ZooKeeperSession,
        controller: Controller,
        publisher: MetadataPublisher,
        machine: Machine,
        cluster_id: str,
        voters: Sequence[int],
    ) -> None:
        """`session` is not started yet. `voters` are the controllers that the configuration names."""
        self._session = session
        self._controller = controller
        self._publisher = publisher
        self._machine = machine
        self._cluster_id = cluster_id
        self._voters = tuple(voters)
        self._leader = LeaderAndEpoch(NO_NODE, 0)
        self._active = False
        self._connected = False
        self._round = Round()
        """Renewed by whatever makes older answers meaningless."""
        self._writer: DualWriter | None = None
        self._following = False
        """Whether each image goes to the writer."""
        self._told = ""

    def start(self) -> None:
        """Connect to ZooKeeper; from now on whoever is active here acts."""
        self._publisher.register(self._published)
        self._session.start(self)

    def stop(self, done: Callable[[], None]) -> None:
        """Write nothing more, and end the session. The claim stays: it is the quorum's."""
        self._active = False
        self._cease()
        self._session.close(done)

    @property
    def behind(self) -> int:
        """How many committed records the tree lacks; 0 also where nothing is written to it from here."""
        return self._writer.behind if self._writer is not None and self._following else 0

    # -- who acts, and whether ZooKeeper can be reached ---------------------------------------------------------------

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`; told after the controller, whose first records say whether there is a migration."""
        self._leader = leader
        self._active = active
        self._begin()

    def on_connected(self, _session: int) -> None:
        """See `SessionListener`."""
        self._connected = True
        self._begin()

    def on_disconnected(self) -> None:
        """See `SessionListener`."""
        self._connected = False
        self._cease()

    def on_expired(self) -> None:
        """See `SessionListener`; the claim outlives sessions."""

    def _begin(self) -> None:
        self._cease()
        if self._active and self._connected:
            # What is not committed yet may be the copy: only afterwards the image that is published says how far it is.
            nothing = ControllerResult[None]([], None)
            self._controller.submit(
                lambda _image, _context: nothing, self._round.during(lambda _response, error: self._go_on(error))
            )

    def _go_on(self, error: BaseException | None) -> None:
        state = self._publisher.image.zk_migration_state
        if error is not None:
            self._again(error)
        elif state is ZkMigrationState.PRE_MIGRATION:
            self._await_brokers()
        elif state is ZkMigrationState.MIGRATION:
            self._claim()
        elif state is ZkMigrationState.POST_MIGRATION:
            self._tell("zookeeper.metadata.migration.enable has no effect: the migration has been completed")
        else:
            self._tell(
                "zookeeper.metadata.migration.enable has no effect: this quorum was begun without it; to migrate, "
                "format the controllers anew"
            )

    def _cease(self) -> None:
        self._round.renew()
        self._following = False
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()

    def _again(self, error: BaseException | None) -> None:
        """Nobody knows how the tree is now, or it can't be read."""
        if not (isinstance(error, ZooKeeperError) and error.code in (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED)):
            logger.warning("ZooKeeper's tree is claimed and read again: %s", error)
        self._cease()
        self._machine.scheduler.call_later(RETRY_S, self._round.during(self._begin))

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            logger.info("%s", text)

    # -- before the claim ------------------------------------------------------------------------------------------

    def _await_brokers(self) -> None:
        awaited = controllers_awaited(self._publisher.image, self._voters)
        if awaited is not None:
            self._wait(f"the quorum is not ready for the migration from ZooKeeper: {awaited}")
        else:
            self._session.get(paths.CLUSTER_ID, self._round.during(self._cluster_seen))

    def _wait(self, why: str) -> None:
        self._tell(why)
        self._machine.scheduler.call_later(RETRY_S, self._round.during(self._await_brokers))

    def _cluster_seen(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self._again(error)
            return
        try:
            cluster_id = None if node is None else decode_cluster_id(paths.CLUSTER_ID, node.data)
        except ProtocolError as failure:
            self._again(failure)
            return
        if cluster_id != self._cluster_id:
            self._wait(
                f"zookeeper.connect leads to cluster {cluster_id}, and the controllers are formatted for "
                f"{self._cluster_id}: format them with that id, or name the servers of the other one"
            )
            return
        self._session.children(paths.BROKER_IDS, self._round.during(self._brokers_seen))

    def _brokers_seen(self, names: list[str] | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self._again(error)
            return
        try:
            present = [decimal(f"{paths.BROKER_IDS} by a name", name, high=MAX_INT32) for name in names or ()]
        except ProtocolError as failure:
            self._again(failure)
            return
        awaited = brokers_awaited(self._publisher.image, present)
        if awaited is not None:
            self._wait(awaited)
        else:
            TreeScan(self._session, self._round.during(self._looked_at))

    def _looked_at(self, tree: Tree | None, error: Exception | None) -> None:
        """The claim fences the controller that the brokers have, so it comes only when the copy will follow."""
        cluster = self._read(tree, error)
        if cluster is None:
            return
        awaited = tree_awaited(self._publisher.image, cluster)
        if awaited is not None:
            self._wait(awaited)
        else:
            self._claim()

    def _read(self, tree: Tree | None, error: Exception | None) -> Cluster | None:
        try:
            if tree is not None:
                return read_cluster(tree, lambda _name: new_uuid(self._machine.rng.random_bytes(16)))
        except ProtocolError as failure:
            error = failure
        self._again(error)
        return None

    # -- the claim -------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        found: list[Znode | None] = []
        names = [paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.MIGRATION]

        def read(node: Znode | None, error: ZooKeeperError | None) -> None:
            if error is not None:
                self._again(error)
                return
            found.append(node)
            if len(found) < len(names):
                self._session.get(names[len(found)], self._round.during(read))
            else:
                self._take_over(*found)

        self._session.get(names[0], self._round.during(read))

    def _take_over(self, claim: Znode | None, epoch: Znode | None, migration: Znode | None) -> None:
        if epoch is None:
            self._session.multi([FIRST_EPOCH], self._round.during(lambda _paths, error: self._again(error)))
            return
        try:
            made = take_over(self._leader, self._machine.clock.time_ms(), claim, epoch, migration)
        except ProtocolError as error:
            self._again(error)
            return
        if made is None:
            self._again(KafkaError(ErrorCode.NOT_CONTROLLER, "a later controller of the quorum has the claim"))
            return
        operations, takeover = made

        def claimed(_paths: list[str] | None, error: ZooKeeperError | None) -> None:
            if error is not None:
                self._again(error)
            else:
                TreeScan(self._session, self._round.during(partial(self._tree_read, takeover)))

        self._session.multi(operations, self._round.during(claimed))

    def _tree_read(self, takeover: Takeover, tree: Tree | None, error: Exception | None) -> None:
        cluster = self._read(tree, error)
        if cluster is None or tree is None:
            return
        removed = {each.path for group in cluster.repairs for each in group if isinstance(each, Delete)}
        try:
            written = tree_image(cluster)
        except InvariantError as failure:
            self._again(failure)
            return
        known = set(tree) - removed
        writer = TreeWriter(known, self._leader.leader_id, takeover.reign.controller_epoch, leaps=True)
        self._writer = DualWriter(self._session, takeover, writer, written, self._round.during(self._again))
        self._writer.repair(cluster.repairs, self._round.during(partial(self._take_up, cluster)))

    def _take_up(self, cluster: Cluster) -> None:
        """The tree is this node's to write, and whole."""
        if self._publisher.image.zk_migration_state is ZkMigrationState.MIGRATION:
            self._follow()
            return
        self._tell("Starting ZK migration: the tree is copied into the metadata log")
        self._controller.submit(
            lambda image, context: copy_tree(image, context, cluster),
            self._round.during(lambda _response, error: self._copied(error)),
        )

    def _copied(self, error: BaseException | None) -> None:
        if error is not None:
            self._again(error)
            return
        self._follow()
        self._controller.brokers_changed()  # partitions that never had a leader may get one

    # -- both ------------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        image = self._publisher.image
        if image.zk_migration_state is not ZkMigrationState.MIGRATION:
            raise InvariantError("the tree can't be brought to an image without its copy")
        if self._writer is not None:
            self._tell("Completed migration of metadata from ZooKeeper to KRaft; changes are written to both")
            self._following = True
            self._writer.follow(image)

    def _published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        if self._writer is not None and self._following:
            self._writer.follow(image, changes)
