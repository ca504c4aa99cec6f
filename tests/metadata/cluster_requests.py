"""Requests of clients and brokers to the controller of a `LogWorld`, and the state that they lead to on any log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.acls import handle_create_acls, handle_delete_acls
from ottla.controller.client_quotas import handle_alter_client_quotas
from ottla.controller.configs import handle_incremental_alter_configs
from ottla.controller.delegation_tokens import handle_create_delegation_token, handle_expire_delegation_token
from ottla.controller.elections import handle_elect_leaders
from ottla.controller.features import handle_update_features
from ottla.controller.reassignments import handle_alter_partition_reassignments
from ottla.controller.requests import operation_of
from ottla.controller.scram_credentials import handle_alter_user_scram_credentials
from ottla.controller.topics import handle_create_partitions, handle_create_topics, handle_delete_topics
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlterQuotaOperation,
    AlterQuotasEntry,
)
from ottla.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .log_world import LogWorld, Operation, live

SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""
ANY, ALLOW, READ, TOPIC = 1, 3, 3, 2
"""Codes of ACLs."""


class Requests:
    """Each waits for the answer, and returns its error code."""

    def __init__(self, world: LogWorld) -> None:
        self.world = world
        self.token = b""
        """The HMAC of the last delegation token."""

    def _ask(self, operation: Operation) -> Any:
        return self.world.decide(operation)

    @property
    def image(self) -> MetadataImage:
        return self.world.settled().image

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    # -- topics ----------------------------------------------------------------------------------------------------

    def create(
        self, name: str, *placements: Sequence[int], partitions: int = -1, factor: int = -1, **configs: str
    ) -> ErrorCode:
        """With these replicas, or with as many as named."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(placements)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        response = self._ask(lambda image, context: handle_create_topics(image, request, context))
        return ErrorCode(response.topics[0].error_code)

    def grow(self, name: str, count: int, *added: Sequence[int]) -> ErrorCode:
        assignments = [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in added]
        topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000)
        response = self._ask(lambda image, context: handle_create_partitions(image, request, context))
        return ErrorCode(response.results[0].error_code)

    def delete(self, name: str) -> ErrorCode:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        response = self._ask(lambda image, context: handle_delete_topics(image, request, context))
        return ErrorCode(response.responses[0].error_code)

    def reassign(self, name: str, index: int, replicas: Sequence[int] | None) -> ErrorCode:
        """Without `replicas` the current reassignment is cancelled."""
        asked = ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[asked])])
        response = self._ask(lambda image, context: handle_alter_partition_reassignments(image, request, context))
        return ErrorCode(response.responses[0].partitions[0].error_code)

    def elect(self, kind: int, name: str, index: int = 0) -> ErrorCode:
        topics = [ElectLeadersTopic(topic=name, partitions=[index])]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
        response = self._ask(lambda image, context: handle_elect_leaders(image, request, context))
        return ErrorCode(response.replica_election_results[0].partition_result[0].error_code)

    def in_sync(
        self, name: str, isr: Sequence[int], index: int = 0, *, age: int = 0, incarnation_age: int = 0
    ) -> ErrorCode:
        """The leader requests this ISR; `age` is how old its partition epoch is, `incarnation_age` its broker epoch."""
        image = self.image
        topic = image.topics[name]
        partition = topic.partitions[index]
        change = AlterPartitionPartition(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch - age,
            new_isr_with_epochs=[
                BrokerState(
                    broker_id=each, broker_epoch=image.brokers[each].broker_epoch if each in image.brokers else -1
                )
                for each in isr
            ],
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=image.brokers[partition.leader].broker_epoch - incarnation_age,
            topics=[AlterPartitionTopic(topic_id=topic.topic_id, partitions=[change])],
        )
        try:
            response = self._ask(operation_of(request))
        except KafkaError as error:
            return ErrorCode(error.code)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    # -- settings and principals -----------------------------------------------------------------------------------

    def configure(self, kind: ConfigResourceType, name: str, **settings: str | None) -> ErrorCode:
        changes = [
            AlterableConfig(name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value)
            for key, value in settings.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = self._ask(lambda image, context: handle_incremental_alter_configs(image, request, context))
        return ErrorCode(response.responses[0].error_code)

    def quota(self, kind: str, name: str | None, key: str, value: float | None) -> ErrorCode:
        entry = AlterQuotasEntry(
            entity=[AlteredEntity(entity_type=kind, entity_name=name)],
            ops=[AlterQuotaOperation(key=key, value=value or 0.0, remove=value is None)],
        )
        request = AlterClientQuotasRequest(entries=[entry])
        response = self._ask(lambda image, _context: handle_alter_client_quotas(image, request))
        return ErrorCode(response.entries[0].error_code)

    def credential(self, user: str, salt: bytes | None, mechanism: int = 1) -> ErrorCode:
        """Without `salt` it is removed."""
        if salt is None:
            request = AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=user, mechanism=mechanism)]
            )
        else:
            put = ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=4096, salt=salt, salted_password=b"salted"
            )
            request = AlterUserScramCredentialsRequest(upsertions=[put])
        response = self._ask(lambda image, context: handle_alter_user_scram_credentials(image, request))
        return ErrorCode(response.results[0].error_code)

    def allow(self, principal: str, topic: str) -> ErrorCode:
        acl = AclCreation(
            resource_type=TOPIC,
            resource_name=topic,
            principal=principal,
            host="*",
            operation=READ,
            permission_type=ALLOW,
        )
        request = CreateAclsRequest(creations=[acl])
        response = self._ask(lambda image, context: handle_create_acls(image, request, context))
        return ErrorCode(response.results[0].error_code)

    def forbid(self, principal: str) -> int:
        """Remove all ACLs of a principal; returns how many there were."""
        chosen = DeleteAclsFilter(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=principal,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        request = DeleteAclsRequest(filters=[chosen])
        response = self._ask(lambda image, _context: handle_delete_acls(image, request))
        return len(response.filter_results[0].matching_acls)

    def issue_token(self, owner: str) -> ErrorCode:
        request = CreateDelegationTokenRequest(max_lifetime_ms=3_600_000)
        response = self._ask(lambda image, context: handle_create_delegation_token(image, request, owner, context))
        self.token = response.hmac
        return ErrorCode(response.error_code)

    def expire_token(self, owner: str) -> ErrorCode:
        request = ExpireDelegationTokenRequest(hmac=self.token, expiry_time_period_ms=-1)
        response = self._ask(lambda image, context: handle_expire_delegation_token(image, request, owner, context))
        return ErrorCode(response.error_code)

    def finalize(self, feature: str, level: int, upgrade_type: int) -> ErrorCode:
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
        request = UpdateFeaturesRequest(feature_updates=[update])
        return ErrorCode(
            self._ask(lambda image, context: handle_update_features(image, request, 2, context)).error_code
        )

    # -- brokers ---------------------------------------------------------------------------------------------------

    def producer_ids(self, broker_id: int) -> int:
        """The first id of a block for this broker."""
        broker_epoch = self.image.brokers[broker_id].broker_epoch
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        return int(self._ask(operation_of(request)).producer_id_start)

    def leave(self, *broker_ids: int) -> ErrorCode:
        self.world.leave(*broker_ids)
        self.world.settled()
        return ErrorCode.NONE

    def join(self, *broker_ids: int) -> ErrorCode:
        self.world.join(*broker_ids)
        self.world.settled()
        return ErrorCode.NONE

    def shut_down(self, broker_id: int) -> ErrorCode:
        """A controlled shutdown: the broker leaves once the controller has moved its leaderships."""
        others = sorted(self.world.brokers - {broker_id})
        self.world.settled()
        for _ in range(20):
            response = self._heartbeat(broker_id, want_shut_down=True)
            if response.should_shut_down:
                return self.leave(broker_id)
            for other in others:
                self._heartbeat(other)
        raise AssertionError("a controlled shutdown does not end")

    def _heartbeat(self, broker_id: int, *, want_shut_down: bool = False) -> Any:
        active = self.world.active
        assert active is not None
        answers = active.ask(
            operation_of(
                BrokerHeartbeatRequest(
                    broker_id=broker_id,
                    broker_epoch=active.log.latest.brokers[broker_id].broker_epoch,
                    current_metadata_offset=active.log.latest.offset,
                    want_shut_down=want_shut_down,
                )
            )
        )
        self.world.answered(answers)
        response, error = answers[0]
        assert error is None, error
        return response


def cluster_state(image: MetadataImage) -> dict[str, Any]:
    """Everything that the same requests have to lead to on any log: no ids, offsets, directories and fenced brokers."""
    return {
        "topics": {
            topic.name: {index: partition_state(partition) for index, partition in topic.partitions.items()}
            for topic in image.topics.values()
        },
        "configs": {resource: dict(settings) for resource, settings in image.configs.items() if settings},
        "features": dict(image.features),
        "quotas": {entity: dict(limits) for entity, limits in image.client_quotas.items()},
        "credentials": dict(image.scram_credentials),
        "acls": set(image.acls.values()),
        "tokens": sorted(
            (
                token.owner,
                token.requester,
                token.renewers,
                token.max_ms - token.issue_ms,
                token.expiry_ms - token.issue_ms,
            )
            for token in image.delegation_tokens.values()
        ),
        "producer ids": image.next_producer_id,
        "brokers": {broker_id: image.brokers[broker_id].endpoints for broker_id in sorted(live(image))},
    }


def partition_state(partition: PartitionImage) -> tuple[Any, ...]:
    return (
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.leader_recovery_state,
    )
