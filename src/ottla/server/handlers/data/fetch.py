"""Fetch (1): versions 0 to 18, long poll, sessions (KIP-227), topic ids from 13 on (KIP-516).

Matches a request with its session. `fetching` has the further steps; `consumer_fetch` and `follower_fetch` read
records; `old_fetch` converts them for clients without record batches.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.platform.channel import Part
from ottla.protocol.fetch import (
    BATCHES_FROM,
    FetchPartitionResult,
    ParsedFetchRequest,
    encode_fetch_response,
    parse_fetch,
    request_of_one,
)
from ottla.protocol.hot import TOPIC_ID_FROM, parse_one_fetch
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.data.consumer_fetch import ConsumerFetch
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.follower_fetch import Follower, FollowerFetch
from ottla.server.handlers.data.limited_fetch import limited_fetch
from ottla.server.handlers.data.old_fetch import OldFetch
from ottla.server.requests.api import RawApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def serve(context: DataContext, request: Request, buffer: bytearray, body_start: int, end: int) -> list[Part] | None:
    """Answer a fetch, or park it."""
    version = request.api_version
    one = parse_one_fetch(version, buffer, body_start, end) if version >= TOPIC_ID_FROM else None
    if one is not None:
        message = request_of_one(one)
    else:
        message = parse_fetch(version, buffer, body_start, end, context.element_limit(end - body_start))
        context.check_partition_count(
            max(sum([len(partitions) for _, partitions in message.topics]), len(message.topics), len(message.forgotten))
        )
    follower = None
    if message.replica_id >= 0:
        if not request.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return _refuse(request, message, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        follower = Follower.identify(context, request, message)
        if follower is None:
            return _refuse(request, message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        session = context.sessions.open(
            message.session_id,
            message.session_epoch,
            message.topics,
            message.forgotten,
            uses_topic_ids=version >= TOPIC_ID_FROM,
            privileged=follower is not None,
            now_s=request.started_s,
            max_partitions=context.partition_limit(),
        )
    except KafkaError as error:
        request.count_error(error.code)
        return encode_fetch_response(request.api_version, request.correlation_id, 0, error.code, 0, [])
    if follower is None:
        if version < BATCHES_FROM:
            return OldFetch(context, request, message, session).serve()
        create = limited_fetch if context.has_quotas else ConsumerFetch
        return create(context, request, message, session).serve()
    return FollowerFetch(context, request, message, session, follower).serve()


def _refuse(request: Request, message: ParsedFetchRequest, code: ErrorCode) -> list[Part]:
    request.count_error(code)
    topics = [
        (topic, [FetchPartitionResult(asked.partition, code) for asked in partitions])
        for topic, partitions in message.topics
    ]
    return encode_fetch_response(request.api_version, request.correlation_id, 0, 0, 0, topics)


FETCH = RawApi(
    ApiKey.FETCH,
    serve,
    item_needs=(
        RequiredPermission(AclOperation.READ, ResourceType.TOPIC),
        RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
    ),
)
