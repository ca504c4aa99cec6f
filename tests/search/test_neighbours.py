"""The nearest record with the same key: the same as in a list of all records, within the searched offsets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.record.builder import RecordData
from ottla.search.engine import Budget
from ottla.search.masks import RecordMask, parse_rule
from ottla.search.neighbours import Neighbour, find_neighbour
from ottla.search.plan import OffsetRange
from ottla.search.subject import Decoders, open_decoders

from .memory_topic import MemoryLog, MemoryTopic

KEYS = (b"a", b"b", b"ab", b"", None)


def search(
    topic: MemoryTopic,
    span: OffsetRange,
    key: bytes,
    *,
    is_before: bool,
    budget: Budget | None = None,
    mask: RecordMask | None = None,
    fetch_bytes: int = 200,
) -> Neighbour:
    decoders = open_decoders(Decoders(), None, mask)
    return find_neighbour(
        topic, 0, span, key, decoders, budget or Budget(), lambda: 0.0, lambda: None, fetch_bytes, is_before=is_before
    )


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)), min_size=1, max_size=5), max_size=8),
    removed=st.sets(st.integers(0, 30), max_size=8),
    start=st.integers(0, 3),
    key=st.sampled_from([b"a", b"b", b"ab", b""]),
    ends=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    bound=st.sampled_from([None, 1, 150]),
)
def test_neighbour_is_the_nearest_record_of_the_searched_offsets(batches, removed, start, key, ends, bound):
    log = MemoryLog()
    kept: dict[int, bytes | None] = {}
    for batch in batches:
        for number, (each, _) in enumerate(batch):
            kept[log.end + number] = each
        log.append([RecordData(timestamp, each, b"v" * 20) for each, timestamp in batch])
    log.compact(lambda offset: offset not in removed)
    log.delete_before(start)
    topic = MemoryTopic({0: log})
    low, high = sorted(min(max(log.start, each), log.end) for each in ends)
    for is_before in (True, False):
        found = search(topic, OffsetRange(low, high), key, is_before=is_before, budget=Budget(bytes=bound))
        read = range(found.left.end, high) if is_before else range(low, found.left.start)
        same = [each for each in range(low, high) if each not in removed and kept[each] == key]
        expected = same[-1:] if is_before else same[:1]
        if bound is None or found.hit is not None:
            assert ([found.hit.offset] if found.hit else []) == expected
        else:
            assert not set(same) & set(read)
            assert found.left.start >= low
            assert found.left.end <= high


def test_masked_keys_are_compared_as_they_are_shown():
    log = MemoryLog()
    log.append([RecordData(1, key, b"v") for key in (b"a", b"b", b"a")])
    topic = MemoryTopic({0: log})
    mask = RecordMask("t", [parse_rule("key", "hash")], b"secret")
    newest = search(topic, OffsetRange(2, 3), b"a", is_before=True)
    assert newest.hit is not None
    assert search(topic, OffsetRange(0, 3), b"a", is_before=True, mask=mask).hit is None
    hashed = mask.part("key", b"a", lambda data: newest.hit.decoded_key).data
    assert hashed is not None
    found = search(topic, OffsetRange(0, 2), hashed, is_before=True, mask=mask)
    assert found.hit is not None
    assert (found.hit.offset, found.hit.key) == (0, hashed)
