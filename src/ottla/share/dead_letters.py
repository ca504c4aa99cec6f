"""Dead letters of share groups (KIP-1191): their content, and the producer that writes each of them once.

A dead letter is a batch of its own with an idempotent producer, at sequence 0. The producer id is a hash of the share
partition, its state epoch, and the offset modulo SLOTS; the producer epoch counts how often the slot was used. So every
leader of the share partition writes the same dead letter as the same producer. The leader of the dead-letter partition
recognizes a repeated one as a duplicate, and nothing has to be stored or searched for that.

Invariants:
- Two records that are ARCHIVING at the same time have different slots: their offsets are within one window, which has
  at most SLOTS offsets (`group.share.max.partition.max.record.locks`).
- The ids are far above those that the controller allocates from 0 on.

Requests and repetitions are in `server.coordination.dead_letter_writer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from ottla.common.kafka import dead_letter_headers as names
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.record.builder import RecordData, build_batch
from ottla.share.share_partition import DueDeadLetter

SLOTS = 10_000
_EPOCHS = 1 << 15
_LOWEST_PRODUCER_ID = 1 << 62

REJECTED_TEXT = "Offset rejected by client."
LIMIT_TEXT = "Offset delivery count exceeded the threshold."


class SourceRecord(NamedTuple):
    """Copied parts of the record that failed; `timestamp_ms` is None if its headers and timestamp are not copied."""

    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    @property
    def size_bytes(self) -> int:
        """Approximate size of the copied parts."""
        headers = sum(len(name) + len(text or b"") for name, text in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class Producer(NamedTuple):
    """Idempotent producer of one dead letter, which has sequence 0."""

    id: int
    epoch: int


def producer_of(key: SharePartitionKey, state_epoch: int, offset: int) -> Producer:
    """Return the producer of the dead letter of a record."""
    uses, slot = divmod(offset, SLOTS)
    family, epoch = divmod(uses, _EPOCHS)
    text = f"{key.topic_id.hex()}:{key.partition}:{state_epoch}:{family}:{slot}:{key.group_id}"
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return Producer(int.from_bytes(digest, "big") % _LOWEST_PRODUCER_ID + _LOWEST_PRODUCER_ID, epoch)


def dead_letter(
    key: SharePartitionKey, topic: str, due: DueDeadLetter, source: SourceRecord | None, now_ms: int
) -> RecordData:
    """Return the dead letter of a record in `topic`; without `source` it has no copied parts.

    Copied headers come first: of headers with one name, clients return the last.
    """
    texts = {
        names.TOPIC: topic,
        names.PARTITION: str(key.partition),
        names.OFFSET: str(due.offset),
        names.GROUP: key.group_id,
        names.DELIVERY_COUNT: str(due.delivery_count),
        names.MESSAGE: REJECTED_TEXT if due.rejected else LIMIT_TEXT,
    }
    if source is None:
        return RecordData(now_ms, headers=_headers(texts))
    if source.timestamp_ms is not None:
        texts[names.TIMESTAMP] = str(source.timestamp_ms)
    return RecordData(now_ms, source.key, source.value, (*source.headers, *_headers(texts)))


def _headers(texts: dict[str, str]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, text.encode("utf-8", "surrogatepass")) for name, text in texts.items())


def batch_of(record: RecordData, producer: Producer | None) -> bytearray:
    """Return the batch of a dead letter; without `producer` a repeated one is not recognized."""
    if producer is None:
        return build_batch([record])
    return build_batch([record], producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0)
