"""Migration from ZooKeeper by the active controller (KIP-866): wait, claim, copy, write to both.

A controller with `zookeeper.metadata.migration.enable` has one Migration, idle while another controller is active. The
metadata log records the progress of the cluster (`ZkMigrationState`), so the next active controller resumes from there:

- PRE_MIGRATION: ZooKeeper is authoritative. Once all brokers are registered with the quorum too, this node claims
  `/controller` in ZooKeeper, reads the tree, and commits all of it, with MIGRATION as the last record. From the claim
  until then no controller makes decisions, so a later active controller does not wait for brokers any more.
- MIGRATION: the quorum is authoritative. This node claims, reads the tree, updates it to the committed metadata, and
  then writes every committed change. If another controller took the claim from the quorum, the cluster is being
  rolled back: nothing is written to the tree then, which that controller owns.

Invariants: only a node that has claimed in its own quorum epoch writes to the tree; only committed metadata is written
there; after any failure, claim and reading start again; a topic retains its id.
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
from ottla.controller.result import ControllerOperation, ControllerResult
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
"""Interval of checks for brokers and controllers, and retry delay after a failure."""
REFUSED_S = 30.0
"""Delay before metadata that ZooKeeper can't represent is compared with the tree again: an operator has to revert it in
the quorum."""
CAUGHT_UP_S = 5.0
"""Maximum time that a stopping controller waits for the tree to contain the committed metadata."""
_POLL_S = 0.05


class Migration:
    """Migration of one controller. All methods run on the loop. Implements `LeadershipListener` and
    `SessionListener`."""

    __slots__ = (
        "_active",
        "_cluster_id",
        "_connected",
        "_controller",
        "_following",
        "_generation",
        "_ids",
        "_last_logged",
        "_leader",
        "_leaving",
        "_publisher",
        "_reached",
        "_runtime",
        "_session",
        "_voters",
        "_writer",
    )

    def __init__(
        self,
        *,
        session: ZooKeeperSession,
        controller: Controller,
        publisher: MetadataPublisher,
        runtime: NodeRuntime,
        cluster_id: str,
        voters: Callable[[], Iterable[int]],
    ) -> None:
        """`session` is not started yet. `voters` returns the current controllers of the quorum."""
        self._session = session
        self._controller = controller
        self._publisher = publisher
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._voters = voters
        self._leader = LeaderAndEpoch(NO_NODE, 0)
        self._active = False
        self._connected = False
        self._generation = Generation()
        """Renewed when outstanding responses become invalid."""
        self._writer: DualWriter | None = None
        self._following = False
        """Whether each new image is passed to the writer."""
        self._leaving = False
        self._reached = 0
        """Offset up to which the tree was complete at its last write, as far as this node knows."""
        self._ids: dict[str, Uuid] = {}
        """Ids of the topics that existed at the last check before the claim: tools that predate topic ids drop them."""
        self._last_logged = ""

    def start(self) -> None:
        """Connect to ZooKeeper; from now on an active controller on this node migrates."""
        self._publisher.register(self._published)
        self._session.start(self)

    def leave(self, done: Callable[[], None]) -> None:
        """Update the tree to the committed metadata before this node leaves the quorum, if possible within CAUGHT_UP_S.
        Metadata that is committed until this node has left is still written, until `stop`."""

        def leaving() -> None:
            self._leaving = True
            done()

        self._wait_while(lambda: self.behind > 0, leaving, self._runtime.clock.monotonic() + CAUGHT_UP_S)

    def stop(self, done: Callable[[], None]) -> None:
        """Write the rest, and end the session. The claim stays: it belongs to the quorum."""

        def end() -> None:
            if self.behind:
                logger.warning("ZooKeeper's tree lacks %d committed records", self.behind)
            self._active = False
            self._cease()
            self._session.close(done)

        self._wait_while(
            lambda: self._following and self.behind > 0, end, self._runtime.clock.monotonic() + CAUGHT_UP_S
        )

    def _wait_while(self, condition: Callable[[], bool], then: Callable[[], None], deadline_s: float) -> None:
        if condition() and self._runtime.clock.monotonic() < deadline_s:
            self._runtime.scheduler.call_later(_POLL_S, self._wait_while, condition, then, deadline_s)
        else:
            then()

    @property
    def behind(self) -> int:
        """Number of committed records that the tree lacks, as far as this node knows; 0 if another node writes it."""
        if self._writer is not None and self._following:
            return self._writer.behind
        image = self._publisher.image
        if self._active and image.zk_migration_state is ZkMigrationState.MIGRATION:
            return image.offset - self._reached
        return 0

    # -- leadership and connection to ZooKeeper ------------------------------------------------------------------------

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`; notified after the controller, which writes the migration state first."""
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
            # Uncommitted records may be the copy: only after them the published image shows the progress.
            nothing = ControllerResult[None]([], None)
            self._controller.submit(
                lambda _image, _context: nothing, self._generation.during(lambda _response, error: self._resume(error))
            )

    def _resume(self, error: BaseException | None) -> None:
        state = self._publisher.image.zk_migration_state
        if error is not None:
            self._again(error)
        elif state is ZkMigrationState.PRE_MIGRATION:
            self._await_brokers()
        elif state is ZkMigrationState.MIGRATION:
            self._claim()
        elif state is ZkMigrationState.POST_MIGRATION:
            self._log_change("zookeeper.metadata.migration.enable has no effect: the migration has been completed")
        else:
            self._log_change(
                "zookeeper.metadata.migration.enable has no effect: this quorum was created without it; to migrate, "
                "format the controllers again"
            )

    def _cease(self) -> None:
        self._generation.renew()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()
            if self._following:
                self._reached = self._publisher.image.offset - writer.behind
        self._following = False

    def _again(self, error: BaseException | None) -> None:
        """The state of the tree is unknown, or it can't be read: claim it and read it again."""
        if not (isinstance(error, ZooKeeperError) and error.code in (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED)):
            logger.warning("claiming and reading ZooKeeper's tree again: %s", error)
        self._cease()
        self._runtime.scheduler.call_later(RETRY_S, self._generation.during(self._begin))

    def _log_change(self, text: str) -> None:
        if text != self._last_logged:
            self._last_logged = text
            logger.info("%s", text)

    def _wait(self, why: str) -> None:
        self._log_change(why)
        self._runtime.scheduler.call_later(RETRY_S, self._generation.during(self._begin))

    # -- before the claim ------------------------------------------------------------------------------------------

    def _await_brokers(self) -> None:
        awaited = controllers_awaited(self._publisher.image, self._voters())
        if awaited is not None:
            self._wait(f"the quorum is not ready for the migration from ZooKeeper: {awaited}")
        else:
            self._session.get(paths.CLUSTER_ID, self._generation.during(self._cluster_seen))

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
                f"zookeeper.connect leads to cluster {cluster_id}, but the controllers are formatted for "
                f"{self._cluster_id}: format them with the id of that cluster, or correct zookeeper.connect"
            )
            return
        self._session.get(paths.CONTROLLER, self._generation.during(self._claim_seen))

    def _claim_seen(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        """If an earlier controller already had the claim and did not complete the copy, no controller is in charge."""
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
            self._session.children(paths.BROKER_IDS, self._generation.during(self._brokers_seen))

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
        """The claim fences the brokers' controller, so it is made only when the copy can follow."""

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
        """Read the whole tree; a large one is parsed off the loop."""

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

            self._runtime.pool.submit(lambda: found_in(tree, id_of), self._generation.during(read))

        TreeScan(self._session, self._generation.during(scanned))

    def _new_id(self, _topic: str) -> Uuid:
        return new_uuid(self._runtime.rng.random_bytes(16))

    def _ids_of(self, tree: Tree) -> Callable[[str], Uuid]:
        """Return the function that assigns ids to topics without id in the tree; brokers identify their data by id."""
        known = {**self._ids, **{name: each.topic_id for name, each in self._publisher.image.topics.items()}}

        def id_of(topic: str) -> Uuid:
            if topic in known:
                return known[topic]
            if paths.partitions(topic) in tree:
                raise ProtocolError(
                    f"topic {topic} is in ZooKeeper without the id by which brokers know its data: delete "
                    f"{paths.CONTROLLER} there, so that a broker becomes controller and assigns the id"
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
                self._session.get(names[len(found)], self._generation.during(read))
            else:
                self._take_over(*found)

        self._session.get(names[0], self._generation.during(read))

    def _take_over(self, claim: Znode | None, epoch: Znode | None, migration: Znode | None) -> None:
        if epoch is None:
            self._session.multi([FIRST_EPOCH], self._generation.during(lambda _paths, error: self._again(error)))
            return
        try:
            zk_migration_complete = self._publisher.image.zk_migration_state is ZkMigrationState.MIGRATION
            if zk_migration_complete and (migration is None or not _is_of_quorum(claim)):
                self._wait(
                    f"{paths.CONTROLLER} or {paths.MIGRATION} in ZooKeeper no longer belongs to this quorum: the "
                    "cluster is being rolled back to ZooKeeper, so stop the controllers"
                )
                return
            made = take_over(self._leader, self._runtime.clock.time_ms(), claim, epoch, migration)
        except ProtocolError as error:
            self._again(error)
            return
        if made is None:
            self._again(KafkaError(ErrorCode.NOT_CONTROLLER, "a newer quorum controller owns the claim"))
            return
        operations, takeover = made

        def claimed(_paths: list[str] | None, error: ZooKeeperError | None) -> None:
            if error is not None:
                self._again(error)
            else:
                self._scan(partial(self._tree_read, takeover), claimed=True)

        self._session.multi(operations, self._generation.during(claimed))

    def _tree_read(self, takeover: QuorumTakeover, tree: Tree, found: TreeSnapshot) -> None:
        repairs = found.cluster.repairs
        removed = {each.path for group in repairs for each in group if isinstance(each, Delete)}
        known = set(tree) - removed
        self._writer = DualWriter(
            self._session,
            takeover,
            TreeWriter(known, self._leader.leader_id, takeover.term.controller_epoch, leaps=True),
            found.image,
            self._generation.during(self._again),
            self._generation.during(self._refused),
        )
        self._writer.repair(repairs, self._generation.during(partial(self._take_up, found)))

    # -- the copy --------------------------------------------------------------------------------------------------

    def _take_up(self, found: TreeSnapshot) -> None:
        """The tree is owned by this node, and complete."""
        if self._publisher.image.zk_migration_state is ZkMigrationState.MIGRATION:
            self._follow()
            return
        self._log_change("Starting ZK migration: the tree is copied into the metadata log")
        self._decide(lambda image, _context: without_others(image, found.image), partial(self._copy, found, 0))

    def _decide(
        self,
        operation: ControllerOperation[None],
        then: Callable[[], Any],
        too_large: Callable[[], Any] | None = None,
    ) -> None:
        """Submit an operation; `too_large` is called when its records don't fit into one batch."""

        def decided(_response: None, error: BaseException | None) -> None:
            full = isinstance(error, KafkaError) and error.code is ErrorCode.RECORD_LIST_TOO_LARGE
            if full and too_large is not None:
                too_large()
            elif error is not None:
                self._again(error)
            else:
                then()

        self._controller.submit(operation, self._generation.during(decided))

    def _copy(self, found: TreeSnapshot, position: int, count: int = COPIED_AT_ONCE) -> None:
        """Copy from that record on, yielding to the loop between batches; halves the batch if it is too large."""
        part = found.copied[position : position + count]
        if part:

            def later(position: int, count: int) -> Callable[[], Any]:
                step = self._generation.during(partial(self._copy, found, position, count))
                return lambda: self._runtime.scheduler.call_soon(step)

            halved = later(position, len(part) // 2) if len(part) > 1 else None
            self._decide(
                lambda image, _context: copied(image, part), later(position + len(part), COPIED_AT_ONCE), halved
            )
            return
        newcomers = found.cluster.newcomers
        self._decide(lambda image, context: copy_completed(image, context, newcomers), self._completed)

    def _completed(self) -> None:
        self._follow()
        self._controller.brokers_changed()  # leaderless partitions may get a leader

    # -- writing to both -----------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        image = self._publisher.image
        if image.zk_migration_state is not ZkMigrationState.MIGRATION:
            raise InvariantError("the tree can't follow an image before the copy is complete")
        if self._writer is not None:
            self._log_change("Completed migration of metadata from ZooKeeper to KRaft; changes are written to both")
            self._following = True
            self._writer.follow(image)

    def _published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        if self._writer is not None and self._following:
            self._writer.follow(image, changes)

    def _refused(self, error: KafkaError) -> None:
        """The tree stays unchanged and claimed by this node; the quorum continues."""
        logger.error(
            "ZooKeeper can't represent committed metadata; its tree stays behind until that is reverted: %s",
            error.message,
        )
        self._runtime.scheduler.call_later(REFUSED_S, self._generation.during(self._follow))


def _is_of_quorum(claim: Znode | None) -> bool:
    """Return whether a quorum owns `/controller`, in any epoch. Raises ProtocolError."""
    return claim is not None and decode_controller(paths.CONTROLLER, claim.data).kraft_controller_epoch > NONE
