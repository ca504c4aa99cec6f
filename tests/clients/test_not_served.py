"""Unsupported requests: a client gets a final error at once, instead of retrying forever."""

from __future__ import annotations

import pytest

LONG_S = 60
"""A client that keeps retrying is still running then, and the test fails."""


def test_confluent_kafka_gets_the_error_without_an_authorizer(ottla_broker):
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
