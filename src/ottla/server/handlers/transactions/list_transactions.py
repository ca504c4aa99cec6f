"""ListTransactions (66): versions 0 to 2. The transactional ids that this broker coordinates (KIP-664)."""

from __future__ import annotations

from collections.abc import Generator

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.handlers.transactions.transaction_requests import coordinated
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import amend_in_steps
from ottla.server.requests.request import Request


def guard(context: TransactionContext, request: Request, message: ListTransactionsRequest) -> None:
    """Omit transactional ids without DESCRIBE permission."""

    def keep_allowed(response: ListTransactionsResponse) -> Generator[None, None, None]:
        kept = []
        for state in response.transaction_states:
            if request.allowed(
                AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_id, audit=False
            ):
                kept.append(state)
            yield
        response.transaction_states = kept

    amend_in_steps(request, keep_allowed)


LIST_TRANSACTIONS = coordinated(
    ApiKey.LIST_TRANSACTIONS,
    TransactionCoordinator.list_transactions,
    bare_error(ListTransactionsResponse),
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),),
)
