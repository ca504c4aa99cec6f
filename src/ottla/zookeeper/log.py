"""One node's part in the metadata of a cluster that ZooKeeper keeps: claims, and the writes of whoever is controller.

Implements `ottla.metadata.log.MetadataLog`, so the controller above decides as it does on a quorum. There is no common
log: the tree is the truth. A reign begins with the claim of `/controller`, which raises `/controller_epoch`; then the
whole tree is read, what others left undone is completed, and the image is published. What the controller decides is
replayed on the image and written as multi() calls, one after the other, each of which checks the version of the epoch.
What was written is served to the others (`service`), as the log of the reign; while another has the claim this node
follows that one's (`follower`), and tries for the claim itself when it goes.

Invariants:
- Nothing is published, served or answered before its last call is known to have happened.
- After a call that failed, or whose outcome is not known, this node knows nothing: its reign ends, and another begins
  with a higher epoch and a tree that it reads after its claim. So it does when the connection was lost, though its
  claim may still be there.
- Offsets of images are numbers of the reign and within it (`first_offset`): they rise from one controller to the next.

What is decided on sees what was decided before, written or not.
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
from ottla.metadata.delta import MetadataChanges, MetadataDelta
from ottla.metadata.difference import changes_since
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, metadata_level
from ottla.metadata.log import NO_NODE, LeaderAndEpoch, LeadershipListener, SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion, at_level, versioned
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
"""Between attempts of a node that could not become the controller, or can't read the tree."""

_OUTRUN = frozenset({Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE})
"""How a claim fails where another was faster."""


def first_offset(controller_epoch: int) -> int:
    """That of the image with which a reign begins; the next records follow it."""
    return controller_epoch << 32


def epoch_of(offset: int) -> int:
    """The controller's epoch that `first_offset` has made an offset of, or of one that follows it."""
    return offset >> 32


class _Entry(NamedTuple):
    """What waits: calls, then an image, which is the one before with the records, then an answer."""

    calls: deque[list[Operation]]
    records: Sequence[ApiMessageAndVersion]
    published: tuple[MetadataImage, MetadataChanges] | None
    done: SubmitDone


class ZooKeeperLog:
    """All methods belong to the loop. Implements `MetadataLog` for the node, and `SessionListener` for the session."""

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
        "_machine",
        "_on_failure",
        "_peers",
        "_publisher",
        "_pumping",
        "_reign",
        "_reign_log",
        "_rng",
        "_round",
        "_scheduler",
        "_sending",
        "_session",
        "_session_id",
        "_stopped",
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
        machine: NodeRuntime,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`session` is not started yet. `on_failure` is told when this node can take no more part.

        Another controller is reached by `peers`, at its listener of `listener_name`; without them none is followed.
        """
        self._on_failure = on_failure
        self._session = session
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._peers = peers
        self._publisher = publisher
        self._machine = machine
        self._clock = machine.clock
        self._rng = machine.rng
        self._scheduler = machine.scheduler
        self._endpoint: Endpoint | None = None
        self._session_id = 0
        self._round = Generation()
        """Renewed by whatever makes older answers meaningless."""
        self._reign = ControllerTerm(0, 0)
        self._active = False
        self._reign_log: ControllerTermLog | None = None
        """What others follow; there while this node is active."""
        self._follower: TermLogFollower | None = None
        """There while another has the claim."""
        self._latest = EMPTY_IMAGE
        self._writer = TreeWriter((), broker_id, 0)
        self._entries: deque[_Entry] = deque()
        self._sending = False
        self._pumping = False
        self._stopped = False
        self._listeners: list[LeadershipListener] = []
        self._known = (LeaderAndEpoch(NO_NODE, 0), False)
        self.newcomers: Sequence[RegisterBrokerRecord] = ()
        """Who was registered when this reign read the tree, taken in by no controller: the first image is without."""
        self.service = TermLogServer(cluster_id, lambda: self.leader, machine.scheduler)
        """What others ask of this node while it is active."""
        self.claimed_by_quorum: Callable[[int | None], None] = lambda _epoch: None
        """Told the controller's epoch where a quorum has the claim (KIP-866), None where a broker has it, or nobody."""

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> MetadataImage:
        """See `MetadataLog`; what is published while this node is not active."""
        return self._latest if self._active else self._publisher.image

    @property
    def bootstrap(self) -> Sequence[ApiMessageAndVersion]:
        """Without eligible leader replicas (KIP-966), for which znodes have no field."""
        levels = {name: NEW_CLUSTER_LEVELS[name] for name in (METADATA_VERSION, *NEW_CLUSTER_LEVELS)}
        del levels[ELIGIBLE_LEADER_REPLICAS_VERSION]
        return [versioned(FeatureLevelRecord(name=name, feature_level=level)) for name, level in levels.items()]

    @property
    def kraft_version(self) -> int:
        """0: there are no voters."""
        return 0

    @property
    def brokers_have_sessions(self) -> bool:
        """True: a broker lives as long as its znode."""
        return True

    def check_voters(self) -> None:
        """Raises KafkaError INVALID_UPDATE_VERSION: there are none."""
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "A cluster that ZooKeeper coordinates has no voters.")

    def name_voters(self) -> None:
        """As `check_voters`."""
        self.check_voters()

    @property
    def next_offset(self) -> int:
        """See `MetadataLog`; epochs of brokers are not taken from it, but from their znodes."""
        return self._latest.offset + 1

    @property
    def session_id(self) -> int:
        """Of the session that is connected; 0 while none is."""
        return self._session_id

    @property
    def leader(self) -> LeaderAndEpoch:
        """Who has `/controller`, as last read."""
        return self._known[0]

    def leader_endpoint(self) -> Endpoint | None:
        """This node's while it is active; another's is in its registration, and None before that was read."""
        if self._active:
            return self._endpoint
        return None if self._follower is None else self._follower.endpoint

    @property
    def trouble(self) -> str:
        """Why this node has none of the controller's metadata, as far as it was told; else ""."""
        return "" if self._follower is None else self._follower.trouble

    @property
    def epoch_version(self) -> int:
        """Of `/controller_epoch`: what every write of this reign checks."""
        return self._reign.epoch_version

    @property
    def settled(self) -> bool:
        """Whether all that this controller wrote is in the tree, and answered."""
        return not self._entries

    # -- start and end ---------------------------------------------------------------------------------------------

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Connect; nothing is stored here, and nothing blocks."""
        self._endpoint = endpoints[0] if endpoints else None
        self._session.start(self)
        return True

    def listen(self, listener: LeadershipListener) -> None:
        """See `MetadataLog`."""
        self._listeners.append(listener)
        if self._known[0].leader_id != NO_NODE:
            listener.on_leader_change(*self._known)

    def stop(self, done: SubmitDone) -> None:
        """End the session: claim and registration go at once."""
        self._stopped = True
        self._cease()
        self._session.close(lambda: done(None))

    def close(self) -> None:
        """Nothing is stored here."""

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
        """See `SessionListener`; whose claims are gone knows it by what is read next."""

    # -- the claim -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """See who is the controller, and become it where nobody is."""
        self._round.renew()
        if not self._stopped and self._session_id:
            self._session.get(paths.CONTROLLER, self._round.during(self._claim_seen), self._round.during(self._look))

    def _claim_seen(self, claim: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self.begin_anew(error)
            return

        def first_made(_paths: list[str] | None, error: ZooKeeperError | None) -> None:
            if error is None or error.code is Code.NODE_EXISTS:
                self._look()
            else:
                self.begin_anew(error)

        def epoch_seen(epoch: Znode | None, error: ZooKeeperError | None) -> None:
            if error is not None:
                self.begin_anew(error)
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
                operations, reign = claim_controller(self._broker_id, now_ms, epoch)
            elif standing(claim, self._session_id) is ZnodeOwnership.MINE:
                operations, reign = claim_again(self._broker_id, now_ms, claim, epoch)
            else:
                broker_id = decode_controller(paths.CONTROLLER, claim.data).broker_id
                controller_epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch.data)
                self._follow(LeaderAndEpoch(broker_id, controller_epoch))
                return
        except ProtocolError as error:
            self.begin_anew(error)
            return
        self._unfollow()
        self._round.renew()  # the watch tells of the claim itself too
        self._session.multi(operations, self._round.during(lambda _paths, error: self._claimed(reign, error)))

    def _claimed(self, reign: ControllerTerm, error: ZooKeeperError | None) -> None:
        if error is not None:
            if error.code in _OUTRUN:
                self._look()
            else:
                self.begin_anew(error)
            return
        self._reign = reign
        self._session.get(paths.CONTROLLER, self._round.during(self._claim_kept), self._round.during(self._lost))
        TreeScan(self._session, self._round.during(self._tree_read))

    def _claim_kept(self, claim: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self.begin_anew(error)
        elif standing(claim, self._session_id) is not ZnodeOwnership.MINE:
            self._lost()

    def _lost(self) -> None:
        """Somebody has removed the claim, or changed it."""
        self._cease()
        self._look()

    # -- another's reign -------------------------------------------------------------------------------------------

    def _follow(self, leader: LeaderAndEpoch) -> None:
        """Another session has the claim, and this node has the watch on it."""
        if self._follower is not None and self._follower.leader != leader:
            self._unfollow()
        if self._follower is None and self._peers is not None and leader.leader_id != self._broker_id:
            self._follower = TermLogFollower(
                self._broker_id,
                leader,
                cluster_id=self._cluster_id,
                peers=self._peers,
                publisher=self._publisher,
                machine=self._machine,
                on_failure=self._end_for_good,
            )
        self._tell(leader, active=False)
        self._find_controller()

    def _find_controller(self) -> None:
        follower = self._follower
        if follower is None:
            return
        path = paths.broker(follower.leader.leader_id)

        def seen(node: Znode | None, error: ZooKeeperError | None) -> None:
            if error is not None:
                self.begin_anew(error)
            else:
                follower.found(None if node is None else self._endpoint_in(path, node.data))

        self._session.get(path, self._round.during(seen), self._round.during(self._find_controller))

    def _endpoint_in(self, path: str, data: bytes) -> Endpoint | None:
        try:
            endpoints = decode_broker(path, data).endpoints
        except ProtocolError as error:
            logger.error("the controller can't be followed: %s", error)
            return None
        found = next((each for each in endpoints if each.listener_name == self._listener_name), None)
        if found is None:
            logger.error("the controller can't be followed: %s has no listener %s", path, self._listener_name)
        return found

    def _unfollow(self) -> None:
        """Nobody has the claim, as far as this node knows."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.stop()
        self._tell(LeaderAndEpoch(NO_NODE, self._known[0].epoch), active=False)

    # -- the beginning of a reign ----------------------------------------------------------------------------------

    def _tree_read(self, tree: Tree | None, error: Exception | None) -> None:
        if tree is None:
            self.begin_anew(error)
            return
        try:
            cluster = read_cluster(tree, self._id_of)
            delta = MetadataDelta(EMPTY_IMAGE)
            for record in cluster.known:
                delta.replay(record.message)
        except (ProtocolError, InvariantError) as failure:
            self.begin_anew(failure)
            return
        controller_epoch = self._reign.controller_epoch
        image, _ = delta.apply(first_offset(controller_epoch), controller_epoch)
        known = set(tree)
        repairs = [*_missing(known), *cluster.repairs]
        known -= {operation.path for group in repairs for operation in group if isinstance(operation, Delete)}
        self._latest = image
        self.newcomers = [record for _, record in sorted(cluster.newcomers.items())]
        self._writer = TreeWriter(known, self._broker_id, controller_epoch)
        self._enqueue(repairs, (image, changes_since(self._publisher.image, image)), self._begun)

    def _id_of(self, topic: str) -> Uuid:
        """Old tools write topics without their ids; this node may have followed the controller before."""
        known = self._publisher.image.topics.get(topic)
        return new_uuid(self._rng.random_bytes(16)) if known is None else known.topic_id

    def _begun(self, error: BaseException | None) -> None:
        if error is None:
            self._active = True
            epoch = self._reign.controller_epoch
            logger.info("broker %d is the controller in epoch %d", self._broker_id, epoch)
            self._reign_log = ControllerTermLog(self._latest, self._clock, self._scheduler)
            self.service.begin(self._reign_log)
            self._tell(LeaderAndEpoch(self._broker_id, self._reign.controller_epoch), active=True)

    # -- writes ----------------------------------------------------------------------------------------------------

    def submit(self, records: Sequence[ApiMessageAndVersion], done: SubmitDone) -> None:
        """See `MetadataLog`. Errors are also INVALID_REQUEST and POLICY_VIOLATION for what ZooKeeper can't hold, and
        INVALID_UPDATE_VERSION for eligible leader replicas."""
        if not self._active:
            done(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the active controller."))
            return
        if not records:
            self._enqueue((), None, done)
            return
        records = list(at_level(records, metadata_level(self._latest)))
        delta = MetadataDelta(self._latest)
        for record in records:
            delta.replay(record.message)
        image, changes = delta.apply(self._latest.offset + len(records), self._reign.controller_epoch)
        try:
            if image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
                text = "Eligible leader replicas can't be kept in ZooKeeper."
                raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)
            groups = self._writer.groups(self._latest, image, changes)
        except KafkaError as error:
            done(error)
            return
        self._latest = image
        self._enqueue(groups, (image, changes), done, records)

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """Raises InvariantError: that is how a node begins that is a cluster by itself."""
        raise InvariantError("a node on ZooKeeper is no cluster by itself")

    def write(self, groups: Iterable[Group], done: SubmitDone) -> None:
        """Write what is no metadata, in the order of submissions: wishes and notices that are done with."""
        if self._active:
            self._enqueue(groups, None, done)
        else:
            done(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the active controller."))

    def learn(self, path: str) -> None:
        """Another has made a znode that the controller may want to make, or remove."""
        self._writer.learn(path)

    def _enqueue(
        self,
        groups: Iterable[Group],
        published: tuple[MetadataImage, MetadataChanges] | None,
        done: SubmitDone,
        records: Sequence[ApiMessageAndVersion] = (),
    ) -> None:
        self._entries.append(_Entry(deque(batches(groups, self._reign.epoch_version)), records, published, done))
        self._pump()

    def _pump(self) -> None:
        """Send the next call, or answer; in order also when an answer submits again."""
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
                self._entries.popleft()
                if entry.published is not None:
                    self._publish(*entry.published)
                    if self._reign_log is not None:  # it begins with the first image
                        self._reign_log.append(entry.records, entry.published[0])
                        self.service.grown()
                entry.done(None)
        finally:
            self._pumping = False

    def _publish(self, image: MetadataImage, changes: MetadataChanges) -> None:
        try:
            self._publisher.publish(image, changes)
        except Exception as error:
            # Some parts of the broker follow this image and some don't: no further change may build on it.
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
            self.begin_anew(error)

    # -- the end of a reign ----------------------------------------------------------------------------------------

    def begin_anew(self, error: Exception | None) -> None:
        """End this reign, if there is one: nobody knows how the tree is now, or it can't be read."""
        lost = isinstance(error, ZooKeeperError) and error.code in (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED)
        if not lost:
            logger.error("the cluster's metadata in ZooKeeper is read again: %s", error)
        self._cease()
        self._scheduler.call_later(RETRY_S, self._round.during(self._look))

    def _end_for_good(self, error: BaseException) -> None:
        self._stopped = True
        self._cease()
        self._on_failure(error)

    def _cease(self) -> None:
        """Whatever is under way is nobody's business any more; nobody knows what becomes of it."""
        self._round.renew()
        self._sending = False
        waiting, self._entries = self._entries, deque()
        self._active = False
        self._reign_log = None
        self._unfollow()
        self.service.end()
        for entry in waiting:
            entry.done(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the active controller any more."))

    def _tell(self, leader: LeaderAndEpoch, *, active: bool) -> None:
        known = (leader, active)
        if known != self._known:
            self._known = known
            for listener in list(self._listeners):
                listener.on_leader_change(leader, active)


def _missing(known: set[str]) -> Iterable[Group]:
    """The folders of a new cluster, as far as they are not there; `known` has them then."""
    for path in paths.PERSISTENT_PATHS:
        for each in (*paths.parents(path), path):
            if each not in known:
                known.add(each)
                yield [Create(each, b"")]
