"""EndTxn (26): versions 0 to 5. All rules are the transaction coordinator's, which answers when it is decided."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.transactions.transaction_requests import coordinated

END_TXN = coordinated(
    ApiKey.END_TXN,
    TransactionCoordinator.end_txn,
    bare_error(EndTxnResponse),
    needs=Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
)
