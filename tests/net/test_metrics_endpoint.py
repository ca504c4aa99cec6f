"""The HTTP endpoint on real sockets."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from ottla.common.config.broker_configs import BrokerConfig
from ottla.metrics.registry import MetricsRegistry
from ottla.metrics.series import FamilyStart
from ottla.net import metrics_endpoint as endpoint_module
from ottla.net.listener import bind_socket
from ottla.net.metrics_endpoint import MetricsEndpoint
from ottla.net.tls import TlsHandshakeLimiter, TlsTransport
from ottla.security.authority import Authority
from ottla.security.listener_tls import ListenerTls


class Server:
    def __init__(self) -> None:
        self.registry = MetricsRegistry()
        self.healthy = True
        self.port = 0
        self.asked: list[tuple[str, str, str]] = []
        self.refused: str | None = None

    def refusal(self, path: str, principal: str, authorization: str, host: str) -> str | None:
        assert host == "127.0.0.1"
        self.asked.append((path, principal, authorization))
        return self.refused

    async def exchange(self, request: bytes, context: ssl.SSLContext | None = None) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        writer.write(request)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def serve(request) -> Callable[[Callable[[Server], Any]], None]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(body: Callable[[Server], Any], **options: Any) -> None:
        async def main() -> None:
            server = Server()
            listening = bind_socket("127.0.0.1", 0)
            server.port = listening.getsockname()[1]
            loop = asyncio.get_running_loop()
            endpoint = MetricsEndpoint(loop, server.registry, lambda: server.healthy, refusal=server.refusal, **options)
            await endpoint.start(listening)
            try:
                async with asyncio.timeout(20):
                    await body(server)
            finally:
                endpoint.close()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return run


def unchunk(body: bytes) -> bytes:
    data = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        if count == 0:
            assert body == b"\r\n"
            return data
        data += body[:count]
        assert body[count : count + 2] == b"\r\n"
        body = body[count + 2 :]


def test_metrics_in_chunks_and_without(serve):
    async def body(server):
        for number in range(20_000):
            server.registry.counter("a_total", "A", {"topic": f"topic-{number}"}).value = number
        head, _, chunks = (await server.exchange(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4" in head
        (family,) = text_string_to_metric_families(unchunk(chunks).decode())
        assert len(family.samples) == 20_000
        old = await server.exchange(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n")
        assert old.partition(b"\r\n\r\n")[2] == unchunk(chunks)
        head_only = await server.exchange(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head_only.endswith(b"\r\n\r\n")
        assert b"a_total" not in head_only

    serve(body)


def test_health(serve):
    async def body(server):
        assert (await server.exchange(b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        server.healthy = False
        assert (await server.exchange(b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 ")

    serve(body)


@pytest.mark.parametrize(
    ("request_bytes", "statuses"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", {b"404"}),
        (b"POST /metrics HTTP/1.1\r\n\r\n", {b"405"}),
        (b"\x00\x00\x00\x01\xff\r\n\r\n", {b"400"}),
        (b"GET /metrics SPDY\r\n\r\n", {b"400"}),
        # A refused request that is still being sent may end in a reset instead of the answer.
        (b"GET /" + b"x" * 20_000, {b"431", b""}),
    ],
)
def test_refusals(serve, request_bytes, statuses):
    async def body(server):
        answer = await server.exchange(request_bytes)
        assert answer[9:12] in statuses

    serve(body)


def test_unfinished_request_ends(serve, monkeypatch):
    monkeypatch.setattr(endpoint_module, "MAX_LIFE_S", 0.05)

    async def body(server):
        assert await server.exchange(b"GET /metrics HTTP/1.1\r\n") == b""

    serve(body)


def test_connections_are_bounded(serve, monkeypatch):
    monkeypatch.setattr(endpoint_module, "MAX_CONNECTIONS", 2)

    async def body(server):
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        assert (await server.exchange(b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await silent[0][0].read() == b"", "the oldest connection without a request was closed"
        reader, writer = silent[1]
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 "), "the other is still served"
        for _, writer in silent:
            writer.close()


def test_slow_scrapers_are_bounded(serve, monkeypatch):
    monkeypatch.setattr(endpoint_module, "MAX_CONNECTIONS", 2)

    async def body(server):
        for number in range(20_000):
            server.registry.counter(f"c{number}", "x" * 1000)
        reading = [await asyncio.open_connection("127.0.0.1", server.port, limit=1) for _ in range(2)]
        for reader, writer in reading:
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert (await reader.readexactly(8)) == b"HTTP/1.1"
        assert await server.exchange(b"GET /healthz HTTP/1.1\r\n\r\n") == b"", "connections with a request are kept"
        for _, writer in reading:
            writer.close()

    serve(body)


@pytest.mark.parametrize(("refused", "status"), [("401", b"401 Unauthorized"), ("403", b"403 Forbidden")])
def test_refused_client_gets_only_the_status(serve, refused, status):
    async def body(server):
        server.refused = refused
        server.registry.counter("secret_total", "S").value = 1
        answer = await server.exchange(b"GET /metrics?x HTTP/1.1\r\nHost: x\r\naUTHORIZATION:  Bearer a b \r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"secret" not in answer
        assert (b"WWW-Authenticate: Bearer\r\n" in answer) == (refused == "401")
        assert server.asked == [("/metrics", "User:ANONYMOUS", "Bearer a b")]

    serve(body)


def test_tls_certificate_names_the_principal(serve, tmp_path):
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.make("authority", now)
    files = {
        "ca": authority.pem,
        "server": authority.issue("server", ["127.0.0.1"], now),
        "alice": authority.issue("alice", [], now),
    }
    paths = {name: tmp_path / name for name in files}
    for name, path in paths.items():
        path.write_bytes(files[name])
    config, _ = BrokerConfig.parse(
        {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,METRICS:SSL",
            "listener.name.metrics.ssl.keystore.location": str(paths["server"]),
            "listener.name.metrics.ssl.truststore.location": str(paths["ca"]),
            "listener.name.metrics.ssl.client.auth": "requested",
        }
    )
    assert config.metrics_listener.encrypts
    tls = ListenerTls("METRICS", config, lambda path, limit: Path(path).read_bytes()[:limit], listens=True)
    failed = MetricsRegistry().counter("failed_total", "F")
    room = TlsHandshakeLimiter(memoryview(bytearray(65536)), failed)

    async def body(server):
        context = ssl.create_default_context(cafile=str(paths["ca"]))
        for number in range(3_000):
            server.registry.counter("a_total", "A", {"topic": f"topic-{number}"}).value = number
        answer = await server.exchange(b"GET /metrics HTTP/1.0\r\n\r\n", context)
        (family,) = text_string_to_metric_families(answer.partition(b"\r\n\r\n")[2].decode())
        assert len(family.samples) == 3_000
        context.load_cert_chain(paths["alice"])
        assert (await server.exchange(b"GET /healthz HTTP/1.1\r\n\r\n", context)).startswith(b"HTTP/1.1 200 ")
        assert server.asked == [("/metrics", "User:ANONYMOUS", ""), ("/healthz", "User:CN=alice", "")]
        assert await server.exchange(b"GET /metrics HTTP/1.1\r\n\r\n") == b"", "nothing plain"
        assert failed.value == 1

    serve(body, encrypt=lambda served: TlsTransport(tls, room, -1, served))


def test_steps_without_samples_do_not_end_the_response(serve):
    def collect():
        for _ in range(1_000):
            yield None
        yield FamilyStart("late", "Late")
        yield '{topic="t"}', 7

    async def body(server):
        chunks = (await server.exchange(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")[2]
        assert unchunk(chunks).decode().endswith('LATE{topic="t"} 7\n')

    serve(body, collectors=[collect], spelling=str.upper)
