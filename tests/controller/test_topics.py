"""Creating, deleting and growing topics: Apache Kafka's responses, and the resulting image."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.controller.placement import place_replicas
from ottla.controller.result import MAX_RECORDS_PER_USER_OP, ControllerContext
from ottla.controller.topics import handle_create_partitions, handle_create_topics, handle_delete_topics
from ottla.metadata.image import MetadataImage
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
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

from .conftest import with_brokers


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def assigned(name: str, *replicas: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in replicas],
    )


def create(image: MetadataImage, context: ControllerContext, *topics: CreatableTopic, **options: Any) -> Any:
    return handle_create_topics(image, CreateTopicsRequest(topics=list(topics), **options), context)


def only(response: Any) -> Any:
    (result,) = response.topics
    return result


def test_created_topic(image: MetadataImage, context: ControllerContext, apply: Any) -> None:
    result = create(image, context, topic("t", 3, cleanup_policy="compact"))
    answer = only(result.response)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 3, 1)
    shown = {config.name: config for config in answer.configs}
    assert (shown["cleanup.policy"].value, shown["cleanup.policy"].config_source) == ("compact", 1)
    assert shown["retention.ms"].config_source == 5
    image = apply(image, result.records)
    made = image.topics["t"]
    assert made.topic_id == answer.topic_id != ZERO_UUID
    assert list(made.partitions) == [0, 1, 2]
    for partition in made.partitions.values():
        assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == (bytes([1]) * 16,)
    assert image.topic_configs("t") == {"cleanup.policy": "compact"}


def test_defaults_are_the_brokers(image: MetadataImage, make_context: Any, apply: Any) -> None:
    context = make_context(num_partitions="4")
    result = create(image, context, topic("t", -1, -1))
    assert (only(result.response).num_partitions, only(result.response).replication_factor) == (4, 1)
    assert len(apply(image, result.records).topics["t"].partitions) == 4


def test_validation_only_gives_no_records(image: MetadataImage, context: ControllerContext) -> None:
    result = create(image, context, topic("t"), validate_only=True)
    assert only(result.response).error_code == 0
    assert result.records == []


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (topic(""), 17, "Topic name is invalid: the empty string is not allowed"),
        (topic("."), 17, "Topic name is invalid: '.' is not allowed"),
        (topic("a b"), 17, "Topic name is invalid: 'a b' contains one or more characters other than"),
        (topic("x\n"), 17, "Topic name is invalid"),
        (topic("x" * 250), 17, "is longer than the max allowed length 249"),
        (topic("__cluster_metadata"), 42, "Creation of internal topic __cluster_metadata is prohibited."),
        (topic("there"), 36, "Topic 'there' already exists."),
        (topic("a_b"), 17, "Topic 'a_b' collides with existing topic: a.b"),
        (topic("t", 0), 37, "Number of partitions was set to an invalid non-positive value."),
        (topic("t", -2), 37, "Number of partitions was set to an invalid non-positive value."),
        (topic("t", 1, 0), 38, "Replication factor must be larger than 0"),
        (topic("t", 1, 2), 38, "Unable to replicate the partition 2 time(s): The target replication factor of 2"),
        (topic("t", 2**31 - 1), 44, "Excessively large"),
        (topic("t", retention_ms="soon"), 40, "Not a number of type LONG"),
        (topic("t", retention_ms=None), 40, "Null value not supported for topic configs: retention.ms"),
        (topic("t", no_such="1"), 40, "Unknown topic config name: no.such"),
        (assigned("t", (0, [1]), factor=1), 42, "replication factor was not set to -1"),
        (assigned("t", (0, [1]), partitions=1), 42, "numPartitions was not set to -1"),
        (assigned("t", (0, [1]), (0, [1])), 39, "Found multiple manual partition assignments for partition 0"),
        (assigned("t", (1, [1])), 39, "partitions should be a consecutive 0-based integer sequence"),
        (assigned("t", (0, [])), 39, "includes an empty replica list."),
        (assigned("t", (0, [7])), 39, "includes broker 7, but no such broker is registered."),
        (assigned("t", (0, [1, 1])), 39, "includes the broker 1 more than once."),
    ],
)
def test_refused(
    image: MetadataImage, context: ControllerContext, apply: Any, wanted: CreatableTopic, code: int, message: str
) -> None:
    image = apply(image, create(image, context, topic("there"), topic("a.b")).records)
    result = create(image, context, wanted, topic("other"))
    refused, other = result.response.topics
    assert refused.error_code == code
    assert message in refused.error_message
    assert other.error_code == 0
    assert list(apply(image, result.records).topics) == ["there", "a.b", "other"]


def test_duplicates_and_collisions_within_a_request(image: MetadataImage, context: ControllerContext) -> None:
    result = create(image, context, topic("d"), topic("x.y"), topic("d"), topic("x_y"), topic("d"))
    assert [(item.name, item.error_code) for item in result.response.topics] == [("d", 42), ("x.y", 0), ("x_y", 17)]
    assert result.response.topics[0].error_message == "Duplicate topic name."


def test_manual_assignment(three_brokers: MetadataImage, context: ControllerContext, apply: Any) -> None:
    result = create(three_brokers, context, assigned("t", (1, [2, 3]), (0, [3, 1])))
    partitions = apply(three_brokers, result.records).topics["t"].partitions
    assert [partition.replicas for partition in partitions.values()] == [(3, 1), (2, 3)]
    assert [partition.leader for partition in partitions.values()] == [3, 2]


def test_placement_spreads_leaders_and_replicas(
    three_brokers: MetadataImage, context: ControllerContext, apply: Any
) -> None:
    result = create(three_brokers, context, topic("t", 12, 2))
    partitions = list(apply(three_brokers, result.records).topics["t"].partitions.values())
    leaders = [partition.leader for partition in partitions]
    assert {leaders.count(broker) for broker in (1, 2, 3)} == {4}
    pairs = [partition.replicas for partition in partitions]
    assert {pairs.count(pair) for pair in pairs} == {2}
    assert all(len(set(pair)) == 2 for pair in pairs)


def test_deletion_by_name_and_id(image: MetadataImage, context: ControllerContext, apply: Any) -> None:
    image = apply(image, create(image, context, topic("a"), topic("b", retention_ms="5"), topic("c")).records)
    ids = {name: found.topic_id for name, found in image.topics.items()}
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="a"), DeleteTopicState(topic_id=ids["b"]), DeleteTopicState(name="nope")]
    )
    result = handle_delete_topics(image, request, context)
    answers = {(item.name, item.topic_id): item.error_code for item in result.response.responses}
    assert answers == {("a", ids["a"]): 0, ("b", ids["b"]): 0, ("nope", ZERO_UUID): 3}
    image = apply(image, result.records)
    assert list(image.topics) == ["c"]
    assert image.configs == {}


def test_ambiguous_deletion_is_rejected(image: MetadataImage, context: ControllerContext, apply: Any) -> None:
    image = apply(image, create(image, context, topic("a"), topic("b")).records)
    a, b = (image.topics[name].topic_id for name in ("a", "b"))
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(),
            DeleteTopicState(name="x", topic_id=a),
            DeleteTopicState(name="dup"),
            DeleteTopicState(name="dup"),
            DeleteTopicState(topic_id=b),
            DeleteTopicState(topic_id=b),
            DeleteTopicState(name="a"),
            DeleteTopicState(topic_id=a),
            DeleteTopicState(topic_id=b"?" * 16),
        ]
    )
    result = handle_delete_topics(image, request, context)
    assert result.records == []
    assert [(item.name, item.error_code) for item in result.response.responses] == [
        (None, 42),
        ("x", 42),
        ("dup", 42),
        (None, 42),
        (None, 100),
        ("a", 42),
    ]


def test_deletion_by_old_request_and_when_disabled(
    image: MetadataImage, context: ControllerContext, make_context: Any, apply: Any
) -> None:
    image = apply(image, create(image, context, topic("a")).records)
    request = DeleteTopicsRequest(topic_names=["a"])
    assert apply(image, handle_delete_topics(image, request, context).records).topics == {}
    with pytest.raises(KafkaError) as caught:
        handle_delete_topics(image, request, make_context(delete_topic_enable="false"))
    assert caught.value.code == ErrorCode.TOPIC_DELETION_DISABLED


def grow(image: MetadataImage, context: ControllerContext, name: str, count: int, *assignments: list[int]) -> Any:
    wanted = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None,
    )
    return handle_create_partitions(image, CreatePartitionsRequest(topics=[wanted]), context)


def test_partitions_are_added_behind_the_others(
    three_brokers: MetadataImage, context: ControllerContext, apply: Any
) -> None:
    image = apply(three_brokers, create(three_brokers, context, topic("t", 2, 2)).records)
    before = dict(image.topics["t"].partitions)
    result = grow(image, context, "t", 4)
    assert result.response.results[0].error_code == 0
    partitions = apply(image, result.records).topics["t"].partitions
    assert list(partitions) == [0, 1, 2, 3]
    assert {index: partitions[index] for index in before} == before
    assert all(len(partition.replicas) == 2 for partition in partitions.values())
    manual = grow(image, context, "t", 3, [3, 1])
    assert apply(image, manual.records).topics["t"].partitions[2].replicas == (3, 1)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "message"),
    [
        ("nope", 3, [], 3, "This server does not host this topic-partition."),
        ("t", 2, [], 37, "Topic already has 2 partition(s)."),
        ("t", 1, [], 37, "The topic t currently has 2 partition(s); 1 would not be an increase."),
        ("t", 2**31 - 1, [], 44, "excessively large"),
        ("t", 4, [[1]], 39, "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        ("t", 3, [[1, 1]], 39, "more than once"),
        ("t", 3, [[9]], 39, "no such broker is registered"),
    ],
)
def test_partitions_refused(
    image: MetadataImage,
    context: ControllerContext,
    apply: Any,
    name: str,
    count: int,
    assignments: list[list[int]],
    code: int,
    message: str,
) -> None:
    image = apply(image, create(image, context, topic("t", 2)).records)
    result = grow(image, context, name, count, *assignments)
    assert result.records == []
    assert result.response.results[0].error_code == code
    assert message in result.response.results[0].error_message


def test_duplicate_topics_in_partition_request(image: MetadataImage, context: ControllerContext, apply: Any) -> None:
    image = apply(image, create(image, context, topic("t", 2)).records)
    wanted = [CreatePartitionsTopic(name="t", count=count) for count in (3, 4)]
    result = handle_create_partitions(image, CreatePartitionsRequest(topics=wanted), context)
    assert [(item.name, item.error_code) for item in result.response.results] == [("t", 42)]
    validated = CreatePartitionsRequest(topics=wanted[:1], validate_only=True)
    result = handle_create_partitions(image, validated, context)
    assert (result.records, result.response.results[0].error_code) == ([], 0)


def test_one_request_is_bounded(image: MetadataImage, context: ControllerContext) -> None:
    half = MAX_RECORDS_PER_USER_OP // 2
    result = create(image, context, topic("a", half), topic("b", half), topic("c", 2))
    assert [item.error_code for item in result.response.topics] == [0, 44, 0]
    assert len(result.records) <= MAX_RECORDS_PER_USER_OP


@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
@pytest.mark.parametrize("first", [0, 7])
def test_placement_continues_across_requests(brokers: int, first: int) -> None:
    image, factor = with_brokers(range(1, brokers + 1)), min(brokers, 3)
    one_by_one = [place_replicas(image, number, 1, factor)[0] for number in range(first, first + 50)]
    assert place_replicas(image, first, 50, factor) == one_by_one
    assert len(set(one_by_one)) == max(brokers * (brokers - 1), 1), "followers are spread over all brokers"
