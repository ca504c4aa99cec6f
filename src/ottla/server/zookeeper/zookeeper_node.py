"""A broker on ZooKeeper: the cluster id, its log, its registration and its shutdown, in place of a quorum.

Created by `server.broker` only if ZooKeeper stores the cluster. Sessions replace heartbeats, except those that request
a controlled shutdown: the controller then moves the broker's leaderships, as on a quorum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_zookeeper import MIGRATION, ZOOKEEPER_CONNECT
from ottla.common.errors import InvariantError, OperatorError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.clock import Clock, Scheduler
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import ControllerRequests
from ottla.common.platform.runtime import NodeRuntime
from ottla.controller.external_topic_changes import ExternalTopicChanges
from ottla.controller.znode_requests import ZnodeRequestWatcher
from ottla.metadata.image import BrokerImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import SUPPORTED_FEATURES
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.znodes.rooted import split_connect
from ottla.protocol.znodes.session import ZooKeeperSession
from ottla.server.lifecycle.controlled_shutdown import ControlledShutdown
from ottla.server.lifecycle.lifecycle import MAX_REQUEST_TIMEOUT_S, RETRY_S
from ottla.server.requests.broker_life import LifeDone
from ottla.server.requests.control import Control
from ottla.storage.files.meta_properties import ZOOKEEPER, random_id, read_meta_properties
from ottla.zookeeper.registration import BrokerRegistration
from ottla.zookeeper.session_bootstrap import SessionBootstrap


class ZooKeeperNode:
    """Start of one broker on ZooKeeper; `session` is used by its log."""

    def __init__(self, config: BrokerConfig, runtime: NodeRuntime, session: ZooKeeperSession) -> None:
        """`session` is on the servers of `zookeeper.connect`, and not started yet."""
        self._config = config
        self._runtime = runtime
        self._session_timeout_ms = config.get_int("zookeeper.session.timeout.ms")
        _servers, root = split_connect(config.get_str(ZOOKEEPER_CONNECT) or "")
        self.session = SessionBootstrap(session, root, runtime.scheduler)

    async def enter(self) -> str:
        """The id of the cluster; data directories are read, and not changed. Raises OperatorError."""
        timeout_ms = self._config.get("zookeeper.connection.timeout.ms") or self._session_timeout_ms
        if not isinstance(timeout_ms, int):
            raise InvariantError("zookeeper.connection.timeout.ms is not set")
        known: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def entered(cluster_id: str | None, error: BaseException | None) -> None:
            if cluster_id is not None:
                known.set_result(cluster_id)
            elif error is not None:
                known.set_exception(error)

        self.session.enter(self._owned_by(), lambda: random_id(self._runtime.rng), timeout_ms / 1000, entered)
        return await known

    def _owned_by(self) -> str | None:
        """The cluster id in the first directory that has one; the others are checked when they are opened."""
        refusals = []
        for directory in self._config.log_dirs:
            try:
                meta = read_meta_properties(self._runtime.disk, directory, ZOOKEEPER)
            except OperatorError as error:
                refusals.append(error)
            else:
                if meta is not None:
                    return meta.cluster_id
        if refusals:
            raise refusals[0]  # it may contain data of another cluster
        return None

    def take_part(
        self,
        control: Control,
        endpoints: Sequence[Endpoint],
        publisher: MetadataPublisher,
        on_failure: Callable[[BaseException], None],
    ) -> ZooKeeperLife:
        """Start election and following, for the broker at `endpoints`, as advertised; its registration is next.

        `publisher` gets the metadata of the tree.
        """
        log = control.metadata.zookeeper
        if log is None:
            raise InvariantError("the metadata log is not ZooKeeper's")
        control.metadata.log.listen(control)
        log.listen(ZnodeRequestWatcher(self.session, log, control.controller))
        log.listen(ExternalTopicChanges(self.session, log, control.controller))
        broker = BrokerImage(
            broker_id=self._config.node_id,
            broker_epoch=-1,
            incarnation_id=b"",
            endpoints=tuple(endpoints),
            features=SUPPORTED_FEATURES,
            rack=self._config.rack,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=(),
        )
        registration = BrokerRegistration(
            session=self.session,
            broker=broker,
            publisher=publisher,
            clock=self._runtime.clock,
            scheduler=self._runtime.scheduler,
            session_timeout_ms=self._session_timeout_ms,
            start_timeout_ms=self._config.get_int("initial.broker.registration.timeout.ms"),
            trouble=lambda: log.trouble,
            on_failure=on_failure,
        )
        if control.metadata.migrating is None:
            log.claimed_by_quorum = lambda epoch: None if epoch is None else registration.refuse(_taken_over())
        control.metadata.log.start(endpoints)
        self.session.start(registration)
        return ZooKeeperLife(
            self._config.node_id, registration, control.channel, publisher, self._runtime.clock, self._runtime.scheduler
        )


def _taken_over() -> OperatorError:
    return OperatorError(
        "a quorum owns this cluster now (according to /controller in ZooKeeper), but this broker is only on ZooKeeper: "
        f"set {MIGRATION} and controller.quorum.voters, or, to roll back after the quorum was shut down, delete "
        "/controller there"
    )


class ZooKeeperLife:
    """Lifecycle of one broker in a cluster on ZooKeeper. Implements `BrokerLife`."""

    __slots__ = (
        "_clock",
        "_controller",
        "_done",
        "_node_id",
        "_publisher",
        "_registration",
        "_shutdown",
        "follow",
        "scheduler",
        "start",
        "unawaited",
    )

    def __init__(
        self,
        node_id: int,
        registration: BrokerRegistration,
        controller: ControllerRequests,
        publisher: MetadataPublisher,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        """`controller` is the channel to the active one, which may be in this process."""
        self._node_id = node_id
        self._registration = registration
        self._controller = controller
        self._publisher = publisher
        self._clock = clock
        self.scheduler = scheduler
        self._done: LifeDone | None = None
        self._shutdown: ControlledShutdown | None = None
        self.follow = registration.follow
        self.start = registration.start
        self.unawaited = registration.unawaited

    @property
    def broker_epoch(self) -> int:
        """See `BrokerLife`."""
        return self._registration.broker_epoch

    def serve(self, done: LifeDone) -> None:
        """See `BrokerLife`: a registered broker is already in use."""
        self.scheduler.call_soon(done, None)

    def directory_failed(self, directory_id: Uuid) -> None:
        """Nothing to do: each affected replica is reported to the controller separately."""

    def end(self) -> None:
        """See `BrokerLife`."""
        self._done = None
        self._registration.end()

    # -- stop ------------------------------------------------------------------------------------------------------

    def shut_down(self, done: LifeDone) -> None:
        """See `BrokerLife`; a single broker stops at once. From now on it does not register again."""
        self._registration.end()
        others = [broker for broker in self._publisher.image.active_brokers() if broker.broker_id != self._node_id]
        if self.broker_epoch < 0 or not others:
            self.scheduler.call_soon(done, None)
            return
        self._done = done
        self._shutdown = ControlledShutdown(self._clock)
        self._ask()

    def _ask(self) -> None:
        if self._done is None:
            return
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._publisher.image.offset,
            want_shut_down=True,
        )
        self._controller.send(request, self._heard, MAX_REQUEST_TIMEOUT_S)

    def _heard(self, response: BrokerHeartbeatResponse | None, error: BaseException | None) -> None:
        if self._shutdown is not None and not self._shutdown.is_over(response, error):
            self.scheduler.call_later(RETRY_S, self._ask)
            return
        done, self._done = self._done, None
        if done is not None:
            done(None)
