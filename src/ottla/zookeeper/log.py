"""Metadata log of one node of a cluster that ZooKeeper coordinates: controller election, and the controller's writes.

Implements `ottla.metadata.log.MetadataLog`, so the controller above works as on a quorum. The tree is the truth,
without a shared log. A controller term begins with the claim of `/controller`, which raises `/controller_epoch`. Then
the controller reads the whole tree, completes unfinished changes, and publishes the image. Decisions of the controller
are replayed on the image and written as multi() calls, one after the other, each of which checks the version of the
epoch. Written records are served to the other brokers (`term_server`) as the log of the term. While another broker has
the claim, this node follows that one's log (`term_follower`), and claims `/controller` when the claim is removed.

Invariants:
- Nothing is published, served or answered before its last call is known to be applied.
- After a call that failed or has an unknown outcome, the state of this node is invalid: its term ends, and another
  begins with a higher epoch and a tree read after its claim. The same applies to a lost connection, even if the claim
  still exists.
- Image offsets combine the term and a number within it (`first_offset`): they increase from one controller to the next.

Each decision is based on all earlier ones, written or not.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.common.config.feature_levels import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, NEW_CLUSTER_LEVELS
from ottla.common.errors import ErrorCode, InvariantError, KafkaError, ProtocolError
from ottla.common.kafka.ids import Uuid, new_uuid
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.generation import Generation
from ottla.common.platform.peer import PeerNetwork
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.bounds import check_batch_bytes
from ottla.metadata.delta import MetadataChanges, MetadataDelta
from ottla.metadata.difference import changes_since
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.log import NO_NODE, LeaderAndEpoch, LeadershipListener, Submission, SubmitDone, prepare_all
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_broker, decode_controller, decode_controller_epoch
from ottla.protocol.znodes.fields import NONE
from ottla.protocol.znodes.operations import Create, Delete, Operation, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError, ZooKeeperSession
from ottla.zookeeper.batches import Group, batches
from ottla.zookeeper.controller_election import (
    FIRST_EPOCH,
    ControllerTerm,
    ZnodeOwnership,
    claim_again,
    claim_controller,
    standing,
)
from ottla.zookeeper.reading import Tree, read_cluster
from ottla.zookeeper.scan import TreeScan
from ottla.zookeeper.term_follower import TermLogFollower
from ottla.zookeeper.term_log import ControllerTermLog
from ottla.zookeeper.term_server import TermLogServer
from ottla.zookeeper.writing import TreeWriter

logger = logging.getLogger(__name__)


RETRY_S = 1.0
"""Delay between attempts, in seconds, of a node that could not become the controller or read the tree."""

_OUTRUN = frozenset({Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE})
"""Errors of a claim when another broker was faster."""


def first_offset(controller_epoch: int) -> int:
    """Offset of the first image of a term; the next records follow it."""
    return controller_epoch << 32


def epoch_of(offset: int) -> int:
    """The controller epoch of an offset of `first_offset`, or of one that follows it."""
    return offset >> 32


class _Entry(NamedTuple):
    """A queue entry: calls, then an image (the previous one with the new records), then a callback."""

    calls: deque[list[Operation]]
    values: Sequence[bytes]
    """The new records, encoded."""
    published: tuple[MetadataImage, MetadataChanges] | None
    done: SubmitDone


class ZooKeeperLog:
    """Metadata log on ZooKeeper; all methods run on the loop. Implements `MetadataLog` and `SessionListener`."""

    __slots__ = (
        "_active",
        "_broker_id",
        "_clock",
        "_cluster_id",
        "_endpoint",
        "_entries",
        "_follower",
        "_known",
        "_latest",
        "_listener_name",
        "_listeners",
        "_on_failure",
        "_peers",
        "_publisher",
        "_pumping",
        "_rng",
        "_round",
        "_runtime",
        "_scheduler",
        "_sending",
        "_session",
        "_session_id",
        "_stopped",
        "_term",
        "_term_log",
        "_writer",
        "claimed_by_quorum",
        "newcomers",
        "service",
    )

    def __init__(
        self,
        *,
        session: ZooKeeperSession,
        broker_id: int,
        cluster_id: str,
        listener_name: str,
        peers: PeerNetwork | None,
        publisher: MetadataPublisher,
        runtime: NodeRuntime,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`session` is not started yet. `on_failure` is called when this node has to stop.

        Other controllers are reached by `peers`, at their listener `listener_name`; without `peers` none is followed.
        """
        self._on_failure = on_failure
        self._session = session
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._peers = peers
        self._publisher = publisher
        self._runtime = runtime
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._scheduler = runtime.scheduler
        self._endpoint: Endpoint | None = None
        self._session_id = 0
        self._round = Generation()
        """Replaced by every event after which older responses are invalid."""
        self._term = ControllerTerm(0, 0)
        self._active = False
        self._term_log: ControllerTermLog | None = None
        """The log for followers; exists while this node is active."""
        self._follower: TermLogFollower | None = None
        """Exists while another broker has the claim."""
        self._latest = EMPTY_IMAGE
        self._writer = TreeWriter((), broker_id, 0)
        self._entries: deque[_Entry] = deque()
        self._sending = False
        self._pumping = False
        self._stopped = False
        self._listeners: list[LeadershipListener] = []
        self._known = (LeaderAndEpoch(NO_NODE, 0), False)
        self.newcomers: Sequence[RegisterBrokerRecord] = ()
        """Brokers that were registered when this term read the tree, but that no controller has accepted: the first
        image lacks them.
        """
        self.service = TermLogServer(cluster_id, lambda: self.leader, runtime.scheduler)
        """Requests of other brokers while this node is active."""
        self.claimed_by_quorum: Callable[[int | None], None] = lambda _epoch: None
        """Called with the controller epoch if a quorum has the claim (KIP-866), with None if a broker or none has it.
        """

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> MetadataImage:
        """See `MetadataLog`; the published image while this node is not active."""
        return self._latest if self._active else self._publisher.image

    @property
    def bootstrap(self) -> Sequence[ApiMessageAndVersion]:
        """Without eligible leader replicas (KIP-966), which znodes have no field for."""
        levels = {name: NEW_CLUSTER_LEVELS[name] for name in (METADATA_VERSION, *NEW_CLUSTER_LEVELS)}
        del levels[ELIGIBLE_LEADER_REPLICAS_VERSION]
        return [versioned(FeatureLevelRecord(name=name, feature_level=level)) for name, level in levels.items()]

    @property
    def kraft_version(self) -> int:
        """0: ZooKeeper clusters have no voters."""
        return 0

    @property
    def brokers_have_sessions(self) -> bool:
        """True: a broker is alive as long as its znode exists."""
        return True

    def check_voters(self) -> None:
        """Raises KafkaError INVALID_UPDATE_VERSION: ZooKeeper clusters have no voters."""
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "A cluster that ZooKeeper coordinates has no voters.")

    def name_voters(self) -> None:
        """As `check_voters`."""
        self.check_voters()

    @property
    def next_offset(self) -> int:
        """See `MetadataLog`; broker epochs come from their znodes, not from this offset."""
        return self._latest.offset + 1

    @property
    def session_id(self) -> int:
        """Id of the connected session; 0 if not connected."""
        return self._session_id

    @property
    def leader(self) -> LeaderAndEpoch:
        """The owner of `/controller`, as last read."""
        return self._known[0]

    def leader_endpoint(self) -> Endpoint | None:
        """The endpoint of this node while it is active, or of the other controller's registration; None before that was
        read.
        """
        if self._active:
            return self._endpoint
        return None if self._follower is None else self._follower.endpoint

    @property
    def trouble(self) -> str:
        """Why this node has no metadata from the controller, as far as known; else ""."""
        return "" if self._follower is None else self._follower.trouble

    @property
    def epoch_version(self) -> int:
        """Version of `/controller_epoch`, which every write of this term checks."""
        return self._term.epoch_version

    @property
    def settled(self) -> bool:
        """Whether all writes of this controller are in the tree, and answered."""
        return not self._entries

    # -- start and end ---------------------------------------------------------------------------------------------

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Connect; does not block, since nothing is stored here."""
        self._endpoint = endpoints[0] if endpoints else None
        self._session.start(self)
        return True

    def listen(self, listener: LeadershipListener) -> None:
        """See `MetadataLog`."""
        self._listeners.append(listener)
        if self._known[0].leader_id != NO_NODE:
            listener.on_leader_change(*self._known)

    def stop(self, done: SubmitDone) -> None:
        """End the session: claim and registration are removed at once."""
        self._stopped = True
        self._cease()
        self._session.close(lambda: done(None))

    def close(self) -> None:
        """Does nothing: no data is stored here."""

    # -- the session -----------------------------------------------------------------------------------------------

    def on_connected(self, session: int) -> None:
        """See `SessionListener`."""
        self._session_id = session
        self._cease()
        self._look()

    def on_disconnected(self) -> None:
        """See `SessionListener`."""
        self._session_id = 0
        self._cease()

    def on_expired(self) -> None:
        """See `SessionListener`; the next read shows the lost claims."""

    # -- the claim -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the controller, and claim `/controller` if it does not exist."""
        self._round.renew()
        if not self._stopped and self._session_id:
            self._session.get(paths.CONTROLLER, self._round.during(self._claim_seen), self._round.during(self._look))

    def _claim_seen(self, claim: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self.restart_term(error)
            return

        def first_made(_paths: list[str] | None, error: ZooKeeperError | None) -> None:
            if error is None or error.code is Code.NODE_EXISTS:
                self._look()
            else:
                self.restart_term(error)

        def epoch_seen(epoch: Znode | None, error: ZooKeeperError | None) -> None:
            if error is not None:
                self.restart_term(error)
            elif epoch is None:
                self._session.multi([FIRST_EPOCH], self._round.during(first_made))
            else:
                self._stand(claim, epoch)

        self._session.get(paths.CONTROLLER_EPOCH, self._round.during(epoch_seen))

    def _stand(self, claim: Znode | None, epoch: Znode) -> None:
        now_ms = self._clock.time_ms()
        try:
            if claim is not None and decode_controller(paths.CONTROLLER, claim.data).kraft_controller_epoch > NONE:
                self._unfollow()
                self.claimed_by_quorum(decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch.data))
                return
            self.claimed_by_quorum(None)
            if claim is None:
                operations, term = claim_controller(self._broker_id, now_ms, epoch)
            elif standing(claim, self._session_id) is ZnodeOwnership.MINE:
                operations, term = claim_again(self._broker_id, now_ms, claim, epoch)
            else:
                broker_id = decode_controller(paths.CONTROLLER, claim.data).broker_id
                controller_epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch.data)
                self._follow(LeaderAndEpoch(broker_id, controller_epoch))
                return
        except ProtocolError as error:
            self.restart_term(error)
            return
        self._unfollow()
        self._round.renew()  # the watch reports the claim itself too
        self._session.multi(operations, self._round.during(lambda _paths, error: self._claimed(term, error)))

    def _claimed(self, term: ControllerTerm, error: ZooKeeperError | None) -> None:
        if error is not None:
            if error.code in _OUTRUN:
                self._look()
            else:
                self.restart_term(error)
            return
        self._term = term
        self._session.get(paths.CONTROLLER, self._round.during(self._claim_kept), self._round.during(self._lost))
        TreeScan(self._session, self._round.during(self._tree_read))

    def _claim_kept(self, claim: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self.restart_term(error)
        elif standing(claim, self._session_id) is not ZnodeOwnership.MINE:
            self._lost()

    def _lost(self) -> None:
        """The claim was removed or changed."""
        self._cease()
        self._look()

    # -- following another controller ------------------------------------------------------------------------------

    def _follow(self, leader: LeaderAndEpoch) -> None:
        """Follow the session that has the claim, with a watch on the claim."""
        if self._follower is not None and self._follower.leader != leader:
            self._unfollow()
        if self._follower is None and self._peers is not None and leader.leader_id != self._broker_id:
            self._follower = TermLogFollower(
                self._broker_id,
                leader,
                cluster_id=self._cluster_id,
                peers=self._peers,
                publisher=self._publisher,
                runtime=self._runtime,
                on_failure=self._end_for_good,
            )
        self._notify(leader, active=False)
        self._find_controller()

    def _find_controller(self) -> None:
        follower = self._follower
        if follower is None:
            return
        path = paths.broker(follower.leader.leader_id)

        def seen(node: Znode | None, error: ZooKeeperError | None) -> None:
            if error is not None:
                self.restart_term(error)
            else:
                follower.found(None if node is None else self._endpoint_in(path, node.data))

        self._session.get(path, self._round.during(seen), self._round.during(self._find_controller))

    def _endpoint_in(self, path: str, data: bytes) -> Endpoint | None:
        try:
            endpoints = decode_broker(path, data).endpoints
        except ProtocolError as error:
            logger.error("can't follow the controller: %s", error)
            return None
        found = next((each for each in endpoints if each.listener_name == self._listener_name), None)
        if found is None:
            logger.error("can't follow the controller: %s has no listener %s", path, self._listener_name)
        return found

    def _unfollow(self) -> None:
        """Stop following: no broker has the claim, as far as this node knows."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.stop()
        self._notify(LeaderAndEpoch(NO_NODE, self._known[0].epoch), active=False)

    # -- start of a term -------------------------------------------------------------------------------------------

    def _tree_read(self, tree: Tree | None, error: Exception | None) -> None:
        if tree is None:
            self.restart_term(error)
            return
        try:
            cluster = read_cluster(tree, self._id_of)
            delta = MetadataDelta(EMPTY_IMAGE)
            for record in cluster.known:
                delta.replay(record.message)
        except (ProtocolError, InvariantError) as failure:
            self.restart_term(failure)
            return
        controller_epoch = self._term.controller_epoch
        image, _ = delta.apply(first_offset(controller_epoch), controller_epoch)
        known = set(tree)
        repairs = [*_missing(known), *cluster.repairs]
        known -= {operation.path for group in repairs for operation in group if isinstance(operation, Delete)}
        self._latest = image
        self.newcomers = [record for _, record in sorted(cluster.newcomers.items())]
        self._writer = TreeWriter(known, self._broker_id, controller_epoch)
        self._enqueue(repairs, (image, changes_since(self._publisher.image, image)), self._begun)

    def _id_of(self, topic: str) -> Uuid:
        """Old tools write topics without ids; this node may know the id from an earlier controller."""
        known = self._publisher.image.topics.get(topic)
        return new_uuid(self._rng.random_bytes(16)) if known is None else known.topic_id

    def _begun(self, error: BaseException | None) -> None:
        if error is None:
            self._active = True
            epoch = self._term.controller_epoch
            logger.info("broker %d is the controller in epoch %d", self._broker_id, epoch)
            self._term_log = ControllerTermLog(self._latest, self._clock, self._scheduler)
            self.service.begin(self._term_log)
            self._notify(LeaderAndEpoch(self._broker_id, self._term.controller_epoch), active=True)

    # -- writes ----------------------------------------------------------------------------------------------------

    def submit(self, records: Submission, done: SubmitDone) -> None:
        """See `MetadataLog`. Additional errors: INVALID_REQUEST and POLICY_VIOLATION for records that ZooKeeper can't
        store or followers can't fetch, RECORD_LIST_TOO_LARGE for more of them than a batch may have, and
        INVALID_UPDATE_VERSION for eligible leader replicas.
        """
        if not self._active:
            done(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the active controller."))
            return
        if not records:
            self._enqueue((), None, done)
            return
        try:
            prepared = prepare_all(self._latest, records)
            values = prepared.values
            check_batch_bytes(values)
            image, changes = prepared.delta.apply(self._latest.offset + len(values), self._term.controller_epoch)
            if image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
                text = "Eligible leader replicas can't be stored in ZooKeeper."
                raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)
            groups = self._writer.groups(self._latest, image, changes)
        except KafkaError as error:
            done(error)
            return
        self._latest = image
        self._enqueue(groups, (image, changes), done, values)

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """Raises InvariantError: only a single node of its own cluster starts this way."""
        raise InvariantError("a node on ZooKeeper does not start as a single-node cluster")

    def write(self, groups: Iterable[Group], done: SubmitDone) -> None:
        """Write operations that are not metadata, in the order of submissions: removal of processed requests and
        notices.
        """
        if self._active:
            self._enqueue(groups, None, done)
        else:
            done(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the active controller."))

    def learn(self, path: str) -> None:
        """Another process has created a znode that the controller may want to create or remove."""
        self._writer.learn(path)

    def _enqueue(
        self,
        groups: Iterable[Group],
        published: tuple[MetadataImage, MetadataChanges] | None,
        done: SubmitDone,
        values: Sequence[bytes] = (),
    ) -> None:
        self._entries.append(_Entry(deque(batches(groups, self._term.epoch_version)), values, published, done))
        self._pump()

    def _pump(self) -> None:
        """Send the next call, or call back; in order even if a callback submits again."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._entries and not self._sending:
                entry = self._entries[0]
                if entry.calls:
                    self._sending = True
                    self._session.multi(entry.calls[0], self._round.during(self._sent))
                    return
                if entry.published is not None:
                    # A listener that raises leaves the entry in place: its callback gets the error of the term's end.
                    self._publish(*entry.published)
                    if not self._entries or self._entries[0] is not entry:
                        continue  # a listener ended the term, which has answered the entry
                self._entries.popleft()
                if entry.published is not None and self._term_log is not None:  # the term begins with the first image
                    self._term_log.append(entry.values, entry.published[0])
                    self.service.grown()
                entry.done(None)
        finally:
            self._pumping = False

    def _publish(self, image: MetadataImage, changes: MetadataChanges) -> None:
        try:
            self._publisher.publish(image, changes)
        except Exception as error:
            # Only some components of the broker have applied this image: no further change may build on it.
            self._end_for_good(error)
            raise

    def _sent(self, _paths: list[str] | None, error: ZooKeeperError | None) -> None:
        if error is None:
            self._sending = False
            self._entries[0].calls.popleft()
            self._pump()
        elif error.code is Code.BAD_VERSION and error.position == 0:
            self._lost()
        else:
            self.restart_term(error)

    # -- end of a term ---------------------------------------------------------------------------------------------

    def restart_term(self, error: Exception | None) -> None:
        """End the current term, if any: the content of the tree is unknown or unreadable."""
        lost = isinstance(error, ZooKeeperError) and error.code in (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED)
        if not lost:
            logger.error("reading the cluster metadata in ZooKeeper again: %s", error)
        self._cease()
        self._scheduler.call_later(RETRY_S, self._round.during(self._look))

    def _end_for_good(self, error: BaseException) -> None:
        self._stopped = True
        self._cease()
        self._on_failure(error)

    def _cease(self) -> None:
        """Drop everything that is pending; its outcome is unknown."""
        self._round.renew()
        self._sending = False
        waiting, self._entries = self._entries, deque()
        self._active = False
        self._term_log = None
        self._unfollow()
        self.service.end()
        for entry in waiting:
            entry.done(KafkaError(ErrorCode.NOT_CONTROLLER, "This is no longer the active controller."))

    def _notify(self, leader: LeaderAndEpoch, *, active: bool) -> None:
        known = (leader, active)
        if known != self._known:
            self._known = known
            for listener in list(self._listeners):
                listener.on_leader_change(leader, active)


def _missing(known: set[str]) -> Iterable[Group]:
    """The folders of a new cluster that do not exist yet; adds them to `known`."""
    for path in paths.PERSISTENT_PATHS:
        for each in (*paths.parents(path), path):
            if each not in known:
                known.add(each)
                yield [Create(each, b"")]
