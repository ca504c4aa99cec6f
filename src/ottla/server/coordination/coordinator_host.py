"""Host of a coordinator in this broker: its runtime on an internal topic, kept in step with the metadata image.

A partition is loaded when this broker becomes its leader, and unloaded when it loses leadership, in the order of the
images. The replicas apply an image first, so that the log of a new partition exists. Coordinators differ only in
topic, records and shards (`groups`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from enum import IntEnum
from importlib import import_module
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.common.platform.runtime import NodeRuntime
from ottla.coordinator.runtime import (
    CoordinatorRuntime,
    CoordinatorSerde,
    CoordinatorShard,
    CoordinatorState,
    ShardFactory,
)
from ottla.coordinator.runtime.key_hash import partition_for
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.replica.manager import ReplicaManager
from ottla.server.coordination.internal_topic import InternalTopic
from ottla.server.coordination.log import ReplicaCoordinatorLog
from ottla.server.requests.failures import Failures
from ottla.server.requests.in_flight import InFlight, TrackedPool
from ottla.server.transactions.transaction_partitions import TransactionPartitions

S = TypeVar("S", bound=CoordinatorShard[Any])


NO_PARTITION = -1
"""Partition of a key while the topic does not exist: it has no leader and is never loaded."""


class CoordinatorType(IntEnum):
    """Key types of FindCoordinator (KIP-98, KIP-932)."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class BrokerServices(NamedTuple):
    """Services of the broker that every coordinator uses."""

    node_id: int
    node_runtime: NodeRuntime
    scheduler: EndOfTickScheduler
    """Runs at the end of a tick; shared by all coordinators and the controller's queue."""
    replicas: ReplicaManager
    in_flight: InFlight
    failures: Failures


class CoordinatorHost(Generic[S]):
    """Owner of one coordinator's runtime."""

    __slots__ = ("_is_loaded", "_node_id", "_pool", "_replicas", "runtime", "topic")

    CODE: ClassVar[str] = "ottla.coordinator.runtime"
    """Module that imports the code of the coordinator."""

    def __init__(
        self,
        topic: InternalTopic,
        host: BrokerServices,
        *,
        serde: Callable[[], CoordinatorSerde[Any]],
        make_shard: ShardFactory[S],
        compression: str,
        write_timeout_ms: int,
        transactions: TransactionPartitions | None = None,
    ) -> None:
        """`serde()` and `make_shard` are called once this broker coordinates a partition.

        `compression` names the codec of records written to the topic; `transactions` verifies transactions that write
        to it.
        """
        self.topic = topic
        self._is_loaded = False
        """Whether the code of the coordinator was imported."""
        self._node_id = host.node_id
        self._replicas = host.replicas
        node_runtime = host.node_runtime
        self._pool = TrackedPool(node_runtime.pool, host.in_flight)
        self.runtime: CoordinatorRuntime[S] = CoordinatorRuntime(
            name=topic.name,
            log=ReplicaCoordinatorLog(topic.name, host.replicas, node_runtime.pool, host.in_flight, transactions),
            serde=serde,
            shard_factory=make_shard,
            clock=node_runtime.clock,
            scheduler=host.scheduler,
            failures=host.failures,
            compression=compression,
            write_timeout_ms=write_timeout_ms,
            # Loaded state stays until leadership is lost: exempt it from repeated garbage collection.
            after_large_load=gc.freeze,
        )
        self.runtime.prepare = self.load
        host.replicas.listen(topic.name, self.runtime.high_watermark_updated)

    # --- life ------------------------------------------------------------------------------------------------------

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""

    def load(self, then: Callable[[], None]) -> None:
        """Import the code of the coordinator in the pool, since it would block the loop, and call `then()`.

        Called before the creation of the internal topic and before the first load of a partition.
        """
        if self._is_loaded:
            then()
            return

        def imported(_module: object, error: BaseException | None) -> None:
            self._is_loaded = error is None
            then()

        self._pool.submit(lambda: import_module(self.CODE), imported)

    def follow(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Load the partitions that this broker leads now, unload the others."""
        name = self.topic.name
        if any(topic.name == name for topic in changes.deleted_topics):
            self.runtime.stop()
        known = image.topic(name)
        if known is not None:
            self.runtime.start(len(known.partitions))
        for topic, index in changes.changed_partitions:
            if topic.name == name:
                partition = topic.partitions[index]
                if partition.leader == self._node_id:
                    self.runtime.become_leader(index, partition.leader_epoch)
                else:
                    self.runtime.resign(index, partition.leader_epoch)

    def stop(self) -> None:
        """Write pending records and answer waiting requests: the coordinator moves."""
        self.runtime.stop()

    # --- location of a key ---------------------------------------------------------------------------------------

    def partition_of(self, key: str, partition_count: int) -> int:
        """The partition of `key` in a topic of that many partitions; the runtime may not know the topic yet."""
        runtime = self.runtime
        if runtime.partition_count == partition_count:
            return runtime.partition_for(key)  # caches the hash
        return partition_for(key, partition_count)

    def partition_in(self, image: MetadataImage, key: str) -> int:
        """The partition of `key` in `image`'s topic, else NO_PARTITION.

        Hashes the key, which may be long: callers with several lookups call it once.
        """
        topic = image.topic(self.topic.name)
        return NO_PARTITION if topic is None else self.partition_of(key, len(topic.partitions))

    def leader(self, key: str, image: MetadataImage) -> int | None:
        """The broker that coordinates `key` according to `image`; None without a leader."""
        return self.leader_of(self.partition_in(image, key), image)

    def leader_of(self, partition: int, image: MetadataImage) -> int | None:
        """The broker that coordinates the keys of a partition according to `image`; None without a leader."""
        topic = image.topic(self.topic.name)
        known = None if topic is None else topic.partitions.get(partition)
        return None if known is None or known.leader == NO_LEADER else known.leader

    def is_loading(self, partition: int) -> bool:
        """Whether requests for keys of `partition` would get COORDINATOR_LOAD_IN_PROGRESS here."""
        return self.runtime.state(partition) is CoordinatorState.LOADING

    def is_coming(self, partition: int, image: MetadataImage) -> bool:
        """Whether this broker leads `partition` in `image` but has no shard yet: logs are opened first."""
        return self.runtime.state(partition) is None and self.leader_of(partition, image) == self._node_id

    def after_loading(self, partitions: Iterable[int], then: Callable[[], None]) -> None:
        """Call `then()` when all partitions that are moving here are open and loaded, or after a timeout."""
        self._replicas.opening.when_opened(lambda: self._after_loads(partitions, then))

    def _after_loads(self, partitions: Iterable[int], then: Callable[[], None]) -> None:
        loading = set(filter(self.is_loading, partitions))
        left = len(loading)
        if not left:
            then()

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for partition in loading:
            self.runtime.after_loading(partition, one_ended)
