"""One broker's place in the cluster: the controller's claim, then its own znode in `/brokers/ids`, again and again.

A cluster has one broker so far, so a broker registers only while it is the controller: the call that makes its znode
checks the controller's epoch, as all others do, and no second broker can be there. Whoever finds another controller
waits as long as the session of a process that was killed may last, and gives up when that goes on.

Invariants:
- A broker that begins is registered only once no partition is led by its id: what its process before may have lost
  of a leader epoch is never written again in that epoch. One that runs on leads what it led until its id is gone.
- The epoch of the broker is the transaction that made its znode. It is told once the published image has it.

A znode that went, with its session or by a tool, is made again. Left out: more brokers than one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from ottla.common.clock import Clock, Scheduler, TimerHandle
from ottla.common.errors import OperatorError
from ottla.metadata.image import NO_LEADER, BrokerImage
from ottla.metadata.log import NO_NODE, LeaderAndEpoch, SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Znode
from ottla.protocol.znodes.session import ZooKeeperError, ZooKeeperSession
from ottla.zookeeper.claims import Standing, check_broker_id, standing
from ottla.zookeeper.log import ZooKeeperLog
from ottla.zookeeper.writing import registration

P = ParamSpec("P")

LATE_MS = 10_000
"""A server looks for sessions that are over from tick to tick, so one may last that much longer."""


class BrokerRegistration:
    """All methods belong to the loop. Implements `LeadershipListener`, told after the controller."""

    __slots__ = (
        "_broker",
        "_broker_epoch_seen",
        "_clock",
        "_done",
        "_ended",
        "_first_owner",
        "_is_absent",
        "_log",
        "_on_failure",
        "_publisher",
        "_registers",
        "_round",
        "_scheduler",
        "_session",
        "_since_s",
        "_timeout_ms",
        "_timer",
        "broker_epoch",
    )

    def __init__(
        self,
        *,
        session: ZooKeeperSession,
        log: ZooKeeperLog,
        broker: BrokerImage,
        publisher: MetadataPublisher,
        clock: Clock,
        scheduler: Scheduler,
        session_timeout_ms: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`broker` is what to say of it. `on_failure` is told when it has been up, and may not be any more."""
        self._session = session
        self._log = log
        self._broker = broker
        self._publisher = publisher
        self._clock = clock
        self._scheduler = scheduler
        self._timeout_ms = session_timeout_ms + LATE_MS
        self._on_failure = on_failure
        self._done: SubmitDone | None = None
        self._round = 0
        self._registers = False
        self._is_absent = False
        """As read in this reign, and nothing was written since."""
        self._broker_epoch_seen = -1
        self._first_owner: int | None = None
        self._since_s = 0.0
        self._timer: TimerHandle | None = None
        self._ended = False
        self.broker_epoch = -1
        """Of the registration that the cluster knows; -1 before the first."""

    # -- stages ----------------------------------------------------------------------------------------------------

    def rule(self, done: SubmitDone) -> None:
        """Begin: `done(None)` once this node is the controller and the tree is published; OperatorError where another
        process goes on being that."""
        self._done = done
        self._log.listen(self)
        self._publisher.register(lambda _image, _changes: self._image_published())

    def start(self, done: SubmitDone) -> None:
        """Register: `done(None)` once the published image has this broker, and a leader wherever it may lead; errors as
        of `rule`."""
        self._done = done
        self._registers = True
        self._look()

    def end(self) -> None:
        """Ask for nothing any more; the znode goes with the session."""
        self._ended = True
        self._done = None
        self._cease()

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`."""
        self._cease()
        if self._ended:
            return
        if active and self._registers:
            self._look()
        elif active:
            self._finish(None)
        elif leader.leader_id != NO_NODE:
            self._wait_for_end(leader.epoch, leader.leader_id)

    def _cease(self) -> None:
        self._round += 1
        self._is_absent = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish(self, error: BaseException | None) -> None:
        self._first_owner = None
        done, self._done = self._done, None
        if done is not None:
            # Not within what is being told: whoever waits registers listeners of its own.
            self._scheduler.call_soon(done, error)
        elif error is not None:
            self._on_failure(error)

    # -- others ----------------------------------------------------------------------------------------------------

    def _wait_for_end(self, owner: int, broker_id: int) -> None:
        """`owner` is another claim, or session, for as long as it stays the same; of `broker_id`, perhaps this one."""
        now_s = self._clock.monotonic()
        if self._first_owner is None:
            self._first_owner, self._since_s = owner, now_s
        waited_ms = int((now_s - self._since_s) * 1000)
        try:
            if broker_id == self._broker.broker_id:
                check_broker_id(broker_id, (self._first_owner, owner), waited_ms, self._timeout_ms)
            elif owner != self._first_owner or waited_ms > self._timeout_ms:
                raise OperatorError(
                    f"broker {broker_id} is the controller of the cluster that zookeeper.connect leads to, which can "
                    f"have one broker so far: stop it, or lead broker {self._broker.broker_id} to another path"
                )
        except OperatorError as error:
            self._finish(error)
            return
        rest_s = (self._timeout_ms - waited_ms) / 1000 + 0.002  # just after its time
        self._timer = self._scheduler.call_later(rest_s, self._during(self._wait_for_end), owner, broker_id)

    # -- this one --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._cease()
        self._session.get(paths.broker(self._broker.broker_id), self._during(self._seen), self._during(self._look))

    def _seen(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self._log.begin_anew(error)
            return
        whose = standing(node, self._log.session_id)
        if node is not None and whose is Standing.TAKEN:
            self._wait_for_end(node.owner, self._broker.broker_id)
        elif node is not None:
            self._first_owner = None
            self._broker_epoch_seen = node.created
            self._image_published()
        else:
            self._is_absent = True
            self._image_published()

    def _image_published(self) -> None:
        broker_id = self._broker.broker_id
        if self._is_absent and not self._any_in_sync(broker_id):
            self._is_absent = False
            self._scheduler.call_soon(self._during(self._write))
        known = self._publisher.image.brokers.get(broker_id)
        if known is not None and known.broker_epoch == self._broker_epoch_seen:
            self.broker_epoch = known.broker_epoch
            if self._registers and self._done is not None and not self._any_in_sync(NO_LEADER):
                self._finish(None)

    def _any_in_sync(self, leader: int) -> bool:
        """Whether the image has a partition that has this broker in sync, and that leader: its own id, by another life
        of it or by this one's last session, or nobody before the election."""
        broker_id = self._broker.broker_id
        return any(
            partition.leader == leader and broker_id in partition.isr
            for topic in self._publisher.image.topics.values()
            for partition in topic.partitions.values()
        )

    def _write(self) -> None:
        made = registration(self._broker, self._clock.time_ms())
        self._log.write([[made]], self._during(self._written))

    def _written(self, error: BaseException | None) -> None:
        if error is None:
            self._look()

    def _during(self, callback: Callable[P, None]) -> Callable[P, None]:
        """`callback`, unless this node looked anew since."""
        begun = self._round

        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            if begun == self._round:
                callback(*args, **kwargs)

        return call
