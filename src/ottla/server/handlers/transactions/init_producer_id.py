"""InitProducerId (22): versions 0 to 5. Producer ids, for idempotent producers and for transactional ids.

An idempotent producer gets a new id each time, epoch 0. From version 3 on it may name its previous id; it gets a new
one, as in Apache Kafka. For a transactional id its coordinator decides.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.registry import ApiKey
from ottla.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: TransactionContext, request: Request, message: InitProducerIdRequest) -> None:
    """Answer with the next id, once its block is committed, or as the coordinator does."""
    if message.transactional_id is not None:
        context.coordinator.init_producer_id(request.api_version, message, request.answer_with)
        return
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and producer epoch must be set together")

    def received(producer_id: int | None, error: BaseException | None) -> None:
        request.answer(lambda: _response(producer_id, error))

    context.producer_ids.next_id(received)


def _response(producer_id: int | None, error: BaseException | None) -> InitProducerIdResponse:
    if error is not None:
        raise error
    if producer_id is None:
        raise InvariantError("a successful allocation has no producer id")
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def error_response(message: InitProducerIdRequest, code: ErrorCode, text: str) -> InitProducerIdResponse:
    """The error without data."""
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def guard(context: TransactionContext, request: Request, message: InitProducerIdRequest) -> None:
    """Require WRITE on the transactional id; for an idempotent producer, WRITE on any topic (KIP-679)."""
    transactional_id = message.transactional_id
    if transactional_id is not None:
        if not request.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not request.allowed_any(AclOperation.WRITE, ResourceType.TOPIC) and not request.allowed(
        AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


INIT_PRODUCER_ID = SchemaApi(
    ApiKey.INIT_PRODUCER_ID,
    handle,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
        RequiredPermission(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
        RequiredPermission(AclOperation.WRITE, ResourceType.TOPIC),
    ),
)
