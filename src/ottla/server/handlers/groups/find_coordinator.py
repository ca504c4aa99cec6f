"""FindCoordinator (10): versions 0 to 6; from 4 on several keys in one request (KIP-699).

A group is coordinated by the leader of its partition of `__consumer_offsets`. While that topic doesn't exist it is
created first, and the channel parks until then, and for a moment while the partition is being loaded here: some
clients give up on COORDINATOR_LOAD_IN_PROGRESS. A load that takes longer is said as COORDINATOR_NOT_AVAILABLE, which
all of them ask again.

There are no coordinators of transactions and share groups yet. A transactional producer hears so at once and for good
by the one error that every client takes as final: librdkafka goes on asking after any other but those of authorization.
Clients of share groups give up for want of ShareGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.coordinator.runtime.runtime import partition_for
from ottla.metadata.image import NO_LEADER
from ottla.metadata.topic_names import GROUP_METADATA_TOPIC
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.request import Request
from ottla.server.topic_creation import Problems

GROUP = 0
TRANSACTION = 1
SHARE = 2

_NOT_SERVED = {
    TRANSACTION: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactions are not served by this broker yet.",
    ),
    SHARE: (ErrorCode.INVALID_REQUEST, "Share groups are not served by this broker yet."),
}

_FIRST_BATCHED_VERSION = 4
_FIRST_VERSION_WITH_SHARE = 6


def handle(context: GroupContext, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    """Name the leader of each group's partition."""
    batched = request.api_version >= _FIRST_BATCHED_VERSION
    keys = message.coordinator_keys if batched else [message.key]
    if message.key_type != GROUP:
        return _answer(batched, [_unavailable(request, message.key_type, key) for key in keys])

    def answer() -> FindCoordinatorResponse:
        return _answer(batched, [_group_coordinator(context, request, key) for key in keys])

    def answer_loaded() -> None:
        context.group_coordinator.after_loading(keys, lambda: request.answer(answer))

    if context.metadata.image.topic(GROUP_METADATA_TOPIC) is not None:
        if not any(map(context.group_coordinator.is_loading, keys)):
            return answer()
        answer_loaded()
        return None

    def created(problems: Problems) -> None:
        error = problems.get(GROUP_METADATA_TOPIC)
        if error is None:
            answer_loaded()
            return

        def build() -> FindCoordinatorResponse:
            context.failures.complain(f"creation of {GROUP_METADATA_TOPIC}", error.message)
            return _answer(batched, [_nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) for key in keys])

        request.answer(build)

    # Who is sent to this broker asks at once: the answer waits until the partitions are open.
    context.topics.create([GROUP_METADATA_TOPIC], created)
    return None


def _unavailable(request: Request, key_type: int, key: str) -> Coordinator:
    known = key_type == TRANSACTION or (key_type == SHARE and request.api_version >= _FIRST_VERSION_WITH_SHARE)
    if known:
        return _nobody(key, *_NOT_SERVED[key_type])
    return _nobody(key, ErrorCode.INVALID_REQUEST, f"Coordinator type {key_type} is not known.")


def _group_coordinator(context: GroupContext, request: Request, group_id: str) -> Coordinator:
    topic = context.metadata.image.topic(GROUP_METADATA_TOPIC)
    partition = None if topic is None else topic.partitions.get(partition_for(group_id, len(topic.partitions)))
    if context.group_coordinator.is_loading(group_id):
        return _nobody(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is loading.")
    if partition is not None and partition.leader != NO_LEADER:
        broker = context.metadata.broker_on(request.listener_name, partition.leader)
        if broker is not None:
            return Coordinator(key=group_id, node_id=broker.node_id, host=broker.host, port=broker.port)
    return _nobody(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")


def _nobody(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)


def _answer(batched: bool, coordinators: Sequence[Coordinator]) -> FindCoordinatorResponse:
    if batched:
        return FindCoordinatorResponse(coordinators=list(coordinators))
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def error_response(message: FindCoordinatorRequest, code: ErrorCode, text: str) -> FindCoordinatorResponse:
    """The error at the top and for every key: a version writes the one it has."""
    return FindCoordinatorResponse(
        error_code=code,
        error_message=text,
        node_id=-1,
        port=-1,
        coordinators=[_nobody(key, code, text) for key in message.coordinator_keys],
    )


FIND_COORDINATOR = DeclaredApi(
    ApiKey.FIND_COORDINATOR,
    handle,
    error_response,
    item_needs=(
        Need(AclOperation.DESCRIBE, ResourceType.GROUP),
        Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    ),
)
