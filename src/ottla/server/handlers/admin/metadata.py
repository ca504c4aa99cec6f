"""Metadata (3): versions 0 to 13. Brokers, topics, partitions and their leaders; creates topics on demand.

Version notes: 0 requests all topics by an empty list, from 1 on by a null one; 4 sets whether topics may be created;
10 and later carry topic ids, 12 can request by id. As in Apache Kafka, a topic to be created is answered as unknown
while the controller creates it; the client retries. A consumer with a stale subscription thus learns that its topic
was deleted.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.ids import ZERO_UUID, Uuid
from ottla.common.kafka.internal_topics import INTERNAL_TOPICS
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.topic_names import CLUSTER_METADATA_TOPIC, unknown_name, unknown_topic, validate_topic_name
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import NOT_REQUESTED, RequiredPermission, split_allowed
from ottla.server.requests.forwarding import RequestOrigin
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps

FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_BY_TOPIC_ID = 12
FIRST_VERSION_WITH_AUTO_CREATION_FLAG = 4

PARTITIONS_PER_STEP = 64

_NOT_ON_DEMAND = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}
"""Created by their coordinators with configs of their own; an ordinary topic of that name would block them."""


def handle(context: AdminContext, request: Request, message: MetadataRequest) -> Steps:
    """Describe the requested topics; see the module."""
    if request.api_version < FIRST_VERSION_BY_TOPIC_ID:
        _check_names(message, request.api_version)
    missing = _creatable(context, request, message)
    refused: frozenset[str] = frozenset()
    if missing:
        missing, refused = _allowed_to_create(request, missing)
        client = RequestOrigin(request.principal, request.client_id or "", request.channel.client_host)
        context.topics.create_on_demand(missing, client)
    return _describe(context, request, message, refused)


def _check_names(message: MetadataRequest, version: int) -> None:
    """Refuse the whole request for a topic without a name or with an id, as Apache Kafka does."""
    for topic in message.topics or ():
        if topic.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {version}")
        if topic.topic_id != ZERO_UUID:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests for version {version}"
            )


def _allowed_to_create(request: Request, missing: list[str]) -> tuple[list[str], frozenset[str]]:
    """Of the missing topics: those that the requester may create, and those that it may describe but not create."""
    missing = [
        name for name in missing if request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=False)
    ]
    if request.allowed(AclOperation.CREATE, ResourceType.CLUSTER, audit=False):
        return missing, frozenset()
    kept, refused = split_allowed(missing, lambda name: request.allowed(AclOperation.CREATE, ResourceType.TOPIC, name))
    return kept, frozenset(refused)


def _creatable(context: AdminContext, request: Request, message: MetadataRequest) -> list[str]:
    """Names of the topics to create."""
    if not message.topics or not context.config.get_bool("auto.create.topics.enable"):
        return []
    if request.api_version >= FIRST_VERSION_WITH_AUTO_CREATION_FLAG and not message.allow_auto_topic_creation:
        return []
    topics = context.metadata.image.topics
    names = dict.fromkeys(topic.name for topic in message.topics if topic.name and topic.topic_id == ZERO_UUID)
    return [name for name in names if name not in topics and name not in _NOT_ON_DEMAND and _is_valid(name)]


def _is_valid(name: str) -> bool:
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def _describe(context: AdminContext, request: Request, message: MetadataRequest, refused: frozenset[str]) -> Steps:
    """`refused`: names that the requester may not create. The response describes a single image."""
    image = context.metadata.image
    listener = request.listener_name
    asks_operations = message.include_topic_authorized_operations
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in context.metadata.brokers_on(listener)
        ],
        cluster_id=context.metadata.cluster_id,
        controller_id=context.metadata.controller_id(),
        cluster_authorized_operations=(
            request.cluster_operations() if message.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )
    ask_all = message.topics is None or (request.api_version < FIRST_VERSION_WITH_NULL_FOR_ALL and not message.topics)
    if ask_all:
        for topic in image.topics.values():
            if request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name, audit=False):
                operations = NOT_REQUESTED
                if asks_operations:
                    operations = request.authorized_operations(ResourceType.TOPIC, topic.name)
                if len(topic.partitions) <= PARTITIONS_PER_STEP:
                    response.topics.append(_topic(image, topic, operations))
                else:
                    response.topics.append((yield from _large_topic(image, topic, operations)))
            yield None
        return response
    answered: set[tuple[str | None, Uuid]] = set()
    for asked in message.topics or []:
        if (asked.name, asked.topic_id) in answered:
            yield None
            continue
        answered.add((asked.name, asked.topic_id))
        found = _find(image, request, asked)
        name = found.name if isinstance(found, TopicImage) else asked.name or ""
        # An unknown id reveals nothing.
        if name and (name in refused or not request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name)):
            response.topics.append(_refused(asked, request.api_version))
            yield None
            continue
        described = asks_operations and bool(name)
        operations = request.authorized_operations(ResourceType.TOPIC, name) if described else NOT_REQUESTED
        if isinstance(found, ErrorCode):
            response.topics.append(_unknown(asked, found, request.api_version, operations))
        elif len(found.partitions) <= PARTITIONS_PER_STEP:
            response.topics.append(_topic(image, found, operations))
        else:
            response.topics.append((yield from _large_topic(image, found, operations)))
        yield None
    return response


def _find(image: MetadataImage, request: Request, asked: MetadataRequestTopic) -> TopicImage | ErrorCode:
    by_id = request.api_version >= FIRST_VERSION_BY_TOPIC_ID
    if asked.topic_id != ZERO_UUID:
        if not by_id:
            return ErrorCode.INVALID_REQUEST
        return image.find(asked.topic_id) or unknown_topic(asked.topic_id)
    if asked.name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.INVALID_REQUEST
    return image.find(asked.name) or unknown_name(asked.name).code


def _unknown(
    asked: MetadataRequestTopic, code: ErrorCode, api_version: int, operations: int = NOT_REQUESTED
) -> MetadataResponseTopic:
    name = asked.name
    if name is None and api_version < FIRST_VERSION_BY_TOPIC_ID:
        name = ""
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=asked.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _refused(asked: MetadataRequestTopic, api_version: int) -> MetadataResponseTopic:
    """A topic that may not be described, whether it exists or not: by id without a name, by name without an id."""
    row = _unknown(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED, api_version)
    if asked.topic_id != ZERO_UUID:
        row.name = None
    row.is_internal = False
    return row


def _topic(image: MetadataImage, topic: TopicImage, operations: int) -> MetadataResponseTopic:
    row = _topic_row(topic, operations)
    row.partitions = [_partition(image, index, partition) for index, partition in topic.partitions.items()]
    return row


def _large_topic(
    image: MetadataImage, topic: TopicImage, operations: int
) -> Generator[None, None, MetadataResponseTopic]:
    row = _topic_row(topic, operations)
    for index, partition in topic.partitions.items():
        row.partitions.append(_partition(image, index, partition))
        if len(row.partitions) % PARTITIONS_PER_STEP == 0:
            yield
    return row


def _topic_row(topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _partition(image: MetadataImage, index: int, partition: PartitionImage) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=image.offline_replicas(partition),
    )


def error_response(message: MetadataRequest, code: ErrorCode, text: str) -> MetadataResponse:
    """The error for every named topic, and at the top from version 13 on."""
    return MetadataResponse(
        error_code=code, topics=[_unknown(asked, code, FIRST_VERSION_BY_TOPIC_ID - 1) for asked in message.topics or []]
    )


def cache_inputs(context: AdminContext) -> tuple[object, ...]:
    """Inputs of a response besides the request: topics and brokers, configs, and the controller."""
    metadata = context.metadata
    return metadata.image, context.config, metadata.controller_id()


METADATA = SchemaApi(
    ApiKey.METADATA,
    handle,
    error_response,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),
        RequiredPermission(AclOperation.CREATE, ResourceType.CLUSTER),
        RequiredPermission(AclOperation.CREATE, ResourceType.TOPIC),
    ),
    cache_inputs=cache_inputs,
)
