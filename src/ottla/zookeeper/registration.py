"""A broker's own ephemeral znode in `/brokers/ids`, created by its session and recreated when it is lost.

A broker registers without the controller. Before the controller accepts the registration
(`controller/znode_requests.py`), the broker's former partitions get other leaders, or a new leader epoch. If the id is
taken, the broker waits as long as the session of a killed process may last, and then gives up. The znode is recreated
if it is removed, by the end of the session or by a tool, or if the controller considers it that of a stopping broker. A
start that no controller accepts fails after a timeout.

Invariant: the broker epoch is the transaction that created the znode. It is reported once the published image contains
it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.common.errors import NotJoinedInTimeError, OperatorError
from ottla.common.platform.clock import Clock, Scheduler, TimerHandle
from ottla.common.platform.generation import Generation
from ottla.metadata.image import NO_LEADER, BrokerImage
from ottla.metadata.log import SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Delete, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError, ZooKeeperSession
from ottla.zookeeper.controller_election import ZnodeOwnership, check_broker_id, standing
from ottla.zookeeper.writing import registration

logger = logging.getLogger(__name__)


LATE_MS = 10_000
"""A server checks for expired sessions once per tick, so a session may last that much longer."""
RETRY_S = 1.0
"""Delay after an error that has no other handling, in seconds."""

_LOST = frozenset({Code.CONNECTION_LOSS, Code.SESSION_EXPIRED})
"""Errors that the next connection handles."""


class BrokerRegistration:
    """Registration of one broker; all methods run on the loop. Implements `SessionListener`."""

    __slots__ = (
        "_broker",
        "_broker_epoch_seen",
        "_clock",
        "_done",
        "_ended",
        "_first_owner",
        "_follows",
        "_late",
        "_on_failure",
        "_publisher",
        "_registers",
        "_round",
        "_scheduler",
        "_session",
        "_session_id",
        "_since_s",
        "_start_timeout_s",
        "_timeout_ms",
        "_timer",
        "_trouble",
        "broker_epoch",
    )

    def __init__(
        self,
        *,
        session: ZooKeeperSession,
        broker: BrokerImage,
        publisher: MetadataPublisher,
        clock: Clock,
        scheduler: Scheduler,
        session_timeout_ms: int,
        start_timeout_ms: int,
        trouble: Callable[[], str],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`broker` is the registration. The cluster has `start_timeout_ms` to accept it; `trouble` returns why it does
        not, as far as known. `on_failure` is called if the broker was accepted, and may no longer run.
        """
        self._session = session
        self._session_id = 0
        self._broker = broker
        self._publisher = publisher
        self._clock = clock
        self._scheduler = scheduler
        self._timeout_ms = session_timeout_ms + LATE_MS
        self._start_timeout_s = max(start_timeout_ms, self._timeout_ms + LATE_MS) / 1000
        self._trouble = trouble
        self._late: TimerHandle | None = None
        self._on_failure = on_failure
        self._done: SubmitDone | None = None
        self._round = Generation()
        self._follows = False
        self._registers = False
        self._broker_epoch_seen = -1
        self._first_owner: int | None = None
        self._since_s = 0.0
        self._timer: TimerHandle | None = None
        self._ended = False
        self.broker_epoch = -1
        """Epoch of the registration known to the cluster; -1 before the first."""

    # -- stages ----------------------------------------------------------------------------------------------------

    def follow(self, done: SubmitDone) -> None:
        """Call `done(None)` once the cluster's metadata is published here; errors as of `start`."""
        self._begin(done)
        self._follows = True
        self._look()
        self._publisher.register(lambda _image, _changes: self._image_published())

    def start(self, done: SubmitDone) -> None:
        """Register: `done(None)` once the published image contains this broker, and a leader for each partition that it
        may lead. OperatorError if another process keeps its id, or if the controller does not serve this one;
        NotJoinedInTimeError if no controller accepts it in time.
        """
        self._begin(done)
        self._follows = False
        self._registers = True
        self._look()

    def unawaited(self) -> None:
        """Drop the callback of `follow` or `start`: a controller outside the tree accepted the broker."""
        self._done = None
        self._cancel_late()

    def refuse(self, error: OperatorError) -> None:
        """The cluster rejects this broker."""
        self._cease()
        self._finish(error)

    def end(self) -> None:
        """Send nothing more; the znode is removed with the session."""
        self._ended = True
        self._done = None
        self._cancel_late()
        self._cease()

    def _begin(self, done: SubmitDone) -> None:
        self._cancel_late()
        self._done = done
        self._late = self._scheduler.call_later(self._start_timeout_s, self._is_late)

    def _is_late(self) -> None:
        """A broker that is already accepted keeps waiting: electing leaders of very many partitions takes time."""
        self._late = None
        if self.broker_epoch < 0:
            failed = f"broker {self._broker.broker_id} could not join the cluster"
            if trouble := self._trouble():
                reason = (
                    f"the controller does not serve it ({trouble}); grant this broker's principal CLUSTER_ACTION on "
                    "the cluster or add it to super.users, and check the network and inter.broker.listener.name"
                )
                self._finish(OperatorError(f"{failed}: {reason}"))
            else:
                reason = "no controller has accepted it; check the log of the broker that has /controller"
                self._finish(NotJoinedInTimeError(f"{failed}: {reason}"))

    def _cancel_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _finish(self, error: BaseException | None) -> None:
        self._cancel_late()
        done, self._done = self._done, None
        if done is not None:
            # Not within a listener call: the caller registers its own listeners.
            self._scheduler.call_soon(done, error)
        elif error is not None:
            self._on_failure(error)

    # -- the session -----------------------------------------------------------------------------------------------

    def on_connected(self, session: int) -> None:
        """See `SessionListener`."""
        self._session_id = session
        self._look()

    def on_disconnected(self) -> None:
        """See `SessionListener`."""
        self._session_id = 0
        self._cease()

    def on_expired(self) -> None:
        """See `SessionListener`; the next read shows that the znode is gone."""

    def _cease(self) -> None:
        self._round.renew()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- another process with the id -------------------------------------------------------------------------------

    def _wait_for_end(self, owner: int) -> None:
        """`owner` is another session that owns this id; wait as long as it stays the same."""
        now_s = self._clock.monotonic()
        if self._first_owner is None:
            self._first_owner, self._since_s = owner, now_s
        waited_ms = int((now_s - self._since_s) * 1000)
        try:
            check_broker_id(self._broker.broker_id, (self._first_owner, owner), waited_ms, self._timeout_ms)
        except OperatorError as error:
            self._finish(error)
            return
        rest_s = (self._timeout_ms - waited_ms) / 1000 + 0.002  # just after its session timeout
        self._timer = self._scheduler.call_later(rest_s, self._round.during(self._wait_for_end), owner)

    # -- this process ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._cease()
        if (self._follows or self._registers) and not self._ended and self._session_id:
            self._session.get(
                paths.broker(self._broker.broker_id), self._round.during(self._seen), self._round.during(self._look)
            )

    def _seen(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self._failed(error)
            return
        owner = standing(node, self._session_id)
        if node is not None and owner is ZnodeOwnership.TAKEN:
            self._wait_for_end(node.owner)
        elif node is not None:
            self._first_owner = None
            self._broker_epoch_seen = node.created
            self._image_published()
        elif self._registers:
            made = registration(self._broker, self._clock.time_ms())
            self._session.multi([made], self._round.during(self._written))

    def _written(self, _paths: list[str] | None, error: ZooKeeperError | None) -> None:
        if error is None or error.code is Code.NODE_EXISTS:
            self._look()
        else:
            self._failed(error)

    def _failed(self, error: ZooKeeperError) -> None:
        if error.code not in _LOST:
            logger.error("broker %d is not registered in ZooKeeper yet: %s", self._broker.broker_id, error)
            self._timer = self._scheduler.call_later(RETRY_S, self._round.during(self._look))

    def _image_published(self) -> None:
        image = self._publisher.image
        if self._follows and image.offset >= 0:
            self._follows = False
            self._finish(None)
        known = image.brokers.get(self._broker.broker_id)
        if known is not None and known.broker_epoch == self._broker_epoch_seen:
            if self.broker_epoch != known.broker_epoch:
                logger.info("registered as broker %d with epoch %d", known.broker_id, known.broker_epoch)
            self.broker_epoch = known.broker_epoch
            if (known.fenced or known.in_controlled_shutdown) and not self._ended:
                self._register_again()
                return
            if self._registers and self._done is not None and not self._has_pending_election():
                self._finish(None)

    def _register_again(self) -> None:
        """Recreate the znode: the controller received a shutdown request that this process did not send."""
        logger.warning(
            "registering this broker again: the controller received a shutdown request for this broker that this "
            "process did not send"
        )
        self._cease()
        self._broker_epoch_seen = -1
        self._timer = self._scheduler.call_later(RETRY_S, self._round.during(self._look))
        self._session.multi([Delete(paths.broker(self._broker.broker_id))], lambda _paths, _error: None)

    def _has_pending_election(self) -> bool:
        """Whether the image has a partition without a leader that this broker may lead."""
        broker_id = self._broker.broker_id
        return any(
            partition.leader == NO_LEADER and broker_id in partition.isr
            for topic in self._publisher.image.topics.values()
            for partition in topic.partitions.values()
        )
