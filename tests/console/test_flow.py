"""Rates, lag in time and distance to retention: pure rules and bounds, without a cluster."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.client.wire.model import ConfigEntry, FetchResult, PartitionInfo, TopicInfo
from ottla.console import formats
from ottla.console.flow_meter import MAX_PARTITIONS, FlowMeter
from ottla.console.retention import Distance, Retention, distance, estimate_bytes, topic_retention
from ottla.console.unread import Age, first_timestamp, oldest
from ottla.record.batch import LOG_APPEND_TIME
from ottla.record.builder import RecordData, build_batch

A, B, C = ("t", 0), ("t", 1), ("t", 2)


def topic(name: str, partitions: int = 1, leader: int = 1) -> TopicInfo:
    infos = tuple(PartitionInfo(index, leader, 0, (1,), (1,), ()) for index in range(partitions))
    return TopicInfo(name, name.encode(), False, infos)


def test_readings_of_many_topics_cover_all_in_turn():
    topics = {name: topic(name, 3) for name in (f"t{number:05}" for number in range(10_000))}
    meter, seen = FlowMeter(), Counter[tuple[str, int]]()
    busiest = ["t00001", "t09999"]
    for reading in range(2 * -(-30_000 // (MAX_PARTITIONS - 8))):
        chosen = meter.choose(topics, busiest, 3.0 * reading)
        assert len(chosen) <= MAX_PARTITIONS
        assert {name for name, _ in chosen} >= set(busiest)
        seen.update(chosen)
    assert len(seen) == 30_000
    assert min(seen.values()) == 2, "a rate needs two readings"


def test_topic_that_is_too_large_does_not_stop_the_turn():
    topics = {"a": topic("a", 3), "b": topic("b", MAX_PARTITIONS + 5), "c": topic("c"), "d": topic("d", leader=-1)}
    meter = FlowMeter()
    parts = [(["a"] * 3, ["b"]), (["b"] * MAX_PARTITIONS, []), (["c", "a", "a", "a"], [])]
    for number, (names, busiest) in enumerate(parts):
        for now_s in (10.0 * number, 10.0 * number + 0.5, 10.0 * number + 3):
            assert [name for name, _ in meter.choose(topics, busiest, now_s)] == names, "0.5 s is too early"


def test_topic_created_again_has_no_rate():
    meter = FlowMeter()
    meter.record_rates([topic("t")], {A: 10}, 0.0)
    assert meter.record_rates([topic("t")], {A: 30}, 10.0) == {A: 2.0}
    assert meter.known_rates(topic("t"), 10.0) == (2.0, None)
    again = topic("t")._replace(topic_id=b"other")
    assert meter.record_rates([again], {A: 500}, 20.0) == {A: None}


def fetched(*batches: bytearray) -> FetchResult:
    return FetchResult(b"".join(batches), 0, 0, 0, ())


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_first_timestamp_is_that_of_the_record_at_the_offset(compression):
    records = [RecordData(time_ms, None, b"x") for time_ms in (1_000, 5_000, 3_000)]
    result = fetched(build_batch(records, base_offset=10, compression=compression))
    assert [first_timestamp(result, offset)[0] for offset in (9, 10, 11, 12)] == [1_000, 1_000, 5_000, 3_000]
    assert first_timestamp(result, 13) == (None, 13)


def test_first_timestamp_passes_over_control_batches():
    marker = build_batch([RecordData(1, b"\0\0\0\1", b"")], base_offset=4, is_transactional=True, is_control=True)
    assert first_timestamp(fetched(marker), 4) == (None, 5)
    data = build_batch([RecordData(7, None, b"")], base_offset=5, timestamp_type=LOG_APPEND_TIME)
    assert first_timestamp(fetched(marker, data), 4) == (7, 5)


def test_age_is_a_least_one_if_partitions_are_unknown():
    assert oldest({A: 3.0, B: 61.0}, [A, B]) == Age(61.0, is_least=False)
    assert oldest({A: 3.0, B: 61.0}, [A, B, C]).text() == "at least 1 min 1 s"
    assert oldest({}, [A]).text() == oldest({}, []).text() == "-"
    assert oldest({A: 0.0}, [A, B]).text() == "-", "the lag of the other one may be any"


def settings(**values: str) -> dict[str, ConfigEntry]:
    return {
        name.replace("_", "."): ConfigEntry(name, value, "topic", False, False, False, None)
        for name, value in values.items()
    }


def test_retention_needs_delete_in_the_cleanup_policy():
    limits = {"retention_ms": "60000", "retention_bytes": "-1"}
    assert topic_retention(settings(cleanup_policy="compact, delete", **limits)) == Retention(60.0, None)
    assert topic_retention(settings(cleanup_policy="compact", **limits)) == Retention(None, None)


@pytest.mark.parametrize(
    ("retention", "known", "found", "is_short"),
    [
        (Retention(100.0, None), (80.0, None, None), Distance(20.0, 0.8), False),
        (Retention(100.0, None), (95.0, None, None), Distance(5.0, 0.95), True),
        (Retention(100.0, None), (130.0, None, None), Distance(0.0, 1.3), True),
        (Retention(100.0, 1_000), (10.0, 950.0, 10.0), Distance(5.0, 0.95), True),
        (Retention(None, 1_000), (10.0, 950.0, None), Distance(None, 0.95), True),
        (Retention(None, 1_000), (10.0, 2_000.0, None), Distance(0.0, 2.0), True),
        (Retention(100.0, None), (None, None, None), Distance(None, 0.0), False),
        (Retention(None, None), (10.0, 950.0, 10.0), Distance(None, 0.0), False),
    ],
)
def test_distance_to_retention_is_the_nearer_limit(retention, known, found, is_short):
    assert distance(retention, *known) == found
    assert found.is_short == is_short


def test_bytes_behind_an_offset_are_its_share_of_the_log():
    assert estimate_bytes(100, 150, 200, 1_000) == 500.0
    assert estimate_bytes(200, 200, 200, 1_000) == 0.0


def test_rates_have_a_readable_number_of_digits():
    shown = {None: "-", 0.0: "0", 0.44: "0.4", 3.0: "3", 9.96: "10", 1_234.5: "1,234"}
    assert {each: formats.rate(each) for each in shown} == shown
    assert [formats.byte_rate(each) for each in (None, 1_500.0)] == ["-", "1.5 kB/s"]
    assert [formats.wait(each) for each in (None, 61.5)] == ["-", "1 min 1 s"]
