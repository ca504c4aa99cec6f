"""Keys that every match has, and the offsets that a search passes over for them."""

from __future__ import annotations

import pytest

from ottla.client.wire.model import KeyFreeRange
from ottla.record.builder import RecordData
from ottla.search.key_ranges import KeySkips, required_keys
from ottla.search.masks import RecordMask
from ottla.search.parser import parse_query
from ottla.search.subject import Decoders, OpenDecoders, open_decoders

from .memory_topic import MemoryLog, MemoryTopic
from .test_engine import prepared, searched

KEYS = [
    ("key == 'a'", {b"a"}),
    ("key == 'a' && value.n == 1", {b"a"}),
    ("key in ['a', 'b', 'c'] && (key == 'a' || key == 'b')", {b"a", b"b"}),
    ("key == 'a' || value.n == 1", set()),
    ("!(key == 'a')", set()),
    ("key != 'a'", set()),
    ("key == null", set()),
    ("key in ['a', null]", set()),
    ("key == 7", set()),
    ("key.id == 'a'", set()),
    ("key ~ /^a$/", set()),
    ("record.keyAsText == 'ä'", {"ä".encode()}),
    ("record.keyAsText == 'a\ufffd'", set()),
    ("a", set()),
    ("", set()),
]


@pytest.mark.parametrize(("query", "expected"), KEYS)
def test_required_keys_of_a_filter(query, expected):
    assert set(required_keys(parse_query(query, 0).filter, open_decoders(Decoders()))) == expected


@pytest.mark.parametrize(
    ("query", "decoder", "expected"),
    [
        ("key == 7", "integer", {b"\7", b"\0\7", b"\0\0\0\7", bytes(7) + b"\7"}),
        ("key == -300", "integer", {b"\xfe\xd4", b"\xff\xff\xfe\xd4", b"\xff" * 6 + b"\xfe\xd4"}),
        ("key == 7", "int32", {b"\0\0\0\7"}),
        ("key in [7, 40000]", "int16", set()),
        ("key == true", "integer", set()),
        ("key == 'a'", "text", {b"a"}),
        ("key == 'a'", "json", set()),
        ("key == '0a'", "hex", set()),
    ],
)
def test_required_keys_depend_on_the_decoder(query, decoder, expected):
    assert set(required_keys(parse_query(query, 0).filter, open_decoders(Decoders(key=decoder)))) == expected


def test_masked_topic_requires_no_keys():
    decoders = OpenDecoders(*open_decoders(Decoders())[:2], RecordMask("t", (), b"s" * 32))
    assert required_keys(parse_query("key == 'a'", 0).filter, decoders) == ()


def test_skips_are_found_by_offset():
    skips = KeySkips([KeyFreeRange(2, 5, 3, 0, 0), KeyFreeRange(8, 9, 1, 0, 0)])
    assert [skips.at(offset) is not None for offset in range(10)] == [False] * 2 + [True] * 3 + [False] * 3 + [
        True,
        False,
    ]
    assert [skips.next_start(offset, 7) for offset in (0, 5, 9)] == [2, 7, 7]
    assert [skips.last_end(offset, 1) for offset in (0, 5, 9)] == [1, 5, 9]
    assert [[each.start for each in skips.within(*edges)] for edges in ((0, 2), (0, 3), (4, 9), (5, 8))] == [
        [],
        [2],
        [2, 8],
        [],
    ]


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_offsets_without_the_key_are_not_fetched(newest, workers):
    log = MemoryLog()
    for number in range(100):
        log.append([RecordData(1_000 + number, b"k%d" % number, b"v" * 2_000)])
    topic = MemoryTopic({0: log})
    topic.is_built = lambda base_offset: base_offset < 99
    hits, report = searched(topic, prepared(topic, "key == 'k40'", newest=newest), fetch_bytes=1, workers=workers)
    assert [hit.offset for hit in hits] == [40]
    assert {offset for _, offset in topic.fetches} == {40, 99}
    assert (report.records, report.verified) == (100, 1)
