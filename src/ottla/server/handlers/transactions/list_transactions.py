"""ListTransactions (66): versions 0 to 2. The transactional ids that this broker coordinates (KIP-664)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.protocol.messages.list_transactions import ListTransactionsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.transactions.transaction_requests import coordinated

LIST_TRANSACTIONS = coordinated(
    ApiKey.LIST_TRANSACTIONS,
    TransactionCoordinator.list_transactions,
    bare_error(ListTransactionsResponse),
    item_needs=(Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),),
)
