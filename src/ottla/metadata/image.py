"""The cluster's metadata as of one offset of the metadata log.

An image never changes: `delta.MetadataDelta` makes the next one and shares every part that stayed as it was. So a
request handler may keep an image for as long as it likes, and the broker switches from one to the next by one
assignment. Mappings keep the order of the records that made them, so nothing here depends on hash order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.feature_levels import METADATA_VERSION, METADATA_VERSION_LEVEL, TRANSACTION_VERSION
from ottla.common.kafka.acl import Acl
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.common.kafka.ids import ZERO_UUID, Uuid
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.topic_names import TopicKey
from ottla.security.sasl.credentials import ScramCredential, ScramMechanism

NO_LEADER = -1
RECOVERED, RECOVERING = 0, 1
"""Leader recovery states (KIP-704): after an unclean election a leader is RECOVERING."""

_EMPTY: Mapping[Any, Any] = MappingProxyType({})


class ConfigResource(NamedTuple):
    """Whose settings: a topic by name, a broker by id, or all brokers by the empty name."""

    type: ConfigResourceType
    name: str


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whose limit: (kind, name) by kind, out of user, client-id and ip; a name of None is the default of the kind."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these parts, in whatever order they come."""
    return tuple(sorted(parts, key=lambda part: part[0]))


ScramKey = tuple[str, int]
"""A user and the number of a mechanism."""


class VersionRange(NamedTuple):
    """The levels of a feature that a broker supports, both inclusive."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition as the controller decided it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    directories: tuple[Uuid, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_of(self, broker_id: int) -> Uuid:
        """The data directory of a broker's replica; `ZERO_UUID` where none was said, or for no replica (KIP-858)."""
        if broker_id not in self.replicas or len(self.directories) != len(self.replicas):
            return ZERO_UUID
        return self.directories[self.replicas.index(broker_id)]


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; `partitions` by number, ascending."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker; `broker_epoch` is the offset of its registration."""

    broker_id: int
    broker_epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    cordoned_log_dirs: tuple[Uuid, ...] = ()
    """Directories that take no new replicas (KIP-1066)."""
    is_migrating_zk_broker: bool = False
    """Whether it is registered in ZooKeeper as well, and follows whoever has the claim there (KIP-866)."""

    @property
    def active(self) -> bool:
        """Whether it may be given leaderships and new replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_directory(self, directory: Uuid) -> bool:
        """Whether a replica can be used that lies there; `ZERO_UUID`, and a broker that names none, tell nothing."""
        return directory == ZERO_UUID or not self.log_dirs or directory in self.log_dirs

    @property
    def all_cordoned(self) -> bool:
        """Whether it has no directory for new replicas (KIP-1066)."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs)

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Its address on the listener of that name."""
        for endpoint in self.endpoints:
            if endpoint.listener_name == listener_name:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """One registered controller (KIP-919)."""

    controller_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    zk_migration_ready: bool = False
    """Whether it could lead a migration from ZooKeeper (KIP-866)."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Its address on the listener of that name."""
        return next((each for each in self.endpoints if each.listener_name == listener_name), None)


class ZkMigrationState(IntEnum):
    """How far a migration from ZooKeeper has come (KIP-866), by the numbers of `ZkMigrationStateRecord`.

    As Apache Kafka has them since 3.5, which is not the order in which they come.
    """

    NONE = 0
    """The cluster was never kept there."""
    PRE_MIGRATION = 2
    """ZooKeeper keeps it; its brokers are waited for."""
    MIGRATION = 1
    """The quorum keeps it, and ZooKeeper's tree is kept up to date."""
    POST_MIGRATION = 3
    """The quorum alone keeps it."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the metadata log says up to `offset` (of the last record applied; -1 for none)."""

    offset: int = -1
    epoch: int = 0
    topics: Mapping[str, TopicImage] = field(default_factory=lambda: _EMPTY)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=lambda: _EMPTY)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=lambda: _EMPTY)
    brokers: Mapping[int, BrokerImage] = field(default_factory=lambda: _EMPTY)
    controllers: Mapping[int, ControllerImage] = field(default_factory=lambda: _EMPTY)
    features: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=lambda: _EMPTY)
    scram_credentials: Mapping[ScramKey, ScramCredential] = field(default_factory=lambda: _EMPTY)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=lambda: _EMPTY)
    """By id; the same object in the next image when none of them changed."""
    next_producer_id: int = 0
    acls: Mapping[Uuid, Acl] = field(default_factory=lambda: _EMPTY)
    """By id; the same object in the next image when none of them changed."""
    zk_migration_state: ZkMigrationState = ZkMigrationState.NONE
    """How far a migration from ZooKeeper has come."""

    @property
    def zk_migration_complete(self) -> bool:
        """Whether all that ZooKeeper had is here, in a quorum that keeps the cluster from then on."""
        return self.zk_migration_state in (ZkMigrationState.MIGRATION, ZkMigrationState.POST_MIGRATION)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def find(self, topic: TopicKey) -> TopicImage | None:
        """The topic of a name or an id; `unknown_topic` says what is told where there is none."""
        return self.topics.get(topic) if isinstance(topic, str) else self.topics_by_id.get(topic)

    def partition(self, name: str, partition: int) -> PartitionImage | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """Replicas on brokers that are fenced or away, or in data directories that their brokers lack (KIP-858)."""
        offline = []
        for broker_id in partition.replicas:
            broker = self.brokers.get(broker_id)
            if broker is None or broker.fenced or not broker.has_directory(partition.directory_of(broker_id)):
                offline.append(broker_id)
        return offline

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The topic's own settings, empty when it has none."""
        return self.configs.get(ConfigResource(ConfigResourceType.TOPIC, name), _EMPTY)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """The group's own settings, empty when it has none."""
        return self.configs.get(ConfigResource(ConfigResourceType.GROUP, group_id), _EMPTY)

    def broker_configs(self, broker_id: int) -> Mapping[str, str]:
        """The dynamic settings of one broker."""
        return self.configs.get(ConfigResource(ConfigResourceType.BROKER, str(broker_id)), _EMPTY)

    def default_broker_configs(self) -> Mapping[str, str]:
        """The dynamic settings of all brokers."""
        return self.configs.get(ConfigResource(ConfigResourceType.BROKER, ""), _EMPTY)

    def scram_credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """What is known of a user's password for this mechanism."""
        return self.scram_credentials.get((name, mechanism.number))

    def salt_key(self) -> Uuid | None:
        """Key of the salts of unknown SCRAM users: the id of a data directory, of the broker with the lowest id.

        All nodes of the cluster have it, and it outlives restarts. A client needs DESCRIBE on the cluster to see it,
        with which it may list the SCRAM users. None where no broker is registered, or names its directories.
        """
        directories = self.brokers[min(self.brokers)].log_dirs if self.brokers else ()
        return min(directories, default=None)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def active_brokers(self) -> list[BrokerImage]:
        """Registered and unfenced, by id."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers) if self.brokers[broker_id].active]


def metadata_level(image: MetadataImage) -> int:
    """The finalized level of `metadata.version`; that of a new cluster while none is written."""
    return image.features.get(METADATA_VERSION, METADATA_VERSION_LEVEL)


def transaction_version(image: MetadataImage) -> int:
    """The finalized level of `transaction.version`; 0 in a cluster that was made without it and never upgraded."""
    return image.features.get(TRANSACTION_VERSION, 0)


EMPTY_IMAGE = MetadataImage()
