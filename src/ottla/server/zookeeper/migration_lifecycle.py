"""Lifecycle of a broker during a migration from ZooKeeper to a quorum or back (KIP-866): it registers with both.

The owner of the cluster, ZooKeeper or the quorum, decides when the broker is registered, its epoch, and when it may
stop. The other side registers the broker too, as soon as it answers. The quorum takes over only when it has all
brokers. After a rollback, the new controller in ZooKeeper finds all of them in the tree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.clock import Scheduler
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.metadata.publisher import MetadataPublisher
from ottla.server.lifecycle.lifecycle import BrokerLifecycle
from ottla.server.requests.broker_life import LifeDone
from ottla.server.requests.forwarding import ControllerChannel
from ottla.server.zookeeper.zookeeper_node import ZooKeeperLife

if TYPE_CHECKING:
    from ottla.zookeeper.migrating import MigratingLog

logger = logging.getLogger(__name__)

FOREVER_MS: Final = 2**31 - 1
"""Timeout of the registration with the quorum: nothing depends on it while ZooKeeper owns the cluster."""


class QuorumChannel:
    """The broker's own channel to the quorum, in any phase; a `LeadershipListener` of the quorum."""

    __slots__ = ("channel",)

    def __init__(self, channel: ControllerChannel) -> None:
        self.channel = channel

    def on_leader_change(self, _leader: LeaderAndEpoch, _active: bool) -> None:
        """See `LeadershipListener`."""
        self.channel.leader_changed()


def follow(tree: ZooKeeperLife, publisher: MetadataPublisher, done: LifeDone) -> None:
    """Start: `done(None)` once `publisher` has the cluster's metadata, the tree's or the quorum's; OperatorError if
    another process keeps this broker's id."""
    waiting = [done]

    def finish(error: BaseException | None) -> None:
        if waiting:
            tree.unawaited()
            waiting.pop()(error)

    def published() -> None:
        if publisher.image.offset >= 0:
            finish(None)

    def heard(_image: MetadataImage, _changes: MetadataChanges) -> None:
        tree.scheduler.call_soon(published)

    publisher.register(heard)
    tree.follow(finish)


class ZkMigrationLifecycle:
    """Implements `BrokerLife`; created when the cluster's metadata has arrived."""

    __slots__ = (
        "_done",
        "_in_quorum",
        "_in_tree",
        "_lifecycle",
        "_log",
        "_on_failure",
        "_opened",
        "_quorum_channel",
        "_scheduler",
        "_tree",
        "_unfenced",
    )

    def __init__(
        self,
        tree: ZooKeeperLife,
        lifecycle: BrokerLifecycle,
        quorum_channel: ControllerChannel,
        log: MigratingLog,
        publisher: MetadataPublisher,
        scheduler: Scheduler,
        on_failure: Callable[[OperatorError], None],
    ) -> None:
        """`lifecycle` registers with the quorum through `quorum_channel`. `on_failure` is called if the running broker
        can't stay in the quorum."""
        self._tree = tree
        self._lifecycle = lifecycle
        self._quorum_channel = quorum_channel
        self._log = log
        self._scheduler = scheduler
        self._on_failure = on_failure
        self._done: LifeDone | None = None
        self._in_tree = False
        self._in_quorum = False
        self._opened = False
        self._unfenced = False
        publisher.register(lambda _image, _changes: self._settle())
        lifecycle.given_up = self._given_up

    @property
    def broker_epoch(self) -> int:
        """See `BrokerLife`."""
        return self._lifecycle.broker_epoch if self._log.quorum_is_owner else self._tree.broker_epoch

    # -- start -----------------------------------------------------------------------------------------------------

    def start(self, done: LifeDone) -> None:
        """See `BrokerLife`."""
        self._done = done
        self._tree.start(self._registered_in_tree)
        self._lifecycle.start(self._registered_in_quorum)

    def serve(self, done: LifeDone) -> None:
        """See `BrokerLife`: the quorum may use this broker from now on, whether it owns the cluster or not."""
        self._done = done
        self._opened = True
        self._ask_to_be_unfenced()
        self._settle()

    def _registered_in_tree(self, error: BaseException | None) -> None:
        self._in_tree = error is None
        if error is not None:
            self._finish(error)
        self._settle()

    def _registered_in_quorum(self, error: BaseException | None) -> None:
        if error is not None:
            self._refused(error)
            return
        self._in_quorum = True
        self._ask_to_be_unfenced()
        self._settle()

    def _refused(self, error: BaseException) -> None:
        """The quorum refuses this broker permanently: a starting broker fails, a running one continues."""
        if self._done is None:
            logger.error("the migration's quorum refuses to register this broker: %s", error)
        else:
            self._finish(error)

    def _given_up(self, error: OperatorError) -> None:
        """Report that the migration is final: a starting broker fails, a running one calls `on_failure`."""
        if self._done is None:
            self._on_failure(error)
        else:
            self._finish(error)

    def _ask_to_be_unfenced(self) -> None:
        if self._in_quorum and self._opened:
            self._lifecycle.serve(self._on_unfenced)

    def _on_unfenced(self, error: BaseException | None) -> None:
        self._unfenced = error is None
        self._settle()

    def _settle(self) -> None:
        """Call `done` once the current owner of the cluster has done its part."""
        if self._log.quorum_is_owner:
            settled = self._unfenced if self._opened else self._in_quorum
        else:
            settled = self._in_tree
        if settled:
            self._finish(None)

    def _finish(self, error: BaseException | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._tree.unawaited()
            # Not within the notification: the callback registers listeners of its own.
            self._scheduler.call_soon(done, error)

    # -- stop ------------------------------------------------------------------------------------------------------

    def shut_down(self, done: LifeDone) -> None:
        """See `BrokerLife`. The owner moves the leaderships; the tree registration ends when the quorum is the owner.

        When ZooKeeper is the owner, the broker then requests a shutdown from the quorum too, if that has a leader.
        """
        self._done = None
        if self._log.quorum_is_owner:
            self._tree.end()
            self._lifecycle.shut_down(done)
            return

        def left_tree(error: BaseException | None) -> None:
            if error is None and self._log.quorum.leader.leader_id != NO_NODE:
                self._lifecycle.shut_down(done)
            else:
                self._lifecycle.end()
                done(error)

        self._tree.shut_down(left_tree)

    def directory_failed(self, directory_id: Uuid) -> None:
        """Report to the quorum, whether it owns the cluster or not; in the tree each replica is reported separately."""
        self._lifecycle.directory_failed(directory_id)

    def end(self) -> None:
        """See `BrokerLife`."""
        self._done = None
        self._tree.end()
        self._lifecycle.end()
        self._quorum_channel.close()
