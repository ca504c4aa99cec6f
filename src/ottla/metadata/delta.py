"""Applies metadata records to an image: the only place where the cluster's metadata changes.

A delta starts from one image, takes the records of one or more batches by `replay`, and returns the next image with a
list of changes. The same code runs at start-up, after a commit, when a snapshot is loaded, and in the simulator.
Records come from the log and were validated before they were written. A record that does not fit the image means that
log and code disagree, which raises InvariantError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import InvariantError
from ottla.common.kafka.acl import Acl
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.common.kafka.ids import UNASSIGNED_UUID, ZERO_UUID, Uuid, uuid_to_string
from ottla.common.platform.disk import Buffer
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.image import (
    BrokerImage,
    ConfigResource,
    ControllerImage,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    ScramKey,
    TopicImage,
    VersionRange,
    ZkMigrationState,
    quota_entity,
)
from ottla.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from ottla.security.sasl.credentials import ScramCredential

K = TypeVar("K")
T = TypeVar("T")

NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1

SECURITY_PROTOCOL_IDS: Mapping[str, int] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_SECURITY_PROTOCOL_NAMES = {number: name for name, number in SECURITY_PROTOCOL_IDS.items()}


@dataclass(slots=True)
class MetadataChanges:
    """Differences between two images. A topic that was created and removed in between does not appear."""

    created_topics: list[TopicImage] = field(default_factory=list)
    deleted_topics: list[TopicImage] = field(default_factory=list)
    """Last image of each."""
    changed_partitions: Collection[tuple[TopicImage, int]] = ()
    """Partitions of created topics, added ones and changed ones, with the new image of their topic."""
    changed_configs: list[ConfigResource] = field(default_factory=list)
    brokers_changed: bool = False
    acls_changed: bool = False
    renumbered: bool = False
    """Another service manages the cluster now, with unrelated partition epochs: all partitions are listed."""


class AllPartitions(Collection[tuple[TopicImage, int]]):
    """Every partition of some topics, without a list of them: a million pairs take 70 MB."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Collection[TopicImage]) -> None:
        self._topics = topics

    def __len__(self) -> int:
        return sum(len(topic.partitions) for topic in self._topics)

    def __iter__(self) -> Iterator[tuple[TopicImage, int]]:
        return ((topic, index) for topic in self._topics for index in topic.partitions)

    def __contains__(self, pair: object) -> bool:
        return any(each == pair for each in self)


def all_changes(image: MetadataImage) -> MetadataChanges:
    """Return the differences between the empty image and this one."""
    return MetadataChanges(
        created_topics=list(image.topics.values()),
        changed_partitions=AllPartitions(image.topics.values()),
        changed_configs=list(image.configs),
        brokers_changed=True,
        acls_changed=True,
    )


class MetadataDelta:
    """One step from an image to the next."""

    __slots__ = (
        "_acls",
        "_base",
        "_brokers",
        "_configs",
        "_controllers",
        "_features",
        "_migration",
        "_next_producer_id",
        "_partitions",
        "_quotas",
        "_scram",
        "_tokens",
        "_topics",
    )

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        # Ids of topics that were created or changed (a name) or removed (None) since the base.
        self._topics: dict[Uuid, str | None] = {}
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        # None: unregistered.
        self._brokers: dict[int, BrokerImage | None] = {}
        self._controllers: dict[int, ControllerImage | None] = {}
        self._features: dict[str, int] | None = None
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        # None: removed.
        self._scram: dict[ScramKey, ScramCredential | None] = {}
        self._acls: dict[Uuid, Acl | None] = {}
        self._tokens: dict[str, DelegationToken | None] = {}
        self._migration = base.zk_migration_state
        self._next_producer_id = base.next_producer_id

    def replay(self, record: Any) -> None:
        """Apply one metadata record; raises InvariantError when it does not fit the image."""
        handler = _HANDLERS.get(type(record))
        if handler is None:
            raise InvariantError(f"metadata record {type(record).__name__} can't be applied")
        handler(self, record)

    def apply(self, offset: int, epoch: int, *, spent: bool = False) -> tuple[MetadataImage, MetadataChanges]:
        """Return the image after all replayed records, as of `offset` and leader `epoch`, and the changes.

        With `spent` the image takes over the partitions of new topics instead of copying them, and the changes list no
        partitions; the delta must not be used afterwards.
        """
        base = self._base
        changes = MetadataChanges()
        topics, topics_by_id = self._apply_topics(changes, spent=spent)
        changes.changed_configs = list(self._configs)
        changes.brokers_changed = bool(self._brokers)
        changes.acls_changed = bool(self._acls)
        image = MetadataImage(
            offset=offset,
            epoch=epoch,
            topics=topics,
            topics_by_id=topics_by_id,
            configs=self._apply_configs(),
            brokers=_merged(base.brokers, self._brokers),
            controllers=_merged(base.controllers, self._controllers),
            features=base.features if self._features is None else self._features,
            client_quotas=self._apply_quotas(),
            scram_credentials=_merged(base.scram_credentials, self._scram),
            delegation_tokens=_merged(base.delegation_tokens, self._tokens),
            next_producer_id=self._next_producer_id,
            acls=_merged(base.acls, self._acls),
            zk_migration_state=self._migration,
        )
        return image, changes

    def _apply_topics(
        self, changes: MetadataChanges, *, spent: bool
    ) -> tuple[Mapping[str, TopicImage], Mapping[Uuid, TopicImage]]:
        """Return the topics by name and by id. With `spent` they may share this delta's partitions, and `changes`
        lists none.
        """
        base = self._base
        if not self._topics:
            return base.topics, base.topics_by_id
        topics, topics_by_id = dict(base.topics), dict(base.topics_by_id)
        pairs: list[tuple[TopicImage, int]] = []
        for topic_id, name in self._topics.items():
            old = base.topics_by_id.get(topic_id)
            if name is None:
                if old is not None:
                    changes.deleted_topics.append(old)
                    del topics_by_id[topic_id]
                    # The name may already belong to a new topic.
                    if topics[old.name].topic_id == topic_id:
                        del topics[old.name]
                continue
            changed = self._partitions.get(topic_id, {})
            numbers = sorted(changed)
            if spent and old is None and numbers == list(changed):
                merged = changed
            else:
                both = {**old.partitions, **changed} if old else changed
                merged = {index: both[index] for index in sorted(both)}
            topic = TopicImage(name, topic_id, merged)
            topics[name] = topics_by_id[topic_id] = topic
            if old is None:
                changes.created_topics.append(topic)
            if not spent:
                pairs.extend((topic, index) for index in numbers)
        changes.changed_partitions = pairs
        return topics, topics_by_id

    def _apply_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        if not self._quotas:
            return self._base.client_quotas
        merged = {**self._base.client_quotas, **self._quotas}
        return {entity: quotas for entity, quotas in merged.items() if quotas}

    def _apply_configs(self) -> Mapping[ConfigResource, Mapping[str, str]]:
        if not self._configs:
            return self._base.configs
        configs = dict(self._base.configs)
        for resource, values in self._configs.items():
            if values:
                configs[resource] = values
            else:
                configs.pop(resource, None)
        return configs

    # -- topics ----------------------------------------------------------------------------------------------------

    def _topic_name(self, topic_id: Uuid) -> str:
        name = self._topics.get(topic_id)
        if name is None:
            base = None if topic_id in self._topics else self._base.topics_by_id.get(topic_id)
            if base is None:
                raise InvariantError(f"metadata record for topic {uuid_to_string(topic_id)}, which does not exist")
            name = base.name
        return name

    def _put_partition(self, topic_id: Uuid, index: int, partition: PartitionImage) -> None:
        self._topics[topic_id] = self._topic_name(topic_id)
        self._partitions.setdefault(topic_id, {})[index] = partition

    def _get_partition(self, topic_id: Uuid, index: int) -> PartitionImage:
        self._topic_name(topic_id)
        partition = self._partitions.get(topic_id, {}).get(index)
        if partition is None:
            base = self._base.topics_by_id.get(topic_id)
            partition = base.partitions.get(index) if base else None
        if partition is None:
            raise InvariantError(
                f"metadata record for partition {index} of {uuid_to_string(topic_id)}, which does not exist"
            )
        return partition

    def replay_topic(self, record: TopicRecord) -> None:
        topic_id = bytes(record.topic_id)
        if self._topics.get(topic_id) is not None or topic_id in self._base.topics_by_id:
            raise InvariantError(f"metadata record creates the existing topic {uuid_to_string(topic_id)}")
        self._topics[topic_id] = record.name

    def replay_partition(self, record: PartitionRecord) -> None:
        partition = PartitionImage(
            replicas=_shared(tuple(record.replicas)),
            isr=_shared(tuple(record.isr)),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing_replicas=tuple(record.removing_replicas or ()),
            adding_replicas=tuple(record.adding_replicas or ()),
            leader_recovery_state=record.leader_recovery_state,
            directories=_shared(tuple(map(_directory, record.directories))),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        self._put_partition(bytes(record.topic_id), record.partition_id, partition)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Every change raises the partition epoch; naming a leader, even the same one, raises the leader epoch."""
        topic_id = bytes(record.topic_id)
        old = self._get_partition(topic_id, record.partition_id)
        names_leader = record.leader != NO_LEADER_CHANGE
        keeps_recovery_state = record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        changed = PartitionImage(
            replicas=_changed(record.replicas, old.replicas),
            isr=_changed(record.isr, old.isr),
            leader=record.leader if names_leader else old.leader,
            leader_epoch=old.leader_epoch + 1 if names_leader else old.leader_epoch,
            partition_epoch=old.partition_epoch + 1,
            removing_replicas=_changed(record.removing_replicas, old.removing_replicas),
            adding_replicas=_changed(record.adding_replicas, old.adding_replicas),
            leader_recovery_state=old.leader_recovery_state if keeps_recovery_state else record.leader_recovery_state,
            directories=_changed(record.directories and map(_directory, record.directories), old.directories),
            eligible_leader_replicas=_changed(record.eligible_leader_replicas, old.eligible_leader_replicas),
            last_known_elr=_changed(record.last_known_elr, old.last_known_elr),
        )
        self._put_partition(topic_id, record.partition_id, changed)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic_id = bytes(record.topic_id)
        name = self._topic_name(topic_id)
        self._topics[topic_id] = None
        self._partitions.pop(topic_id, None)
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        if resource in self._base.configs or resource in self._configs:
            self._configs[resource] = {}

    # -- everything else -------------------------------------------------------------------------------------------

    def replay_config(self, record: ConfigRecord) -> None:
        try:
            resource = ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
        except ValueError as error:
            raise InvariantError(f"ConfigRecord of unknown resource type {record.resource_type}") from error
        values = self._configs.get(resource)
        if values is None:
            values = self._configs[resource] = dict(self._base.configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value

    def replay_client_quota(self, record: ClientQuotaRecord) -> None:
        entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
        quotas = self._quotas.get(entity)
        if quotas is None:
            quotas = self._quotas[entity] = dict(self._base.client_quotas.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value

    def _broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self._brokers[broker_id] if broker_id in self._brokers else self._base.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            raise InvariantError(
                f"metadata record for broker {broker_id} epoch {broker_epoch}, which is not registered"
            )
        return broker

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        self._brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=bytes(record.incarnation_id),
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(bytes(item) for item in record.log_dirs),
            cordoned_log_dirs=tuple(bytes(item) for item in record.cordoned_log_dirs or ()),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def replay_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        updates: dict[str, Any] = {}
        if record.fenced:
            updates["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            updates["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            updates["log_dirs"] = tuple(bytes(item) for item in record.log_dirs)
        if record.cordoned_log_dirs is not None:
            updates["cordoned_log_dirs"] = tuple(bytes(item) for item in record.cordoned_log_dirs)
        self._brokers[record.broker_id] = replace(broker, **updates)

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        self._brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=True)

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=False)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self._brokers[record.broker_id] = None

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers[record.controller_id] = ControllerImage(
            controller_id=record.controller_id,
            incarnation_id=bytes(record.incarnation_id),
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    def replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self._controllers[record.controller_id] = None

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """An empty name means all topics. Only partitions with eligible leader replicas change."""
        gone = {topic_id for topic_id, name in self._topics.items() if name is None}
        for topic_id in dict.fromkeys([*self._base.topics_by_id, *self._topics]):
            if topic_id in gone or record.topic_name not in ("", self._topic_name(topic_id)):
                continue
            base = self._base.topics_by_id.get(topic_id)
            for index in {**(base.partitions if base else {}), **self._partitions.get(topic_id, {})}:
                partition = self._get_partition(topic_id, index)
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self.replay_partition_change(
                        PartitionChangeRecord(
                            partition_id=index, topic_id=topic_id, eligible_leader_replicas=[], last_known_elr=[]
                        )
                    )

    def replay_user_scram_credential(self, record: UserScramCredentialRecord) -> None:
        self._scram[record.name, record.mechanism] = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )

    def replay_remove_user_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self._scram[record.name, record.mechanism] = None

    def replay_delegation_token(self, record: DelegationTokenRecord) -> None:
        self._tokens[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def replay_remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._tokens[record.token_id] = None

    def replay_acl(self, record: AccessControlEntryRecord) -> None:
        self._acls[bytes(record.id)] = acl_of(record)

    def replay_removal_of_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        acl_id = bytes(record.id)
        if (self._acls[acl_id] if acl_id in self._acls else self._base.acls.get(acl_id)) is None:
            raise InvariantError(f"metadata record removes ACL {uuid_to_string(acl_id)}, which does not exist")
        self._acls[acl_id] = None

    def replay_zk_migration_state(self, record: ZkMigrationStateRecord) -> None:
        try:
            self._migration = ZkMigrationState(record.zk_migration_state)
        except ValueError as error:
            raise InvariantError(
                f"metadata record has the unknown ZooKeeper migration state {record.zk_migration_state} (known: 0 to 3)"
            ) from error

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        if self._features is None:
            self._features = dict(self._base.features)
        if record.feature_level == 0:
            self._features.pop(record.name, None)
        else:
            self._features[record.name] = record.feature_level

    def replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise InvariantError(
                f"producer ids would decrease from {self._next_producer_id} to {record.next_producer_id}"
            )
        self._next_producer_id = record.next_producer_id

    def replay_nothing(self, record: object) -> None:
        """Ignore records without state in the image: no-ops, transaction bounds (the log groups those)."""


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """Return the ACL that a record adds."""
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def _merged(base: Mapping[K, T], changed: Mapping[K, T | None]) -> Mapping[K, T]:
    """Return `base` with the changes; None removes an entry."""
    if not changed:
        return base
    return {key: value for key, value in {**base, **changed}.items() if value is not None}


def _changed(value: Iterable[T] | None, old: tuple[T, ...]) -> tuple[T, ...]:
    return old if value is None else _shared(tuple(value))


def _shared(values: tuple[T, ...]) -> tuple[T, ...]:
    """Return an equal tuple that partitions share: with a million of them, few sets of replicas exist."""
    return _first_equal(values)  # type: ignore[return-value]


@lru_cache(maxsize=4096)
def _first_equal(values: tuple[object, ...]) -> tuple[object, ...]:
    return values


def _directory(directory: Buffer) -> Uuid:
    """Return the directory of a replica; zero if it is unknown.

    Apache Kafka uses zero for replicas that predate directory ids, and another reserved id for unassigned ones.
    """
    return ZERO_UUID if directory == UNASSIGNED_UUID else bytes(directory)


def _endpoints(listed: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(item.name, security_protocol_name(item.security_protocol), item.host, item.port) for item in listed
    )


def _features(listed: Iterable[Any]) -> dict[str, VersionRange]:
    return {item.name: VersionRange(item.min_supported_version, item.max_supported_version) for item in listed}


def security_protocol_name(number: int) -> str:
    """Return the name of a protocol number; raises InvariantError for an unknown one."""
    name = _SECURITY_PROTOCOL_NAMES.get(number)
    if name is None:
        raise InvariantError(f"metadata record with unknown security protocol {number}")
    return name


_HANDLERS: Mapping[type, Callable[[MetadataDelta, Any], None]] = {
    TopicRecord: MetadataDelta.replay_topic,
    PartitionRecord: MetadataDelta.replay_partition,
    PartitionChangeRecord: MetadataDelta.replay_partition_change,
    RemoveTopicRecord: MetadataDelta.replay_remove_topic,
    ConfigRecord: MetadataDelta.replay_config,
    ClientQuotaRecord: MetadataDelta.replay_client_quota,
    RegisterBrokerRecord: MetadataDelta.replay_register_broker,
    BrokerRegistrationChangeRecord: MetadataDelta.replay_broker_registration_change,
    FenceBrokerRecord: MetadataDelta.replay_fence_broker,
    UnfenceBrokerRecord: MetadataDelta.replay_unfence_broker,
    UnregisterBrokerRecord: MetadataDelta.replay_unregister_broker,
    FeatureLevelRecord: MetadataDelta.replay_feature_level,
    ProducerIdsRecord: MetadataDelta.replay_producer_ids,
    NoOpRecord: MetadataDelta.replay_nothing,
    RegisterControllerRecord: MetadataDelta.replay_register_controller,
    BeginTransactionRecord: MetadataDelta.replay_nothing,
    EndTransactionRecord: MetadataDelta.replay_nothing,
    AbortTransactionRecord: MetadataDelta.replay_nothing,
    UnregisterControllerRecord: MetadataDelta.replay_unregister_controller,
    ClearElrRecord: MetadataDelta.replay_clear_elr,
    UserScramCredentialRecord: MetadataDelta.replay_user_scram_credential,
    DelegationTokenRecord: MetadataDelta.replay_delegation_token,
    AccessControlEntryRecord: MetadataDelta.replay_acl,
    ZkMigrationStateRecord: MetadataDelta.replay_zk_migration_state,
    RemoveUserScramCredentialRecord: MetadataDelta.replay_remove_user_scram_credential,
    RemoveDelegationTokenRecord: MetadataDelta.replay_remove_delegation_token,
    RemoveAccessControlEntryRecord: MetadataDelta.replay_removal_of_acl,
}
