"""CreateTopics, DeleteTopics and CreatePartitions.

Checks, their order, codes and messages are those of Apache Kafka 4.x in KRaft mode. An invalid topic in a request does
not affect the others. Valid ones are charged to their client's quota (KIP-599). Left out: creation policies (Java
classes), authorization.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.topic_configs import validate_topic_configs
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID, Uuid
from ottla.controller.partition_change import only_directory
from ottla.controller.placement import place_replicas, validate_manual_assignment
from ottla.controller.replication import directories_of
from ottla.controller.result import ControllerContext, ControllerResult, check_record_count
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.metadata.snapshot import partition_record
from ottla.metadata.topic_names import CLUSTER_METADATA_TOPIC, collision_form, validate_topic_name
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

# -- CreateTopics ------------------------------------------------------------------------------------------------------


_FEWEST_RECORDS = 2
"""Minimum records of a topic: itself and one partition."""


def handle_create_topics(
    image: MetadataImage, request: CreateTopicsRequest, context: ControllerContext
) -> ControllerResult[CreateTopicsResponse]:
    """Create the valid topics; `validate_only` returns the same results without records."""
    response = CreateTopicsResponse()
    records: list[ApiMessageAndVersion] = []
    counts = Counter(topic.name for topic in request.topics)
    placed = image.partition_count()
    forms = {collision_form(name): name for name in image.topics}
    for topic in request.topics:
        if counts[topic.name] != 1:
            if counts[topic.name]:
                counts[topic.name] = 0
                error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                response.topics.append(_create_failed(topic.name, error))
            continue
        try:
            _check_new_name(image, topic.name, forms)
            check_record_count(len(records) + _FEWEST_RECORDS)  # before the work, which a rejection does not charge
            topic_records, result = _create_topic(image, topic, placed, context)
            check_record_count(len(records) + len(topic_records))
            context.mutation.charge(result.num_partitions)
        except KafkaError as error:
            response.topics.append(_create_failed(topic.name, error))
            continue
        # A later topic in this request may collide with this one.
        forms[collision_form(topic.name)] = topic.name
        records += topic_records
        placed += result.num_partitions
        response.topics.append(result)
    return ControllerResult([] if request.validate_only else records, response)


def _create_failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message, configs=[])


def _check_new_name(image: MetadataImage, name: str, forms: Mapping[str, str]) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        )
    validate_topic_name(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    existing = forms.get(collision_form(name))
    if existing is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {existing}")


def _create_topic(
    image: MetadataImage, topic: CreatableTopic, placed: int, context: ControllerContext
) -> tuple[list[ApiMessageAndVersion], CreatableTopicResult]:
    overrides = _creation_configs(topic.configs)
    validate_topic_configs(overrides, context.config.topic_defaults)
    if topic.assignments:
        placements = _manual_placements(image, topic)
    else:
        placements = _automatic_placements(image, topic, placed, context)
    topic_id = context.new_uuid()
    records = [
        versioned(
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        )
        for name, value in overrides.items()
    ]
    records.insert(0, versioned(TopicRecord(name=topic.name, topic_id=topic_id)))
    records += _partition_records(image, topic_id, 0, placements, context)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(placements),
        replication_factor=len(placements[0]),
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in context.config.describe_topic(overrides)
        ],
    )
    return records, result


def _creation_configs(configs: Iterable[CreatableTopicConfig]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    nulls = []
    for config in configs:
        if config.value is None:
            nulls.append(config.name)
        else:
            overrides[config.name] = config.value
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    return overrides


def _automatic_placements(
    image: MetadataImage, topic: CreatableTopic, placed: int, context: ControllerContext
) -> list[tuple[int, ...]]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    count = topic.num_partitions
    if count == -1:
        count = context.config.get_int("num.partitions")
    replication_factor = topic.replication_factor
    if replication_factor == -1:
        replication_factor = context.config.get_int("default.replication.factor")
    check_record_count(count, "Excessively large number of partitions per request.")
    return place_replicas(image, placed, count, replication_factor)


def _manual_placements(image: MetadataImage, topic: CreatableTopic) -> list[tuple[int, ...]]:
    for value, field in ((topic.replication_factor, "replication factor"), (topic.num_partitions, "numPartitions")):
        if value != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field} was not set to -1.",
            )
    placements: dict[int, tuple[int, ...]] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in placements:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        validate_manual_assignment(image, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        placements[index] = tuple(assignment.broker_ids)
    if sorted(placements) != list(range(len(placements))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [placements[index] for index in range(len(placements))]


def _partition_records(
    image: MetadataImage,
    topic_id: Uuid,
    first: int,
    placements: Sequence[tuple[int, ...]],
    context: ControllerContext,
) -> list[ApiMessageAndVersion]:
    records = []
    states: dict[tuple[int, ...], PartitionRecord] = {}  # the same for all partitions with the same replicas
    for index, replicas in enumerate(placements, first):
        state = states.get(replicas)
        if state is None:
            state = states[replicas] = partition_record(topic_id, index, _first_state(image, index, replicas))
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=state.replicas,
            isr=state.isr,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            directories=state.directories,
        )
        records.append(versioned(record))
    return records


def _first_state(image: MetadataImage, index: int, replicas: tuple[int, ...]) -> PartitionImage:
    isr = tuple(broker_id for broker_id in replicas if image.brokers[broker_id].active)
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment for "
            f"partition {index} are fenced or in controlled shutdown.",
        )
    directories = tuple(only_directory(directories_of(image, broker_id)) for broker_id in replicas)
    return PartitionImage(
        replicas=replicas, isr=isr, leader=isr[0], leader_epoch=0, partition_epoch=0, directories=directories
    )


# -- DeleteTopics ------------------------------------------------------------------------------------------------------


def handle_delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, context: ControllerContext
) -> ControllerResult[DeleteTopicsResponse]:
    """Delete topics by name or id. Raises KafkaError TOPIC_DELETION_DISABLED when the broker forbids it."""
    if not context.config.get_bool("delete.topic.enable"):
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    response = DeleteTopicsResponse()
    found: dict[Uuid, TopicImage] = {}
    names, ids = _named_topics(request, response)
    for topic_id in ids:
        topic = image.topic_by_id(topic_id)
        if topic is None:
            _delete_failed(
                response, None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
            )
        else:
            found[topic_id] = topic
    for name in names:
        topic = image.topic(name)
        if topic is None:
            _delete_failed(
                response,
                name,
                ZERO_UUID,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        elif topic.topic_id in found:
            del found[topic.topic_id]
            _delete_failed(
                response,
                name,
                topic.topic_id,
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
        else:
            found[topic.topic_id] = topic
    check_record_count(len(found))
    records: list[ApiMessageAndVersion] = []
    for topic in found.values():
        try:
            context.mutation.charge(len(topic.partitions))
        except KafkaError as error:
            _delete_failed(response, topic.name, topic.topic_id, error.code, error.message)
            continue
        response.responses.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
        records.append(versioned(RemoveTopicRecord(topic_id=topic.topic_id)))
    return ControllerResult(records, response)


def _named_topics(request: DeleteTopicsRequest, response: DeleteTopicsResponse) -> tuple[list[str], list[Uuid]]:
    """Return names and ids that occur once; errors for all others are added to the response."""
    names: Counter[str] = Counter(request.topic_names)
    ids: Counter[Uuid] = Counter()
    for topic in request.topics:
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            message = "You may not specify both topic name and topic id."
            _delete_failed(response, topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, message)
        elif topic.name is not None:
            names[topic.name] += 1
        elif topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] += 1
        else:
            message = "Neither topic name nor id were specified."
            _delete_failed(response, None, ZERO_UUID, ErrorCode.INVALID_REQUEST, message)
    for name, count in names.items():
        if count > 1:
            _delete_failed(response, name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    for topic_id, count in ids.items():
        if count > 1:
            _delete_failed(response, None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    return [name for name in names if names[name] == 1], [topic_id for topic_id in ids if ids[topic_id] == 1]


def _delete_failed(
    response: DeleteTopicsResponse, name: str | None, topic_id: Uuid, code: ErrorCode, message: str
) -> None:
    response.responses.append(
        DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
    )


# -- CreatePartitions --------------------------------------------------------------------------------------------------


def handle_create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, context: ControllerContext
) -> ControllerResult[CreatePartitionsResponse]:
    """Raise partition counts; `validate_only` returns the same results without records."""
    response = CreatePartitionsResponse()
    records: list[ApiMessageAndVersion] = []
    counts = Counter(topic.name for topic in request.topics)
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if counts[topic.name] != 1:
                if not counts[topic.name]:
                    continue
                counts[topic.name] = 0
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic_records = _create_partitions(image, topic, context)
            check_record_count(len(records) + len(topic_records))
            context.mutation.charge(len(topic_records))
            records += topic_records
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        response.results.append(result)
    return ControllerResult([] if request.validate_only else records, response)


def _create_partitions(
    image: MetadataImage, request: CreatePartitionsTopic, context: ControllerContext
) -> list[ApiMessageAndVersion]:
    topic = image.topic(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    current = len(topic.partitions)
    if request.count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if request.count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {current} partition(s); {request.count} would not be an increase.",
        )
    additional = request.count - current
    check_record_count(additional)
    replication_factor = len(next(iter(topic.partitions.values())).replicas)
    if request.assignments is None:
        placements = place_replicas(image, current, additional, replication_factor)
    else:
        if len(request.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(request.assignments)} "
                "assignment(s) were specified.",
            )
        placements = []
        for assignment in request.assignments:
            validate_manual_assignment(image, assignment.broker_ids, replication_factor)
            placements.append(tuple(assignment.broker_ids))
    return _partition_records(image, topic.topic_id, current, placements, context)
