"""What is not served: a client hears at once and for good, instead of asking for ever."""

from __future__ import annotations

import asyncio

import pytest

LONG_S = 60
"""Who goes on asking is still at it then, and the test fails."""


def test_confluent_kafka_hears_that_there_are_no_transactions(ottla_broker):
    from confluent_kafka import KafkaException, Producer

    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers, "transactional.id": "t"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(LONG_S)
    error = refused.value.args[0]
    assert error.fatal(), error
    assert "Transactions are not served by this broker yet" in error.str()


def test_kafka_python_hears_that_there_are_no_transactions(ottla_broker):
    from kafka import KafkaProducer
    from kafka.errors import TransactionalIdAuthorizationFailedError

    producer = KafkaProducer(
        bootstrap_servers=ottla_broker.bootstrap_servers, transactional_id="t", max_block_ms=LONG_S * 1000
    )
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close()


def test_aiokafka_hears_that_there_are_no_transactions(ottla_broker):
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import TransactionalIdAuthorizationFailed

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=ottla_broker.bootstrap_servers, transactional_id="t")
        try:
            with pytest.raises(TransactionalIdAuthorizationFailed):
                await asyncio.wait_for(producer.start(), LONG_S)
        finally:
            await producer.stop()

    asyncio.run(main())


def test_confluent_kafka_hears_that_there_is_no_authorizer(ottla_broker):
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap_servers})
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    entry = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    for future in (  # describe_acls of librdkafka takes the refusal for an empty list
        admin.create_acls([entry])[entry],
        admin.delete_acls([everything])[everything],
    ):
        with pytest.raises(KafkaException) as refused:
            future.result(LONG_S)
        assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
