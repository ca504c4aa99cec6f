"""Produce of single records, with the connections and the identity of the user."""

from __future__ import annotations

import base64
import binascii

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.failure import raise_for
from ottla.common.errors import ProtocolError
from ottla.common.kafka.key_hash import hash_partition
from ottla.console.context import PageError
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch

ACKS_ALL = -1
TIMEOUT_MS = 10_000
LAST_WITH_NAMES = 12
"""Last version of Produce with topic names."""
MAX_HEADERS = 100
ENCODINGS = ("text", "base64", "hex")


def encode_field(text: str, encoding: str) -> bytes:
    """The bytes of a field of a form. Lines end with a line feed alone, although forms send them with two characters.

    Raises PageError.
    """
    text = text.replace("\r\n", "\n")
    try:
        if encoding == "base64":
            return base64.b64decode("".join(text.split()), validate=True)
        return bytes.fromhex(text) if encoding == "hex" else text.encode()
    except (binascii.Error, ValueError):
        raise PageError(400, f"A field is not {encoding}.") from None


def parse_headers(text: str) -> list[tuple[str, bytes | None]]:
    """Headers from lines `name: value`, in their order; names may repeat. Raises PageError."""
    headers: list[tuple[str, bytes | None]] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise PageError(400, f"The header {line!r} is not of the form NAME: VALUE.")
        headers.append((name, value.removeprefix(" ").encode()))
    if len(headers) > MAX_HEADERS:
        raise PageError(400, f"At most {MAX_HEADERS} headers.")
    return headers


def choose_partition(key: bytes | None, count: int, random_number: int) -> int:
    """The partition that Apache Kafka's producer would choose; a random one without a key."""
    return random_number % count if key is None else hash_partition(key, count)


def produce_record(cluster: Cluster, topic: str, partition: int, record: RecordData) -> int:
    """Write one record to all replicas in the ISR; returns its offset. Raises KafkaError, BrokerUnreachable.

    It is sent once: after a lost response it may be stored, and the user can look.
    """
    data = PartitionProduceData(index=partition, records=build_batch([record]))
    request = ProduceRequest(
        transactional_id=None,
        acks=ACKS_ALL,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    connection = cluster.records.leader_connection((topic, partition))
    response: ProduceResponse = connection.request(ApiKey.PRODUCE, request, max_version=LAST_WITH_NAMES)
    for found in response.responses:
        for result in found.partition_responses:
            raise_for(result.error_code, f"the record for {topic}-{partition}", result.error_message)
            return result.base_offset
    raise ProtocolError(f"{connection.address} omitted the partition from its Produce response")
