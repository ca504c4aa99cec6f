"""What a broker on ZooKeeper has in place of a quorum: which cluster it enters, its log, its registration.

Made by `server.broker`, and only there where ZooKeeper keeps the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ottla.common.broker_configs import BrokerConfig
from ottla.common.endpoint import Endpoint
from ottla.common.errors import InvariantError
from ottla.common.machine import Machine
from ottla.controller.tree_intake import TreeIntake
from ottla.metadata.image import BrokerImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import SUPPORTED_FEATURES
from ottla.protocol.znodes.session import ZooKeeperSession
from ottla.server.control import Control
from ottla.storage.meta_properties import ZOOKEEPER, random_id, read_meta_properties
from ottla.zookeeper.entrance import Entrance
from ottla.zookeeper.registration import BrokerRegistration


class ZooKeeperNode:
    """One broker's way in; `session` is what its log stands on."""

    def __init__(self, config: BrokerConfig, machine: Machine, session: ZooKeeperSession) -> None:
        """`session` is not started yet."""
        self._config = config
        self._machine = machine
        self._session_timeout_ms = config.get_int("zookeeper.session.timeout.ms")
        self.session = Entrance(session, machine.scheduler)

    async def enter(self) -> str:
        """The id of the cluster; the data directory is looked at, and not changed. Raises OperatorError."""
        meta = read_meta_properties(self._machine.disk, self._config.metadata_log_dir, ZOOKEEPER)
        timeout_ms = self._config.get("zookeeper.connection.timeout.ms") or self._session_timeout_ms
        if not isinstance(timeout_ms, int):
            raise InvariantError("zookeeper.connection.timeout.ms is a number")
        known: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def entered(cluster_id: str | None, error: BaseException | None) -> None:
            if cluster_id is not None:
                known.set_result(cluster_id)
            elif error is not None:
                known.set_exception(error)

        owned_by = None if meta is None else meta.cluster_id
        self.session.enter(owned_by, lambda: random_id(self._machine.rng), timeout_ms / 1000, entered)
        return await known

    def take_part(
        self,
        control: Control,
        endpoints: Sequence[Endpoint],
        publisher: MetadataPublisher,
        on_failure: Callable[[BaseException], None],
    ) -> BrokerRegistration:
        """Begin to claim and to follow, for the broker at `endpoints`, as advertised; its registration is next."""
        log = control.metadata.zookeeper
        if log is None:
            raise InvariantError("the metadata log is another one")
        log.listen(control)
        log.listen(TreeIntake(self.session, log, control.controller))
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
        log.start(endpoints)
        return BrokerRegistration(
            session=self.session,
            log=log,
            broker=broker,
            publisher=publisher,
            clock=self._machine.clock,
            scheduler=self._machine.scheduler,
            session_timeout_ms=self._session_timeout_ms,
            on_failure=on_failure,
        )
