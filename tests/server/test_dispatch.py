"""Guarantees of the dispatcher for any handler: framing rules, versions, contained errors."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, InvariantError, ProtocolError
from ottla.protocol.header import decode_response
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin import metadata
from ottla.server.handlers.admin.api_versions import MAX_SOFTWARE_LENGTH
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.requests import request_limits, response_cache
from ottla.server.wiring.apis import broker_apis

from .harness import Connection, Server, fetch_request, produce_request


def test_api_versions_lists_the_served_apis(server: Server, client: Connection) -> None:
    served = {each.row.key for each in broker_apis(server.broker.contexts)}
    for version in range(6):
        response = client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)
        assert response.error_code == 0
        listed = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert listed.keys() == served
        assert listed[ApiKey.PRODUCE] == (0, 13)
        assert listed[ApiKey.FETCH] == (0, 18)
    assert [(f.name, f.max_version_level) for f in response.finalized_features] == [
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("kraft.version", 1),
        ("metadata.version", 25),
        ("transaction.version", 2),
    ]
    assert response.finalized_features_epoch >= 0
    assert response.supported_features


def test_long_client_software_is_answered_but_not_kept(server: Server, client: Connection) -> None:
    server.broker.contexts.admin.keeps_software = True
    longest = ApiVersionsRequest(client_software_name="a" * (MAX_SOFTWARE_LENGTH - 1), client_software_version="1")
    longer = ApiVersionsRequest(client_software_name="b" * MAX_SOFTWARE_LENGTH, client_software_version="1")
    for request in (longest, longer):
        assert client.ask(request, 3).error_code == ErrorCode.NONE
    assert client.channel.client_software == (longest.client_software_name, "1")


def test_api_versions_refuses_nonsense_as_client_software(client: Connection) -> None:
    response = client.ask(ApiVersionsRequest(client_software_name="-bad-", client_software_version="1"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error_code"),
    [
        (None, -1, ErrorCode.NONE),
        (None, 99, ErrorCode.INVALID_REQUEST),
        ("own", 1, ErrorCode.NONE),
        ("own", -1, ErrorCode.INVALID_REQUEST),
        ("own", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_misrouted_client_is_rejected(
    server: Server, client: Connection, cluster_id: str | None, node_id: int, error_code: ErrorCode
) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1", node_id=node_id)
    request.cluster_id = server.broker.cluster_id if cluster_id == "own" else cluster_id
    for _ in range(2):
        response = client.ask(request, 5)
        assert response.error_code == error_code
        assert bool(response.api_keys) == (error_code == ErrorCode.NONE)
    assert client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 5).error_code == 0


def test_unknown_api_versions_version_is_answered_in_version_0(client: Connection) -> None:
    assert client.send_bytes(struct.pack(">hhih", 18, 99, 7, -1) + b"\0" * 3)
    data = client.channel.answers.pop()
    correlation_id, response = decode_response(18, 0, data[4:])
    assert correlation_id == 7
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1),
        struct.pack(">hhih", ApiKey.PRODUCE, 2, 1, -1),
        struct.pack(">hhih", ApiKey.METADATA, 1, 1, 30000),
        struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1),
        struct.pack(">hhihi", ApiKey.METADATA, 1, 1, -1, 2**31 - 1),
    ],
)
def test_unanswerable_request_closes_the_connection(server: Server, frame: bytes) -> None:
    client = server.connect()
    client.send_bytes(frame)
    assert client.channel.closed
    assert not client.channel.answers
    assert server.connect().ask(MetadataRequest(topics=None), 12).brokers


def test_handler_defect_is_answered_counted_and_logged_once(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(MetadataCache, "brokers_on", broken)
    with caplog.at_level(logging.ERROR, "ottla.server"):
        for _ in range(3):
            response = client.ask(DescribeClusterRequest(), 1)
            assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert client.ask(MetadataRequest(topics=None), 13).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [record.message.count("planted") for record in caplog.records] == [1, 1]
    assert server.broker.parts.failures.count == 6
    errors = server.counter(
        "kafka_network_requestmetrics_errors_total", request="DescribeCluster", error="UNKNOWN_SERVER_ERROR"
    )
    assert errors == 3


def test_a_defect_in_one_partition_spares_the_others(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("t", 2)
    broken = server.broker.parts.replicas.find("t", 0)
    monkeypatch.setattr(broken.log.writer, "_clock", None)
    assert client.produce("t", b"x", partition=0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.produce("t", b"x", partition=1).error_code == 0


def test_a_broken_invariant_leaves_the_dispatcher(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise InvariantError("planted")

    monkeypatch.setattr(MetadataCache, "brokers_on", broken)
    with pytest.raises(InvariantError):
        client.send(DescribeClusterRequest(), 1)


def test_stopping_broker_answers_only_parked_requests(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client, late = server.connect(), server.connect()
    client.create_topic("t")
    assert not client.send(fetch_request(("t", 0, 0), max_wait_ms=60_000), 12)
    server.stop()
    assert client.answer().error_code == 0
    late.send(MetadataRequest(topics=None), 12)
    assert late.channel.closed
    server.loop.close()


def test_nothing_stays_behind_when_a_parked_client_leaves(server: Server, client: Connection) -> None:
    client.create_topic("t")
    assert not client.send(fetch_request(("t", 0, 0), max_wait_ms=60_000), 12)
    purgatory = server.broker.parts.purgatory
    assert len(purgatory) == 1
    client.disconnect()
    assert len(purgatory) == 0
    other = server.connect()
    assert other.produce("t", b"x").error_code == 0
    server.turn()
    assert not client.channel.answers


def test_requests_and_latency_are_counted(server: Server, client: Connection) -> None:
    client.create_topic("t")
    client.produce("t", b"abc", b"def")
    client.ask(fetch_request(("t", 0, 0)), 12)
    assert server.counter("kafka_network_requestmetrics_requests_total", request="Produce") == 1
    for topic in ("t", ""):
        assert server.counter("kafka_server_brokertopicmetrics_messagesin_total", topic=topic) == 2
        size = server.counter("kafka_server_brokertopicmetrics_bytesin_total", topic=topic)
        assert size > 61
        assert server.counter("kafka_server_brokertopicmetrics_bytesout_total", topic=topic) == size
    histogram = server.registry.histogram("ottla_request_time_ms", "", {"request": "Produce"})
    assert histogram.total == 1


def test_the_receive_buffer_is_untouched_outside_the_frame(server: Server, client: Connection) -> None:
    client.create_topic("t")
    from ottla.protocol.header import encode_request

    frame = encode_request(ApiKey.PRODUCE, 12, 1, "c", produce_request("t", b"x"))[4:]
    buffer = bytearray(b"\xaa" * 10 + frame + b"\xbb" * 10)
    assert server.broker.dispatcher.handle(client.channel, buffer, 10, 10 + len(frame)) is not None
    assert buffer[:10] == b"\xaa" * 10
    assert buffer[10 + len(frame) :] == b"\xbb" * 10


def test_protocol_errors_are_protocol_errors(server: Server, client: Connection) -> None:
    with pytest.raises(ProtocolError):
        server.broker.dispatcher.handle(client.channel, bytearray(b"\0\x03\0\x0c"), 0, 4)


def test_a_request_names_only_so_many_things_more_than_there_are(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "REQUEST_ELEMENTS", 100)
    allowed = 100 + request_limits.ELEMENTS_PER_PARTITION * client.server.broker.contexts.data.partition_limit()
    names = [MetadataRequestTopic(name=f"n{number}") for number in range(allowed + 1)]
    request = MetadataRequest(topics=names[:-1], allow_auto_topic_creation=False)
    assert len(client.ask(request, 12).topics) == allowed
    client.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12)
    assert client.channel.closed


# --- cached responses -----------------------------------------------------------------------------------------------


def test_metadata_is_described_once_as_long_as_nothing_changes(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("t", 3)
    described: list[object] = []
    describe = metadata._describe

    def counted(*arguments):
        described.append(arguments)
        return describe(*arguments)

    monkeypatch.setattr(metadata, "_describe", counted)
    first = client.ask(MetadataRequest(topics=None), 12)
    again = client.ask(MetadataRequest(topics=None), 12)
    assert again == first
    assert len(described) == 1
    client.ask(MetadataRequest(topics=None), 11)
    assert len(described) == 2, "another version has another response"
    client.create_topic("u")
    assert {topic.name for topic in client.ask(MetadataRequest(topics=None), 12).topics} == {"t", "u"}
    assert len(described) == 3


def test_an_answer_with_an_error_is_not_remembered(server: Server, client: Connection) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="nope")], allow_auto_topic_creation=False)
    for _ in range(2):
        assert client.ask(request, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    counter = "kafka_network_requestmetrics_errors_total"
    assert server.counter(counter, request="Metadata", error="UNKNOWN_TOPIC_OR_PARTITION") == 2


def test_cached_responses_are_bounded_with_own_correlation_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "MAX_BYTES", 1000)
    cache = response_cache.ResponseCache()
    basis = (object(), 1)
    assert cache.find(basis, (1, "l", b"a"), 5) is None
    cache.add((1, "l", b"a"), struct.pack(">ii", 604, 5) + b"x" * 600)
    (answer,) = cache.find(basis, (1, "l", b"a"), 6) or []
    assert answer == struct.pack(">ii", 604, 6) + b"x" * 600
    cache.add((1, "l", b"b"), struct.pack(">ii", 604, 5) + b"y" * 600)
    assert cache.find(basis, (1, "l", b"a"), 6) is None
    assert cache.find(basis, (1, "l", b"b"), 6) is not None
    cache.add((1, "l", b"c"), bytes(2000))
    assert cache.find(basis, (1, "l", b"c"), 6) is None
    cache.add((1, "l", b"a"), bytes(100))
    assert cache.find((object(), 1), (1, "l", b"a"), 6) is None, "an input has changed"
