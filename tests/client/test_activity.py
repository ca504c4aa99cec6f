"""Rates and lag from consecutive passes."""

from __future__ import annotations

from typing import Any

from ottla.client.admin.activity import ActivityReading, BrokerProblem, GroupReading
from ottla.client.views.activity import FENCED, GONE, LIVE, SILENT, ActivityTracker
from ottla.client.views.client_usage import ClientUsage, client_usages
from ottla.client.views.rates import MeterLimits, OffsetSample, RateMeter, catch_up_s, rate_per_s
from ottla.client.wire.model import ClusterBroker, GroupListing, PartitionInfo, TopicInfo

ID, OTHER_ID = bytes(15) + b"a", bytes(15) + b"b"


def topic(topic_id: bytes = ID, *, leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> TopicInfo:
    partitions = tuple(PartitionInfo(index, leader, 0, (1, 2), isr, ()) for index in range(2))
    return TopicInfo("views", topic_id, False, partitions)


def reading(*ends: int, **changed: Any) -> ActivityReading:
    """Two brokers, a topic with two partitions with these ends, and a group that has read 10 and 20 records."""
    brokers = [ClusterBroker(node_id, "host", 9091 + node_id, None, False) for node_id in (1, 2)]
    listing = GroupListing("readers", "consumer", "Stable", "Consumer")
    places = [("views", index) for index in range(len(ends))]
    found = ActivityReading(
        cluster_id="c",
        controller_id=1,
        brokers=brokers,
        topics={"views": topic()},
        ends=dict(zip(places, ends, strict=True)),
        sizes={1: {("views", 0): 100, ("views", 1): 50}},
        groups=[GroupReading(listing, {("views", 0): 10, ("views", 1): 20})],
        problems=[],
    )
    return found._replace(**changed)


def test_rate_is_the_difference_by_time() -> None:
    assert rate_per_s(OffsetSample(10.0, 100), OffsetSample(12.0, 150)) == 25.0
    assert rate_per_s(OffsetSample(10.0, 100), OffsetSample(12.0, 100)) == 0.0


def test_rate_is_unknown_without_two_samples_in_order() -> None:
    now = OffsetSample(10.0, 100)
    assert rate_per_s(None, now) is None
    assert rate_per_s(now, None) is None
    assert rate_per_s(now, OffsetSample(10.0, 200)) is None
    assert rate_per_s(now, OffsetSample(9.0, 200)) is None
    assert rate_per_s(now, OffsetSample(11.0, 99)) is None, "the offset fell"


def test_meter_is_bounded_by_keys_and_intervals() -> None:
    meter: RateMeter[str] = RateMeter(MeterLimits(max_keys=2, min_interval_s=1.0, max_interval_s=60.0))
    assert meter.measure("a", OffsetSample(0.0, 0)) is None
    assert meter.measure("a", OffsetSample(2.0, 10)) == 5.0
    assert meter.measure("a", OffsetSample(2.5, 1_000)) == 5.0, "too early for another rate"
    assert meter.measure("a", OffsetSample(4.0, 20)) == 5.0, "since the sample that counted"
    assert (meter.latest("a", 64.0), meter.latest("a", 65.0)) == (5.0, None)
    assert meter.measure("a", OffsetSample(65.0, 99)) is None, "the sample before is too old"
    for key in ("b", "c"):
        meter.measure(key, OffsetSample(65.0, 0))
    assert len(meter) == 2
    assert meter.measure("a", OffsetSample(67.0, 99)) is None, "it was dropped"


def test_catch_up_time_needs_a_faster_reader() -> None:
    assert catch_up_s(100, 60.0, 10.0) == 2.0
    assert catch_up_s(100, 10.0, 10.0) is None
    assert catch_up_s(100, None, 10.0) is None
    assert catch_up_s(0, 0.0, 0.0) == 0.0


def test_topic_group_and_broker_have_rates_from_the_second_pass() -> None:
    tracker = ActivityTracker()
    first = tracker.update(reading(10, 20), 100.0)
    assert first.topics[0].records_per_s is None
    assert first.groups[0].lag == 0
    offsets = {("views", 0): 20, ("views", 1): 20}
    groups = [GroupReading(reading().groups[0].listing, offsets)]
    second = tracker.update(reading(30, 40, groups=groups), 104.0)
    assert second.records_per_s == second.topics[0].records_per_s == second.brokers[0].records_per_s == 10.0
    assert (second.topics[0].size_bytes, second.brokers[0].size_bytes, second.brokers[1].size_bytes) == (150, 150, None)
    assert second.brokers[1].records_per_s is None, "it leads nothing"
    group = second.groups[0]
    assert (group.lag, group.consumed_per_s, group.produced_per_s, group.catch_up_s) == (30, 2.5, 10.0, None)


def test_recreated_topic_has_no_rate_at_first() -> None:
    tracker = ActivityTracker()
    tracker.update(reading(10, 20), 100.0)
    again = tracker.update(reading(500, 500, topics={"views": topic(OTHER_ID)}), 101.0)
    assert again.topics[0].records_per_s is None


def test_rate_after_an_outage_of_the_leader_covers_the_outage() -> None:
    tracker = ActivityTracker()
    tracker.update(reading(10, 20), 100.0)
    assert tracker.update(reading(), 105.0).topics[0].records_per_s is None
    assert tracker.update(reading(20, 30), 110.0).topics[0].records_per_s == 2.0


def test_group_that_was_not_read_keeps_its_values() -> None:
    tracker = ActivityTracker()
    tracker.update(reading(15, 25), 100.0)
    unread = [GroupReading(reading().groups[0].listing._replace(state="Empty"), None)]
    (group,) = tracker.update(reading(20, 30, groups=unread), 101.0).groups
    assert (group.lag, group.state) == (10, "Empty")


def test_lost_brokers_are_named_until_they_return() -> None:
    tracker = ActivityTracker()
    both = reading().brokers
    tracker.update(reading(), 100.0)
    problem = BrokerProblem(2, "host:9093", "timed out")
    for changed, state in (
        ({"problems": [problem]}, SILENT),
        ({"brokers": [both[0], both[1]._replace(fenced=True)]}, FENCED),
        ({"brokers": both[:1]}, GONE),
    ):
        lost = tracker.update(reading(**changed), 101.0)
        assert [each.state for each in lost.brokers] == [LIVE, state]
        (text,) = lost.problems
        assert text.startswith("broker 2 (host:9093) "), text
    assert not tracker.update(reading(), 102.0).problems


def test_usages_of_clients_are_summed_over_brokers() -> None:
    text = b"""# TYPE kafka_server_produce_byte_rate gauge
kafka_server_produce_byte_rate{client_id="a\\"b",user="ann"} 100.5
kafka_server_fetch_byte_rate{user="ann"} 7
kafka_server_produce_throttle_time{client_id="a\\"b",user="ann"} %s
kafka_server_request_request_time{client_id="a\\"b",user="ann"} 2
kafka_server_produce_byte_rate{client_id="x"} nonsense
kafka_server_produce_byte_rate{client_id="y"} NaN
kafka_server_produce_byte_rate 5
"""
    assert client_usages([text % b"30", text % b"20"]) == [
        ClientUsage("ann", 'a"b', 201.0, 0.0, 4.0, 30.0),
        ClientUsage("ann", "", 0.0, 14.0),
    ]
