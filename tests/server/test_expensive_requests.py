"""The most expensive legal request of each API: served in short steps, with other clients in between."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.platform.shares import FairQueue
from ottla.protocol.header import encode_request
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from ottla.protocol.registry import API, ApiKey
from ottla.server.requests.api import RawApi
from ottla.server.requests.dispatch import LARGE_BODY_BYTES
from ottla.server.requests.stepped import Division, SteppedAnswer, Steps
from ottla.server.wiring.apis import broker_apis

from .harness import Connection, Server

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from harness.expensive import Expensive, expensive_requests

ELEMENTS = 4_000
CALLS_IN_STEP = 5 * ELEMENTS
"""Maximum of function calls per step, so that no step does the whole request; a part of 1,000 items takes the most."""
CYCLIC_OBJECTS = 200
"""Maximum of objects that only a garbage collection frees after a request: those of its connection."""
STEPPED = [each for each in expensive_requests(ELEMENTS) if not each.name.endswith("/plain")]


class StepClock:
    """Advances a quarter of a millisecond at each read, so that time is a number of steps."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * 0.00025

    def time_ms(self) -> int:
        return 1_700_000_000_000 + self.looks // 4


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("stepped"), clock=StepClock())
    parts, quorum = server.broker.parts, server.broker.contexts.quorum
    assert quorum is not None
    assert all((parts.groups.coordinator, parts.transactions.coordinator, quorum.service))  # import them now
    yield server
    server.stop()


class DeniesAll:
    """An authorizer without an ACL, for a client that is not a super user."""

    def allows(self, *_asked: object, request: str, audit: bool = True) -> bool:
        return False

    def allows_any(self, *_asked: object, request: str) -> bool:
        return False


@pytest.fixture(params=["open", "unprivileged"])
def rights(request: pytest.FixtureRequest, stepped: Server) -> Iterator[str]:
    """Whether a client may do everything, or nothing: refusals are served in steps too."""
    stepped.broker.dispatcher.authorizer = cast(Any, DeniesAll()) if request.param == "unprivileged" else None
    yield request.param
    stepped.broker.dispatcher.authorizer = None


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the functions called in each step of a response."""
    seen: list[int] = []

    def count(frame: FrameType, event: str, argument: object) -> None:
        seen[-1] += event in ("call", "c_call")

    def counted(steps: Steps) -> Steps:
        try:
            while True:
                seen.append(0)
                sys.setprofile(count)
                try:
                    part = next(steps)
                except StopIteration as end:
                    return end.value
                finally:
                    sys.setprofile(None)
                yield part
        finally:
            steps.close()

    class CountedAnswer(SteppedAnswer):
        __slots__ = ()

        def __init__(self, steps: Steps, *others: Any) -> None:
            super().__init__(counted(steps), *others)

    monkeypatch.setattr("ottla.server.requests.dispatch.SteppedAnswer", CountedAnswer)
    return seen


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has one entry for each tick of the queue."""
    seen: list[int] = []
    tick = FairQueue._tick

    def counted(queue: FairQueue) -> None:
        seen.append(1)
        tick(queue)

    monkeypatch.setattr(FairQueue, "_tick", counted)
    return seen


def is_honest_answered(server: Server) -> bool:
    return server.connect().send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)


def frame_of(expensive: Expensive) -> bytes:
    return encode_request(expensive.api_key, expensive.version, 7, "x", expensive.message)[4:]


def is_read_in_steps(expensive: Expensive) -> bool:
    """Large, not of numbers, which are read by one call, and not of an API with a codec of its own."""
    numbers = isinstance(getattr(expensive.message, expensive.name.split("/")[1])[0], int)
    is_hot = expensive.api_key in (ApiKey.PRODUCE, ApiKey.FETCH)
    return not (numbers or is_hot) and len(frame_of(expensive)) >= LARGE_BODY_BYTES


@pytest.mark.parametrize("expensive", [*filter(is_read_in_steps, STEPPED)], ids=lambda each: each.name)
def test_a_large_request_is_served_in_steps(
    stepped: Server, rights: str, ticks: list[int], calls: list[int], expensive: Expensive
) -> None:
    """Requests are generated from the table of APIs, so a new API is included."""
    rows = [each.row for each in broker_apis(stepped.broker.contexts)]
    served = {row.key for row in rows if not isinstance(row.api, RawApi)}
    client = stepped.connect()
    is_sent_at_once = client.send_bytes(frame_of(expensive))
    if expensive.api_key not in served:
        assert client.channel.closed
        return
    assert not is_sent_at_once, "all work was done in one tick"
    assert is_honest_answered(stepped)
    stepped.run_until(lambda: bool(client.channel.answers) or client.channel.closed)
    assert len(ticks) > 30
    if expensive.name != "AlterClientQuotas/entries/deep":  # the response repeats its one entity
        assert max(calls) < CALLS_IN_STEP
    client.disconnect()
    assert not stepped.broker.dispatcher._stepped


def answer(server: Server, frame: bytes) -> None:
    """Send a request, wait for its response or the end of the connection, and disconnect."""
    client = server.connect()
    client.send_bytes(frame)
    server.run_until(lambda: bool(client.channel.answers) or client.channel.closed)
    client.disconnect()


def test_a_large_request_leaves_no_reference_cycle(stepped: Server, rights: str) -> None:
    """A broker collects garbage rarely, and each collection is a pause: messages are freed by reference counting."""
    frames = {each.name: frame_of(each) for each in expensive_requests(1_000)}
    left = {}
    gc.collect()
    gc.freeze()  # so that the collections below find only garbage of a request
    gc.disable()
    try:
        for name, frame in frames.items():
            answer(stepped, frame)
            left[name] = gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    assert {name: count for name, count in left.items() if count > CYCLIC_OBJECTS} == {}


@pytest.mark.parametrize(
    ("message", "version", "answered"),
    [
        (
            DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t")] * 500),
            4,
            "results",
        ),
        (DescribeGroupsRequest(groups=["g"] * 500), 6, "groups"),
        (FindCoordinatorRequest(coordinator_keys=["k"] * 500), 6, "coordinators"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 500), 13, "topics"),
        (DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")] * 500), 0, "topics"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "__dataclass_fields__") else None,
)
def test_repeated_items_are_answered_once(stepped: Server, message: object, version: int, answered: str) -> None:
    assert len(getattr(stepped.connect().ask(message, version), answered)) == 1


def test_all_parts_of_a_divided_request_are_answered_in_order(stepped: Server) -> None:
    names = [f"g{number}" for number in range(700)]
    response = stepped.connect().ask(DescribeGroupsRequest(groups=names), 6)
    assert [group.group_id for group in response.groups] == names
    (code,) = {group.error_code for group in response.groups}
    assert code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_partitions_of_one_topic_are_committed_in_parts(stepped: Server) -> None:
    client = stepped.connect()
    client.create_topic("wide", 2500)
    numbers = [*range(2500), 9999]
    wide = OffsetCommitRequestTopic(
        name="wide",
        partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in numbers],
    )
    other = OffsetCommitRequestTopic(name="unknown", partitions=[OffsetCommitRequestPartition(partition_index=0)])
    request = OffsetCommitRequest(group_id="g", topics=[other, wide, other])
    client.coordinate("g")
    first, middle, last = client.ask(request, 9).topics
    assert (first.name, middle.name, last.name) == ("unknown", "wide", "unknown")
    assert [each.partition_index for each in middle.partitions] == numbers
    codes = [each.error_code for each in middle.partitions]
    assert codes == [ErrorCode.NONE] * 2500 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_sizes_of_all_partitions_are_described_in_steps(stepped: Server, ticks: list[int]) -> None:
    client = stepped.connect()
    client.create_topic("sized", 2000)
    assert not client.send(DescribeLogDirsRequest(topics=None), 4), "all work was done in one tick"
    assert is_honest_answered(stepped)
    stepped.run_until(lambda: bool(client.channel.answers))
    (result,) = client.answer().results
    assert [len(topic.partitions) for topic in result.topics if topic.name == "sized"] == [2000]


@pytest.mark.parametrize("version", [7, 9])
def test_offsets_of_many_partitions_are_fetched_in_parts(stepped: Server, version: int, calls: list[int]) -> None:
    client = stepped.connect()
    many, few = f"many-{version}", f"few-{version}"
    client.create_topic(many, 1400)
    client.create_topic(few, 2)
    client.coordinate("offsets")
    committed = OffsetCommitRequestTopic(
        name=many,
        partitions=[OffsetCommitRequestPartition(partition_index=i, committed_offset=i + 7) for i in range(1400)],
    )
    client.ask(OffsetCommitRequest(group_id="offsets", topics=[committed]), 8)
    calls.clear()
    asked = {few: [1, 0], many: [*range(1400)], "none": [0]}
    if version < 8:
        rows = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in asked.items()]
        answer = client.ask(OffsetFetchRequest(group_id="offsets", topics=rows), version)
    else:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in asked.items()]
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in ("offsets", "unknown")]
        response = client.ask(OffsetFetchRequest(groups=groups), version)
        answer, unknown = response.groups
        assert [(topic.name, len(topic.partitions)) for topic in unknown.topics] == [
            (few, 2),
            (many, 1400),
            ("none", 1),
        ]
    assert answer.error_code == ErrorCode.NONE
    found = {
        topic.name: [(row.partition_index, row.committed_offset) for row in topic.partitions] for topic in answer.topics
    }
    assert len(answer.topics) == 3
    assert found == {few: [(1, -1), (0, -1)], many: [(i, i + 7) for i in range(1400)], "none": [(0, -1)]}
    assert max(calls) < CALLS_IN_STEP / 2


def test_a_group_that_fails_in_a_later_part_is_refused_whole() -> None:
    division = Division(("groups",), "groups", inner=(("topics", "topics"), ("partition_indexes", "partitions")))
    merged = OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=[OffsetFetchResponseTopics(name="t")])]
    )
    refused = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.STALE_MEMBER_EPOCH)
    division.merge(merged, OffsetFetchResponse(groups=[refused]), continues=2)
    late = OffsetFetchResponseGroup(group_id="g", topics=[OffsetFetchResponseTopics(name="t")])
    division.merge(merged, OffsetFetchResponse(groups=[late]), continues=2)
    assert merged == OffsetFetchResponse(groups=[refused])


def test_credentials_named_in_both_lists_are_refused_in_any_part(stepped: Server) -> None:
    names = [f"u{number}" for number in range(700)]
    upsertions = [
        ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32)
        for name in names
    ]
    deletions = [ScramCredentialDeletion(name=name, mechanism=2) for name in names[::100]]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    client = stepped.connect()
    codes = {each.user: each.error_code for each in client.ask(request, 0).results}
    missing = dict.fromkeys(names[::100], ErrorCode.RESOURCE_NOT_FOUND)
    assert codes == dict.fromkeys(names, ErrorCode.NONE) | missing
    described = client.ask(DescribeUserScramCredentialsRequest(), 0).results
    assert [each.user for each in described] == sorted(set(names) - set(missing))


def test_a_connection_that_closes_ends_its_steps(stepped: Server, ticks: list[int]) -> None:
    client: Connection = stepped.connect()
    assert not client.send(MetadataRequest(topics=[MetadataRequestTopic(name=f"n{i}") for i in range(5000)]), 13)
    client.disconnect()
    before = len(ticks)
    for _ in range(5):
        stepped.turn()
    assert len(ticks) - before <= 1
    assert not client.channel.answers


def test_a_list_of_groups_is_complete_and_filtered(stepped: Server) -> None:
    response = stepped.connect().ask(ListGroupsRequest(types_filter=["consumer"]), 5)
    assert (response.error_code, response.groups) == (0, [])


def test_every_api_has_an_expensive_request() -> None:
    assert {each.api_key for each in expensive_requests(1)} == set(API)
    assert ApiKey.METADATA in {each.api_key for each in STEPPED}
