"""The active controller's part in a migration from ZooKeeper (KIP-866): wait, claim, copy, and write to both.

A controller with `zookeeper.metadata.migration.enable` has one of these, idle as long as another is active. The
metadata log says how far the cluster has come (`ZkMigrationState`), so whichever is active next goes on from there:

- PRE_MIGRATION: ZooKeeper keeps the cluster. Once all brokers are registered with the quorum too, this node claims
  `/controller` in ZooKeeper, reads the tree, and commits all of it, with MIGRATION as the last record. From the claim
  on nobody decides anything until that is done, so whoever is active next waits for no broker any more.
- MIGRATION: the quorum keeps the cluster. This node claims, reads the tree, brings it to what is committed, and then
  writes every change that is committed. Where somebody took the claim from the quorum the cluster goes back: nothing is
  written to the tree then, which others rule.

Invariants: nothing is written to the tree but by who has claimed in its own epoch of the quorum; nothing of the quorum
is written there that is not committed; after whatever fails, claim and reading come anew; a topic keeps its id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, ProtocolError
from ottla.common.kafka.ids import Uuid, new_uuid
from ottla.common.platform.generation import Generation
from ottla.common.platform.runtime import NodeRuntime
from ottla.controller.driver import Controller
from ottla.controller.migration_copy import (
    COPIED_AT_ONCE,
    TreeSnapshot,
    brokers_awaited,
    controller_awaited,
    controllers_awaited,
    copied,
    copy_completed,
    found_in,
    tree_awaited,
    without_others,
)
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.metadata.publisher import MetadataPublisher
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_cluster_id, decode_controller
from ottla.protocol.znodes.fields import MAX_INT32, NONE, decimal
from ottla.protocol.znodes.operations import Delete, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError, ZooKeeperSession
from ottla.zookeeper.controller_election import FIRST_EPOCH, QuorumTakeover, take_over
from ottla.zookeeper.dual_write import DualWriter
from ottla.zookeeper.reading import Tree
from ottla.zookeeper.scan import TreeScan
from ottla.zookeeper.writing import TreeWriter

logger = logging.getLogger(__name__)


RETRY_S = 1.0
"""Between looks at who is there, and after whatever failed."""
REFUSED_S = 30.0
"""Before what ZooKeeper can't hold is compared with the tree again: somebody has to undo it in the quorum."""
CAUGHT_UP_S = 5.0
"""How long a controller that stops waits for the tree to have what is committed."""
_POLL_S = 0.05


class Migration:
    """One controller's. All methods belong to the loop. Implements `LeadershipListener` and `SessionListener`."""

    __slots__ = (
        "_active",
        "_cluster_id",
        "_connected",
        "_controller",
        "_following",
        "_ids",
        "_leader",
        "_leaving",
        "_machine",
        "_publisher",
        "_reached",
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
        machine: NodeRuntime,
        cluster_id: str,
        voters: Callable[[], Iterable[int]],
    ) -> None:
        """`session` is not started yet. `voters` are the controllers that the quorum has by now."""
        self._session = session
        self._controller = controller
        self._publisher = publisher
        self._machine = machine
        self._cluster_id = cluster_id
        self._voters = voters
        self._leader = LeaderAndEpoch(NO_NODE, 0)
        self._active = False
        self._connected = False
        self._round = Generation()
        """Renewed by whatever makes older answers meaningless."""
        self._writer: DualWriter | None = None
        self._following = False
        """Whether each image goes to the writer."""
        self._leaving = False
        self._reached = 0
        """Up to where the tree had everything when it was written to last, as far as this node knows."""
        self._ids: dict[str, Uuid] = {}
        """Of the topics that were there at the last look before the claim: tools of before topic ids leave them out."""
        self._told = ""

    def start(self) -> None:
        """Connect to ZooKeeper; from now on whoever is active here acts."""
        self._publisher.register(self._published)
        self._session.start(self)

    def leave(self, done: Callable[[], None]) -> None:
        """This node is about to leave the quorum: bring the tree to what is committed, if that is possible and soon
        done. What is committed until this node has left is written on, until `stop`."""

        def leaving() -> None:
            self._leaving = True
            done()

        self._wait_while(lambda: self.behind > 0, leaving, self._machine.clock.monotonic() + CAUGHT_UP_S)

    def stop(self, done: Callable[[], None]) -> None:
        """Write the rest, and end the session. The claim stays: it is the quorum's."""

        def end() -> None:
            if self.behind:
                logger.warning("ZooKeeper's tree lacks %d records that are committed", self.behind)
            self._active = False
            self._cease()
            self._session.close(done)

        self._wait_while(
            lambda: self._following and self.behind > 0, end, self._machine.clock.monotonic() + CAUGHT_UP_S
        )

    def _wait_while(self, condition: Callable[[], bool], then: Callable[[], None], deadline_s: float) -> None:
        if condition() and self._machine.clock.monotonic() < deadline_s:
            self._machine.scheduler.call_later(_POLL_S, self._wait_while, condition, then, deadline_s)
        else:
            then()

    @property
    def behind(self) -> int:
        """How many committed records the tree lacks, as far as this node knows; 0 where it is another's to write."""
        if self._writer is not None and self._following:
            return self._writer.behind
        image = self._publisher.image
        if self._active and image.zk_migration_state is ZkMigrationState.MIGRATION:
            return image.offset - self._reached
        return 0

    # -- who acts, and whether ZooKeeper can be reached ---------------------------------------------------------------

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`; told after the controller, whose first records say whether there is a migration."""
        if not self._leaving:
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
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()
            if self._following:
                self._reached = self._publisher.image.offset - writer.behind
        self._following = False

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

    def _wait(self, why: str) -> None:
        self._tell(why)
        self._machine.scheduler.call_later(RETRY_S, self._round.during(self._begin))

    # -- before the claim ------------------------------------------------------------------------------------------

    def _await_brokers(self) -> None:
        awaited = controllers_awaited(self._publisher.image, self._voters())
        if awaited is not None:
            self._wait(f"the quorum is not ready for the migration from ZooKeeper: {awaited}")
        else:
            self._session.get(paths.CLUSTER_ID, self._round.during(self._cluster_seen))

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
        self._session.get(paths.CONTROLLER, self._round.during(self._claim_seen))

    def _claim_seen(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        """Where a controller before this one had the claim already, and did not come to copy, nobody rules."""
        if error is not None:
            self._again(error)
            return
        try:
            is_taken = _is_of_quorum(node)
        except ProtocolError as failure:
            self._again(failure)
            return
        if is_taken:
            self._look(is_taken=True)
        else:
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
            self._look(is_taken=False)

    def _look(self, *, is_taken: bool) -> None:
        """The claim fences the controller that the brokers have, so it comes only when the copy will follow."""

        def found(_tree: Tree, found: TreeSnapshot) -> None:
            awaited = tree_awaited(self._publisher.image, found)
            if awaited is None and not is_taken:
                awaited = controller_awaited(found)
            if awaited is not None:
                self._wait(awaited)
            else:
                self._ids = {name: topic.topic_id for name, topic in found.image.topics.items()}
                self._claim()

        self._scan(found, claimed=is_taken)

    def _scan(self, then: Callable[[Tree, TreeSnapshot], None], *, claimed: bool) -> None:
        """Read the whole tree; a large one is taken apart off the loop."""

        def scanned(tree: Tree | None, error: Exception | None) -> None:
            if tree is None:
                self._again(error)
                return
            id_of = self._ids_of(tree) if claimed else self._new_id

            def read(found: TreeSnapshot | None, error: BaseException | None) -> None:
                if found is None:
                    self._again(error)
                else:
                    then(tree, found)

            self._machine.pool.submit(lambda: found_in(tree, id_of), self._round.during(read))

        TreeScan(self._session, self._round.during(scanned))

    def _new_id(self, _topic: str) -> Uuid:
        return new_uuid(self._machine.rng.random_bytes(16))

    def _ids_of(self, tree: Tree) -> Callable[[str], Uuid]:
        """What names a topic that lies in the tree without its id: brokers that have its data know it by that."""
        known = {**self._ids, **{name: each.topic_id for name, each in self._publisher.image.topics.items()}}

        def id_of(topic: str) -> Uuid:
            if topic in known:
                return known[topic]
            if paths.partitions(topic) in tree:
                raise ProtocolError(
                    f"topic {topic} lies in ZooKeeper without the id by which brokers know its data: delete "
                    f"{paths.CONTROLLER} there, so that one of them rules and names it"
                )
            return self._new_id(topic)

        return id_of

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
            zk_migration_complete = self._publisher.image.zk_migration_state is ZkMigrationState.MIGRATION
            if zk_migration_complete and (migration is None or not _is_of_quorum(claim)):
                self._wait(
                    f"{paths.CONTROLLER} or {paths.MIGRATION} in ZooKeeper is not this quorum's any more: the cluster "
                    "goes back there, so stop the controllers"
                )
                return
            made = take_over(self._leader, self._machine.clock.time_ms(), claim, epoch, migration)
        except ProtocolError as error:
            self._again(error)
            return
        if made is None:
            self._again(KafkaError(ErrorCode.NOT_CONTROLLER, "a later controller of a quorum has the claim"))
            return
        operations, takeover = made

        def claimed(_paths: list[str] | None, error: ZooKeeperError | None) -> None:
            if error is not None:
                self._again(error)
            else:
                self._scan(partial(self._tree_read, takeover), claimed=True)

        self._session.multi(operations, self._round.during(claimed))

    def _tree_read(self, takeover: QuorumTakeover, tree: Tree, found: TreeSnapshot) -> None:
        repairs = found.cluster.repairs
        removed = {each.path for group in repairs for each in group if isinstance(each, Delete)}
        known = set(tree) - removed
        self._writer = DualWriter(
            self._session,
            takeover,
            TreeWriter(known, self._leader.leader_id, takeover.term.controller_epoch, leaps=True),
            found.image,
            self._round.during(self._again),
            self._round.during(self._refused),
        )
        self._writer.repair(repairs, self._round.during(partial(self._take_up, found)))

    # -- the copy --------------------------------------------------------------------------------------------------

    def _take_up(self, found: TreeSnapshot) -> None:
        """The tree is this node's to write, and whole."""
        if self._publisher.image.zk_migration_state is ZkMigrationState.MIGRATION:
            self._follow()
            return
        self._tell("Starting ZK migration: the tree is copied into the metadata log")
        self._decide(lambda image, _context: without_others(image, found.image), partial(self._copy, found, 0))

    def _decide(
        self,
        operation: Callable[[MetadataImage, ControllerContext], ControllerResult[None]],
        then: Callable[[], Any],
        too_large: Callable[[], Any] | None = None,
    ) -> None:
        """`too_large` is called where the records don't fit into one batch."""

        def decided(_response: None, error: BaseException | None) -> None:
            full = isinstance(error, KafkaError) and error.code is ErrorCode.RECORD_LIST_TOO_LARGE
            if full and too_large is not None:
                too_large()
            elif error is not None:
                self._again(error)
            else:
                then()

        self._controller.submit(operation, self._round.during(decided))

    def _copy(self, found: TreeSnapshot, position: int, count: int = COPIED_AT_ONCE) -> None:
        """Copy from that record on, with other work of the loop in between; fewer at once than `count` if too large."""
        part = found.copied[position : position + count]
        if part:

            def later(position: int, count: int) -> Callable[[], Any]:
                step = self._round.during(partial(self._copy, found, position, count))
                return lambda: self._machine.scheduler.call_soon(step)

            halved = later(position, len(part) // 2) if len(part) > 1 else None
            self._decide(
                lambda image, _context: copied(image, part), later(position + len(part), COPIED_AT_ONCE), halved
            )
            return
        newcomers = found.cluster.newcomers
        self._decide(lambda image, context: copy_completed(image, context, newcomers), self._completed)

    def _completed(self) -> None:
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

    def _refused(self, error: KafkaError) -> None:
        """The tree stays as it was, and the claim this node's; the quorum goes on."""
        logger.error(
            "ZooKeeper can't hold what is committed, and its tree stays behind till that is undone: %s", error.message
        )
        self._machine.scheduler.call_later(REFUSED_S, self._round.during(self._follow))


def _is_of_quorum(claim: Znode | None) -> bool:
    """Whether `/controller` is a quorum's, of whatever epoch. Raises ProtocolError."""
    return claim is not None and decode_controller(paths.CONTROLLER, claim.data).kraft_controller_epoch > NONE
