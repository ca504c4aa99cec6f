"""InitProducerId (22): versions 0 to 5. Ids for idempotent producers; a new one each time, epoch 0.

A request with a transactional id is answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED, since no broker coordinates
transactions yet: the same as FindCoordinator tells. From version 3 on an idempotent producer may name the id it had; it
gets a fresh one, as from Apache Kafka.
"""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.handlers.data.context import DataContext
from ottla.server.request import Request

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle(context: DataContext, request: Request, message: InitProducerIdRequest) -> None:
    """Answer with the next id, once its block is committed."""
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id comes with its epoch or not at all")
    if message.transactional_id is not None:
        if not message.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served by this broker yet"
        )

    def received(producer_id: int | None, error: BaseException | None) -> None:
        request.answer(lambda: _response(producer_id, error))

    context.producer_ids.next_id(received)


def _response(producer_id: int | None, error: BaseException | None) -> InitProducerIdResponse:
    if error is not None:
        raise error
    if producer_id is None:
        raise InvariantError("a producer id is due")
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def error_response(message: InitProducerIdRequest, code: ErrorCode, text: str) -> InitProducerIdResponse:
    """The bare error."""
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


INIT_PRODUCER_ID = DeclaredApi(
    ApiKey.INIT_PRODUCER_ID,
    handle,
    error_response,
    item_needs=(
        Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
        Need(AclOperation.WRITE, ResourceType.TOPIC),
    ),
)
