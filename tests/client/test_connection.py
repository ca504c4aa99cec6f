"""One connection: negotiation, limits, timeouts, and error messages."""

from __future__ import annotations

import socket
import struct

import pytest

from ottla.client.admin.brokers import describe_brokers
from ottla.client.wire.connection import (
    BrokerUnreachable,
    Connection,
    ConnectionLost,
    library_servers,
    parse_bootstrap_servers,
)
from ottla.client.wire.metadata_requests import metadata
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, ProtocolError
from ottla.protocol.header import encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.registry import API, ApiKey


def connect(port: int, **settings) -> Connection:
    settings = {"client_id": "test", "timeout_s": 5.0, "software_version": "1", **settings}
    return Connection("127.0.0.1", port, **settings)


def test_negotiates_and_asks_in_the_best_common_version(scripted):
    scripted.versions[ApiKey.METADATA] = (4, 9)
    scripted.answers[ApiKey.METADATA] = lambda version, request: MetadataResponse(controller_id=7)
    connection = connect(scripted.port)
    response = connection.request(ApiKey.METADATA, MetadataRequest(topics=[]))
    assert response.controller_id == 7
    assert [(key, version) for key, version, _ in scripted.requests] == [
        (ApiKey.API_VERSIONS, API[ApiKey.API_VERSIONS].max_version),
        (ApiKey.METADATA, 9),
    ]
    assert scripted.requests[0][2].client_software_name == "ottla"
    connection.close()
    assert connection.closed


def test_pipelined_requests_are_answered_in_order(scripted):
    def answer(version, request):
        count = len([key for key, _, _ in scripted.requests if key == ApiKey.METADATA])
        return MetadataResponse(controller_id=count) if count < 10 else None

    scripted.answers[ApiKey.METADATA] = answer
    connection = connect(scripted.port)
    requests = [MetadataRequest(topics=[]) for _ in range(7)]
    assert [found.controller_id for found in connection.request_each(ApiKey.METADATA, requests)] == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    assert connection.request(ApiKey.METADATA, requests[0]).controller_id == 8
    with pytest.raises(ConnectionLost):  # the outcome of later requests is unknown
        connection.request_each(ApiKey.METADATA, requests[:3])
    assert connection.closed


def test_api_versions_falls_back_to_version_0(scripted):
    """KIP-511: error 35 has the layout of version 0, and contains the supported versions."""

    def answer(version, request):
        if version > 2:
            body = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)],
            )
            return encode_response(ApiKey.API_VERSIONS, 0, 1, body)
        return ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=5)])

    scripted.answers[ApiKey.API_VERSIONS] = answer
    connection = connect(scripted.port)
    assert connection.version_for(ApiKey.METADATA) == 5
    assert [version for _, version, _ in scripted.requests] == [API[ApiKey.API_VERSIONS].max_version, 2]
    with pytest.raises(KafkaError, match="does not support Fetch") as caught:
        connection.version_for(ApiKey.FETCH)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    connection.close()


def test_no_common_version_names_both_ranges(scripted):
    scripted.versions[ApiKey.FETCH] = (0, 3)
    connection = connect(scripted.port)
    with pytest.raises(KafkaError, match="supports Fetch in versions 0 to 3, this client in 4 to"):
        connection.version_for(ApiKey.FETCH)
    connection.close()


def test_connection_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(BrokerUnreachable, match=rf"cannot connect to 127\.0\.0\.1:{port}: connection refused"):
            connect(port)


def test_an_unknown_host_is_named():
    with pytest.raises(BrokerUnreachable, match=r"cannot connect to no-such-host\.invalid:9092: "):
        Connection("no-such-host.invalid", 9092, client_id="t", timeout_s=5, software_version="1")


def test_a_broker_that_hangs_up(scripted):
    scripted.answers[ApiKey.METADATA] = lambda version, request: None
    connection = connect(scripted.port)
    with pytest.raises(ConnectionLost, match="closed the connection"):
        connection.request(ApiKey.METADATA, MetadataRequest(topics=[]))
    assert connection.closed
    with pytest.raises(ConnectionLost, match="is closed"):
        connection.request(ApiKey.METADATA, MetadataRequest(topics=[]))


def test_one_that_hangs_up_at_once_may_speak_tls(scripted):
    scripted.answers[ApiKey.API_VERSIONS] = lambda version, request: None
    with pytest.raises(BrokerUnreachable, match=r"closed the connection before its first response.*--command-config"):
        connect(scripted.port)


def test_no_whole_answer_in_time(scripted):
    """Slow bytes do not extend the timeout: the frame is never complete."""
    scripted.answers[ApiKey.METADATA] = lambda version, request: struct.pack(">i", 1000) + b"x" * 10
    connection = connect(scripted.port)
    with pytest.raises(KafkaError, match=r"no response to Metadata from .* within 0\.2 s") as caught:
        connection.request(ApiKey.METADATA, MetadataRequest(topics=[]), timeout_s=0.2)
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert connection.closed


@pytest.mark.parametrize("size", [-1, 0, 1001, 0x48545450])
def test_a_size_that_is_none_allocates_nothing(scripted, size):
    scripted.answers[ApiKey.METADATA] = lambda version, request: struct.pack(">i", size)
    connection = connect(scripted.port, max_response_bytes=1000)
    with pytest.raises(ProtocolError, match=f"announced a response of {size} bytes"):
        connection.request(ApiKey.METADATA, MetadataRequest(topics=[]))
    assert connection.closed


def test_another_requests_answer_is_refused(scripted):
    scripted.answers[ApiKey.METADATA] = lambda version, request: encode_response(
        ApiKey.METADATA, version, 999, MetadataResponse()
    )
    connection = connect(scripted.port)
    with pytest.raises(ProtocolError, match="sent a response to request 999"):
        connection.request(ApiKey.METADATA, MetadataRequest(topics=[]))
    assert connection.closed


def test_a_body_of_nonsense_is_refused(scripted):
    body = struct.pack(">i", 2) + b"\x00" + b"\x7f" * 40
    scripted.answers[ApiKey.METADATA] = lambda version, request: struct.pack(">i", len(body)) + body
    connection = connect(scripted.port)
    with pytest.raises(ProtocolError):
        connection.request(ApiKey.METADATA, MetadataRequest(topics=[]))
    assert connection.closed


def test_port_of_a_controller_is_named():
    connection = object.__new__(Connection)
    connection.address = "host:9093"
    connection._versions = {ApiKey.VOTE: (0, 2), ApiKey.DESCRIBE_CLUSTER: (0, 2)}
    for request in (lambda: metadata(connection, []), lambda: describe_brokers(connection)):
        with pytest.raises(OperatorError, match="host:9093 is the port of a controller: use the port of a broker"):
            request()


def test_bootstrap_servers_are_parsed():
    assert parse_bootstrap_servers(" a:1, [::1]:9092 ,") == [("a", 1), ("::1", 9092)]
    with_protocols = "PLAINTEXT://a:1,SASL_SSL://[fe80::1%eth0]:9092, my-listener://b.example:2"
    assert parse_bootstrap_servers(with_protocols) == [("a", 1), ("fe80::1%eth0", 9092), ("b.example", 2)]
    assert library_servers(with_protocols) == "a:1,[fe80::1%eth0]:9092,b.example:2"
    assert parse_bootstrap_servers("a,SSL://b,[::1]") == [("a", 9092), ("b", 9092), ("::1", 9092)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "host/",
        "host:",
        ":9092",
        "host:x",
        "host:0",
        "host:65536",
        "host:-1",
        "PLAINTEXT://",
        "a://b://c:1",
        "http://h:1/",
    ],
)
def test_bad_bootstrap_servers_are_quoted(text):
    with pytest.raises(OperatorError):
        parse_bootstrap_servers(text)
