"""TLS listener on real sockets, with honest and hostile clients of Python's ssl."""

from __future__ import annotations

import asyncio
import datetime
import random
import socket
import ssl
import struct
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.common.kafka.acl import ANONYMOUS
from ottla.metrics.registry import Counter as Metric
from ottla.net import tls as tls_module
from ottla.net.connection_set import ConnectionLimits
from ottla.net.wire import MAX_HANDSHAKES_PER_TICK, ConnectionHandler
from ottla.security.authority import Authority
from ottla.security.listener_tls import ListenerTls

NOW = datetime.datetime.now(datetime.UTC)
DATA = random.Random(3).randbytes(3 << 20)


class Keys:
    """An authority, a server's key and a client's."""

    def __init__(self, folder: Path) -> None:
        authority = self.authority = Authority.make("authority", NOW)
        self.folder = folder
        self.ca = self.file("ca.pem", authority.pem)
        self.server = self.file("server.pem", authority.issue("server", ["localhost", "127.0.0.1"], NOW))
        self.client = self.file("client.pem", authority.issue("alice", [], NOW))
        self.stranger = self.file("stranger.pem", Authority.make("other", NOW).issue("alice", [], NOW))

    def file(self, name: str, content: bytes) -> str:
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def listener(self, **settings: str) -> ListenerTls:
        properties = {
            "listeners": "SSL://localhost:0",
            "ssl.keystore.location": self.server,
            "ssl.truststore.location": self.ca,
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        config, _ = BrokerConfig.parse(properties)
        return ListenerTls("SSL", config, lambda path, limit: Path(path).read_bytes()[:limit], listens=True)

    def context(self, identity: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if identity is not None:
            context.load_cert_chain(identity)
        return context


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


class TlsClient:
    """A client that lets the test hold back its ciphertext."""

    def __init__(self, net, raw: socket.socket, context: ssl.SSLContext) -> None:
        self.net = net
        self.raw = raw
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    async def _step(self, action):
        while True:
            try:
                result = action()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self.net.loop.sock_recv(self.raw, 1 << 20)
                if not data:
                    self.incoming.write_eof()
                self.incoming.write(data)
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        if self.outgoing.pending:
            await self.net.loop.sock_sendall(self.raw, self.outgoing.read())

    async def shake_hands(self) -> None:
        await self._step(self.tls.do_handshake)

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[await self._step(partial(self.tls.write, view)) :]

    async def response(self) -> bytes:
        (size,) = struct.unpack(">i", await self._receive(4))
        return await self._receive(size)

    async def _receive(self, count: int) -> bytes:
        parts = []
        while count:
            data = await self._step(partial(self.tls.read, min(count, 1 << 20)))
            assert data, "closed"
            parts.append(data)
            count -= len(data)
        return b"".join(parts)


async def ask(net, context: ssl.SSLContext, frame: bytes) -> bytes:
    client = await connect(net, context)
    await client.send(frame)
    return await client.response()


async def at_end(net, raw: socket.socket) -> bool:
    """Wait for the broker's close, after any TLS alert."""
    try:
        while await net.loop.sock_recv(raw, 1 << 16):
            pass
    except ConnectionError:
        pass
    return True


async def connect(net, context: ssl.SSLContext, receive_buffer: int = 0) -> TlsClient:
    client = TlsClient(net, await net.connect(receive_buffer), context)
    await client.shake_hands()
    return client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("identity", ["none", "client"])
def test_frames_carry_the_principal_of_the_certificate(network, make_frame, keys, version, identity):
    async def body(net):
        context = keys.context(keys.client if identity == "client" else None)
        context.minimum_version = context.maximum_version = version
        client = await connect(net, context)
        await client.send(make_frame(b"Efirst") + make_frame(b"Esecond"))
        assert await client.response() == b"first"
        assert await client.response() == b"second"
        assert client.tls.version() == version.name.replace("TLSv1_", "TLSv1.")
        (channel,) = net.dispatcher.channels
        assert channel.principal == ("User:alice" if identity == "client" else ANONYMOUS)
        assert net.room.handshakes == 0
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        await client._flush()
        await net.until(lambda: net.dispatcher.closed)

    network.run(body, tls=keys.listener())


@pytest.mark.parametrize("receive_buffer", [4096, 0])
@pytest.mark.parametrize("kind", ["bytes", "small", "warm", "cold", "by reference"])
def test_responses_arrive_unchanged_and_in_order(network, make_frame, memory_region, keys, kind, receive_buffer):
    regions = []

    def answer():
        if kind == "bytes":
            return [struct.pack(">i", len(DATA)), DATA]
        step = 10_000 if kind == "small" else 1_500_000
        pieces = [memory_region(DATA[at : at + step], cold=kind == "cold") for at in range(0, len(DATA), step)]
        for piece in pieces:
            piece.by_reference = kind == "by reference"
        regions.extend(pieces)
        return [struct.pack(">i", len(DATA)), *pieces]

    async def body(net):
        net.dispatcher.answers[b"x"] = answer
        client = await connect(net, keys.context(), receive_buffer)
        await client.send(make_frame(b"Efirst") + make_frame(b"Ax") + make_frame(b"Elast"))
        assert await client.response() == b"first"
        assert await client.response() == DATA
        assert await client.response() == b"last"
        assert all(region.released == 1 for region in regions)
        assert all((region.cold_reads > 0) is (kind == "cold") for region in regions)

    network.run(body, tls=keys.listener())


def test_large_and_many_requests_arrive_unchanged(network, make_frame, keys):
    async def body(net):
        client = await connect(net, keys.context())
        await client.send(make_frame(b"E" + DATA))
        assert await client.response() == DATA
        sizes = [1, 100, 70_000, 5, 16_384, 33_000] * 20
        sending = asyncio.ensure_future(client.send(b"".join(make_frame(b"P" + DATA[:size]) for size in sizes)))
        await sending
        for size in sizes:
            await net.until(lambda: net.dispatcher.parked)
            net.dispatcher.finish()
            assert await client.response() == DATA[:size]

    network.run(body, tls=keys.listener())


class PlainTransport(asyncio.Transport):
    """The event loop's interface, with output captured by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True
        self.written = bytearray()

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        self.written += data

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True


class SlowReader(ConnectionHandler):
    """Receives a large frame in pieces of a given size, then pauses until the test resumes it."""

    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.got = bytearray()

    def connection_made(self, transport):
        self.transport = transport

    def identified(self, principal):
        pass

    def get_buffer(self, sizehint):
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes):
        self.got += self.buffer[:nbytes]
        self.transport.pause_reading()

    def connection_lost(self, exc):
        pass


def test_paused_ciphertext_is_not_overwritten_by_others(keys):
    """One read brings more of a large frame than its connection takes; the next read may be another connection's."""
    room = tls_module.TlsHandshakeLimiter(memoryview(bytearray(1 << 16)), Metric())
    data = DATA[:1_000_000]

    async def body():
        served, raw = SlowReader(100_000), PlainTransport()
        transport = tls_module.TlsTransport(keys.listener(), room, -1, served)
        transport.connection_made(raw)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = keys.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        reads: list[int] = []

        def deliver(ciphertext: bytes) -> bytes:
            view = transport.get_buffer(-1)
            count = min(len(view), len(ciphertext))
            view[:count] = ciphertext[:count]
            transport.buffer_updated(count)
            view[:] = bytes(len(view))
            reads.append(count)
            return ciphertext[count:]

        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        deliver(outgoing.read())
        incoming.write(raw.written)
        client.do_handshake()
        for start in range(0, len(data), 1 << 14):
            client.write(data[start : start + (1 << 14)])
        waiting = outgoing.read()
        while len(served.got) < len(data):
            if raw.reads:
                waiting = deliver(waiting)
            else:
                transport.resume_reading()
                await asyncio.sleep(0)
        assert served.got == data
        assert max(reads) == tls_module.LARGE_CIPHERTEXT_BYTES
        transport.connection_lost(None)

    asyncio.run(body())


def test_plaintext_client_is_closed_by_a_tls_listener(network, make_frame, keys, caplog):
    async def body(net):
        client = await net.connect()
        await net.send(client, make_frame(b"Ehello"))
        assert await at_end(net, client)
        await net.until(lambda: net.dispatcher.closed)
        assert not net.dispatcher.requests
        assert net.connections.metrics.failed_authentications.value == 1
        assert net.room.handshakes == 0

    network.run(body, tls=keys.listener())
    assert "TLS" in caplog.text


def test_tls_to_a_plain_listener_is_closed(network, keys, caplog):
    async def body(net):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(net, keys.context())
        assert not net.dispatcher.requests

    network.run(body)
    assert "socket.request.max.bytes" in caplog.text


@pytest.mark.promise("S5")
@pytest.mark.parametrize("identity", ["none", "stranger"])
def test_client_without_a_valid_required_certificate_is_closed(network, make_frame, keys, identity):
    async def body(net):
        context = keys.context(keys.stranger if identity == "stranger" else None)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(net, context, make_frame(b"Ehello"))
        await net.until(lambda: net.dispatcher.closed)
        assert not net.dispatcher.requests
        assert net.connections.metrics.failed_authentications.value == 1

    network.run(body, tls=keys.listener(ssl_client_auth="required"))


def revocations(authority: Authority, *revoked: bytes, days: int = 1) -> bytes:
    """Revocation list of `authority` for certificates (PEM, with keys); outdated with negative days."""
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.certificate.subject)
    builder = builder.last_update(NOW - datetime.timedelta(days=9)).next_update(NOW + datetime.timedelta(days=days))
    for pem in revoked:
        serial = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :]).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - datetime.timedelta(days=9))
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.promise("S5")
@pytest.mark.parametrize("listed", ["another", "alice", "none, by another authority", "none, long ago"])
def test_revoked_certificate_is_rejected(network, make_frame, keys, listed):
    client, another = Path(keys.client).read_bytes(), keys.authority.issue("another", [], NOW)
    path = keys.file(
        "revoked.pem",
        {
            "another": revocations(keys.authority, another),
            "alice": revocations(keys.authority, another, client),
            "none, by another authority": revocations(Authority.make("other", NOW)),
            "none, long ago": revocations(keys.authority, days=-1),
        }[listed],
    )

    async def body(net):
        if listed == "another":
            assert await ask(net, keys.context(keys.client), make_frame(b"Ehello")) == b"hello"
            return
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(net, keys.context(keys.client), make_frame(b"Ehello"))
        await net.until(lambda: net.dispatcher.closed)
        assert not net.dispatcher.requests

    network.run(body, tls=keys.listener(ssl_client_auth="required", ssl_crl_location=path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "can't be read"),
        (b"nothing", "no revocation list"),
        (b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "damaged"),
    ],
)
def test_revocations_that_cannot_be_read_are_refused(keys, content, words):
    path = keys.folder / "missing.pem" if content is None else keys.file("bad-revocations.pem", content)
    with pytest.raises(OperatorError, match=rf"ssl\.crl\.location.*{words}"):
        keys.listener(ssl_crl_location=str(path))


def test_certificate_without_a_matching_rule_is_rejected(network, make_frame, keys, caplog):
    async def body(net):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(net, keys.context(keys.client), make_frame(b"Ehello"))
        await net.until(lambda: net.dispatcher.closed)
        assert not net.dispatcher.requests

    listener = keys.listener(**{"ssl.principal.mapping.rules": "RULE:CN=bob/bob/"})
    network.run(body, tls=listener)
    assert "no rule of ssl.principal.mapping.rules fits CN=alice" in caplog.text


def test_a_slow_handshake_ends(network, keys, monkeypatch, caplog):
    monkeypatch.setattr(tls_module, "HANDSHAKE_TIMEOUT_S", 0.05)

    async def body(net):
        silent = await net.connect()
        begun = TlsClient(net, await net.connect(), keys.context())
        with pytest.raises(ssl.SSLWantReadError):
            begun.tls.do_handshake()
        hello = begun.outgoing.read()
        await net.send(begun.raw, hello[:-1])
        assert await net.at_end(silent)
        assert await net.at_end(begun.raw)
        assert net.room.handshakes == 0

    network.run(body, tls=keys.listener())
    assert "the handshake takes longer than 0.05 s" in caplog.text


def test_half_open_handshakes_are_bounded(network, make_frame, keys, monkeypatch):
    monkeypatch.setattr(tls_module, "MAX_HANDSHAKES", 5)

    async def body(net):
        half_open = []
        for _ in range(40):
            client = TlsClient(net, await net.connect(), keys.context())
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.do_handshake()
            await client._flush()
            half_open.append(client)
            assert net.room.handshakes <= 5
        honest = await connect(net, keys.context())
        await honest.send(make_frame(b"Ehello"))
        assert await honest.response() == b"hello"
        await net.until(lambda: len(net.connections.connections) <= 6)
        assert await at_end(net, half_open[0].raw)

    network.run(body, tls=keys.listener())


def test_handshake_flood_yields_to_open_connections(network, make_frame, keys, monkeypatch):
    """All have connected before the first handshake starts; open connections are served in between."""
    crowd, turns, gone_on = 60, [0], Counter()
    shake_hands = tls_module.TlsTransport.shake_hands

    def counted(transport):
        gone_on[turns[0]] += 1
        shake_hands(transport)

    async def body(net):
        def turn():
            turns[0] += 1
            net.loop.call_soon(turn)

        turn()
        honest = await connect(net, keys.context())
        clients = [TlsClient(net, await net.connect(), keys.context()) for _ in range(crowd)]
        await net.until(lambda: net.room.handshakes == crowd)
        monkeypatch.setattr(tls_module.TlsTransport, "shake_hands", counted)
        for client in clients:
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.do_handshake()
            client.raw.send(client.outgoing.read())
        await honest.send(make_frame(b"Ehello"))
        assert await honest.response() == b"hello"
        assert sum(gone_on.values()) < crowd, "not all handshakes ran first"
        for client in clients:
            await client.shake_hands()
        assert max(gone_on.values()) <= 2 * MAX_HANDSHAKES_PER_TICK, "in a turn, and before the next one"
        await net.until(lambda: net.room.handshakes == 0)

    network.run(body, tls=keys.listener())


def test_half_open_handshakes_are_evicted_for_waiting_clients(network, make_frame, keys):
    async def body(net):
        for _ in range(10):
            await net.connect()
        assert await ask(net, keys.context(), make_frame(b"Ehello")) == b"hello"

    network.run(body, ConnectionLimits(max_connections=2), tls=keys.listener())


def test_endless_handshake_is_closed(network, keys, monkeypatch, caplog):
    monkeypatch.setattr(tls_module, "MAX_HANDSHAKE_BYTES", 1000)

    async def body(net):
        client = await net.connect()
        record = b"\x16\x03\x01" + struct.pack(">H", 16_000) + b"\x01\x00\x3e\x7c" + bytes(15_996)
        await net.send(client, record[:1001])
        assert await at_end(net, client)

    network.run(body, tls=keys.listener())
    assert "the handshake is too long" in caplog.text


def test_renegotiation_is_refused(keys):
    listener = keys.listener()
    assert listener.server.options & ssl.OP_NO_RENEGOTIATION


def test_new_certificate_applies_to_new_connections_only(network, make_frame, keys, caplog):
    folder = keys.folder / "replaced"
    folder.mkdir(exist_ok=True)
    own = Keys(folder)
    config, _ = BrokerConfig.parse({"listeners": "SSL://localhost:0", "ssl.keystore.location": own.server})
    listener = ListenerTls("SSL", config, lambda path, limit: Path(path).read_bytes()[:limit], listens=True)
    authority = Authority.make("next authority", NOW)

    def replace(content: bytes) -> None:
        own.file("server.pem", content)
        listener.follow(config)

    async def body(net):
        old = await connect(net, own.context())
        replace(b"-----BEGIN nothing")
        replace(authority.issue("somebody else", ["localhost", "127.0.0.1"], NOW))
        replace(authority.issue("server", ["localhost"], NOW))
        assert caplog.text.count("keeps its certificates") == 3
        again = await connect(net, own.context())
        replace(authority.issue("server", ["localhost", "127.0.0.1", "more"], NOW))
        own.file("ca.pem", authority.pem)
        new = await connect(net, own.context())
        for client in (old, again, new):
            await client.send(make_frame(b"Ehello"))
            assert await client.response() == b"hello"

    network.run(body, tls=listener)
