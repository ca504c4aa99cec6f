"""Group members compute the same assignment independently, equal to that of Kafka 0.9."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.legacy.assignment import (
    ConsumerThread,
    assign,
    assign_range,
    threads_by_topic,
    topic_expression,
    topics_of,
)
from ottla.common.errors import KafkaError
from ottla.protocol.znodes.consumers import BLACK_LIST, STATIC, WHITE_LIST, ConsumerRegistration


def reads(pattern: str = STATIC, **subscription: int) -> ConsumerRegistration:
    return ConsumerRegistration(subscription, pattern, 1)


def filtered(pattern: str, expression: str, streams: int = 1) -> ConsumerRegistration:
    return ConsumerRegistration({expression: streams}, pattern, 1)


def shown(assigned: dict[int, ConsumerThread]) -> dict[int, str]:
    return {partition: thread.name for partition, thread in assigned.items()}


def test_the_example_of_kafka() -> None:
    """Two consumers of two threads each, and five partitions."""
    threads = threads_by_topic({"C2": reads(t=2), "C1": reads(t=2)}, ["t"])["t"]
    assert shown(assign_range(range(5), threads)) == {0: "C1-0", 1: "C1-0", 2: "C1-1", 3: "C2-0", 4: "C2-1"}


def test_threads_sort_as_strings_and_partitions_as_numbers() -> None:
    threads = threads_by_topic({"c": reads(t=12)}, ["t"])["t"]
    assert [thread.number for thread in threads] == [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
    assigned = assign_range([10, 2, 9, 1, 0, 3, 4, 5, 6, 7, 8, 11], threads)
    assert [assigned[partition].number for partition in range(12)] == [thread.number for thread in threads]


def test_names_sort_as_in_java() -> None:
    """A character of two units begins with U+D800 there, and comes before U+FF21; Python has them the other way."""
    threads = threads_by_topic({"\uff21": reads(t=1), "\U0001f600": reads(t=1)}, ["t"])["t"]
    assert [thread.consumer for thread in threads] == ["\U0001f600", "\uff21"]


def test_more_threads_than_partitions_leave_the_last_with_none() -> None:
    threads = threads_by_topic({"a": reads(t=2), "b": reads(t=2)}, ["t"])["t"]
    assert shown(assign_range([0, 1, 2], threads)) == {0: "a-0", 1: "a-1", 2: "b-0"}
    assert assign_range([0, 1], []) == {}


@given(
    st.sets(st.integers(0, 300), max_size=60),
    st.dictionaries(st.text("abc-", min_size=1), st.integers(1, 12), max_size=8),
)
def test_assignment_is_complete_unique_and_balanced(partitions: set[int], consumers: dict[str, int]) -> None:
    group = {name: reads(t=streams) for name, streams in consumers.items()}
    assigned = assign(group, {"t": partitions, "other": [1]})
    assert {partition for _, partition in assigned} == (partitions if consumers else set())
    assert assigned == assign(dict(reversed(group.items())), {"t": sorted(partitions, reverse=True)})
    counts = dict.fromkeys(threads_by_topic(group, ["t"]).get("t", []), 0)
    for thread in assigned.values():
        counts[thread] += 1
    assert max(counts.values(), default=0) - min(counts.values(), default=0) <= 1


def test_topics_are_assigned_apart() -> None:
    group = {"a": reads(t=1, u=1), "b": reads(u=1)}
    assigned = assign(group, {"t": range(2), "u": range(3), "v": range(1)})
    assert {key: thread.name for key, thread in assigned.items()} == {
        ("t", 0): "a-0",
        ("t", 1): "a-0",
        ("u", 0): "a-0",
        ("u", 1): "a-0",
        ("u", 2): "b-0",
    }


def test_a_topic_that_is_not_there_yet_has_no_partitions() -> None:
    assert assign({"a": reads(t=1)}, {}) == {}


@pytest.mark.parametrize(
    ("registration", "chosen"),
    [
        (filtered(WHITE_LIST, "a.*", 3), {"ab": 3, "a": 3}),
        (filtered(WHITE_LIST, " 'a, b' "), {"a": 1, "b": 1}),
        (filtered(WHITE_LIST, ".*"), {"ab": 1, "a": 1, "b": 1}),
        (filtered(BLACK_LIST, "a"), {"ab": 1, "b": 1}),
        (filtered(BLACK_LIST, "none"), {"ab": 1, "a": 1, "b": 1}),
        (reads(unknown=2), {"unknown": 2}),
    ],
)
def test_topics_of_subscriptions(registration: ConsumerRegistration, chosen: dict[str, int]) -> None:
    assert topics_of(registration, ["ab", "a", "b", "__consumer_offsets"]) == chosen


def test_a_filter_as_kafka_cleans_it() -> None:
    assert topic_expression("\"'a , b,c'\"") == "a|b|c"


def test_a_filter_that_only_java_knows_is_refused() -> None:
    with pytest.raises(KafkaError, match="topic filter"):
        topics_of(filtered(WHITE_LIST, "(?!a).*"), ["a"])


def test_a_hostile_filter_costs_no_more_than_another() -> None:
    assert topics_of(filtered(WHITE_LIST, "(a*)*b"), ["a" * 249]) == {}
