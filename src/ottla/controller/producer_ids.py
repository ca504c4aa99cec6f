"""Producer ids in blocks (KIP-730): never issued twice, even after a crash.

The controller advances `next_producer_id` of the image by a block. A broker uses the ids of a block only after the
record is committed, and drops the rest of its block when it stops.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.replication import check_broker_epoch
from ottla.controller.result import ControllerResult
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import versioned
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.messages.metadata_records import ProducerIdsRecord

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


def handle_allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    """Return the next block for this broker incarnation; raises KafkaError STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    if first > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producer IDs.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return ControllerResult([versioned(record)], response)
