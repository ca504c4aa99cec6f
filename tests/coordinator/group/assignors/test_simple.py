"""The assignor of share groups: every partition has its members, every member its exact share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import EMPTY_ASSIGNMENT, Assignment, MemberSpec
from ottla.coordinator.group.assignors.simple import assign_simple, pool_shares


def topic(number: int) -> Uuid:
    return bytes([number]) * 16


def members_of(
    subscriptions: Sequence[frozenset[Uuid]], before: Mapping[str, Assignment] | None = None
) -> list[MemberSpec]:
    return [
        MemberSpec(f"m{number:03}", None, None, topics, (before or {}).get(f"m{number:03}", EMPTY_ASSIGNMENT))
        for number, topics in enumerate(subscriptions)
    ]


def places(assignment: Assignment) -> set[tuple[Uuid, int]]:
    return {(each, partition) for each, partitions in assignment.items() for partition in partitions}


counts = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@st.composite
def previous_of(draw: st.DrawFn, member_count: int, topic_count: int) -> dict[str, Assignment]:
    """Any earlier assignment, with partitions and topics that are gone."""
    partitions = st.frozensets(st.integers(0, 12), max_size=6)
    return {
        f"m{number:03}": {topic(each): found for each in range(topic_count + 1) if (found := draw(partitions))}
        for number in range(member_count)
    }


@given(st.integers(1, 12), counts, st.data())
def test_equal_subscriptions_get_exact_shares(member_count, partition_counts, data):
    topics = {topic(number): list(range(count)) for number, count in enumerate(partition_counts)}
    before = data.draw(previous_of(member_count, len(topics)))
    result = assign_simple(members_of([frozenset(topics)] * member_count, before), topics)
    total = sum(partition_counts)
    assert len(result) == member_count
    if not total:
        assert not any(result.values())
        return
    sharing = -(-member_count // total)
    holders = Counter(place for assignment in result.values() for place in places(assignment))
    assert holders == {(each, number): sharing for each, numbers in topics.items() for number in numbers}
    shares = sorted(len(places(assignment)) for assignment in result.values())
    assert shares == sorted(pool_shares(member_count, total))
    assert shares[-1] - shares[0] <= 1


@given(st.lists(st.frozensets(st.integers(0, 3), min_size=1), min_size=2, max_size=8), counts, st.data())
def test_each_topic_is_divided_among_its_subscribers(subscribed, partition_counts, data):
    topics = {topic(number): list(range(count)) for number, count in enumerate(partition_counts)}
    subscriptions = [frozenset(topic(each) for each in names if topic(each) in topics) for names in subscribed]
    before = data.draw(previous_of(len(subscribed), len(topics)))
    result = assign_simple(members_of(subscriptions, before), topics)
    for member, names in zip(members_of(subscriptions), subscriptions, strict=True):
        assert result[member.member_id].keys() <= names
    for each, numbers in topics.items():
        subscribers = sum(each in names for names in subscriptions)
        held = Counter(number for assignment in result.values() for number in assignment.get(each, ()))
        assert set(held) == (set(numbers) if subscribers else set())


@given(st.integers(1, 12), counts, st.data())
def test_result_is_stable(member_count, partition_counts, data):
    topics = {topic(number): list(range(count)) for number, count in enumerate(partition_counts)}
    subscriptions = [frozenset(topics)] * member_count
    before = data.draw(previous_of(member_count, len(topics)))
    first = assign_simple(members_of(subscriptions, before), topics)
    assert assign_simple(members_of(subscriptions, first), topics) == first


@given(st.integers(1, 5), st.integers(6, 30))
def test_new_member_takes_only_its_share(member_count, partition_count):
    topics = {topic(0): list(range(partition_count))}
    before = assign_simple(members_of([frozenset(topics)] * member_count), topics)
    after = assign_simple(members_of([frozenset(topics)] * (member_count + 1), before), topics)
    moved = sum(len(places(after[name]) - places(assignment)) for name, assignment in before.items())
    assert moved == 0


@pytest.mark.parametrize(
    ("member_count", "partition_count", "shares"),
    [(1, 3, [3]), (2, 3, [2, 1]), (3, 3, [1, 1, 1]), (4, 3, [2, 1, 2, 1]), (6, 1, [1] * 6), (5, 2, [2, 1, 1, 1, 1])],
)
def test_shares_are_even(member_count, partition_count, shares):
    assert pool_shares(member_count, partition_count) == shares


def test_only_assignable_partitions_are_assigned():
    topics = {topic(0): [1, 3]}
    before = {"m000": {topic(0): frozenset({0, 1, 2})}}
    result = assign_simple(members_of([frozenset(topics)], before), topics)
    assert result == {"m000": {topic(0): frozenset({1, 3})}}


def test_no_members_get_nothing():
    assert assign_simple([], {topic(0): [0]}) == {}
