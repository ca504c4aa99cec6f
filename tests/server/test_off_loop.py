"""Work that would block the loop runs in the pool: decompression for lookups by time, cold pages of a read."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ottla.app.disk import RealFile
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.record import compression
from ottla.record.builder import RecordData, build_batch

from .harness import Connection, Server, batch_of, fetch_request, fetched

T0 = 1_700_000_000_000


def lookup(*asked: tuple[int, int], topic: str = "t") -> ListOffsetsRequest:
    """`asked` are (partition, timestamp)."""
    rows = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in asked]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)])


def found(response: object) -> list[tuple[int, int]]:
    (topic,) = response.topics  # type: ignore[attr-defined]
    return [(partition.error_code, partition.offset) for partition in topic.partitions]


@pytest.fixture
def decompressing_threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Threads that decompressed batches."""
    seen: list[threading.Thread] = []
    real = compression.decompress

    def watched(codec_id: int, *arguments: object) -> memoryview:
        if codec_id:
            seen.append(threading.current_thread())
        return real(codec_id, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("ottla.record.batch.decompress", watched)
    return seen


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_batch_is_searched_off_the_loop(
    server: Server, client: Connection, decompressing_threads: list[threading.Thread], codec: str
) -> None:
    client.create_topic("t", 2)
    for partition in (0, 1):
        assert client.produce("t", b"a", b"b", b"c", partition=partition, compression=codec).error_code == 0
    assert not client.send(lookup((0, T0 + 1), (1, T0 + 2), (0, -1)), 7)
    other = server.connect()
    assert other.send(ApiVersionsRequest(), 0), "others are served meanwhile"
    assert found(client.answer()) == [(ErrorCode.INVALID_REQUEST, -1), (0, 2)]
    assert found(client.ask(lookup((0, T0 + 1), (1, -3)), 7)) == [(0, 1), (0, 2)]
    assert threading.main_thread() not in decompressing_threads
    assert len(decompressing_threads) == 3, "each batch is decompressed once"


def test_a_lookup_in_a_large_batch_waits_for_a_long_turn(server: Server, client: Connection) -> None:
    client.create_topic("t", 2)
    client.produce("t", bytes(40 << 20), b"b", compression="zstd")
    client.produce("t", b"a", b"b", partition=1, compression="zstd")
    held = HeldPool()
    server.broker.contexts.data.compute_pool.long = held
    other = server.connect()
    assert not client.send(lookup((0, T0 + 1)), 7)
    server.run_until(lambda: bool(held.held))
    assert found(other.ask(lookup((1, T0 + 1)), 7)) == [(0, 1)], "queued behind it, and not delayed by it"
    assert client.channel.answers == []
    held.run()
    assert found(client.answer()) == [(0, 1)]


def test_a_plain_batch_is_searched_at_once(client: Connection) -> None:
    client.create_topic("t")
    client.produce("t", b"a", b"b")
    assert client.send(lookup((0, T0 + 1)), 7)
    assert found(client.answer()) == [(0, 1)]


def test_batches_with_wrong_headers_are_read_one_by_one(client: Connection) -> None:
    """The largest timestamp of a compressed batch is set by the producer."""
    client.create_topic("t")
    for _ in range(7):
        batch = build_batch([RecordData(T0, None, b"a")], compression="gzip")
        batch[35:43] = (T0 + 1000).to_bytes(8, "big")
        client.produce("t", records=with_crc(batch))
    client.produce("t", b"b", timestamp=T0 + 500, compression="gzip")
    assert not client.send(lookup((0, T0 + 400)), 7)
    assert found(client.answer()) == [(0, 4)], "after four wrong headers the fifth is trusted"


def with_crc(batch: bytearray) -> bytes:
    from ottla.record.checksum import crc32c

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def test_uncompressible_body_is_an_error_of_its_partition(client: Connection) -> None:
    client.create_topic("t", 2)
    damaged = bytearray(batch_of(b"a" * 100, compression="zstd"))
    damaged[61:70] = bytes(9)
    client.produce("t", records=with_crc(damaged))
    client.produce("t", b"a", partition=1, compression="zstd")
    assert found(client.ask(lookup((0, T0), (1, T0)), 7)) == [(ErrorCode.CORRUPT_MESSAGE, -1), (0, 0)]
    assert client.server.broker.parts.replicas.find("t", 0).log.failed is False


class HeldPool:
    """A pool that runs its work on the test's command."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.held.append((work, done))

    def run(self) -> None:
        for work, done in self.held:
            done(work(), None)


def test_changes_during_pool_work_are_seen(server: Server, client: Connection) -> None:
    pool = server.broker.contexts.data.compute_pool = HeldPool()  # type: ignore[assignment]
    client.create_topic("t")
    client.produce("t", b"a", compression="gzip")
    assert not client.send(lookup((0, T0)), 7)
    other = server.connect()
    assert other.ask(DeleteTopicsRequest(topic_names=["t"]), 5).responses[0].error_code == 0
    assert client.channel.answers == []
    pool.run()
    assert found(client.answer()) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_a_client_that_went_away_is_forgotten(server: Server, client: Connection) -> None:
    client.create_topic("t")
    client.produce("t", b"a", compression="gzip")
    assert not client.send(lookup((0, T0)), 7)
    client.disconnect()
    server.run_until(lambda: server.broker.parts.in_flight.count == 0)
    assert client.channel.answers == []
    assert server.broker.parts.failures.count == 0


def test_a_stop_waits_for_the_batch_in_work_and_not_for_all(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t", 20)
    for index in range(20):
        client.produce("t", b"a", partition=index, compression="gzip")
    assert not client.send(lookup(*((index, T0) for index in range(20))), 7)
    server.stop()
    codes = [code for code, _ in found(client.answer())]
    assert len(codes) == 20
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in codes
    assert (server.directory / "data" / ".kafka_cleanshutdown").exists()


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty page cache, even for recently read data; returns the names of files that the loop's thread read."""
    blocked: list[str] = []
    real = RealFile.read

    def refuse(file: RealFile, view: memoryview, position: int) -> int:
        raise BlockingIOError(errno.EAGAIN, "cold")

    def watched(file: RealFile, length: int, position: int) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            warm.add((file.path, position, length))
        elif (file.path, position, length) not in warm:
            blocked.append(file.path)
        return real(file, length, position)

    warm: set[tuple[str, int, int]] = set()
    monkeypatch.setattr(RealFile, "try_read_into", refuse)
    monkeypatch.setattr(RealFile, "read", watched)
    return blocked


def filled(server: Server, client: Connection, partitions: int = 1) -> None:
    client.create_topic("t", partitions, index_interval_bytes="100")
    for index in range(partitions):
        for number in range(200):
            client.produce("t", b"%03d" % number * 40, partition=index)
            if number == 80:
                server.broker.parts.replicas.find("t", index).log.roll()


def test_a_cold_read_is_found_off_the_loop(server: Server, client: Connection, cold: list[str]) -> None:
    filled(server, client)
    cold.clear()
    for offset in (0, 57, 101, 150):
        assert not client.send(fetch_request(("t", 0, offset), partition_max_bytes=400), 12), "it parks"
        assert server.connect().send(ApiVersionsRequest(), 0)
        partition = fetched(client.answer())[("t", 0)]
        assert b"%03d" % offset * 40 in bytes(partition.records)
    assert cold == []
    assert client.send(fetch_request(("t", 0, 199)), 12), "the newest batches need no disk read"


def test_many_cold_partitions_are_read_together(server: Server, client: Connection, cold: list[str]) -> None:
    filled(server, client, 4)
    cold.clear()
    client.send(fetch_request(*(("t", index, 10 + index) for index in range(4))), 12)
    rows = fetched(client.answer())
    assert all(b"%03d" % (10 + index) * 40 in bytes(rows["t", index].records) for index in range(4))
    assert cold == []


def test_a_cold_lookup_by_time(server: Server, client: Connection, cold: list[str]) -> None:
    client.create_topic("t", index_interval_bytes="100")
    for number in range(200):
        client.produce("t", b"x" * 100, timestamp=T0 + number)
    cold.clear()
    for number in (0, 57, 101, 199):
        assert not client.send(lookup((0, T0 + number)), 7)
        assert found(client.answer()) == [(0, number)]
    assert cold == []


def test_a_cold_fetch_of_a_client_that_went_away(server: Server, client: Connection, cold: list[str]) -> None:
    filled(server, client)
    assert not client.send(fetch_request(("t", 0, 3)), 12)
    client.disconnect()
    server.run_until(lambda: server.broker.parts.in_flight.count == 0)
    assert client.channel.answers == []
    assert server.broker.parts.failures.count == 0


def test_file_systems_without_cache_information_are_read(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(server, client)
    monkeypatch.setattr("ottla.app.disk._RWF_NOWAIT", 0)
    server.restart()
    client = server.connect()
    assert client.send(fetch_request(("t", 0, 57), partition_max_bytes=400), 12)
    assert b"057" * 40 in bytes(fetched(client.answer())[("t", 0)].records)
