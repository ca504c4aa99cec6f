"""The log of the share coordinator: snapshots and updates, pruning, cold snapshots, unreadable records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import ErrorCode
from ottla.coordinator.share.records import encode_record
from ottla.coordinator.share.state import ShareDeletion, ShareSnapshot, ShareUpdate
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch

from .conversation import Conversation, image_of, key_of

INTERVAL_S = 300

KEYS = [key_of(0), key_of(1), key_of(0, group="other")]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("initialize"), st.sampled_from(KEYS), st.integers(0, 3), st.integers(-1, 20)),
        st.tuples(st.just("read"), st.sampled_from(KEYS), st.integers(0, 4)),
        st.tuples(
            st.just("write"),
            st.sampled_from(KEYS),
            st.integers(0, 20),
            st.integers(0, 4),
            st.sampled_from([0, 2, 4]),
            st.integers(-1, 20),
        ),
        st.tuples(st.just("delete"), st.sampled_from(KEYS)),
        st.tuples(st.just("wait")),
    ),
    max_size=25,
)


def run(talk: Conversation, step: Any) -> None:
    kind, *rest = step
    if kind == "wait":
        talk.time.advance(INTERVAL_S)
        return
    key = rest[0]
    if kind == "initialize":
        talk.initialize(key, rest[1], rest[2])
    elif kind == "read":
        talk.read(key, rest[1])
    elif kind == "delete":
        talk.delete(key)
    else:
        _, first, length, state, start_offset = rest
        talk.write(key, (first, first + length, state, 1), state_epoch=3, leader_epoch=4, start_offset=start_offset)


@settings(max_examples=size(15, 500), deadline=None)
@given(steps)
def test_snapshot_and_updates_are_the_state_at_every_cut(sequence: list[Any]) -> None:
    talk = Conversation(updates_per_snapshot=2)
    talk.prunes = False
    states_at = {0: talk.states()}
    for step in sequence:
        run(talk, step)
        states_at[talk.log.end[0]] = talk.states()
    batches = talk.log.batches[0]
    for end_offset, states in states_at.items():
        loaded = Conversation(updates_per_snapshot=2)
        loaded.log.batches[0] = [batch for batch in batches if BatchView(batch).next_offset <= end_offset]
        loaded.log.end[0] = loaded.log.high_watermark[0] = end_offset
        loaded.restart()
        assert loaded.states() == states


@settings(max_examples=size(15, 500), deadline=None)
@given(steps, st.integers(0, 3))
def test_pruning_deletes_nothing_that_a_load_needs(sequence: list[Any], updates_per_snapshot: int) -> None:
    talk = Conversation(updates_per_snapshot=updates_per_snapshot)
    for step in sequence:
        run(talk, step)
        if step[0] == "wait":
            states = talk.states()
            assert talk.log.start[0] == min(
                (state.snapshot_offset for state in states.values()), default=talk.log.end[0]
            )
            talk.restart()
            assert talk.states() == states


def test_records_are_pruned_only_after_the_snapshot_is_committed(make_talk: Callable[..., Conversation]) -> None:
    talk = make_talk(updates_per_snapshot=0)
    key = key_of()
    talk.initialize(key)
    talk.time.advance(INTERVAL_S - 1)
    talk.log.commits = False
    talk.runtime.schedule_write(
        "write", 0, lambda shard: shard.write(key, 1, 0, 7, 0, ()), lambda _response, _error: None
    )
    talk.time.advance(2)
    assert talk.states()[key].snapshot_offset == 1
    assert talk.log.start[0] == 0
    talk.log.commit(0, talk.log.end[0])
    assert talk.log.start[0] == 1


def test_cold_partition_gets_a_snapshot_so_that_the_log_shrinks(make_talk: Callable[..., Conversation]) -> None:
    talk = make_talk(updates_per_snapshot=10)
    cold, hot = key_of(0), key_of(1)
    talk.initialize(cold, start_offset=5)
    talk.initialize(hot)
    for offset in range(100):
        talk.write(hot, (offset, offset, 2, 1))
    before = talk.states()[cold]
    talk.time.advance(2 * INTERVAL_S)
    after = talk.states()[cold]
    assert after.snapshot_epoch == before.snapshot_epoch + 1
    assert (after.start_offset, after.created_ms) == (5, before.created_ms)
    assert talk.log.start[0] > 80
    end_offset = talk.log.end[0]
    talk.time.advance(10 * INTERVAL_S)
    assert talk.log.end[0] == end_offset, "an idle shard writes nothing"


def test_states_of_deleted_topics_are_removed(talk: Conversation) -> None:
    talk.initialize(key_of(0, "t"))
    talk.initialize(key_of(0, "u"))
    talk.image = image_of(u=8)
    talk.coordinator.topics_deleted({key_of(0, "t").topic_id})
    talk.time.settle()
    assert list(talk.states()) == [key_of(0, "u")]
    talk.image = image_of(t=8)
    talk.restart()
    talk.time.advance(INTERVAL_S)
    assert talk.states() == {}, "a deletion that no coordinator has seen is found later"
    talk.time.advance(INTERVAL_S)
    assert talk.records() == []


def test_unreadable_record_is_skipped_with_one_error(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    key = key_of()
    talk.initialize(key)
    talk.write(key, (0, 4, 2, 1))
    record_key, _ = encode_record(ShareDeletion(key))
    for value in (b"", b"\0\1", b"\0\0rubbish"):
        talk.log.put(0, build_batch([RecordData(0, record_key, value)]))
    talk.log.put(0, build_batch([RecordData(0, b"\0\7of a later release", b"")]))
    talk.log.high_watermark[0] = talk.log.end[0]
    states = talk.states()
    with caplog.at_level(logging.ERROR):
        talk.restart()
    assert talk.states() == states
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert talk.write(key, (5, 5, 2, 1)) is ErrorCode.NONE


def test_records_have_the_bytes_of_apache_kafka() -> None:
    key = key_of(7, group="g")
    snapshot = ShareSnapshot(key, 1, 2, 3, 100, 5, 10, 11, ())
    update = ShareUpdate(key, 1, 3, 100, -1, ())
    body = "000167" + key.topic_id.hex() + "00000007"
    assert [part.hex() for part in encode_record(snapshot) if part is not None] == [
        "0000" + body,
        "00000000000100000002000000030000000000000064000000000000000a000000000000000b0101000400000005",
    ]
    assert [part.hex() for part in encode_record(update) if part is not None] == [
        "0001" + body,
        "0000000000010000000300000000000000640100",
    ]
    assert encode_record(ShareDeletion(key)) == (bytes.fromhex("0000" + body), None)
