"""EndTxn (26): versions 0 to 5. The transaction coordinator decides and answers after its decision."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.transactions.transaction_requests import coordinated
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission

END_TXN = coordinated(
    ApiKey.END_TXN,
    TransactionCoordinator.end_txn,
    bare_error(EndTxnResponse),
    needs=RequiredPermission(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
)
