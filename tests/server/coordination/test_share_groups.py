"""Share groups and their requests to share coordinators, with a share coordinator in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest
from tests.coordinator.answers import Answer
from tests.coordinator.group.conversation import Conversation, image_of

from ottla.app.clock import SystemClock
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import SharePersister
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.share_operations import ShareGroupOperations
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
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.server.coordination.share_groups import ShareGroupService
from ottla.server.requests.failures import Failures

from ..memory_persister import MemoryPersister

CLIENT = RequestContext("client", "/10.0.0.1", 1)
GROUP = "g"


class ShareBroker:
    """A group coordinator with topics `t` and `u` of four partitions, and its share groups."""

    def __init__(self) -> None:
        self.talk = Conversation(group_share_assignment_interval_ms=0)
        self.persister = MemoryPersister()
        persister: SharePersister = self.persister
        self.failures = Failures(SystemClock())
        self.service = ShareGroupService(
            self.talk.coordinator,
            ShareGroupOperations(self.talk.runtime),
            persister,
            image=lambda: self.talk.image,
            end_offsets=self.end_offsets,
            scheduler=asyncio.get_running_loop(),
            failures=self.failures,
        )

    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """Only partition 0 has a leader that answers."""
        return {0: 100} if 0 in partitions else {}

    async def ask(self, send: Callable[..., None], *arguments: object) -> Any:
        """Send a request and return its response, after all work that it started."""
        answer: Answer[Any] = Answer()
        send(*arguments, answer)
        for _ in range(50):
            self.talk.time.settle()
            await asyncio.sleep(0)
        return answer.response

    async def heartbeat(self, epoch: int, *topics: str, group_id: str = GROUP) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id="m", member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        return await self.ask(self.service.heartbeat, CLIENT, request)

    async def empty_group(self) -> None:
        """A group with state of `t`, without members."""
        await self.heartbeat(0, "t")
        await self.heartbeat(-1)

    async def delete_groups(self, *names: str) -> dict[str, int]:
        response = await self.ask(self.service.delete_groups, CLIENT, DeleteGroupsRequest(groups_names=list(names)))
        return {result.group_id: result.error_code for result in response.results}

    async def alter(self, *offsets: tuple[int, int]) -> Any:
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
            for number, offset in offsets
        ]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)
        request = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])
        return await self.ask(self.service.alter_offsets, CLIENT, request)

    async def describe(self, group_id: str = GROUP, **topics: list[int]) -> Any:
        asked = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
        group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=asked or None)
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        (described,) = (await self.ask(self.service.describe_offsets, request)).groups
        return described


def scenario(test: Callable[[ShareBroker], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test on an event loop of its own."""

    def run() -> None:
        async def main() -> None:
            await test(ShareBroker())

        asyncio.run(main())

    return run


@scenario
async def test_heartbeat_initializes_new_partitions(broker: ShareBroker) -> None:
    joined = await broker.heartbeat(0, "t")
    assert joined.assignment.topic_partitions == []
    assert sorted(key.partition for key in broker.persister.state) == [0, 1, 2, 3]
    (topic,) = (await broker.heartbeat(joined.member_epoch)).assignment.topic_partitions
    assert topic.partitions == [0, 1, 2, 3]


@scenario
async def test_failed_initialization_is_repeated_by_a_heartbeat(broker: ShareBroker) -> None:
    broker.persister.error, broker.persister.failing = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), 2
    joined = await broker.heartbeat(0, "t")
    response = await broker.heartbeat(joined.member_epoch)
    assert response.assignment.topic_partitions[0].partitions == [0, 1, 3]
    broker.persister.error = None
    again = await broker.heartbeat(response.member_epoch)
    response = await broker.heartbeat(again.member_epoch)
    assert response.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]


@scenario
async def test_defect_of_the_persister_is_reported(broker: ShareBroker) -> None:
    broker.persister.error = RuntimeError("defect")
    assert (await broker.heartbeat(0, "t")).error_code == ErrorCode.NONE
    assert broker.failures.count > 0


@scenario
async def test_group_is_deleted_with_its_state(broker: ShareBroker) -> None:
    await broker.empty_group()
    broker.talk.commit({("t", 0): 1}, group="classic")
    found = await broker.delete_groups(GROUP, "classic", "missing", GROUP)
    assert found == {GROUP: 0, "classic": 0, "missing": ErrorCode.GROUP_ID_NOT_FOUND}
    assert not broker.persister.state
    assert broker.talk.list_groups() == []


@scenario
async def test_group_remains_when_its_state_does(broker: ShareBroker) -> None:
    await broker.empty_group()
    broker.persister.error, broker.persister.failing = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), 3
    assert await broker.delete_groups(GROUP) == {GROUP: ErrorCode.GROUP_DELETION_FAILED}
    assert broker.talk.list_groups(types=["share"]) == [GROUP]
    broker.persister.error = None
    assert await broker.delete_groups(GROUP) == {GROUP: 0}
    assert not broker.persister.state


@scenario
async def test_group_with_members_keeps_its_state(broker: ShareBroker) -> None:
    await broker.heartbeat(0, "t")
    assert await broker.delete_groups(GROUP) == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    assert len(broker.persister.state) == 4


@scenario
async def test_altered_offsets_are_described(broker: ShareBroker) -> None:
    await broker.empty_group()
    response = await broker.alter((0, 90), (1, 7), (9, 1))
    codes = [partition.error_code for partition in response.responses[0].partitions]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (topic,) = (await broker.describe()).topics
    assert [each.start_offset for each in topic.partitions] == [90, 7, -1, -1]
    assert [each.lag for each in topic.partitions] == [8, -1, -1, -1]
    assert {each.leader_epoch for each in topic.partitions} == {4}


@scenario
async def test_failed_alteration_is_answered_per_partition(broker: ShareBroker) -> None:
    await broker.empty_group()
    broker.persister.error, broker.persister.failing = KafkaError(ErrorCode.FENCED_STATE_EPOCH, "fenced"), 1
    response = await broker.alter((0, 5), (1, 6))
    partitions = response.responses[0].partitions
    assert [(each.error_code, each.error_message) for each in partitions] == [
        (0, None),
        (ErrorCode.FENCED_STATE_EPOCH, "fenced"),
    ]


@scenario
async def test_only_partitions_with_state_are_read(broker: ShareBroker) -> None:
    await broker.empty_group()
    before = broker.persister.calls
    described = await broker.describe(t=[3, 3, 77], gone=[0])
    rows = {
        topic.topic_name: [(each.partition_index, each.error_code) for each in topic.partitions]
        for topic in described.topics
    }
    assert rows == {"t": [(3, 0), (77, 0)], "gone": [(0, 0)]}
    assert broker.persister.calls == before + 1


@scenario
async def test_missing_group_has_no_offsets(broker: ShareBroker) -> None:
    assert (await broker.describe("missing")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    described = await broker.describe("missing", t=[0])
    assert (described.error_code, described.topics[0].partitions[0].start_offset) == (0, -1)
    assert not broker.persister.calls


@scenario
async def test_failed_summary_is_answered_per_partition(broker: ShareBroker) -> None:
    await broker.empty_group()
    broker.persister.error, broker.persister.failing = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), 0
    described = await broker.describe(t=[0, 1])
    codes = [each.error_code for each in described.topics[0].partitions]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]


@scenario
async def test_deleted_offsets_are_deleted_in_the_share_coordinator(broker: ShareBroker) -> None:
    await broker.empty_group()
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "u")]
    request = DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics)
    response = await broker.ask(broker.service.delete_offsets, CLIENT, request)
    codes = {topic.topic_name: topic.error_code for topic in response.responses}
    assert codes == {"t": 0, "u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not broker.persister.state
    assert (await broker.describe()).topics == []


@scenario
async def test_state_of_a_deleted_topic_is_deleted(broker: ShareBroker) -> None:
    await broker.empty_group()
    known = broker.talk.image.topic("t")
    assert known is not None
    broker.talk.image = image_of("u")
    broker.service.topics_deleted(frozenset({known.topic_id}))
    assert (await broker.describe()).topics == []
    assert not broker.persister.state


@scenario
async def test_classic_member_is_refused_in_a_share_group(broker: ShareBroker) -> None:
    await broker.empty_group()
    assert broker.talk.join(group=GROUP).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.talk.commit_code(group=GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.talk.heartbeat("m", 1, group=GROUP) is ErrorCode.UNKNOWN_MEMBER_ID
    described = broker.talk.describe(GROUP)
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


@scenario
async def test_failed_write_fails_the_heartbeat(broker: ShareBroker) -> None:
    broker.talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    assert (await broker.heartbeat(0, "t")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not broker.persister.calls
    assert (await broker.heartbeat(0, "t")).error_code == ErrorCode.NONE
    assert broker.persister.calls == 4


@pytest.mark.parametrize("group_id", ["", " ", "g" * 40_000])
def test_invalid_group_id_is_refused(group_id: str) -> None:
    async def main() -> None:
        response = await ShareBroker().heartbeat(0, "t", group_id=group_id)
        expected = ErrorCode.INVALID_REQUEST if not group_id.strip() else ErrorCode.INVALID_GROUP_ID
        assert response.error_code == expected

    asyncio.run(main())
