"""Requests to other nodes on real sockets, against a scripted peer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sized
from functools import partial
from typing import Any

import pytest
from tests.request_header import parse_request_header

from ottla.common.errors import InvariantError
from ottla.net.peer import SocketPeerNetwork
from ottla.net.peer_messages import send_message
from ottla.protocol.codec import write_message
from ottla.protocol.header import encode_response
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.vote import VotePartition, VoteRequest, VoteResponse, VoteTopic
from ottla.protocol.registry import API, ApiKey

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server with responses controlled by the test, and the network under test."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.results: list[tuple[bytes | None, BaseException | None]] = []
        self.network = SocketPeerNetwork(asyncio.get_running_loop(), "node 1")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                self.requests.append(frame)
                await self.answer(frame, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def done(self, body: memoryview | None, error: BaseException | None) -> None:
        self.results.append((None if body is None else bytes(body), error))

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.001)


Body = Callable[[Peer, str, int], Awaitable[None]]


def run(network: Any, answer: Answer, body: Body) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            peer = Peer(answer)
            server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
            host, port = server.sockets[0].getsockname()[:2]
            try:
                await body(peer, host, port)
            finally:
                peer.network.close()
                server.close()

    with asyncio.Runner(loop_factory=network.loop_factory) as runner:
        runner.run(main())


def response(frame: bytes, body: bytes) -> bytes:
    """In a flexible version: correlation id, no tags, `body`."""
    content = frame[4:8] + b"\0" + body
    return struct.pack(">i", len(content)) + content


async def echo(frame: bytes, writer: asyncio.StreamWriter) -> None:
    header = parse_request_header(bytearray(frame), 0, len(frame))
    assert header.client_id == "node 1"
    writer.write(response(frame, frame[header.body_start :]))


async def silence(frame: bytes, writer: asyncio.StreamWriter) -> None:
    """Never answer."""


def test_many_requests_are_answered_in_order(network: Any) -> None:
    bodies = [bytes([index % 251]) * size for index, size in enumerate([0, 1, 70_000, 5_000_000, 3, 20_000] * 5)]

    async def body(peer: Peer, host: str, port: int) -> None:
        connection = peer.network.connect(host, port)
        for data in bodies:  # before the connection is established
            connection.request(ApiKey.VOTE, 2, data, peer.done, 20)
        assert peer.results == []
        await peer.until(lambda: len(peer.results) == len(bodies))
        assert [data for data, _ in peer.results] == bodies
        connection.request(ApiKey.VOTE, 2, b"again", peer.done, 20)
        await peer.until(lambda: len(peer.results) > len(bodies))
        assert peer.results[-1] == (b"again", None)
        assert not connection.failed

    run(network, echo, body)


def has_length(found: Sized, count: int) -> bool:
    """Whether that many have arrived."""
    return len(found) == count


def test_kept_view_of_a_response_is_harmless(network: Any) -> None:
    kept: list[Any] = []

    async def body(peer: Peer, host: str, port: int) -> None:
        connection = peer.network.connect(host, port)
        for index in range(6):
            connection.request(
                ApiKey.VOTE, 2, bytes(30_000 * (index + 1)), lambda data, _: kept.append(data[1:] if data else data), 20
            )
        await peer.until(lambda: len(kept) == 6)
        assert [len(view) for view in kept] == [30_000 * (index + 1) - 1 for index in range(6)]

    run(network, echo, body)


def test_timeout_fails_the_connection_and_all_requests(network: Any) -> None:
    async def body(peer: Peer, host: str, port: int) -> None:
        connection = peer.network.connect(host, port)
        connection.request(ApiKey.VOTE, 2, b"a", peer.done, 20)
        connection.request(ApiKey.VOTE, 2, b"b", peer.done, 0.01)
        await peer.until(lambda: len(peer.results) == 2)
        assert [type(error) for _, error in peer.results] == [TimeoutError, TimeoutError]
        assert connection.failed
        connection.request(ApiKey.VOTE, 2, b"c", peer.done, 20)
        assert len(peer.results) == 2, "never from inside the call"
        await peer.until(lambda: len(peer.results) == 3)
        assert isinstance(peer.results[2][1], ConnectionError)

    run(network, silence, body)


@pytest.mark.parametrize("kind", ["close", "wrong id", "too large", "unasked", "cut"])
def test_closed_or_invalid_response_fails_the_request(network: Any, kind: str) -> None:
    async def answer(frame: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == "wrong id":
            writer.write(response(bytes(4) + b"\0\0\x7f\0", b""))
        elif kind == "too large":
            writer.write(b"\x7f\xff\xff\xff")
        elif kind == "unasked":
            writer.write(response(frame, b"") * 2)
        elif kind == "cut":
            writer.write(b"\0\0\0\2ab")
        if kind == "close":
            writer.close()

    async def body(peer: Peer, host: str, port: int) -> None:
        connection = peer.network.connect(host, port)
        connection.request(ApiKey.VOTE, 2, b"", peer.done, 20)
        await peer.until(lambda: connection.failed)
        await peer.until(lambda: peer.results)
        assert len(peer.results) == 1
        if kind != "unasked":
            assert isinstance(peer.results[0][1], ConnectionError)

    run(network, answer, body)


def test_request_to_a_closed_port_fails(network: Any) -> None:
    async def body(peer: Peer, host: str, port: int) -> None:
        free = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
        closed_port = free.sockets[0].getsockname()[1]
        free.close()
        connection = peer.network.connect(host, closed_port)
        connection.request(ApiKey.VOTE, 2, b"", peer.done, 20)
        await peer.until(lambda: peer.results)
        assert isinstance(peer.results[0][1], ConnectionError)

    run(network, echo, body)


def test_close_fails_pending_requests_once(network: Any) -> None:
    async def body(peer: Peer, host: str, port: int) -> None:
        early = peer.network.connect(host, port)
        early.request(ApiKey.VOTE, 2, b"", peer.done, 20)
        early.close()
        early.close()
        late = peer.network.connect(host, port)
        late.request(ApiKey.VOTE, 2, b"", peer.done, 20)
        await peer.until(lambda: peer.requests)
        late.close()
        assert len(peer.results) <= 1
        await peer.until(lambda: len(peer.results) == 2)
        await asyncio.sleep(0.01)
        assert len(peer.results) == 2
        assert all(isinstance(error, ConnectionError) for _, error in peer.results)

    run(network, silence, body)


def test_messages(network: Any) -> None:
    asked = VoteRequest(cluster_id="c", voter_id=2, topics=[VoteTopic(topic_name="t", partitions=[VotePartition()])])
    results: list[tuple[Any, BaseException | None]] = []

    async def answer(frame: bytes, writer: asyncio.StreamWriter) -> None:
        expected = bytearray()
        write_message(asked, 2, expected)
        assert frame.endswith(expected)
        correlation_id = struct.unpack(">i", frame[4:8])[0]
        if not results:
            writer.write(encode_response(ApiKey.VOTE, 2, correlation_id, VoteResponse(error_code=7)))
        else:
            writer.write(response(frame, b"\xff"))

    async def body(peer: Peer, host: str, port: int) -> None:
        connection = peer.network.connect(host, port)
        for count in (1, 2):
            send_message(connection, asked, lambda message, error: results.append((message, error)), 20)
            await peer.until(partial(has_length, results, count))
        assert results[0] == (VoteResponse(error_code=7), None)
        assert results[1][0] is None
        assert connection.failed
        with pytest.raises(InvariantError):
            send_message(connection, VoteResponse(), lambda *_: None, 20)

    run(network, answer, body)


def test_records_survive_the_next_response(network: Any) -> None:
    # Not copied out of their message, while the next response arrives in the same buffer.
    sent = [bytes([number]) * 50_000 for number in (1, 2, 3)]
    taken: list[Any] = []

    async def answer(frame: bytes, writer: asyncio.StreamWriter) -> None:
        correlation_id = struct.unpack(">i", frame[4:8])[0]
        rows = [PartitionData(partition_index=0, records=sent[len(taken)])]
        answered = FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=rows)])
        version = API[ApiKey.FETCH].max_version
        writer.write(encode_response(ApiKey.FETCH, version, correlation_id, answered))

    async def body(peer: Peer, host: str, port: int) -> None:
        connection = peer.network.connect(host, port)
        for count in range(1, len(sent) + 1):
            send_message(connection, FetchRequest(), lambda message, error: taken.append(message or error), 20)
            await peer.until(partial(has_length, taken, count))
        assert [message.responses[0].partitions[0].records for message in taken] == sent

    run(network, answer, body)
