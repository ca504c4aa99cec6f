"""Records that recreate an image: the content of a snapshot (KIP-630).

Invariant: replaying the records over the empty image returns an equal image, except offset and epoch, which are in the
name of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from ottla.common.config.feature_levels import METADATA_VERSION
from ottla.common.kafka.acl import Acl
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.delta import SECURITY_PROTOCOL_IDS
from ottla.metadata.image import (
    BrokerImage,
    ControllerImage,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    ScramKey,
    VersionRange,
    ZkMigrationState,
    metadata_level,
)
from ottla.metadata.records import ApiMessageAndVersion, at_level, versioned
from ottla.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from ottla.security.sasl.credentials import ScramCredential

T = TypeVar("T")


def image_records(image: MetadataImage) -> Iterator[ApiMessageAndVersion]:
    """Return the records of `image` at its metadata.version, which comes first: readers need it."""
    return at_level(_records(image), metadata_level(image))


def _records(image: MetadataImage) -> Iterator[ApiMessageAndVersion]:
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield versioned(FeatureLevelRecord(name=name, feature_level=image.features[name]))
    for broker in image.brokers.values():
        yield versioned(register_broker_record(broker))
    for controller in image.controllers.values():
        yield versioned(register_controller_record(controller))
    for topic in image.topics.values():
        yield versioned(TopicRecord(name=topic.name, topic_id=topic.topic_id))
        for index, partition in topic.partitions.items():
            yield versioned(partition_record(topic.topic_id, index, partition))
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield versioned(
                ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
            )
    for entity, quotas in image.client_quotas.items():
        for key, limit in quotas.items():
            yield versioned(client_quota_record(entity, key, limit))
    for user_mechanism, credential in image.scram_credentials.items():
        yield versioned(scram_credential_record(user_mechanism, credential))
    for token in image.delegation_tokens.values():
        yield versioned(delegation_token_record(token))
    if image.next_producer_id:
        yield versioned(ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id))
    for acl_id, acl in image.acls.items():
        yield versioned(acl_record(acl_id, acl))
    if image.zk_migration_state is not ZkMigrationState.NONE:
        yield versioned(ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state))


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    """Return the record that adds this ACL."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def client_quota_record(entity: QuotaEntity, key: str, value: float) -> ClientQuotaRecord:
    """Return the record that sets one quota."""
    parts = [QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value)


def scram_credential_record(key: ScramKey, credential: ScramCredential) -> UserScramCredentialRecord:
    """Return the record that sets this credential of a user."""
    name, mechanism = key
    return UserScramCredentialRecord(name=name, mechanism=mechanism, **credential._asdict())


def delegation_token_record(token: DelegationToken) -> DelegationTokenRecord:
    """Return the record that creates or changes this token."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.token_id,
    )


def partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    """Return the record of this partition."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def endpoint_rows(row: Callable[..., T], endpoints: Iterable[Endpoint]) -> list[T]:
    """Return the endpoints of a node as rows of its registration request or record."""
    return [
        row(
            name=endpoint.listener_name,
            host=endpoint.host,
            port=endpoint.port,
            security_protocol=SECURITY_PROTOCOL_IDS[endpoint.security_protocol],
        )
        for endpoint in endpoints
    ]


def feature_rows(row: Callable[..., T], features: Mapping[str, VersionRange]) -> list[T]:
    """Return the supported features of a node as rows of its registration request or record."""
    return [
        row(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
        for name, levels in features.items()
    ]


def register_broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """Return the record that registers this broker."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=endpoint_rows(BrokerEndpoint, broker.endpoints),
        features=feature_rows(BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=list(broker.cordoned_log_dirs) or None,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
    )


def register_controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    """Return the record that registers this controller."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        end_points=endpoint_rows(ControllerEndpoint, controller.endpoints),
        features=feature_rows(ControllerFeature, controller.features),
        zk_migration_ready=controller.zk_migration_ready,
    )
