"""One broker's own znode in `/brokers/ids`, made by its session, again and again.

A broker registers by itself; what it led before goes to others, or into a new leader epoch, before the controller takes
the registration in (`controller/znode_requests.py`). Whoever finds its id taken waits as long as the session of a
process that was killed may last, and gives up when that goes on. A znode that went, with its session or by a tool, is
made again, and so is one that the controller takes for that of a broker which stops. A start that no controller lets in
ends after a while.

Invariant: the epoch of the broker is the transaction that made its znode. It is told once the published image has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.common.errors import OperatorError
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
"""A server looks for sessions that are over from tick to tick, so one may last that much longer."""
RETRY_S = 1.0
"""After a refusal of the server that is none of those that are waited for."""

_LOST = frozenset({Code.CONNECTION_LOSS, Code.SESSION_EXPIRED})
"""The next connection looks."""


class BrokerRegistration:
    """All methods belong to the loop. Implements `SessionListener`."""

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
        """`broker` is what to say of it. The cluster may take `start_timeout_ms` to let it in; `trouble` says why it
        does not, as far as that is known. `on_failure` is told when it has been up, and may not be any more."""
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
        """Of the registration that the cluster knows; -1 before the first."""

    # -- stages ----------------------------------------------------------------------------------------------------

    def follow(self, done: SubmitDone) -> None:
        """Begin: `done(None)` once the cluster's metadata is published here; errors as of `start`."""
        self._begin(done)
        self._follows = True
        self._look()
        self._publisher.register(lambda _image, _changes: self._image_published())

    def start(self, done: SubmitDone) -> None:
        """Register: `done(None)` once the published image has this broker, and a leader wherever it may lead;
        OperatorError where another process goes on having its id, and where no controller lets this one in."""
        self._begin(done)
        self._follows = False
        self._registers = True
        self._look()

    def unawaited(self) -> None:
        """Nobody waits for `follow` or `start` any more: another than the tree's controller let the broker in."""
        self._done = None
        self._cancel_late()

    def refuse(self, error: OperatorError) -> None:
        """The cluster takes no broker as this one is."""
        self._cease()
        self._finish(error)

    def end(self) -> None:
        """Ask for nothing any more; the znode goes with the session."""
        self._ended = True
        self._done = None
        self._cancel_late()
        self._cease()

    def _begin(self, done: SubmitDone) -> None:
        self._cancel_late()
        self._done = done
        self._late = self._scheduler.call_later(self._start_timeout_s, self._is_late)

    def _is_late(self) -> None:
        """Who is known waits on: leaders of very many partitions take their time."""
        self._late = None
        if self.broker_epoch < 0:
            broker_id, trouble = self._broker.broker_id, self._trouble()
            reason = (
                f"the controller does not serve it ({trouble}); give the user of this broker ClusterAction on the "
                "cluster or a place in super.users, and see to the network and to inter.broker.listener.name"
                if trouble
                else "no controller has taken it in; see what the log of the broker says that has /controller"
            )
            self._finish(OperatorError(f"broker {broker_id} could not join the cluster: {reason}"))

    def _cancel_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _finish(self, error: BaseException | None) -> None:
        self._cancel_late()
        done, self._done = self._done, None
        if done is not None:
            # Not within what is being told: whoever waits registers listeners of its own.
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
        """See `SessionListener`; that the znode is gone is known by what is read next."""

    def _cease(self) -> None:
        self._round.renew()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- another with its id ---------------------------------------------------------------------------------------

    def _wait_for_end(self, owner: int) -> None:
        """`owner` is another session that has this id, for as long as it stays the same."""
        now_s = self._clock.monotonic()
        if self._first_owner is None:
            self._first_owner, self._since_s = owner, now_s
        waited_ms = int((now_s - self._since_s) * 1000)
        try:
            check_broker_id(self._broker.broker_id, (self._first_owner, owner), waited_ms, self._timeout_ms)
        except OperatorError as error:
            self._finish(error)
            return
        rest_s = (self._timeout_ms - waited_ms) / 1000 + 0.002  # just after its time
        self._timer = self._scheduler.call_later(rest_s, self._round.during(self._wait_for_end), owner)

    # -- this one --------------------------------------------------------------------------------------------------

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
        whose = standing(node, self._session_id)
        if node is not None and whose is ZnodeOwnership.TAKEN:
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
                self._register_anew()
                return
            if self._registers and self._done is not None and not self._is_awaited():
                self._finish(None)

    def _register_anew(self) -> None:
        """Somebody asked, in the name of this broker, that it be let go: as another registration it is not."""
        logger.warning("somebody asked the controller, in the name of this broker, to let it go: it registers again")
        self._cease()
        self._broker_epoch_seen = -1
        self._timer = self._scheduler.call_later(RETRY_S, self._round.during(self._look))
        self._session.multi([Delete(paths.broker(self._broker.broker_id))], lambda _paths, _error: None)

    def _is_awaited(self) -> bool:
        """Whether the image has a partition that nobody leads yet, and that this broker may lead."""
        broker_id = self._broker.broker_id
        return any(
            partition.leader == NO_LEADER and broker_id in partition.isr
            for topic in self._publisher.image.topics.values()
            for partition in topic.partitions.values()
        )
