"""Replaying records creates images; an image written as records recreates itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import InvariantError, ProtocolError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage
from ottla.metadata.records import ApiMessageAndVersion, decode_record, encode_record, versioned
from ottla.metadata.snapshot import image_records
from ottla.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

TOPIC_ID = bytes(range(16))
TOPIC = int(ConfigResourceType.TOPIC)


def replay(image: MetadataImage, *records: object) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(image.offset + len(records), 1)[0]


def a_topic(name: str = "t", topic_id: bytes = TOPIC_ID, partitions: int = 1) -> list[object]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[b"d" * 16],
            )
            for index in range(partitions)
        ),
    ]


def test_topic_is_created_changed_and_removed() -> None:
    image = replay(EMPTY_IMAGE, *a_topic(partitions=2))
    assert image.topic("t") is image.topic_by_id(TOPIC_ID)
    assert image.partition_count() == 2
    before = image.partition("t", 1)
    image = replay(image, PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=1))
    after = image.partition("t", 1)
    assert before is not None
    assert after is not None
    assert (after.leader_epoch, after.partition_epoch) == (1, 1)
    assert (before.leader_epoch, before.partition_epoch) == (0, 0)
    image = replay(image, PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[]))
    after = image.partition("t", 1)
    assert after is not None
    assert (after.isr, after.leader, after.leader_epoch, after.partition_epoch) == ((), 1, 1, 2)
    image = replay(image, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert image.topics == {}
    assert image.topics_by_id == {}


def test_partitions_share_equal_sets_of_replicas() -> None:
    """A million partitions would otherwise have five million tuples and ids."""
    image = replay(EMPTY_IMAGE, *a_topic(partitions=2), *a_topic("other", bytes(16 * [9])))
    first, second, other = (image.partition(*key) for key in (("t", 0), ("t", 1), ("other", 0)))
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.replicas is first.isr is second.replicas is other.isr
    assert first.directories is second.directories is other.directories
    image = replay(image, PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[1]))
    changed = image.partition("t", 1)
    assert changed is not None
    assert changed.isr is other.isr


def test_recreated_topic_has_no_old_configs() -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    config = ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="1")
    image = replay(EMPTY_IMAGE, *a_topic(), config)
    assert image.topic_configs("t") == {"retention.ms": "1"}
    delta = MetadataDelta(image)
    other = bytes(16 * [9])
    for record in (RemoveTopicRecord(topic_id=TOPIC_ID), *a_topic("t", other)):
        delta.replay(record)
    image, changes = delta.apply(9, 1)
    assert image.topic_configs("t") == {}
    assert image.topics["t"].topic_id == other
    assert [topic.topic_id for topic in changes.deleted_topics] == [TOPIC_ID]
    assert [topic.topic_id for topic in changes.created_topics] == [other]
    assert changes.changed_configs == [resource]


def test_changes_name_what_changed_and_nothing_else() -> None:
    image = replay(EMPTY_IMAGE, *a_topic(partitions=3))
    delta = MetadataDelta(image)
    delta.replay(PartitionChangeRecord(partition_id=2, topic_id=TOPIC_ID, leader=1))
    new, changes = delta.apply(5, 1)
    assert [(topic.name, index) for topic, index in changes.changed_partitions] == [("t", 2)]
    assert not changes.created_topics
    assert not changes.brokers_changed
    assert new.configs is image.configs
    assert new.brokers is image.brokers
    assert new.partition("t", 0) is image.partition("t", 0)


def test_topic_created_and_removed_in_one_delta_is_absent() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in (*a_topic(), RemoveTopicRecord(topic_id=TOPIC_ID)):
        delta.replay(record)
    image, changes = delta.apply(3, 1)
    assert image.topics == {}
    assert not changes.created_topics
    assert not changes.deleted_topics
    assert not changes.changed_partitions


def registration(broker_epoch: int = 0) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=b"i" * 16,
        broker_epoch=broker_epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[BrokerFeature(name="metadata.version", min_supported_version=25, max_supported_version=25)],
        rack="r",
        fenced=True,
        log_dirs=[b"d" * 16],
    )


def test_replica_is_offline_with_its_broker_or_directory() -> None:
    image = replay(EMPTY_IMAGE, registration(), *a_topic())
    partition = image.partition("t", 0)
    assert partition is not None
    assert image.offline_replicas(partition) == [1]  # the broker is fenced
    image = replay(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, fenced=-1))
    assert image.offline_replicas(partition) == []
    image = replay(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, log_dirs=[b"e" * 16]))
    assert image.offline_replicas(partition) == [1]
    assert image.offline_replicas(partition._replace(directories=())) == []  # its directory is unknown
    assert image.offline_replicas(partition._replace(replicas=(1, 2), directories=(b"e" * 16, ZERO_UUID))) == [2]


def test_topic_lists_its_leaderless_partitions() -> None:
    image = replay(EMPTY_IMAGE, *a_topic(partitions=3))
    assert image.topics["t"].leaderless == ()
    image = replay(image, *(PartitionChangeRecord(partition_id=each, topic_id=TOPIC_ID, leader=-1) for each in (2, 0)))
    assert image.topics["t"].leaderless == (0, 2)
    image = replay(image, PartitionChangeRecord(partition_id=2, topic_id=TOPIC_ID, leader=1))
    assert image.topics_by_id[TOPIC_ID].leaderless == (0,)


def test_broker_life() -> None:
    image = replay(EMPTY_IMAGE, registration())
    assert image.active_brokers() == []
    image = replay(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, fenced=-1))
    assert [broker.broker_id for broker in image.active_brokers()] == [1]
    endpoint = image.brokers[1].endpoint("PLAINTEXT")
    assert endpoint is not None
    assert endpoint.address == "h:9092"
    image = replay(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=0))
    assert image.brokers == {}


@pytest.mark.parametrize(
    "record",
    [
        PartitionChangeRecord(partition_id=0, topic_id=bytes(16)),
        RemoveTopicRecord(topic_id=bytes(16)),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=0),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        ProducerIdsRecord(next_producer_id=1),
        ConfigRecord(resource_type=3, resource_name="x", name="a", value="b"),
        "no record",
    ],
)
def test_record_that_does_not_fit_is_an_invariant_error(record: object) -> None:
    image = replay(EMPTY_IMAGE, *a_topic(), registration(), ProducerIdsRecord(next_producer_id=1000))
    with pytest.raises(InvariantError):
        replay(image, record)


def controller_registration(incarnation_id: bytes) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=7,
        incarnation_id=incarnation_id,
        end_points=[ControllerEndpoint(name="CONTROLLER", host="h", port=9093, security_protocol=0)],
        features=[ControllerFeature(name="metadata.version", min_supported_version=25, max_supported_version=25)],
    )


def test_a_controller_is_its_newest_incarnation() -> None:
    image = replay(EMPTY_IMAGE, controller_registration(b"1" * 16))
    again = replay(image, controller_registration(b"2" * 16))
    assert image.controllers[7].incarnation_id == b"1" * 16
    assert again.controllers[7].incarnation_id == b"2" * 16
    endpoint = again.controllers[7].endpoint("CONTROLLER")
    assert endpoint is not None
    assert endpoint.address == "h:9093"
    assert again.controllers[7].endpoint("PLAINTEXT") is None
    assert replay(again, NoOpRecord()).controllers is again.controllers


def quota(key: str, value: float | None, *entity: tuple[str, str | None]) -> ClientQuotaRecord:
    """A quota; without a value its removal."""
    parts = [QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def test_quota_entities_are_order_independent() -> None:
    user, client = ("user", "alice"), ("client-id", "app")
    image = replay(EMPTY_IMAGE, quota("a", 1.0, user, client), quota("b", 2.0, client, user), quota("a", 3.0, user))
    assert image.client_quotas == {(client, user): {"a": 1.0, "b": 2.0}, (user,): {"a": 3.0}}
    image = replay(image, quota("a", None, user, client), quota("a", 4.0, user))
    assert image.client_quotas == {(client, user): {"b": 2.0}, (user,): {"a": 4.0}}
    image = replay(image, quota("b", None, user, client), quota("never", None, user))
    assert image.client_quotas == {(user,): {"a": 4.0}}
    assert replay(image, NoOpRecord()).client_quotas is image.client_quotas


def full_image() -> MetadataImage:
    return replay(
        EMPTY_IMAGE,
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        registration(3),
        controller_registration(b"C" * 16),
        *a_topic("a", b"a" * 16, 2),
        *a_topic("b", b"b" * 16, 1),
        PartitionChangeRecord(partition_id=1, topic_id=b"a" * 16, leader=-1, isr=[1], leader_recovery_state=1),
        ConfigRecord(resource_type=TOPIC, resource_name="a", name="cleanup.policy", value="compact"),
        ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="5"),
        quota("consumer_byte_rate", 1000.0, ("user", "alice"), ("client-id", None)),
        quota("request_percentage", 12.5, ("ip", None)),
        ProducerIdsRecord(broker_id=1, next_producer_id=2000),
        NoOpRecord(),
    )


def test_image_round_trip_through_records() -> None:
    image = full_image()
    records = [decode_record(encode_record(record)) for record in image_records(image)]
    assert isinstance(records[0].message, FeatureLevelRecord)
    assert records[0].message.name == "metadata.version"
    again = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        again.replay(record.message)
    assert again.apply(image.offset, image.epoch)[0] == image


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_spent_delta_returns_the_image_of_apply(order: slice) -> None:
    topic, *partitions = a_topic(partitions=3)
    records = [topic, *partitions[order], *a_topic("u", b"u" * 16), RemoveTopicRecord(topic_id=b"u" * 16)]
    for base in (EMPTY_IMAGE, full_image()):
        deltas = MetadataDelta(base), MetadataDelta(base)
        for delta in deltas:
            for record in records:
                delta.replay(record)
        image = deltas[0].apply(9, 1, spent=True)[0]
        assert image == deltas[1].apply(9, 1)[0]
        assert list(image.topics["t"].partitions) == [0, 1, 2]


def test_framing() -> None:
    assert encode_record(versioned(NoOpRecord())) == bytes([1, 20, 0, 0])
    assert encode_record(versioned(TopicRecord(name="t", topic_id=TOPIC_ID))) == (
        bytes([1, 2, 0]) + b"\x02t" + TOPIC_ID + b"\x00"
    )
    assert encode_record(ApiMessageAndVersion(ConfigRecord(resource_type=2, resource_name="t", name="n"), 0)) == (
        bytes([1, 4, 0, 2]) + b"\x02t\x02n\x00\x00"
    )


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x01\x02", b"\x02\x14\x00\x00", b"\x01\x13\x00\x00", b"\x01\x14\x09\x00"]
)
def test_invalid_framing_is_rejected(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(value)


@given(st.binary(max_size=80))
def test_no_bytes_do_worse_than_protocol_error(data: bytes) -> None:
    for value in (data, b"\x01" + data):
        try:
            record = decode_record(value)
        except ProtocolError:
            continue
        assert decode_record(encode_record(record)) == record
