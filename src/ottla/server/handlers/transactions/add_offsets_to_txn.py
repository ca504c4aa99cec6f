"""AddOffsetsToTxn (25): versions 0 to 4. The transaction coordinator decides."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.handlers.transactions.transaction_requests import coordinated
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def guard(context: TransactionContext, request: Request, message: AddOffsetsToTxnRequest) -> None:
    """Require READ on the group."""
    if not request.allowed(AclOperation.READ, ResourceType.GROUP, message.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


ADD_OFFSETS_TO_TXN = coordinated(
    ApiKey.ADD_OFFSETS_TO_TXN,
    TransactionCoordinator.add_offsets_to_txn,
    bare_error(AddOffsetsToTxnResponse),
    guard=guard,
    needs=RequiredPermission(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
    item_needs=(RequiredPermission(AclOperation.READ, ResourceType.GROUP),),
)
