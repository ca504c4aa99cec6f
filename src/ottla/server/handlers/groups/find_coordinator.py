"""FindCoordinator (10): versions 0 to 6; from 4 on several keys in one request (KIP-699).

A group's coordinator is the leader of its partition of `__consumer_offsets`; other types use their own topics. If the
topic doesn't exist it is created first, and the channel parks until then. It also parks briefly while the partition
moves here or is being loaded: some clients give up on COORDINATOR_LOAD_IN_PROGRESS, others on
COORDINATOR_NOT_AVAILABLE in later requests. A longer load is answered with the latter, which all clients retry here.

Brokers look up share coordinators, by the key `group:topicId:partition` of a share partition (KIP-932).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.common.kafka.share_keys import parse_coordinator_key
from ottla.metadata.image import SHARE_GROUPS_DISABLED, share_groups_enabled
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.registry import ApiKey
from ottla.server.coordination.coordinator_host import CoordinatorHost, CoordinatorType
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.metadata.topic_creation import Problems
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import DENIED, DENIED_TEXT, RequiredPermission, split_allowed
from ottla.server.requests.guards import amend
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division, itself

_FIRST_BATCHED_VERSION = 4
_FIRST_VERSION_WITH_SHARE = 6


def handle(context: GroupContext, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    """Return the leader of each key's partition."""
    batched = request.api_version >= _FIRST_BATCHED_VERSION
    keys = message.coordinator_keys if batched else [message.key]
    key_type = message.key_type
    if key_type == CoordinatorType.SHARE and request.api_version < _FIRST_VERSION_WITH_SHARE:
        return _answer(batched, [_unknown(key, key_type) for key in keys])
    if key_type == CoordinatorType.SHARE:
        return _find_share(context, request, keys)
    coordination = context.coordinations.get(key_type)
    if coordination is None:
        return _answer(batched, [_unknown(key, key_type) for key in keys])
    return _find(context, request, coordination, keys, ())


def _find_share(context: GroupContext, request: Request, keys: Sequence[str]) -> FindCoordinatorResponse | None:
    """Invalid keys are answered at once, and the others after them."""
    if not share_groups_enabled(context.metadata.image):
        return _answer(True, [_failed(key, ErrorCode.INVALID_REQUEST, SHARE_GROUPS_DISABLED) for key in keys])
    valid: list[str] = []
    invalid: list[Coordinator] = []
    for key in keys:
        try:
            parse_coordinator_key(key)
        except KafkaError as error:
            invalid.append(_failed(key, error.code, error.message))
        else:
            valid.append(key)
    if not valid:
        return _answer(True, invalid)
    return _find(context, request, context.share_coordination(), valid, invalid)


def _find(
    context: GroupContext,
    request: Request,
    coordination: CoordinatorHost[Any],
    keys: Sequence[str],
    refused: Sequence[Coordinator],
) -> FindCoordinatorResponse | None:
    """Return the coordinators of `keys` behind `refused`; None once the request waits for them."""
    batched = request.api_version >= _FIRST_BATCHED_VERSION

    def locate() -> list[int]:
        image = context.metadata.image
        return [coordination.partition_in(image, key) for key in keys]

    def answer(partitions: Sequence[int]) -> FindCoordinatorResponse:
        located = zip(keys, partitions, strict=True)
        found = [_coordinator(context, coordination, request, *one) for one in located]
        return _answer(batched, [*refused, *found])

    def answer_loaded(partitions: Sequence[int]) -> None:
        # Looked up again: the topic may have been deleted or recreated meanwhile.
        coordination.after_loading(partitions, lambda: request.answer(lambda: answer(locate())))

    name, image = coordination.topic.name, context.metadata.image
    if image.topic(name) is not None:
        partitions = locate()
        if not any(coordination.is_loading(each) or coordination.is_coming(each, image) for each in partitions):
            return answer(partitions)
        answer_loaded(partitions)
        return None

    def created(problems: Problems) -> None:
        error = problems.get(name)
        if error is None:
            answer_loaded(locate())
            return

        def build() -> FindCoordinatorResponse:
            context.failures.warn(f"creation of {name}", error.message)
            failed = [_failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) for key in keys]
            return _answer(batched, [*refused, *failed])

        request.answer(build)

    def create() -> None:
        # A client that is sent to this broker connects at once, so the answer waits until the partitions are open.
        context.topics.create([coordination.topic.creation(context.metadata.image, context.config)], created)

    coordination.load(create)
    return None


def _unknown(key: str, key_type: int) -> Coordinator:
    return _failed(key, ErrorCode.INVALID_REQUEST, f"Coordinator type {key_type} is not known.")


def _coordinator(
    context: GroupContext, coordination: CoordinatorHost[Any], request: Request, key: str, partition: int
) -> Coordinator:
    if coordination.is_loading(partition):
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is loading.")
    image = context.metadata.image
    leader = coordination.leader_of(partition, image)
    broker = None if leader is None else context.metadata.broker_on(request.listener_name, leader)
    if broker is None or coordination.is_coming(partition, image):
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    return Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)


def _failed(key: str, code: ErrorCode, text: str) -> Coordinator:
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
        coordinators=[_failed(key, code, text) for key in message.coordinator_keys],
    )


def guard(context: GroupContext, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    """DESCRIBE on a group or transactional id permits the lookup; share groups are limited to brokers."""
    need = _NEEDS.get(message.key_type, _NEEDS[CoordinatorType.SHARE])

    def may_find(key: str) -> bool:
        name = CLUSTER_NAME if need.resource_type is ResourceType.CLUSTER else key
        return request.allowed(need.operation, need.resource_type, name)

    code = DENIED[need.resource_type]
    if request.api_version < _FIRST_BATCHED_VERSION:
        return None if may_find(message.key) else _answer(False, [_failed(message.key, code, DENIED_TEXT)])
    kept, refused = split_allowed(message.coordinator_keys, may_find)
    answers = [_failed(key, code, DENIED_TEXT) for key in refused]
    if refused and not kept:
        return _answer(True, answers)
    message.coordinator_keys = kept
    amend(request, lambda response: response.coordinators.extend(answers))
    return None


_NEEDS: dict[int, RequiredPermission] = {
    CoordinatorType.GROUP: RequiredPermission(AclOperation.DESCRIBE, ResourceType.GROUP),
    CoordinatorType.TRANSACTION: RequiredPermission(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    CoordinatorType.SHARE: RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
}

FIND_COORDINATOR = SchemaApi(
    ApiKey.FIND_COORDINATOR,
    handle,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.GROUP),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    ),
).divided(Division(("coordinator_keys",), "coordinators", itself, mentions=1))
