"""Dead letters of share groups (KIP-1191) as a client reads them, and the records that they name.

Not here: transactions (`redrive`), and dead letters as brokers write them (`ottla.share.dead_letters`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.consumer import ConsumedRecord, read_batches
from ottla.client.wire.model import EARLIEST_TIMESTAMP
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka import dead_letter_headers as names
from ottla.common.kafka.integers import MAX_INT, MAX_LONG
from ottla.common.kafka.topic_partition import TopicPartition

REDRIVEN_FROM = "ottla-redriven-from"
"""Header of a redriven record: topic, partition and offset of its dead letter, as in `dlq.jobs-0@17`."""
FETCH_BYTES = 64 * 1024
"""Of each fetch of failed records; a larger batch is fetched whole."""

Headers = tuple[tuple[str, bytes | None], ...]


class ShareDeadLetter(NamedTuple):
    """A record of a dead-letter topic, and the failed record that its headers name."""

    record: ConsumedRecord
    topic: str
    partition: int
    offset: int
    group: str
    reason: str
    timestamp_ms: int | None
    """Timestamp of the failed record; None if the dead letter does not have it."""

    def __str__(self) -> str:
        return f"{self.record.topic}-{self.record.partition}@{self.record.offset}"


class RedrivenRecord(NamedTuple):
    """Key, value and headers of a failed record."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def parse_dead_letter(record: ConsumedRecord) -> ShareDeadLetter | None:
    """Return the dead letter in a record; None for a record without its headers, or with unreadable ones."""
    found = {name: value for name, value in record.headers if name.startswith(names.PREFIX)}  # the last one counts

    def text(name: str) -> str:
        return (found[name] or b"").decode(errors="replace")

    try:
        timestamp_ms = int(text(names.TIMESTAMP)) if names.TIMESTAMP in found else None
        partition, offset = int(text(names.PARTITION)), int(text(names.OFFSET))
        topic, group = text(names.TOPIC), text(names.GROUP)
    except (KeyError, ValueError):
        return None
    if not topic or not (0 <= partition <= MAX_INT and 0 <= offset <= MAX_LONG):
        return None
    reason = text(names.MESSAGE) if names.MESSAGE in found else ""
    return ShareDeadLetter(record, topic, partition, offset, group, reason, timestamp_ms)


def redriven_record(letter: ShareDeadLetter, source: ConsumedRecord | None) -> RedrivenRecord | None:
    """Return the failed record with the header REDRIVEN_FROM: from `source`, else from the copy in the dead letter.

    None if the dead letter has neither key nor value. A source with another timestamp than the failed record is in a
    topic that was created again.
    """
    if source is not None and letter.timestamp_ms in (None, source.timestamp_ms):
        headers = source.headers
    else:
        source = letter.record
        if source.key is None and source.value is None:
            return None
        headers = tuple(header for header in source.headers if not header[0].startswith(names.PREFIX))
    kept = tuple(header for header in headers if header[0] != REDRIVEN_FROM)
    return RedrivenRecord(source.key, source.value, (*kept, (REDRIVEN_FROM, str(letter).encode())))


def failed_records(cluster: Cluster, letters: Iterable[ShareDeadLetter]) -> dict[tuple[str, int, int], ConsumedRecord]:
    """Return the failed records that still exist, by topic, partition and offset. Raises KafkaError.

    Records of aborted transactions are included: groups with `read_uncommitted` read them.
    """
    wanted: dict[TopicPartition, set[int]] = {}
    for letter in letters:
        wanted.setdefault((letter.topic, letter.partition), set()).add(letter.offset)
    return {
        (*key, offset): record
        for key, offsets in wanted.items()
        for offset, record in _records_at(cluster, key, sorted(offsets)).items()
    }


def _records_at(cluster: Cluster, key: TopicPartition, offsets: Sequence[int]) -> Mapping[int, ConsumedRecord]:
    """Return the records of a partition at these offsets, which rise; those that do not exist are omitted."""
    found: dict[int, ConsumedRecord] = {}
    wanted, left = frozenset(offsets), list(offsets)
    while left:
        try:
            result = cluster.records.fetch(*key, left[0], max_bytes=FETCH_BYTES, max_wait_ms=0)
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                break
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            position = max(cluster.records.offsets_at([key], EARLIEST_TIMESTAMP)[key], left[0] + 1)
        else:
            batches = list(read_batches(key, result, left[0]))
            if not batches:
                break  # the end of the log
            position = batches[-1][0]
            found.update((each.offset, each) for _, records in batches for each in records if each.offset in wanted)
        left = [offset for offset in left if offset >= position]
    return found
