"""Administration by the clients' own admin APIs."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ResourceType

TIMEOUT_S = 90


def configs_of(servers: str, topic: str) -> dict[str, str | None]:
    with Cluster(servers) as cluster:
        return {entry.name: entry.value for entry in cluster.configs.describe(ResourceType.TOPIC, topic)}


def test_confluent_kafka(ottla_broker, families, make_records, topic):
    from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
    )

    servers = ottla_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})

    def only(futures):
        (future,) = futures.values()
        return future.result(TIMEOUT_S)

    only(admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "-1"})]))
    for refused, code in (
        (NewTopic(topic, 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic("bad name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(f"{topic}-rf", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(f"{topic}-parts", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic(f"{topic}-config", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ):
        with pytest.raises(KafkaException) as caught:
            only(admin.create_topics([refused]))
        assert caught.value.args[0].code() == code
    with pytest.raises(KafkaException):
        only(admin.create_topics([NewTopic(f"{topic}-try", 1, 3)], validate_only=True))
    only(admin.create_topics([NewTopic(f"{topic}-try", 1, 1)], validate_only=True))
    assert f"{topic}-try" not in admin.list_topics(timeout=TIMEOUT_S).topics

    only(admin.create_partitions([NewPartitions(topic, 4)]))
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3]
    assert described.topic_id is not None

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    assert only(admin.describe_configs([resource]))["retention.ms"].value == "-1"
    entry = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    only(admin.incremental_alter_configs([resource]))
    assert configs_of(servers, topic)["retention.ms"] == "5000"
    broker = only(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]))
    assert broker["num.partitions"].value == "1"

    sent = make_records(families["confluent-kafka"])
    only(admin.incremental_alter_configs([_set(topic, "retention.ms", "-1")]))
    families["confluent-kafka"].produce(servers, topic, 0, sent, "none")
    assert only(admin.delete_records([TopicPartition(topic, 0, 50)])).low_watermark == 50
    assert families["confluent-kafka"].consume(servers, topic, 0, None, 1)[0].offset == 50
    position = TopicPartition(topic, 0)
    for spec, offset in (
        (OffsetSpec.earliest(), 50),
        (OffsetSpec.latest(), len(sent)),
        (OffsetSpec.max_timestamp(), len(sent) - 1),
        (OffsetSpec.for_timestamp(sent[60].timestamp_ms), 60),
    ):
        assert only(admin.list_offsets({position: spec})).offset == offset

    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert cluster.cluster_id == ottla_broker.ready["cluster_id"]
    assert [node.port for node in cluster.nodes] == [ottla_broker.port]

    only(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def _set(topic, name, value):
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])


def test_kafka_python(ottla_broker, families, make_records, topic):
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
    from kafka.errors import TopicAlreadyExistsError

    servers = ottla_broker.bootstrap_servers
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "-1"})])
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(topic, 1, 1)])
        assert topic in admin.list_topics()
        admin.create_partitions({topic: NewPartitions(3)})
        with Cluster(servers) as cluster:
            assert len(cluster.topics.get(topic).partitions) == 3
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": "2097152"})])
        assert configs_of(servers, topic)["segment.bytes"] == "2097152"
        assert admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        families["kafka-python"].produce(servers, topic, 1, make_records(families["kafka-python"])[:20], "none")
        admin.delete_records({TopicPartition(topic, 1): 7})
        with Cluster(servers) as cluster:
            assert cluster.records.list_offsets({(topic, 1): EARLIEST_TIMESTAMP})[topic, 1].offset == 7
            assert cluster.records.list_offsets({(topic, 1): LATEST_TIMESTAMP})[topic, 1].offset == 20
        assert admin.describe_cluster()
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()


def test_aiokafka(ottla_broker, topic):
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    servers = ottla_broker.bootstrap_servers

    async def run():
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "-1"})])
            assert topic in await admin.list_topics()
            (described,) = await admin.describe_topics([topic])
            assert described["error_code"] == 0
            await admin.create_partitions({topic: NewPartitions(3)})
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"segment.bytes": "2097152"})
            await admin.alter_configs([resource])
            assert configs_of(servers, topic)["segment.bytes"] == "2097152"
            assert await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            assert (await admin.describe_cluster())["cluster_id"] == ottla_broker.ready["cluster_id"]
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(run())
    with Cluster(servers) as cluster:
        assert topic not in cluster.topics.all()
