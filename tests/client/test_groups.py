"""Requests about groups against a scripted broker: routing, older versions, rejections, malformed data."""

from __future__ import annotations

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.admin.groups import decode_assignment
from ottla.client.wire.model import CommittedOffset, GroupListing
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from ottla.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from ottla.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.registry import ApiKey

ASSIGNMENT = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\3" + b"\0\0\0\1" + b"\xff\xff\xff\xff"


@pytest.fixture
def cluster(scripted):
    def coordinator(version, request):
        if version < 4:
            return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=scripted.port)
        found = [
            Coordinator(key=key, node_id=1, host="127.0.0.1", port=scripted.port) for key in request.coordinator_keys
        ]
        for each in found:
            if each.key == "hidden":
                each.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return FindCoordinatorResponse(coordinators=found)

    scripted.answers[ApiKey.METADATA] = lambda version, request: MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=scripted.port)], controller_id=1
    )
    scripted.answers[ApiKey.FIND_COORDINATOR] = coordinator
    scripted.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda version, request: ConsumerGroupDescribeResponse(
        groups=[ConsumerGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
    )
    with Cluster(scripted.address, timeout_s=5) as made:
        yield made


def classic(**changes):
    values = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}
    return lambda version, request: DescribeGroupsResponse(groups=[DescribedGroup(**{**values, **changes})])


def member(assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id="m", client_id="c", client_host="/10.0.0.1", member_metadata=b"", member_assignment=assignment
    )


def test_groups_are_listed_in_order(cluster, scripted):
    scripted.answers[ApiKey.LIST_GROUPS] = lambda version, request: ListGroupsResponse(
        groups=[
            ListedGroup(group_id="b", protocol_type="connect", group_state="Stable", group_type="classic"),
            ListedGroup(group_id="a", protocol_type="consumer", group_state="Empty", group_type="consumer"),
        ]
    )
    assert cluster.groups.find(["Stable"]) == [
        GroupListing("a", "consumer", "Empty", "consumer"),
        GroupListing("b", "connect", "Stable", "classic"),
    ]
    assert scripted.requests[-1][2].states_filter == ["Stable"]


def test_unsupported_group_filter_raises(cluster, scripted):
    scripted.versions[ApiKey.LIST_GROUPS] = (0, 3)
    with pytest.raises(KafkaError) as refused:
        cluster.groups.find(["Stable"])
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_classic_group_is_described_by_the_older_request(cluster, scripted):
    scripted.answers[ApiKey.DESCRIBE_GROUPS] = classic(members=[member(ASSIGNMENT)])
    found = cluster.groups.describe("g")
    assert (found.group_type, found.state, found.assignor, found.group_epoch) == ("classic", "Stable", "range", None)
    [only] = found.members
    assert (only.host, only.protocol, only.assignment) == ("10.0.0.1", "classic", {"t": (1, 3)})


def test_an_older_broker_has_no_consumer_groups(cluster, scripted):
    del scripted.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    scripted.answers[ApiKey.DESCRIBE_GROUPS] = classic()
    assert cluster.groups.describe("g").group_type == "classic"


@pytest.mark.parametrize("changes", [{"group_state": "Dead"}, {"error_code": ErrorCode.GROUP_ID_NOT_FOUND}])
def test_a_dead_group_does_not_exist(cluster, scripted, changes):
    scripted.answers[ApiKey.DESCRIBE_GROUPS] = classic(**changes)
    with pytest.raises(KafkaError, match="group 'g' does not exist"):
        cluster.groups.describe("g")


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\xff\xff", b"\0\0\x7f\xff\xff\xff", ASSIGNMENT[:-6], b"\0\0" + b"\xff" * 40]
)
def test_an_assignment_that_makes_no_sense_is_none(data):
    assert decode_assignment(data) == {}


def test_a_newer_assignment_is_read_as_far_as_it_is_known():
    assert decode_assignment(b"\0\x63" + ASSIGNMENT[2:] + b"more") == {"t": (1, 3)}


def test_offsets_in_the_layout_of_one_group(cluster, scripted):
    scripted.versions[ApiKey.OFFSET_FETCH] = (1, 7)
    scripted.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
    partitions = [
        OffsetFetchResponsePartition(partition_index=i, committed_offset=offset, metadata=None, error_code=0)
        for i, offset in ((1, 7), (0, -1))
    ]
    scripted.answers[ApiKey.OFFSET_FETCH] = lambda version, request: OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)]
    )
    assert cluster.groups.offsets("g") == {("t", 1): CommittedOffset(7, -1, "")}
    assert scripted.requests[-1][2].group_id == "g"


def test_offsets_of_several_groups_take_two_requests(cluster, scripted):
    codes = {"g": 0, "private": ErrorCode.GROUP_AUTHORIZATION_FAILED, "empty": 0}

    def group(name: str) -> OffsetFetchResponseGroup:
        rows = [(0, 7, 0), (1, -1, 0), (2, 9, ErrorCode.TOPIC_AUTHORIZATION_FAILED)] if name == "g" else []
        partitions = [
            OffsetFetchResponsePartitions(partition_index=i, committed_offset=offset, metadata=None, error_code=code)
            for i, offset, code in rows
        ]
        topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)]
        return OffsetFetchResponseGroup(group_id=name, topics=topics, error_code=codes[name])

    scripted.answers[ApiKey.OFFSET_FETCH] = lambda version, request: OffsetFetchResponse(
        groups=[group(each.group_id) for each in request.groups]
    )
    names = ["g", "private", "empty", "hidden"]
    assert cluster.groups.offsets_of(names, {"t": [0, 1, 2]}) == {
        "g": {("t", 0): CommittedOffset(7, -1, "")},
        "empty": {},
    }
    keys = [key for key, _, _ in scripted.requests]
    assert (keys.count(ApiKey.FIND_COORDINATOR), keys.count(ApiKey.OFFSET_FETCH)) == (1, 1)
    request = scripted.requests[-1][2]
    assert [each.group_id for each in request.groups] == names[:3]
    assert [(each.name, each.partition_indexes) for each in request.groups[0].topics] == [("t", [0, 1, 2])]
    assert cluster.groups.offsets_of([]) == {}


def test_offsets_of_several_groups_before_kafka_3_take_one_each(cluster, scripted):
    scripted.versions[ApiKey.OFFSET_FETCH] = (1, 7)
    scripted.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
    partitions = [
        OffsetFetchResponsePartition(partition_index=i, committed_offset=7, metadata=None, error_code=0) for i in (0, 1)
    ]
    scripted.answers[ApiKey.OFFSET_FETCH] = lambda version, request: OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)],
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED if request.group_id == "private" else 0,
    )
    assert cluster.groups.offsets_of(["g", "private"], {"t": [1]}) == {"g": {("t", 1): CommittedOffset(7, -1, "")}}


def test_a_coordinator_that_still_loads_is_asked_again(cluster, scripted):
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    scripted.answers[ApiKey.DELETE_GROUPS] = lambda version, request: DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id="g", error_code=codes.pop(0))]
    )
    cluster.groups.delete("g")
    assert not codes


def test_deletion_with_unknown_outcome_is_not_repeated(cluster, scripted):
    scripted.answers[ApiKey.DELETE_GROUPS] = lambda version, request: None
    with pytest.raises(KafkaError) as lost:
        cluster.groups.delete("g")
    assert lost.value.code == ErrorCode.NETWORK_EXCEPTION
    assert [key for key, _, _ in scripted.requests].count(ApiKey.DELETE_GROUPS) == 1


def test_a_commit_into_a_group_with_members_says_so(cluster, scripted):
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    scripted.answers[ApiKey.OFFSET_COMMIT] = lambda version, request: OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
    )
    with pytest.raises(KafkaError, match="the group has members; stop them first"):
        cluster.groups.commit_offsets("g", {("t", 0): 5})
    _, version, request = scripted.requests[-1]
    assert (version, request.member_id, request.generation_id_or_member_epoch) == (9, "", -1)
