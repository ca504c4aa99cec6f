"""Share group APIs through the dispatcher: the feature, answers of a whole broker, permissions of topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .harness import Connection, Server
from .memory_persister import MemoryPersister
from .test_apis import Allowing

GROUP_RESOURCE = 32


def heartbeat(epoch: int, *topics: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )


def alteration(offset: int) -> AlterShareGroupOffsetsRequest:
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    return AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])


OFFSETS = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)])
DELETION = DeleteShareGroupOffsetsRequest(group_id="g", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name="t")])


def enabled(client: Connection) -> MemoryPersister:
    """Serve share groups of a broker with topic `t`, with a share coordinator in memory."""
    client.create_topic("t", partitions=2)
    client.coordinate("g")
    parts = client.server.broker.parts
    persister = MemoryPersister()
    parts.groups.persister = lambda: persister
    image = parts.publisher.image
    parts.publisher.image = replace(image, features={**image.features, "share.version": 1})
    return persister


def test_apis_follow_the_feature(make_server: Callable[..., Server]) -> None:
    client = make_server().connect()
    client.coordinate("g")
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    for request, version in ((heartbeat(0, "t"), 1), (alteration(1), 0), (DELETION, 0)):
        assert client.ask(request, version).error_code == unsupported
    assert client.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups[0].error_code == unsupported
    assert client.ask(OFFSETS, 1).groups[0].error_code == unsupported


def test_life_of_a_share_group(make_server: Callable[..., Server]) -> None:
    client = make_server(group_share_assignment_interval_ms="0").connect()
    persister = enabled(client)
    joined = client.ask(heartbeat(0, "t"), 1)
    assert joined.error_code == 0
    client.server.run_until(lambda: len(persister.state) == 2)
    member: Any = joined
    while not (member.assignment and member.assignment.topic_partitions):
        member = client.ask(heartbeat(member.member_epoch), 1)
    assert member.assignment.topic_partitions[0].partitions == [0, 1]
    (described,) = client.ask(ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True), 1).groups
    assert (described.group_state, described.members[0].subscribed_topic_names) == ("Stable", ["t"])
    listed = client.ask(ListGroupsRequest(types_filter=["share"]), 5).groups
    assert [(group.group_id, group.group_state, group.group_type) for group in listed] == [("g", "Stable", "share")]
    gauges = client.server.registry.families()
    counts = {
        dict(labels)["state"]: metric.current()
        for family in gauges
        if family.name == "kafka_server_group_coordinator_metrics_share_group_count"
        for labels, metric in family.series.items()
    }
    assert counts == {"empty": 0, "stable": 1, "dead": 0}
    assert client.ask(alteration(3), 0).error_code == ErrorCode.NON_EMPTY_GROUP
    assert client.ask(heartbeat(-1), 1).member_epoch == -1
    client.produce("t", b"1", b"2", b"3", b"4", b"5", b"6", b"7")
    assert client.ask(alteration(3), 0).responses[0].partitions[0].error_code == 0
    (topic,) = client.ask(OFFSETS, 1).groups[0].topics
    assert [(each.start_offset, each.lag) for each in topic.partitions] == [(3, 2), (-1, -1)]
    assert client.ask(DELETION, 0).responses[0].error_code == 0
    assert client.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == 0
    assert not persister.state


def test_offsets_of_topics_without_permission_are_hidden(make_server: Callable[..., Server]) -> None:
    client = make_server().connect()
    enabled(client)
    client.ask(heartbeat(0, "t"), 1)
    while not client.ask(OFFSETS, 1).groups[0].topics:
        pass  # until the state is initialized
    alice = client.server.connect()
    alice.channel.principal = "User:alice"
    client.server.broker.dispatcher.authorizer = Allowing((AclOperation.DESCRIBE, ResourceType.GROUP, "g"))
    assert alice.ask(OFFSETS, 1).groups[0].topics == []
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[1])
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[topic])
    (row,) = alice.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 1).groups[0].topics
    assert [each.error_code for each in row.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    (described,) = alice.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (described.error_code, described.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.session.timeout.ms", "45000"),
        ("share.record.lock.duration.ms", "30000"),
        ("share.auto.offset.reset", "latest"),
        ("share.renew.acknowledge.enable", "true"),
    ],
)
def test_settings_of_share_groups_are_described(client: Connection, name: str, value: str) -> None:
    resource = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configuration_keys=[name])
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert [(each.name, each.value) for each in result.configs] == [(name, value)]
