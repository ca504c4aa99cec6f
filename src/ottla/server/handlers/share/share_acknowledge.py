"""ShareAcknowledge (79): versions 1 and 2. Acknowledges records without a fetch (KIP-932)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.member_requests import (
    LEADER_ERRORS,
    AcknowledgementRound,
    end_session,
    member_of,
    settings_of,
)
from ottla.server.handlers.share.partition_context import SharePartitionContext
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionId, SessionKey, ShareSession


def handle(
    context: SharePartitionContext, request: Request, message: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | None:
    """Apply the acknowledgements, and answer when they are stored."""
    key = member_of(context, request, message)
    context.limits.check_partition_count(sum(len(topic.partitions) for topic in message.topics))
    sessions = context.partitions.sessions
    epoch = message.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = sessions.find(key) if epoch == FINAL_EPOCH else sessions.resume(key, epoch)
    ending = session if epoch == FINAL_EPOCH else None
    acknowledgements = AcknowledgementRound(context, request, key, renews=message.is_renew_ack)
    if acknowledgements.begin(message.topics):
        return _response(context, request, key, ending, acknowledgements.results)
    acknowledgements.then = lambda: request.answer(
        lambda: _response(context, request, key, ending, acknowledgements.results)
    )
    return None


def _response(
    context: SharePartitionContext,
    request: Request,
    key: SessionKey,
    ending: ShareSession | None,
    results: dict[PartitionId, KafkaError | None],
) -> ShareAcknowledgeResponse:
    if ending is not None and context.partitions.sessions.is_current(ending):
        end_session(context, key)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    leaders: dict[int, None] = {}
    for (topic_id, index), error in results.items():
        answer = PartitionData(partition_index=index, current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1))
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message or None
            known = context.metadata.current_leader(topic_id, index) if error.code in LEADER_ERRORS else None
            if known is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=known[0], leader_epoch=known[1])
                leaders[known[0]] = None
        topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id=topic_id)).partitions.append(answer)
    endpoints = context.metadata.node_endpoints(request.listener_name, leaders)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=settings_of(context, key[0]).lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack) for each in endpoints
        ],
    )


SHARE_ACKNOWLEDGE = SchemaApi(
    ApiKey.SHARE_ACKNOWLEDGE,
    handle,
    error_with_message(ShareAcknowledgeResponse),
    item_needs=(
        RequiredPermission(AclOperation.READ, ResourceType.GROUP),
        RequiredPermission(AclOperation.READ, ResourceType.TOPIC),
    ),
)
