"""Client metrics (KIP-714) through the dispatcher: subscriptions, checks of pushes, export, and hostile pushes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import cramjam
import pytest

pytest.importorskip("opentelemetry.proto", reason="needs the extra `telemetry`")

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from prometheus_client.parser import text_string_to_metric_families

from ottla.app.clock import SystemClock
from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import ZERO_UUID, uuid_to_string
from ottla.metrics.exposition import render
from ottla.metrics.registry import MetricsRegistry
from ottla.metrics.series import FamilyStart
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from ottla.telemetry import instances, receiver
from ottla.telemetry.bounds import MAX_NAME_CHARACTERS

from .harness import Connection, Server

CLIENT_METRICS = 16
SENT = "org.apache.kafka.producer.record.send.total"
SENT_FAMILY = "kafka_client_producer_record_send_total"
LATENCY = "org.apache.kafka.producer.latency"
LATENCY_FAMILY = "kafka_client_producer_latency"
NO_ATTRIBUTES: Mapping[str, str] = {}


class SteppingClock(SystemClock):
    """A clock that tests move ahead."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def server(make_server: Callable[..., Server], clock: SteppingClock) -> Server:
    return make_server(clock=clock, receives_telemetry=True, telemetry_max_bytes="21000")


def subscribe(client: Connection, name: str = "all", **values: str | None) -> None:
    """Set settings of a subscription; None deletes one."""
    rows = [
        AlterableConfig(name=key.replace("_", "."), config_operation=int(value is None), value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=rows)
    (result,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result.error_message


def ask(client: Connection, instance_id: bytes = ZERO_UUID) -> GetTelemetrySubscriptionsResponse:
    response: GetTelemetrySubscriptionsResponse = client.ask(
        GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0
    )
    return response


def push(
    client: Connection, known: GetTelemetrySubscriptionsResponse, metrics: bytes = b"", codec: int = NONE, **fields: Any
) -> int:
    message = PushTelemetryRequest(
        client_instance_id=known.client_instance_id,
        compression_type=codec,
        metrics=metrics,
        **{"subscription_id": known.subscription_id, **fields},
    )
    return int(client.ask(message, 0).error_code)


def otlp(
    values: Iterable[tuple[str, float]],
    kind: str = "sum",
    temporality: int = 2,
    attributes: Mapping[str, str] = NO_ATTRIBUTES,
) -> bytes:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, value in values:
        metric = scope.metrics.add(name=name)
        if kind == "sum":
            metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, temporality
        point = getattr(metric, kind).data_points.add(as_double=value)
        for key, text in attributes.items():
            point.attributes.add(key=key).value.string_value = text
    return bytes(data.SerializeToString())


def scraped(server: Server) -> dict[str, list[tuple[str, float]]]:
    """Samples of all families of the collector."""
    families: dict[str, list[tuple[str, float]]] = {}
    telemetry = server.broker.contexts.telemetry
    assert telemetry is not None
    for step in telemetry.collect():
        if isinstance(step, FamilyStart):
            assert step.name not in families, "a family that begins twice breaks a scrape"
            samples = families.setdefault(step.name, [])
        elif step is not None:
            samples.append(step)
    return families


def test_apis_are_advertised_only_with_a_receiver(server: Server, make_server: Callable[..., Server]) -> None:
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    with_receiver, plain = server.connect(), make_server().connect()
    assert {71, 72} <= {row.api_key for row in with_receiver.ask(asked, 3).api_keys}
    assert not {71, 72} & {row.api_key for row in plain.ask(asked, 3).api_keys}
    plain.send(GetTelemetrySubscriptionsRequest(), 0)
    assert plain.channel.closed


def test_client_without_subscription_is_not_remembered(server: Server) -> None:
    client = server.connect()
    for _ in range(2):
        response = ask(client)
        assert (response.error_code, response.requested_metrics, response.push_interval_ms) == (0, [], 300_000)
        assert response.client_instance_id != ZERO_UUID
    assert push(client, response, otlp([(SENT, 1)])) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert server.broker.contexts.telemetry is not None
    assert server.broker.contexts.telemetry.receiver is None
    assert scraped(server) == {}


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_push_is_exported_with_labels_of_its_client(server: Server, codec: int) -> None:
    client = server.connect()
    subscribe(client, metrics="org.apache.kafka.producer.", interval_ms="1000")
    known = ask(client)
    assert known.requested_metrics == ["org.apache.kafka.producer."]
    assert (known.push_interval_ms, known.telemetry_max_bytes) == (1000, 21_000)
    assert known.accepted_compression_types == [ZSTD, LZ4, GZIP, SNAPPY]
    metrics = otlp([(SENT, 5.0), ("org.apache.kafka.consumer.other", 1.0)], attributes={"topic": 'a"b'})
    assert push(client, known, compress(codec, metrics), codec) == 0
    families = scraped(server)
    instance = uuid_to_string(known.client_instance_id)
    assert families[SENT_FAMILY] == [
        (f'{{client_id="tester",client_instance_id="{instance}",topic="a\\"b"}}', 5.0),
    ]
    assert "kafka_client_consumer_other" not in families, "it was not subscribed"
    assert families["ottla_client_metrics_omitted_total"] == [("", 1)]
    assert families["kafka_server_client_metrics_instance_count"] == [("", 1)]
    ((labels, _),) = families["ottla_client_info"]
    assert f'client_instance_id="{instance}"' in labels


def test_growth_is_added_up_and_gauges_are_replaced(server: Server, clock: SteppingClock) -> None:
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="1000")
    known = ask(client)
    gauge = ("org.apache.kafka.producer.buffer", 7.0)
    assert push(client, known, otlp([(SENT, 5)], temporality=1) + otlp([gauge], "gauge")) == 0
    clock.ahead_s += 1
    assert push(client, known, otlp([(SENT, 3)], temporality=1)) == 0
    families = scraped(server)
    assert [value for _, value in families[SENT_FAMILY]] == [8.0]
    assert "kafka_client_producer_buffer" not in families, "the last push has no value of it"


def histogram(temporality: int = 2, attributes: Mapping[str, str] = NO_ATTRIBUTES, **fields: Any) -> bytes:
    data = MetricsData()
    found = data.resource_metrics.add().scope_metrics.add().metrics.add(name=LATENCY).histogram
    found.aggregation_temporality = temporality
    point = found.data_points.add(**fields)
    for key, text in attributes.items():
        point.attributes.add(key=key).value.string_value = text
    return bytes(data.SerializeToString())


def samples_of(server: Server, family: str) -> dict[tuple[str, str | None], float]:
    """Values of a family in the text of a scrape, by name and bound of the series."""
    telemetry = server.broker.contexts.telemetry
    assert telemetry is not None
    text = b"".join(render(MetricsRegistry(), [telemetry.collect])).decode()
    (found,) = (each for each in text_string_to_metric_families(text) if each.name == family)
    assert found.type == "histogram"
    return {(each.name.removeprefix(family), each.labels.get("le")): each.value for each in found.samples}


def test_histogram_is_exported_with_cumulative_buckets(server: Server) -> None:
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="1000")
    known = ask(client)
    pushed = histogram(
        count=9, sum=12.5, bucket_counts=[2, 3, 4], explicit_bounds=[0.5, 10.0], attributes={"le": "7", "topic": "t"}
    )
    count = otlp([(f"{LATENCY}.count", 1.0)], "gauge")
    assert push(client, known, pushed + count) == 0
    assert samples_of(server, LATENCY_FAMILY) == {
        ("_bucket", "0.5"): 2,
        ("_bucket", "10"): 5,
        ("_bucket", "+Inf"): 9,
        ("_sum", None): 12.5,
        ("_count", None): 9,
    }
    families = scraped(server)
    assert f"{LATENCY_FAMILY}_count" not in families, "a gauge of that name would repeat a series of the histogram"
    assert all('topic="t"' in labels for labels, _ in families[LATENCY_FAMILY])


def test_growth_of_a_histogram_is_added_up(server: Server, clock: SteppingClock) -> None:
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="1000")
    known = ask(client)
    buckets: dict[str, Any] = {"bucket_counts": [1, 2], "explicit_bounds": [1.0]}
    for pushed, expected in (
        (histogram(1, count=3, sum=4.0, **buckets), [1, 3, 4, 3]),
        (histogram(1, count=3, sum=4.0, **buckets), [2, 6, 8, 6]),
        (histogram(1, count=3, sum=4.0, bucket_counts=[1, 2], explicit_bounds=[5.0]), [1, 3, 4, 3]),
    ):
        assert push(client, known, pushed) == 0
        clock.ahead_s += 1
        assert list(samples_of(server, LATENCY_FAMILY).values()) == expected


def test_histogram_beyond_the_bound_of_series_is_omitted_whole(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "MAX_CLIENT_SERIES", 5)
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="1000")
    large = histogram(count=4, sum=1.0, bucket_counts=[1, 1, 1, 1], explicit_bounds=[1.0, 2.0, 3.0])
    assert push(client, ask(client), large + otlp([(SENT, 1)])) == 0
    families = scraped(server)
    assert [name for name in families if name.startswith("kafka_client_")] == [SENT_FAMILY]
    assert families["ottla_client_metrics_omitted_total"] == [("", 1)]


def test_early_requests_are_throttled(server: Server, clock: SteppingClock) -> None:
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="60000")
    known = ask(client)
    instance = known.client_instance_id
    assert ask(client, instance).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(client, known) == 0
    assert push(client, known) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clock.ahead_s += 60
    assert push(client, known) == 0
    assert push(client, known, terminating=True) == 0
    assert push(client, known, terminating=True) == ErrorCode.INVALID_REQUEST
    assert scraped(server)["kafka_server_client_metrics_throttle_count"] == [("", 2)]


def test_changed_subscription_is_found_by_the_next_push(server: Server) -> None:
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="60000")
    known = ask(client)
    assert push(client, known, otlp([(SENT, 1)])) == 0
    subscribe(client, "more", metrics="a.", interval_ms="1000", match="client_id=tes.*,client_software_name=unknown")
    assert push(client, known) == 0, "another subscription that does not match changes nothing"
    subscribe(client, interval_ms="30000")
    assert push(client, known) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = ask(client, known.client_instance_id)
    assert (again.error_code, again.push_interval_ms) == (0, 30_000), "it may ask at once after this error"
    assert again.client_instance_id == known.client_instance_id
    for name in ("all", "more"):
        subscribe(client, name, metrics=None, interval_ms=None, match=None)
    assert server.broker.contexts.telemetry.receiver is None, "nothing is kept without a subscription"


def test_subscription_survives_a_restart(server: Server) -> None:
    subscribe(server.connect(), metrics="a.,b.", interval_ms="100")
    before = ask(server.connect(), bytes(range(16)))
    server.restart()
    assert ask(server.connect(), bytes(range(16))) == before


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=tester", True),
        ("client_id=test", False),
        ("client_software_name=lib,client_software_version=1\\.[0-9]+", True),
        ("client_software_name=lib,client_software_version=2.*", False),
        ("client_source_address=127\\..*,client_source_port=4[0-9]*", True),
        ("client_instance_id=AAECAwQFBgcICQoLDA0ODw", True),
    ],
)
def test_subscription_selects_clients_by_attributes(server: Server, match: str, matches: bool) -> None:
    client = server.connect()
    subscribe(client, metrics="x", match=match)
    for _ in range(2):  # a cached answer would not reach the connection
        client = server.connect()
        client.ask(ApiVersionsRequest(client_software_name="lib", client_software_version="1.20"), 3)
    assert ask(client, bytes(range(16))).requested_metrics == (["x"] if matches else [])


# --- hostile clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "codec", "code"),
    [
        (bytes(21_001), NONE, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(GZIP, bytes(5_000_000)), GZIP, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(ZSTD, bytes(5_000_000)), ZSTD, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(LZ4, bytes(4_000_000)), LZ4, ErrorCode.TELEMETRY_TOO_LARGE),
        (bytes(cramjam.snappy.compress_raw(bytes(400_000))), SNAPPY, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"\x0a\x00" * 10_000 + b"\x08", NONE, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"x", 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"x", -1, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"not gzip", GZIP, ErrorCode.INVALID_RECORD),
        (b"\xff" * 40, NONE, ErrorCode.INVALID_RECORD),
        (b"\x0a\x7f", NONE, ErrorCode.INVALID_RECORD),
        (b"\x0b", NONE, ErrorCode.INVALID_RECORD),
        (b"\x0a\x06\x12\x04\x12\x02\x0a\x7f", NONE, ErrorCode.INVALID_RECORD),
        (b"\x0a\x04\x0a\x02\x0a\x7f", NONE, ErrorCode.INVALID_RECORD),
    ],
    ids=lambda value: getattr(value, "name", None) or (f"crc{zlib.crc32(value)}" if isinstance(value, bytes) else None),
)
def test_hostile_push_is_refused_and_changes_nothing(
    server: Server, metrics: bytes, codec: int, code: ErrorCode
) -> None:
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="100")
    known = ask(client)
    assert len(metrics) < 40_000
    assert push(client, known, metrics, codec) == code
    families = scraped(server)
    assert not [name for name in families if name.startswith("kafka_client_")]
    assert server.broker._failures.count == 0
    other = server.connect()
    assert push(other, ask(other), otlp([(SENT, 1)])) == 0


def test_wrong_subscription_and_reserved_ids_are_refused(server: Server) -> None:
    client = server.connect()
    subscribe(client, metrics="*")
    known = ask(client)
    wrong = push(client, known, otlp([(SENT, 1)]), subscription_id=known.subscription_id ^ 1)
    assert wrong == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert scraped(server)["kafka_server_client_metrics_unknown_subscription_request_count"] == [("", 1)]
    known.client_instance_id = ZERO_UUID
    assert push(client, known) == ErrorCode.INVALID_REQUEST


def test_connection_has_one_instance_however_often_it_asks(server: Server) -> None:
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="100")
    for _ in range(50):
        known = ask(client)
        assert push(client, known, otlp([(SENT, 1)])) == 0
    families = scraped(server)
    assert families["kafka_server_client_metrics_instance_count"] == [("", 1)]
    assert len(families[SENT_FAMILY]) == 1


def test_instances_and_series_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "MAX_INSTANCES", 3)
    monkeypatch.setattr(receiver, "MAX_CLIENT_SERIES", 4)
    monkeypatch.setattr(receiver, "MAX_SERIES", 10)
    subscribe(server.connect(), metrics="*", interval_ms="100")
    for _ in range(5):
        client = server.connect()
        many = [(f"org.apache.kafka.producer.m{index}", 1.0) for index in range(6)]
        assert push(client, ask(client), otlp(many)) == 0
    families = scraped(server)
    assert families["kafka_server_client_metrics_instance_count"] == [("", 3)]
    assert sum(len(samples) for name, samples in families.items() if name.startswith("kafka_client_")) == 10
    assert families["ottla_client_metrics_omitted_total"][0][1] >= 10


def test_names_and_labels_of_a_client_can_not_forge_series(server: Server) -> None:
    client = server.connect()
    client.client_id = 'a"} 1\nup{x="' + "y" * 500
    subscribe(client, metrics="*", interval_ms="100")
    known = ask(client)
    forged = {"client_id": "victim", 'a"b\n': "c\nd", "": "e", "__name__": "up"}
    names = [("up", 1.0), ('x{a="b"} 1\nup', 2.0), ("z" * (MAX_NAME_CHARACTERS + 1), 3.0), ("", 4.0)]
    assert push(client, known, otlp(names, attributes=forged)) == 0
    pushed = {name: samples for name, samples in scraped(server).items() if name.startswith("kafka_client_")}
    assert sorted(pushed) == ["kafka_client_up", "kafka_client_x_a__b___1_up"]
    for samples in pushed.values():
        ((labels, _),) = samples
        assert "\n" not in labels
        assert "victim" not in labels
        assert ',a_b_="c\\nd",name__="up"}' in labels
        assert len(labels) < 400


def test_silent_client_expires(server: Server, clock: SteppingClock) -> None:
    client = server.connect()
    subscribe(client, metrics="*", interval_ms="100000")
    assert push(client, ask(client), otlp([(SENT, 1)])) == 0
    clock.ahead_s += 299
    assert SENT_FAMILY in scraped(server)
    clock.ahead_s += 2
    families = scraped(server)
    assert SENT_FAMILY not in families
    assert families["kafka_server_client_metrics_instance_count"] == [("", 0)]


def test_start_warns_of_a_subscription_without_receiver(
    make_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    subscribe(server.connect(), "producers", metrics="*")
    for receives, warnings in ((False, 1), (True, 0)):
        caplog.clear()
        server.receives_telemetry = receives
        server.restart()
        found = [text for text in caplog.messages if "client metrics subscription producers has no effect" in text]
        assert len(found) == warnings, receives
