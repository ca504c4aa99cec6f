"""Main paths of the share coordinator: create, read, write, delete; fencing; invalid requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_keys import coordinator_key, parse_coordinator_key
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.coordinator.runtime.key_hash import partition_for
from ottla.coordinator.share.shard import MAX_BATCHES
from ottla.coordinator.share.state import ShareSnapshot, ShareUpdate
from ottla.protocol.messages.read_share_group_state import PartitionData, ReadShareGroupStateRequest, ReadStateData

from .conversation import GROUP, Conversation, batches_of, key_of, topic_id

KEY = key_of()
TOPIC = "AQEBAQEBAQEBAQEBAQEBdA"
"""The id of its topic as text."""


def test_initialized_state_is_read_and_written(talk: Conversation) -> None:
    assert talk.initialize(KEY, state_epoch=3, start_offset=-1) is ErrorCode.NONE
    assert (talk.read(KEY, 5).state_epoch, talk.read(KEY, 5).start_offset) == (3, -1)
    assert talk.write(KEY, (10, 19, 2, 1), state_epoch=3, leader_epoch=5, start_offset=10) is ErrorCode.NONE
    assert talk.write(KEY, (20, 24, 0, 2), state_epoch=3, leader_epoch=5, complete_count=10) is ErrorCode.NONE
    found = talk.read(KEY, 5)
    assert found.start_offset == 10
    assert [(each.first_offset, each.last_offset, each.delivery_state) for each in found.state_batches] == [
        (10, 19, 2),
        (20, 24, 0),
    ]
    summary = talk.summarize(KEY)
    assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (3, 5, 10)


def test_start_offset_drops_batches_and_never_decreases(talk: Conversation) -> None:
    talk.initialize(KEY)
    talk.write(KEY, (0, 9, 2, 1), (10, 19, 4, 3))
    assert talk.write(KEY, start_offset=15) is ErrorCode.NONE
    assert talk.write(KEY, (3, 16, 0, 9), start_offset=12) is ErrorCode.NONE
    state = talk.shard().states[KEY]
    assert state.start_offset == 15
    assert batches_of(state) == [(15, 16, 0, 9), (17, 19, 4, 3)]


def test_complete_count_belongs_to_the_latest_start_offset(talk: Conversation) -> None:
    talk.initialize(KEY, start_offset=5)
    assert talk.summarize(KEY).delivery_complete_count == 0
    talk.write(KEY, start_offset=5, complete_count=7)
    talk.write(KEY, start_offset=5, complete_count=6)
    assert talk.summarize(KEY).delivery_complete_count == 7
    talk.write(KEY, start_offset=8, complete_count=2)
    talk.write(KEY, start_offset=6, complete_count=9)
    assert talk.summarize(KEY).delivery_complete_count == 2


def test_leader_with_an_older_epoch_is_fenced(talk: Conversation) -> None:
    talk.initialize(KEY)
    assert talk.read(KEY, 4).error_code == ErrorCode.NONE
    assert talk.read(KEY, 3).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert talk.write(KEY, (0, 0, 2, 1), leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert talk.summarize(KEY, 3).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert talk.write(KEY, (0, 0, 2, 1), leader_epoch=4) is ErrorCode.NONE
    talk.restart()
    assert talk.read(KEY, 3).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_reset_begins_again_and_fences_the_old_state_epoch(talk: Conversation) -> None:
    talk.initialize(KEY, state_epoch=1)
    talk.read(KEY, 4)
    talk.write(KEY, (0, 9, 2, 1), leader_epoch=4, start_offset=0)
    assert talk.initialize(KEY, state_epoch=2, start_offset=100) is ErrorCode.NONE
    assert talk.write(KEY, (100, 100, 2, 1), leader_epoch=4) is ErrorCode.FENCED_STATE_EPOCH
    assert talk.initialize(KEY, state_epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    found = talk.read(KEY, 4)
    assert (found.state_epoch, found.start_offset, found.state_batches) == (2, 100, [])
    assert talk.read(KEY, 3).error_code == ErrorCode.FENCED_LEADER_EPOCH, "the fence survives the reset"


def test_repeated_initialization_changes_nothing(talk: Conversation) -> None:
    talk.initialize(KEY, state_epoch=1, start_offset=7)
    assert talk.initialize(KEY, state_epoch=1, start_offset=7) is ErrorCode.NONE
    assert len(talk.records()) == 1


def test_late_repetition_of_an_initialization_keeps_the_state(talk: Conversation) -> None:
    """A retried request may arrive when the leader has chosen a start offset and stored acknowledgements."""
    talk.initialize(KEY, state_epoch=3, start_offset=-1)
    talk.write(KEY, (10, 19, 2, 1), state_epoch=3, start_offset=10)
    assert talk.initialize(KEY, state_epoch=3, start_offset=-1) is ErrorCode.NONE
    talk.write(KEY, state_epoch=3, start_offset=15)
    assert talk.initialize(KEY, state_epoch=3, start_offset=10) is ErrorCode.NONE
    state = talk.shard().states[KEY]
    assert (state.start_offset, batches_of(state)) == (15, [(15, 19, 2, 1)])


def test_deleted_state_is_gone(talk: Conversation) -> None:
    assert talk.delete(KEY) is ErrorCode.NONE
    talk.initialize(KEY, state_epoch=9)
    assert talk.delete(KEY) is ErrorCode.NONE
    assert talk.read(KEY).error_code == ErrorCode.INVALID_REQUEST
    summary = talk.summarize(KEY)
    assert (summary.error_code, summary.state_epoch, summary.start_offset) == (ErrorCode.NONE, 0, -1)
    assert talk.initialize(KEY, state_epoch=0) is ErrorCode.NONE, "no fence is left"
    talk.restart()
    assert talk.read(KEY).state_epoch == 0


def test_uninitialized_and_unknown_share_partitions_are_refused(talk: Conversation) -> None:
    assert talk.write(KEY, (0, 0, 2, 1)) is ErrorCode.INVALID_REQUEST
    assert talk.read(KEY).error_code == ErrorCode.INVALID_REQUEST
    for missing in (key_of(8), key_of(0, "missing")):
        assert talk.initialize(missing) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert talk.delete(missing) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert talk.summarize(missing).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert talk.initialize(key_of(-1)) is ErrorCode.INVALID_REQUEST
    assert talk.initialize(SharePartitionKey("g" * 40_000, topic_id("t"), 0)) is ErrorCode.INVALID_REQUEST
    assert talk.records() == []


@pytest.mark.parametrize(
    "batch",
    [(5, 4, 0, 1), (-1, 4, 0, 1), (0, 1, 1, 1), (0, 1, 5, 1), (0, 1, 0, -1), (0, (1 << 63) - 1, 0, 1)],
)
def test_invalid_batches_are_refused(talk: Conversation, batch: tuple[int, int, int, int]) -> None:
    talk.initialize(KEY)
    assert talk.write(KEY, batch) is ErrorCode.INVALID_REQUEST
    assert talk.write(KEY, (0, 0, 0, 1), start_offset=-2) is ErrorCode.INVALID_REQUEST
    assert talk.write(KEY, (0, 0, 0, 1), leader_epoch=-1) is ErrorCode.INVALID_REQUEST
    assert len(talk.records()) == 1


def test_state_has_a_bounded_number_of_batches(talk: Conversation) -> None:
    talk.initialize(KEY)
    half = [(2 * index, 2 * index, 0, 1) for index in range(MAX_BATCHES // 2)]
    assert talk.write(KEY, *half) is ErrorCode.NONE
    assert talk.write(KEY, *((first + 50_000, last + 50_000, 0, 1) for first, last, _, _ in half)) is ErrorCode.NONE
    assert talk.write(KEY, (200_000, 200_000, 0, 1)) is ErrorCode.INVALID_REQUEST
    assert talk.write(KEY, (200_000, 200_000, 0, 1), start_offset=2) is ErrorCode.NONE


def test_memory_limit_refuses_growth_until_states_are_deleted(make_talk: Callable[..., Conversation]) -> None:
    talk = make_talk(max_bytes=3_000)
    assert [talk.initialize(key_of(partition)) for partition in range(5)] == [
        *[ErrorCode.NONE] * 4,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    assert talk.write(key_of(0), *((2 * n, 2 * n, 0, 1) for n in range(9))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.delete(key_of(1)) is ErrorCode.NONE
    talk.time.advance(1)
    assert talk.initialize(key_of(4)) is ErrorCode.NONE


def test_response_has_an_entry_for_each_partition_in_order(make_talk: Callable[..., Conversation]) -> None:
    talk = make_talk(partitions=5)
    for partition in range(0, 200, 2):
        talk.initialize(key_of(partition, "u"), start_offset=partition)
    asked = [PartitionData(partition=partition, leader_epoch=0) for partition in range(200)]
    topics = [ReadStateData(topic_id=topic_id("u"), partitions=asked)]
    answer = talk.send(ReadShareGroupStateRequest(group_id=GROUP, topics=topics), settle=False)
    assert answer.pending, "many share partitions run in slices"
    talk.time.settle()
    (result,) = answer.response.results
    assert [each.partition for each in result.partitions] == list(range(200))
    assert {each.error_code for each in result.partitions[1::2]} == {ErrorCode.INVALID_REQUEST}
    assert [each.start_offset for each in result.partitions[::2]] == list(range(0, 200, 2))


@pytest.mark.parametrize("group", ["g", "a:b", ":", "a:AAAAAAAAAAAAAAAAAAAAAQ:3"])
def test_key_with_colons_in_the_group_is_split_from_the_right(group: str) -> None:
    key = SharePartitionKey(group, topic_id("t"), 12)
    text = coordinator_key(key)
    assert parse_coordinator_key(text) == key
    assert text == f"{group}:{TOPIC}:12"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        "g:1",
        f":{TOPIC}:1",
        "g:short:1",
        f"g:{TOPIC}:",
        f"g:{TOPIC}:-1",
        f"g:{TOPIC}:x",
        f"g:{TOPIC}:9999999999",
    ],
)
def test_invalid_coordinator_key_is_refused(text: str) -> None:
    with pytest.raises(KafkaError) as raised:
        parse_coordinator_key(text)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_partition_is_chosen_by_the_hash_of_the_whole_key(make_talk: Callable[..., Conversation]) -> None:
    talk = make_talk(partitions=5)
    talk.initialize(KEY)
    assert KEY in talk.shard(partition_for(f"{GROUP}:{TOPIC}:0", 5)).states


def test_snapshot_follows_the_configured_number_of_updates(make_talk: Callable[..., Conversation]) -> None:
    talk = make_talk(updates_per_snapshot=3)
    talk.initialize(KEY)
    for offset in range(8):
        talk.write(KEY, (offset, offset, 2, 1))
    kinds = [type(record) for record in talk.records()]
    assert kinds == [ShareSnapshot, *[ShareUpdate] * 3, ShareSnapshot, *[ShareUpdate] * 3, ShareSnapshot]
    assert talk.shard().states[KEY].snapshot_epoch == 2
    assert batches_of(talk.shard().states[KEY]) == [(0, 7, 2, 1)]
