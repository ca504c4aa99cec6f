"""Tests of metadata leave out offsets, and no match."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.record.builder import RecordData
from ottla.search.parser import parse_query
from ottla.search.pruning import RequiredMetadata, pruned, required_metadata

from .memory_topic import MemoryLog, MemoryTopic
from .model import Predicate, newest_first, oldest_first
from .test_engine import filled, places, prepared, searched, topics, visible

QUERIES: dict[str, Predicate] = {
    "timestamp >= 20": lambda seen: seen.record.timestamp >= 20,
    "timestamp > 20 && timestamp < 30": lambda seen: 20 < seen.record.timestamp < 30,
    "timestamp == 20 || timestamp == 25": lambda seen: seen.record.timestamp in (20, 25),
    "timestamp in [20, 25] && partition in [0, 1]": lambda seen: (
        seen.record.timestamp in (20, 25) and seen.partition < 2
    ),
    "!(timestamp >= 20)": lambda seen: seen.record.timestamp < 20,
    "partition == 1 && blue": lambda seen: seen.partition == 1 and seen.contains(b"blue"),
    "partition != 1": lambda seen: seen.partition != 1,
    "offset >= 2 && offset <= 4": lambda seen: 2 <= seen.record.offset <= 4,
    "(offset > 2 && partition < 2) && blue": lambda seen: (
        seen.record.offset > 2 and seen.partition < 2 and seen.contains(b"blue")
    ),
    "offset == 3 && offset == 4": lambda seen: False,
}


@settings(max_examples=150, deadline=None)
@given(topics, st.sampled_from(sorted(QUERIES)), st.booleans(), st.sampled_from(["committed", "uncommitted"]))
def test_pruned_search_equals_a_naive_scan(topic_logs, query, newest, isolation):
    expected = (newest_first if newest else oldest_first)(visible(topic_logs, isolation), QUERIES[query])
    topic = MemoryTopic(topic_logs, isolation)
    plan = prepared(topic, query, newest=newest, isolation=isolation)
    plan = replace(plan, ranges=pruned(topic, plan.ranges, parse_query(query, 0).filter))
    found = places(searched(topic, plan)[0])
    assert sorted(found) == sorted(expected)
    if newest or "offset" not in query:  # oldest first, a record stays behind those before it in the range
        assert found == expected


@pytest.mark.parametrize(
    ("query", "partitions", "records"),
    [
        ("partition == 1 && offset >= 4 && offset < 8", {1}, 4),
        ('"value" && timestamp >= 1050', {0, 1, 2}, 10),
        ('timestamp >= "1970-01-01T00:00:01.050Z"', {0, 1, 2}, 10),
        ("partition in [1, 2] && offset == 19", {1, 2}, 2),
        ("partition == 7", set(), 0),
    ],
)
def test_only_offsets_that_can_match_are_read(query, partitions, records):
    topic = filled()
    plan = prepared(topic, query, newest=False)
    plan = replace(plan, ranges=pruned(topic, plan.ranges, parse_query(query, 0).filter))
    report = searched(topic, plan, fetch_bytes=1)[1]
    assert set(plan.ranges) == partitions
    assert (report.records, report.complete) == (records, True)


def test_range_of_a_scope_is_never_widened():
    topic = MemoryTopic({0: MemoryLog()})
    topic.logs[0].append([RecordData(1, None, b"value") for _ in range(9)])
    plan = prepared(topic, "from:3 until:6 offset >= 0 && offset <= 100", newest=False)
    (found,) = pruned(topic, plan.ranges, parse_query(plan.query, 0).filter).values()
    assert (found.start, found.end) == (3, 6)


@pytest.mark.parametrize("query", ["", "blue", "!(offset == 1)", "offset == 1 || blue", 'offset == "1"', "size == 1"])
def test_other_filters_require_no_metadata(query):
    assert required_metadata(parse_query(query, 0).filter) == RequiredMetadata()
