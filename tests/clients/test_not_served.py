"""What is not served: a client hears at once and for good, instead of asking for ever."""

from __future__ import annotations

import pytest

LONG_S = 60
"""Who goes on asking is still at it then, and the test fails."""


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
