"""The hand-written ShareFetch response against the declared messages."""

from __future__ import annotations

import pytest

from ottla.common.platform.channel import Part
from ottla.protocol.header import decode_response
from ottla.protocol.messages.share_fetch import AcquiredRecords, LeaderIdAndEpoch, NodeEndpoint, PartitionData
from ottla.protocol.primitives import NodeEndpoint as Endpoint
from ottla.protocol.registry import ApiKey
from ottla.protocol.share_fetch import SharePartitionResult, encode_share_fetch_response


class Region:
    """A file region in memory."""

    by_reference = False

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def length(self) -> int:
        return len(self.data)

    def read_into(self, view: memoryview, start: int) -> int:
        view[: len(self.data) - start] = self.data[start:]
        return len(self.data) - start

    try_read_into = read_into

    def send(self, socket: int, start: int, length: int) -> int:
        raise BlockingIOError

    def is_cold(self, start: int, length: int) -> bool:
        return False

    def release(self) -> None:
        return


def frame_of(parts: list[Part]) -> bytes:
    frame = bytearray()
    for part in parts:
        if isinstance(part, bytes | bytearray | memoryview):
            frame += part
        else:
            data = bytearray(part.length)
            part.read_into(memoryview(data), 0)
            frame += data
    return bytes(frame)


@pytest.mark.parametrize("version", [1, 2])
def test_response_equals_the_declared_message(version: int) -> None:
    rows = [
        SharePartitionResult(0, records=Region(b"r" * 300), acquired=[(5, 9, 1), (12, 12, 3)]),
        SharePartitionResult(1, 6, "moved", 121, "not acquired", (7, 8)),
    ]
    endpoints = [Endpoint(7, "host", 9092, "rack"), Endpoint(8, "other", 9093)]
    topics = [(b"t" * 16, rows), (b"u" * 16, [])]
    parts = encode_share_fetch_response(42, 0, None, 30_000, topics, endpoints)
    frame = frame_of(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, message = decode_response(ApiKey.SHARE_FETCH, version, frame[4:])
    assert (correlation_id, message.error_code, message.acquisition_lock_timeout_ms) == (42, 0, 30_000)
    first, second = message.responses
    assert (first.topic_id, second.topic_id, second.partitions) == (b"t" * 16, b"u" * 16, [])
    assert first.partitions == [
        PartitionData(
            partition_index=0,
            current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
            records=b"r" * 300,
            acquired_records=[
                AcquiredRecords(first_offset=5, last_offset=9, delivery_count=1),
                AcquiredRecords(first_offset=12, last_offset=12, delivery_count=3),
            ],
        ),
        PartitionData(
            partition_index=1,
            error_code=6,
            error_message="moved",
            acknowledge_error_code=121,
            acknowledge_error_message="not acquired",
            current_leader=LeaderIdAndEpoch(leader_id=7, leader_epoch=8),
            records=b"",
        ),
    ]
    assert message.node_endpoints == [
        NodeEndpoint(node_id=7, host="host", port=9092, rack="rack"),
        NodeEndpoint(node_id=8, host="other", port=9093),
    ]


def test_refusal_has_its_message() -> None:
    frame = frame_of(encode_share_fetch_response(1, 30, "denied", 0, []))
    _, message = decode_response(ApiKey.SHARE_FETCH, 2, frame[4:])
    assert (message.error_code, message.error_message, message.responses) == (30, "denied", [])
