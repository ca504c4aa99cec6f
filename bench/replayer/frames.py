"""Prepared request frames for a peer that supports Kafka's protocol, encoded with Ottla's protocol package.

`Wire` requests the peer's versions and uses the highest common one, as Java's client does. The positions that the
replayer patches are located by a marker in the encoded bytes, so that no layout is duplicated here.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from harness.peers import Server

from ottla.client.admin.cluster import Cluster
from ottla.client.admin.topics import create_partitions, create_topic
from ottla.client.wire.connection import Connection
from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.common.errors import ErrorCode
from ottla.protocol.header import decode_response, encode_request, encode_response
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch
from replayer import Load, replay_all

CLIENT_ID = "replayer"
TIMEOUT_S = 300.0
MARK_32 = 0x5A5B5C5D
MARK_16 = 0x5A5B
MARK_64 = 0x5A5B5C5D5E5F6061
NO_SESSION = -1
FIRST_OF_SESSION = 0
PARTITION_MAX_BYTES = 1 << 20
MAX_NEW_PARTITIONS = 5000
"""Maximum per request: Apache Kafka's controller refuses batches of more than 10,000 records."""


def batch(record_bytes: int, count: int = 1) -> bytes:
    """Returns one uncompressed batch of records with random values, without keys."""
    at = int(time.time() * 1000)
    return bytes(build_batch([RecordData(at, None, os.urandom(record_bytes)) for _ in range(count)]))


def place(frame: bytes, mark: bytes) -> int:
    """Returns the position of the marker, which must occur once."""
    if frame.count(mark) != 1:
        raise RuntimeError("the mark of a place is not there exactly once")
    return frame.index(mark)


class Wire:
    """The peer's versions and topic ids; its connection is only used for preparations."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = Connection(
            "127.0.0.1", server.port, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, software_version="0"
        )
        self._ids: dict[str, bytes] = {}

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def version(self, key: ApiKey) -> int:
        return self._connection.version_for(key)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic and wait until every partition has a leader."""
        timeout_ms = int(TIMEOUT_S * 1000)
        create_topic(
            self._connection, name, min(partitions, MAX_NEW_PARTITIONS), 1, {}, timeout_ms, validate_only=False
        )
        for total in range(2 * MAX_NEW_PARTITIONS, partitions + MAX_NEW_PARTITIONS, MAX_NEW_PARTITIONS):
            create_partitions(self._connection, name, min(total, partitions), timeout_ms)
        self.learn_topic(name, partitions)

    def learn_topic(self, name: str, partitions: int) -> None:
        """Store the topic's id once every partition has an available leader: the controller may be ahead of it."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
            response: MetadataResponse = self._connection.request(ApiKey.METADATA, asked)
            (topic,) = response.topics
            ready = [each for each in topic.partitions if each.error_code == ErrorCode.NONE and each.leader_id >= 0]
            if topic.error_code == ErrorCode.NONE and len(ready) == partitions:
                self._ids[name] = topic.topic_id
                self.end_offsets(name, partitions)
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"topic {name} has {len(ready)} of {partitions} leaders after {TIMEOUT_S:.0f} s")
            time.sleep(0.05)

    def end_offsets(self, name: str, partitions: int) -> list[int]:
        """Returns the high watermarks in partition order, with retries while a partition is unavailable."""
        with Cluster(self._server.bootstrap_servers, client_id=CLIENT_ID, timeout_s=TIMEOUT_S) as cluster:
            asked = {(name, index): LATEST_TIMESTAMP for index in range(partitions)}
            found = cluster.records.list_offsets(asked)
        return [found[name, index].offset for index in range(partitions)]

    def encode(self, key: ApiKey, message: Any) -> bytes:
        """Returns one frame; the replayer patches its correlation id."""
        return encode_request(key, self.version(key), 0, CLIENT_ID, message)

    # Produce

    def produce_request(self, topic: str, batches: Iterable[tuple[int, bytes]], acks: int = 1) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=records) for index, records in batches]
        named = TopicProduceData(name=topic, topic_id=self._ids[topic], partition_data=data)
        return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[named])

    def produce(self, topic: str, partition: int, records: bytes, acks: int = 1) -> bytes:
        """Returns the frame of one batch for one partition."""
        return self.encode(ApiKey.PRODUCE, self.produce_request(topic, [(partition, records)], acks))

    def produce_error_at(self, topic: str) -> int:
        """Returns the position of the error code in the response to `produce`."""
        row = PartitionProduceResponse(index=0, error_code=MARK_16, base_offset=0)
        response = ProduceResponse(responses=[self.produce_answer(topic, [row])])
        return place(
            encode_response(ApiKey.PRODUCE, self.version(ApiKey.PRODUCE), 0, response), struct.pack(">H", MARK_16)
        )

    def produce_answer(self, topic: str, rows: Sequence[PartitionProduceResponse]) -> TopicProduceResponse:
        """Returns a topic in a Produce response, in the format of the peer's version."""
        return TopicProduceResponse(name=topic, topic_id=self._ids[topic], partition_responses=list(rows))

    def fill(self, topic: str, partitions: Sequence[int], records: bytes) -> None:
        """Produce the same batch to every partition in one request; raises RuntimeError when one is refused."""
        request = self.produce_request(topic, [(partition, records) for partition in partitions])
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            response: ProduceResponse = self._connection.request(ApiKey.PRODUCE, request)
            errors = {row.error_code for named in response.responses for row in named.partition_responses}
            if errors == {ErrorCode.NONE}:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"topic {topic} can't be filled: {errors}")
            time.sleep(0.2)

    def write(self, topic: str, partitions: int, records: bytes, count: int, window: int = 8) -> None:
        """Produce `count` batches to every partition by the replayer, with one connection each."""
        frames = [self.produce(topic, index, records) for index in range(partitions)]
        error_at = self.produce_error_at(topic)
        load = Load(frames, connections=partitions, window=window, requests=count, stagger=1, error_at=error_at)
        replay_all(self._server, load)

    # Fetch

    def fetch_request(
        self,
        topic: str,
        offsets: Iterable[tuple[int, int]],
        *,
        session_id: int = 0,
        epoch: int = NO_SESSION,
        max_wait_ms: int = 0,
        max_bytes: int = PARTITION_MAX_BYTES,
    ) -> FetchRequest:
        """Builds a Fetch request; `max_bytes` is the limit of a partition, but at least one batch is returned."""
        asked = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
            for index, offset in offsets
        ]
        topics = [FetchTopic(topic=topic, topic_id=self._ids[topic], partitions=asked)] if asked else []
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
        )

    def fetch(self, topic: str, offsets: Iterable[tuple[int, int]], max_bytes: int = PARTITION_MAX_BYTES) -> bytes:
        """Returns the frame of a fetch without a session."""
        return self.encode(ApiKey.FETCH, self.fetch_request(topic, offsets, max_bytes=max_bytes))

    def fetch_error_at(self) -> int:
        """Returns the position of the top-level error code in a Fetch response."""
        return place(self._fetch_response(FetchResponse(error_code=MARK_16)), struct.pack(">H", MARK_16))

    def session_id_at(self) -> int:
        """Returns the position of the session id in a Fetch response."""
        return place(self._fetch_response(FetchResponse(session_id=MARK_32)), struct.pack(">I", MARK_32))

    def _fetch_response(self, response: FetchResponse) -> bytes:
        return encode_response(ApiKey.FETCH, self.version(ApiKey.FETCH), 0, response)

    def session_load(self, topic: str, partitions: int) -> Load:
        """Opens a session over all partitions, each at offset 1; then sends incremental fetches without partitions."""
        first = self.fetch_request(topic, [(index, 1) for index in range(partitions)], epoch=FIRST_OF_SESSION)
        frame = self.encode(ApiKey.FETCH, self.fetch_request(topic, [], session_id=MARK_32))
        with_epoch = self.encode(ApiKey.FETCH, self.fetch_request(topic, [], epoch=MARK_32))
        return Load(
            [frame],
            prologue=[self.encode(ApiKey.FETCH, first)],
            error_at=self.fetch_error_at(),
            capture=(self.session_id_at(), place(frame, struct.pack(">I", MARK_32))),
            counter_at=place(with_epoch, struct.pack(">I", MARK_32)),
        )

    def followed_load(self, topic: str, partitions: int, records: int, max_wait_ms: int = 0) -> Load:
        """As `session_load`, with partition 0 named at offsets that increase by one to `records`, as by a consumer."""

        def frame(offset: int, session_id: int, epoch: int) -> bytes:
            request = self.fetch_request(
                topic, [(0, offset)], session_id=session_id, epoch=epoch, max_wait_ms=max_wait_ms, max_bytes=1
            )
            return self.encode(ApiKey.FETCH, request)

        return replace(
            self.session_load(topic, partitions),
            frames=[frame(0, MARK_32, 0)],
            capture=(self.session_id_at(), place(frame(0, MARK_32, 0), struct.pack(">I", MARK_32))),
            counter_at=place(frame(0, 0, MARK_32), struct.pack(">I", MARK_32)),
            offset_at=place(frame(MARK_64, 0, 0), struct.pack(">Q", MARK_64)),
            offset_below=records,
        )

    def decode_fetch(self, payload: bytes) -> FetchResponse:
        """Decodes a Fetch response; raises RuntimeError when it or a partition has an error."""
        _, response = decode_response(ApiKey.FETCH, self.version(ApiKey.FETCH), payload)
        assert isinstance(response, FetchResponse)
        rows = [row.error_code for topic in response.responses for row in topic.partitions]
        errors = {response.error_code, *rows} - {ErrorCode.NONE}
        if errors:
            raise RuntimeError(f"a fetch was answered with {[ErrorCode(code).name for code in errors]}")
        return response
