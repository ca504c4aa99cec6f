"""Records with header names that are not UTF-8, as some third-party programs write them."""

from __future__ import annotations

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import BatchProducer
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch


class RawName(str):
    """A name with every `?` encoded as the byte 0xff."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return str.encode(self, encoding, errors).replace(b"?", b"\xff")


def append_raw_headers(servers: str, topic: str, headers: list[tuple[str, bytes | None]]) -> None:
    """One record in partition 0, then another without headers."""
    records = [
        RecordData(5, b"k", b"bad", [(RawName(name), value) for name, value in headers]),
        RecordData(6, b"k", b"good", []),
    ]
    with Cluster(servers) as cluster:
        producer = BatchProducer(cluster, f"raw-{topic}")
        producer.initialize()
        producer.begin([(topic, 0)])
        producer.send((topic, 0), [BatchView(build_batch(records))])
        producer.commit()
