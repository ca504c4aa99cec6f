"""The cluster's metadata as of one offset of the metadata log.

An image is immutable: `delta.MetadataDelta` creates the next one and shares every unchanged part. So a request handler
may use an image for any time, and the broker switches to the next one by one assignment. Mappings have the order of the
records that created them, so nothing here depends on hash order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.feature_levels import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    SHARE_VERSION,
    TRANSACTION_VERSION,
)
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
    """Resource of settings: a topic by name, a broker by id, or all brokers by the empty name."""

    type: ConfigResourceType
    name: str


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Entity of a quota: sorted (type, name) pairs of user, client-id and ip; the name None is the type's default."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of these components, in any order."""
    return tuple(sorted(parts, key=lambda part: part[0]))


ScramKey = tuple[str, int]
"""User name and mechanism number."""


class VersionRange(NamedTuple):
    """Feature levels that a broker supports, both inclusive."""

    low: int
    high: int


class PartitionImage(NamedTuple):
    """State of one partition, as decided by the controller."""

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
        """Return the data directory of a broker's replica; `ZERO_UUID` if unknown, or without a replica (KIP-858)."""
        if broker_id not in self.replicas or len(self.directories) != len(self.replicas):
            return ZERO_UUID
        return self.directories[self.replicas.index(broker_id)]


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; `partitions` by number, ascending."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionImage]
    leaderless: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """Partitions without a leader: few, so that elections do not search a million partitions for them."""

    def __post_init__(self) -> None:
        leaderless = tuple(index for index, each in self.partitions.items() if each.leader == NO_LEADER)
        object.__setattr__(self, "leaderless", leaderless)


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
    """Whether it is also registered in ZooKeeper, and follows the controller there (KIP-866)."""

    @property
    def active(self) -> bool:
        """Whether it may get leaderships and new replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_directory(self, directory: Uuid) -> bool:
        """Return whether a replica in this directory is usable; True if it is `ZERO_UUID` or the broker reports
        none."""
        return directory == ZERO_UUID or not self.log_dirs or directory in self.log_dirs

    @property
    def all_cordoned(self) -> bool:
        """Whether it has no directory for new replicas (KIP-1066)."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs)

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return its address on the listener of that name."""
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
    """Whether it is able to lead a migration from ZooKeeper (KIP-866)."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return its address on the listener of that name."""
        return next((each for each in self.endpoints if each.listener_name == listener_name), None)


class ZkMigrationState(IntEnum):
    """Progress of a migration from ZooKeeper (KIP-866), with the numbers of `ZkMigrationStateRecord`.

    The numbers are those of Apache Kafka since 3.5, which are not in chronological order.
    """

    NONE = 0
    """The cluster was never in ZooKeeper."""
    PRE_MIGRATION = 2
    """ZooKeeper is authoritative; the quorum waits for its brokers."""
    MIGRATION = 1
    """The quorum is authoritative, and ZooKeeper's tree is kept up to date."""
    POST_MIGRATION = 3
    """Only the quorum has the metadata."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """State of the metadata log up to `offset` (of the last applied record; -1 for none)."""

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
    """By id; the same object in the next image if none of them changed."""
    next_producer_id: int = 0
    acls: Mapping[Uuid, Acl] = field(default_factory=lambda: _EMPTY)
    """By id; the same object in the next image if none of them changed."""
    zk_migration_state: ZkMigrationState = ZkMigrationState.NONE
    """Progress of a migration from ZooKeeper."""

    @property
    def zk_migration_complete(self) -> bool:
        """Whether all of ZooKeeper's metadata is in the image, and the quorum is authoritative."""
        return self.zk_migration_state in (ZkMigrationState.MIGRATION, ZkMigrationState.POST_MIGRATION)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def find(self, topic: TopicKey) -> TopicImage | None:
        """Return the topic of a name or an id; `unknown_topic` returns the error code if it does not exist."""
        return self.topics.get(topic) if isinstance(topic, str) else self.topics_by_id.get(topic)

    def partition(self, name: str, partition: int) -> PartitionImage | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """Return replicas on fenced or missing brokers, or in data directories that their brokers lack (KIP-858)."""
        offline = []
        for broker_id in partition.replicas:
            broker = self.brokers.get(broker_id)
            if broker is None or broker.fenced or not broker.has_directory(partition.directory_of(broker_id)):
                offline.append(broker_id)
        return offline

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the topic's own settings."""
        return self.configs.get(ConfigResource(ConfigResourceType.TOPIC, name), _EMPTY)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Return the group's own settings."""
        return self.configs.get(ConfigResource(ConfigResourceType.GROUP, group_id), _EMPTY)

    def client_metrics_configs(self, name: str) -> Mapping[str, str]:
        """Return the settings of a client metrics subscription."""
        return self.configs.get(ConfigResource(ConfigResourceType.CLIENT_METRICS, name), _EMPTY)

    def broker_configs(self, broker_id: int) -> Mapping[str, str]:
        """Return the dynamic settings of one broker."""
        return self.configs.get(ConfigResource(ConfigResourceType.BROKER, str(broker_id)), _EMPTY)

    def default_broker_configs(self) -> Mapping[str, str]:
        """Return the dynamic settings of all brokers."""
        return self.configs.get(ConfigResource(ConfigResourceType.BROKER, ""), _EMPTY)

    def scram_credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return a user's SCRAM credential for this mechanism, or None."""
        return self.scram_credentials.get((name, mechanism.number))

    def salt_key(self) -> Uuid | None:
        """Return the key for salts of unknown SCRAM users: the id of a data directory, of the broker with the lowest
        id.

        All nodes of the cluster know it, and it survives restarts. Reading it requires DESCRIBE on the cluster, which
        also permits to list the SCRAM users. None if no broker is registered, or it reports no directories.
        """
        directories = self.brokers[min(self.brokers)].log_dirs if self.brokers else ()
        return min(directories, default=None)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def active_brokers(self) -> list[BrokerImage]:
        """Return the active brokers, by id."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers) if self.brokers[broker_id].active]


def metadata_level(image: MetadataImage) -> int:
    """Return the finalized level of `metadata.version`; that of a new cluster if none is finalized."""
    return image.features.get(METADATA_VERSION, METADATA_VERSION_LEVEL)


def transaction_version(image: MetadataImage) -> int:
    """Return the finalized level of `transaction.version`; 0 in a cluster that was created without it and never
    upgraded."""
    return image.features.get(TRANSACTION_VERSION, 0)


SHARE_GROUPS_DISABLED = "Share groups are not enabled on this cluster: raise the feature share.version."


def share_groups_enabled(image: MetadataImage) -> bool:
    """Return whether the finalized level of `share.version` is at least 1 (KIP-932)."""
    return image.features.get(SHARE_VERSION, 0) >= 1


def dead_letters_enabled(image: MetadataImage) -> bool:
    """Return whether the finalized level of `share.version` is at least 2 (KIP-1191)."""
    return image.features.get(SHARE_VERSION, 0) >= 2


EMPTY_IMAGE = MetadataImage()
