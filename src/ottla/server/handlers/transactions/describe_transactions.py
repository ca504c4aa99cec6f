"""DescribeTransactions (65): version 0. Each transactional id is answered for itself (KIP-664)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.registry import ApiKey
from ottla.server.authorization import Need
from ottla.server.handlers.transactions.transaction_requests import coordinated


def error_response(message: DescribeTransactionsRequest, code: ErrorCode, text: str) -> DescribeTransactionsResponse:
    """The same error for every id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=code)
            for transactional_id in message.transactional_ids
        ]
    )


DESCRIBE_TRANSACTIONS = coordinated(
    ApiKey.DESCRIBE_TRANSACTIONS,
    TransactionCoordinator.describe_transactions,
    error_response,
    item_needs=(
        Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
)
