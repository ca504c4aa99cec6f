"""DescribeTransactions (65): version 0. Each transactional id is answered separately (KIP-664)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.handlers.transactions.transaction_requests import coordinated
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, amend, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division, itself


def error_response(message: DescribeTransactionsRequest, code: ErrorCode, text: str) -> DescribeTransactionsResponse:
    """The error for every id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=code)
            for transactional_id in message.transactional_ids
        ]
    )


def guard(context: TransactionContext, request: Request, message: DescribeTransactionsRequest) -> object | None:
    """Authorize each id separately; topics without DESCRIBE are omitted."""

    def hide_topics(response: DescribeTransactionsResponse) -> None:
        for state in response.transaction_states:
            state.topics = [
                topic
                for topic in state.topics
                if request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic, audit=False)
            ]

    amend(request, hide_topics)
    return guard_items(
        request,
        message,
        Items("transactional_ids", "transaction_states", error_response),
        lambda name: request.allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name),
        lambda _name: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


DESCRIBE_TRANSACTIONS = coordinated(
    ApiKey.DESCRIBE_TRANSACTIONS,
    TransactionCoordinator.describe_transactions,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    divisions=(Division(("transactional_ids",), "transaction_states", itself, mentions=1),),
)
