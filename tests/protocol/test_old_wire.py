"""Versions that Apache Kafka 4 has dropped, byte for byte.

The layouts are those of Apache Kafka 3.9's message definitions, written out by hand.
"""

from __future__ import annotations

import struct

import pytest

from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages import fetch, list_offsets, offset_commit, offset_fetch, produce

T = b"\0\1t"
ONE = struct.pack(">i", 1)


def commit(version):
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=3, committed_offset=9, commit_timestamp_ms=77 if version == 1 else -1, committed_metadata="m"
    )
    request = offset_commit.OffsetCommitRequest(
        group_id="g", topics=[offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )
    if version:
        request.generation_id_or_member_epoch, request.member_id = 4, "x"
    return request


LISTED = list_offsets.ListOffsetsRequest(
    replica_id=-1,
    topics=[
        list_offsets.ListOffsetsTopic(
            name="t",
            partitions=[list_offsets.ListOffsetsPartition(partition_index=3, timestamp=-1, max_num_offsets=2)],
        )
    ],
)
OFFSETS = list_offsets.ListOffsetsResponse(
    topics=[
        list_offsets.ListOffsetsTopicResponse(
            name="t",
            partitions=[list_offsets.ListOffsetsPartitionResponse(partition_index=3, old_style_offsets=[9, 0])],
        )
    ]
)
FETCHED = offset_fetch.OffsetFetchRequest(
    group_id="g", topics=[offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[3])]
)
PRODUCED = produce.ProduceRequest(
    acks=1,
    timeout_ms=5,
    topic_data=[
        produce.TopicProduceData(name="t", partition_data=[produce.PartitionProduceData(index=3, records=b"rr")])
    ],
)
ASKED = fetch.FetchRequest(
    max_wait_ms=5,
    min_bytes=1,
    topics=[
        fetch.FetchTopic(
            topic="t", partitions=[fetch.FetchPartition(partition=3, fetch_offset=9, partition_max_bytes=100)]
        )
    ],
)


def appended(version):
    partition = produce.PartitionProduceResponse(
        index=3, error_code=0, base_offset=9, log_append_time_ms=8 if version >= 2 else -1
    )
    return produce.ProduceResponse(
        responses=[produce.TopicProduceResponse(name="t", partition_responses=[partition])],
        throttle_time_ms=6 if version else 0,
    )


def read(version):
    partition = fetch.PartitionData(partition_index=3, error_code=0, high_watermark=9, records=b"rr")
    return fetch.FetchResponse(
        throttle_time_ms=6 if version else 0,
        responses=[fetch.FetchableTopicResponse(topic="t", partitions=[partition])],
    )


ROW = ONE + T + ONE
CASES = [
    (commit(0), 0, b"\0\1g" + ROW + struct.pack(">iq", 3, 9) + b"\0\1m"),
    (commit(1), 1, b"\0\1g" + struct.pack(">i", 4) + b"\0\1x" + ROW + struct.pack(">iqq", 3, 9, 77) + b"\0\1m"),
    (LISTED, 0, struct.pack(">i", -1) + ROW + struct.pack(">iqi", 3, -1, 2)),
    (OFFSETS, 0, ROW + struct.pack(">ihiqq", 3, 0, 2, 9, 0)),
    (FETCHED, 0, b"\0\1g" + ROW + struct.pack(">i", 3)),
    *((PRODUCED, v, struct.pack(">hi", 1, 5) + ROW + struct.pack(">ii", 3, 2) + b"rr") for v in (0, 1, 2)),
    (appended(0), 0, ROW + struct.pack(">ihq", 3, 0, 9)),
    (appended(1), 1, ROW + struct.pack(">ihqi", 3, 0, 9, 6)),
    (appended(2), 2, ROW + struct.pack(">ihqqi", 3, 0, 9, 8, 6)),
    *((ASKED, v, struct.pack(">iii", -1, 5, 1) + ROW + struct.pack(">iqi", 3, 9, 100)) for v in (0, 1, 2)),
    (ASKED, 3, struct.pack(">iiii", -1, 5, 1, 2**31 - 1) + ROW + struct.pack(">iqi", 3, 9, 100)),
    (read(0), 0, ROW + struct.pack(">ihqi", 3, 0, 9, 2) + b"rr"),
    *((read(v), v, struct.pack(">i", 6) + ROW + struct.pack(">ihqi", 3, 0, 9, 2) + b"rr") for v in (1, 2, 3)),
]


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [pytest.param(*case, id=f"{type(case[0]).__name__}-{case[1]}") for case in CASES],
)
def test_old_versions_byte_for_byte(message, version, expected):
    out = bytearray()
    write_message(message, version, out)
    assert bytes(out) == expected
    assert read_message(type(message), version, bytearray(expected), 0, len(expected))[0] == message
