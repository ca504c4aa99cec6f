"""Masks: records that differ only where they are masked are the same to every query, decoder and report."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import OperatorError
from ottla.record.builder import RecordData
from ottla.search.decoder_names import AVRO, DECODERS, PROTOBUF, REGISTRY
from ottla.search.engine import Budget, Search
from ottla.search.masks import HIDDEN, MASKED, NOT_FOUND, RecordMask, parse_rule
from ottla.search.parser import parse_query
from ottla.search.plan import Plan, fix_ranges
from ottla.search.scan import Hit
from ottla.search.subject import Decoders, open_decoders

from .memory_topic import MemoryLog, MemoryTopic

SECRET = b"s" * 32
TOPIC = "payments"


def mask(*rules: tuple[str, str], topic: str = TOPIC, secret: bytes = SECRET) -> RecordMask:
    return RecordMask(topic, [parse_rule(*rule) for rule in rules], secret)


def run(
    records: Sequence[RecordData],
    chosen: RecordMask | None,
    query: str = "",
    *,
    names: Decoders | None = None,
    newest: bool = False,
) -> tuple[list[Hit], dict[str, object]]:
    """The matches, and the report without the number of read bytes."""
    log = MemoryLog()
    log.append(records)
    topic = MemoryTopic({0: log})
    parsed = parse_query(query, 0)
    plan = Plan(TOPIC, query, fix_ranges(topic, parsed.scopes), newest, decoders=names or Decoders())
    decoders = open_decoders(plan.decoders, None, chosen)
    search = Search(topic, plan, parsed.filter, Budget(), lambda: 0.0, decoders=decoders)
    hits = list(search.run())
    return hits, search.report(search.reason).as_json() | {"bytes_read": 0}


def one(record: RecordData, *rules: tuple[str, str]) -> Hit:
    ((hit,), _) = run([record], mask(*rules))
    return hit


def value_of(document: object, *rules: tuple[str, str]) -> Any:
    return json.loads(one(RecordData(1, None, json.dumps(document).encode()), *rules).value or b"")


# Non-interference

BLOBS = (
    *(None, b"", b"4111", b"4111111111111111", b"\0\0\0\0\7x", b"\0\3ab\0\0", b"\1" * 17, b"\xff\xfe", b"null", b"42"),
    *(b'{"card": 1}', b'{"card": ', b"[1, 2]", b"\x93\1\2\3", b"x" * 5_000),
)
CONTENTS = (None, True, 42, 1.5, "4111", "4111111111111111", "\ud800", [], ["4111"], {}, {"number": "4111"})
ROOTS = ("key", "value", "record.keyAsText", "record.valueAsText", 'headers["token"]', "headers[*]")
QUERIES = (
    *(
        "",
        "4111",
        "!4111",
        "card",
        "hidden",
        "\x00",
        "size < 10",
        "size == 4",
        "size > 100",
        "schemaId == 7",
        "has(key)",
    ),
    *(
        "has(schemaId)",
        "has(value)",
        "has(value.card)",
        "has(value.card.number)",
        "value.card == null",
        "value.card > 1",
    ),
    *("value.card == '4111'", "value.card != '4111'", "value.card.exists(i, i == '4111')", "value.card ~ /4/"),
    *("value == null", "value[0] == 1", "key == 42", "headers['token'].card == 1", "headers.exists(h, h == 'token')"),
    *(f"{root} == '4111'" for root in ROOTS),
    *(f"{root} ~ /^4111/" for root in ROOTS),
    *(f"!{root}.contains('4')" for root in ROOTS),
    *(f"{root}.startsWith('[')" for root in ROOTS),
)
NAMES = [name for name in DECODERS if name not in (AVRO, PROTOBUF, REGISTRY)]

chosen_decoders = st.builds(Decoders, st.sampled_from(NAMES), st.sampled_from(NAMES))


def assert_alike(first: list[RecordData], second: list[RecordData], chosen: RecordMask, names: Decoders) -> None:
    for query in QUERIES:
        for newest in (False, True):
            found = [run(each, chosen, query, names=names, newest=newest) for each in (first, second)]
            assert found[0] == found[1], query


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.tuples(*(st.sampled_from(BLOBS) for _ in range(6))), min_size=1, max_size=3),
    names=chosen_decoders,
)
def test_records_with_masked_parts_are_indistinguishable(parts, names):
    """Each record has the same timestamps and names of headers, and any content."""
    first = [RecordData(5, key, value, [("token", token), ("a", b"b")]) for key, value, token, *_ in parts]
    second = [RecordData(5, key, value, [("token", token), ("a", b"b")]) for *_, key, value, token in parts]
    rules = [("key", "hidden"), ("value", "hidden"), ('headers["token"]', "hidden")]
    assert_alike(first, second, mask(*rules), names)


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(st.tuples(*(st.sampled_from(BLOBS) for _ in range(3))), min_size=1, max_size=3),
       names=chosen_decoders)  # fmt: skip
def test_masked_key_is_not_in_failures_of_the_value(parts, names):
    """The decoders of internal topics read the key to decode the value."""
    first = [RecordData(5, key, value) for key, _, value in parts]
    second = [RecordData(5, key, value) for _, key, value in parts]
    assert_alike(first, second, mask(("key", "hidden")), names)


@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(st.tuples(st.sampled_from(CONTENTS), st.sampled_from(CONTENTS)), min_size=1, max_size=3),
    names=chosen_decoders,
)
def test_records_with_masked_fields_are_indistinguishable(contents, names):
    first, second = (
        [RecordData(5, b"k", json.dumps({"id": 1, "card": each}).encode()) for each in side]
        for side in zip(*contents, strict=True)
    )
    assert_alike(first, second, mask(("value.card", "hidden")), names)


UNFOUND = [each for each in BLOBS if each is not None and each[:1] not in (b"{", b"[")]


@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(
        st.tuples(st.sampled_from([*UNFOUND, b'{"card": ']), st.sampled_from(UNFOUND)), min_size=1, max_size=3
    ),
    names=chosen_decoders,
)
def test_values_that_cannot_be_masked_are_indistinguishable(contents, names):
    first, second = ([RecordData(5, b"k", each) for each in side] for side in zip(*contents, strict=True))
    assert_alike(first, second, mask(("value.card", "last 4")), names)


def test_search_for_masked_content_finds_the_shown_text():
    records = [
        RecordData(1, b"k", b'{"card": "4111111111111111"}'),
        RecordData(2, b"k", b'{"card": "5500000000000004"}'),
    ]
    chosen = mask(("value.card", "last 4"))
    assert [hit.offset for hit in run(records, chosen, "value.card == '****0004'")[0]] == [1]
    for query in ("5500000000000004", "value.card == '5500000000000004'", "value.card ~ /^55/", "size == 28"):
        hits, report = run(records, chosen, query)
        assert hits == []
        assert (report["records_skipped"], report["records_verified"]) == (0, 2)


# Structures

CARD = "4111111111111111"


@pytest.mark.parametrize(
    ("document", "path", "expected"),
    [
        ({"card": {"number": CARD, "n": 1}}, "value.card.number", {"card": {"number": HIDDEN, "n": 1}}),
        ({"card": {"number": CARD, "n": 1}}, "value.card[*]", {"card": {"number": HIDDEN, "n": HIDDEN}}),
        ({"cards": [{"n": 1}, {"n": 2}]}, "value.cards[*].n", {"cards": [{"n": HIDDEN}, {"n": HIDDEN}]}),
        ({"cards": [1, 2]}, "value.cards[1]", {"cards": [1, HIDDEN]}),
        ([CARD, 1], "value[0]", [HIDDEN, 1]),
        ({"card": None}, "value.card", {"card": HIDDEN}),
        ({"id": 1.5}, "value.card.number", {"id": 1.5}),
        ({"card": None}, "value.card.number", {"card": None}),
        # Another structure than the path
        ({"card": CARD}, "value.card.number", {"card": HIDDEN}),
        ({"card": [{"number": CARD}]}, "value.card.number", {"card": HIDDEN}),
        ({"cards": {"0": CARD}}, "value.cards[0]", {"cards": HIDDEN}),
    ],
)
def test_field_is_replaced_wherever_its_path_leads(document, path, expected):
    assert value_of(document, (path, "hidden")) == expected


@pytest.mark.parametrize("data", [b"plain", b'{"card": ', b"\xff", b"\0\0\0\0\7{", b'"text"', b"7"])
def test_value_without_structure_is_hidden_as_a_whole(data):
    hit = one(RecordData(1, None, data), ("value.card", "last 4"))
    assert (hit.value, hit.decoded_value.decoder) == (NOT_FOUND.encode(), MASKED)


def test_decoder_of_masked_fields_is_not_chosen_by_the_reader():
    """As MessagePack this value is an object without the masked field."""
    record = RecordData(1, None, b"\x81\xa4note\xa44111")
    ((hit,), _) = run([record], mask(("value.card", "hidden")), names=Decoders("msgpack", "msgpack"))
    assert hit.value == NOT_FOUND.encode()


def test_list_where_the_path_has_a_name_is_hidden_as_a_whole():
    hit = one(RecordData(1, None, b'["4111"]'), ("value.card", "hidden"))
    assert hit.value == NOT_FOUND.encode()


def test_repeated_names_and_escapes_do_not_leave_a_copy():
    data = b'{"card": "4111", "c\\u0061rd": "4222", "x": 12.30, "e": 1e400, "s": "\\ud800"}'
    hit = one(RecordData(1, None, data), ("value.card", "hidden"))
    assert hit.value == b'{"card": "[hidden]", "x": 12.3, "e": "1E+400", "s": "\\ud800"}'


def test_tombstone_keeps_its_null_unless_the_value_is_masked():
    assert one(RecordData(1, b"k", None), ("value.card", "hidden")).value is None
    assert one(RecordData(1, b"k", None), ("value", "hidden")).value == HIDDEN.encode()


def test_headers_are_masked_by_name_each_time():
    headers = [("token", b"a"), ("env", b"prod"), ("token", None)]
    assert one(RecordData(1, None, None, headers), ('headers["token"]', "hidden")).headers == (
        ("token", HIDDEN.encode()),
        ("env", b"prod"),
        ("token", HIDDEN.encode()),
    )
    assert {value for _, value in one(RecordData(1, None, None, headers), ("headers[*]", "hidden")).headers} == {
        HIDDEN.encode()
    }


# Methods


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (CARD, "****1111"),
        (12345678, "****5678"),
        ("1234567", HIDDEN),
        (True, HIDDEN),
        (None, HIDDEN),
        ([CARD], HIDDEN),
        ("\u00e9\U0001f600" * 4, "****" + "\u00e9\U0001f600" * 2),
    ],
)
def test_last_characters_are_kept_of_long_texts_only(content, shown):
    assert value_of({"card": content}, ("value.card", "last 4")) == {"card": shown}


def test_hash_is_equal_for_equal_content_of_a_topic_and_path():
    def hashed(content: object, path: str = "value.a", topic: str = TOPIC, secret: bytes = SECRET) -> str:
        record = RecordData(1, None, json.dumps({"a": content, "b": content}).encode())
        ((hit,), _) = run([record], mask((path, "hash"), topic=topic, secret=secret))
        return str(json.loads(hit.value or b"")[path[-1]])

    first = hashed(CARD)
    assert first == hashed(CARD)
    others = [hashed(int(CARD)), hashed(CARD, "value.b"), hashed(CARD, topic="other"), hashed(CARD, secret=b"t" * 32)]
    assert len({first, *others}) == 5
    assert all(each.startswith("hash:") and len(each) == 21 for each in others)


def test_key_equality_is_kept_by_hashes_only():
    assert mask(("key", "hash")).keeps_equality("key")
    assert mask(("value", "hidden")).keeps_equality("key")
    for rule in (("key", "hidden"), ("key", "last 4"), ("key.id", "hash")):
        assert not mask(rule).keeps_equality("key")


def test_second_rule_applies_to_the_result_of_the_first():
    assert value_of({"a": CARD}, ("value.a", "last 4"), ("value.a", "hidden")) == {"a": HIDDEN}
    hit = one(RecordData(1, None, CARD.encode()), ("value.a", "hidden"), ("value", "last 4"))
    assert hit.value == b"****1111"


def test_mask_reaches_worker_processes_without_its_secret_in_messages():
    chosen = mask(("value.card", "hidden"))
    assert SECRET.decode() not in repr(chosen)
    copy = pickle.loads(pickle.dumps(chosen))
    record = RecordData(1, None, b'{"card": 1}')
    assert run([record], copy) == run([record], chosen)


@pytest.mark.parametrize(
    ("path", "method", "reason"),
    [
        ("value.", "hidden", "at character 7 it needs a field name"),
        ("card", "hidden", "at character 1 it needs a path"),
        ("value.a == 1", "hidden", "at character 9 it needs the end of the path"),
        ("offset", "hidden", "begins with key, value or headers"),
        ("headers", "hidden", "is not a header"),
        ('headers["a"].b', "hidden", "is not a header"),
        ("value" + ".a" * 33, "hidden", "more than 32"),
        ("value.a", "last", "is not a method"),
        ("value.a", "last 0", "is not a method"),
        ("value.a", "Hidden", "is not a method"),
    ],
)
def test_rule_that_does_not_parse_is_refused(path, method, reason):
    with pytest.raises(OperatorError, match=reason):
        parse_rule(path, method)
