"""DescribeQuorum (55): versions 0 to 2, forwarded to the active controller (KIP-836, KIP-853)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import Explained, SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: QuorumContext, request: Request, message: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Leader, voters and observers of the metadata log, with their progress."""
    return context.service.describe(message)


def explain(context: QuorumContext, request: Request, error: BaseException | None, done: Explained) -> None:
    """Name a missing majority as BROKER_NOT_AVAILABLE: unlike an election, it does not end while a client retries."""
    if not request.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        done(error)
        return
    context.service.describe_missing_majority(
        lambda text: done(error if text is None else KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text))
    )


DESCRIBE_QUORUM = SchemaApi(
    ApiKey.DESCRIBE_QUORUM,
    handle,
    error_with_message(DescribeQuorumResponse),
    needs=RequiredPermission(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    forwarded=True,
).explained(explain)
