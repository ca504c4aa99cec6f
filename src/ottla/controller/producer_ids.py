"""Producer ids in blocks (KIP-730): never issued twice, after a crash too.

The controller moves `next_producer_id` of the image by a block; a broker hands out the ids of a block only after the
record is committed, and forgets the rest of its block when it ends.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.result import ControllerResult
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import versioned
from ottla.protocol.messages.metadata_records import ProducerIdsRecord

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """Ids from `first` (inclusive) to `end` (exclusive)."""

    first: int
    end: int


def handle_allocate_producer_ids(image: MetadataImage, broker_id: int) -> ControllerResult[ProducerIdBlock]:
    """The next block, for a registered broker; raises KafkaError BROKER_ID_NOT_REGISTERED or UNKNOWN_SERVER_ERROR."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    first = image.next_producer_id
    if first > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producer IDs.")
    block = ProducerIdBlock(first, first + BLOCK_SIZE)
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch, next_producer_id=block.end)
    return ControllerResult([versioned(record)], block)
