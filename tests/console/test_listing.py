"""Listings of records: pages cover all records of the start once, in both orders, while others are appended."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.console import listing as module
from ottla.console.context import PageError
from ottla.console.listing import Listing, read_page
from ottla.record.builder import RecordData
from ottla.search.engine import Budget, Search
from ottla.search.parser import parse_query
from ottla.search.plan import Plan, fix_ranges

from ..search.memory_topic import MemoryLog, MemoryTopic


def append(topic: MemoryTopic, partition: int, stamps: list[int]) -> None:
    records = [RecordData(1_000 + stamp, b"k", str(stamp).encode()) for stamp in stamps]
    if records:
        topic.logs[partition].append(records)


NO_CLUSTER: Any = None


def open_search(source, plan, condition, budget):
    return Search(source, plan, condition, budget, lambda: 0.0)


BATCHES = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 50), max_size=12)), max_size=10)


@settings(max_examples=60, deadline=None)
@given(before=BATCHES, after=BATCHES, newest_first=st.booleans(), rows=st.integers(1, 7))
def test_pages_repeat_and_omit_nothing(before, after, newest_first, rows):
    topic = MemoryTopic({partition: MemoryLog() for partition in range(3)})
    for partition, stamps in before:
        append(topic, partition, stamps)
    expected = {(p, o) for p, log in topic.logs.items() for o in range(log.end)}
    plan = Plan("t", "", fix_ranges(topic, parse_query("", 0).scopes), newest_first, topic_id=topic.topic_id)
    listing = Listing("t", parse_query("", 0), [plan])
    pages: list[list[Any]] = []
    more, number = True, 1
    later = iter(after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ClusterTopic", lambda *arguments: topic)
        while more:
            page = read_page(listing, number, NO_CLUSTER, open_search, Budget(matches=rows))
            pages.append([(hit.timestamp, hit.partition, hit.offset) for hit in page.hits])
            for partition, stamps in [next(later, (0, []))]:
                append(topic, partition, stamps)
            more, number = page.has_next, number + 1
        back = read_page(listing, 1, NO_CLUSTER, open_search, Budget(matches=rows))
    assert [(hit.timestamp, hit.partition, hit.offset) for hit in back.hits] == pages[0]
    found = [each for page in pages for each in page]
    assert sorted((partition, offset) for _, partition, offset in found) == sorted(expected)
    assert all(len(page) <= rows for page in pages)
    if newest_first:
        assert found == sorted(found, reverse=True)


def test_page_that_was_not_reached_is_refused():
    listing = Listing("t", parse_query("", 0), [Plan("t", "", {})])
    for number in (0, 2, 10**9):
        with pytest.raises(PageError):
            read_page(listing, number, NO_CLUSTER, open_search)
