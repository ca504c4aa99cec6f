"""APIs that the group coordinator decides: the requester's context, and the delivery of the response.

The coordinator answers each request once, now or later. Until then the channel is parked, so requests of one connection
keep their order even behind a JoinGroup that waits for its rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Protocol

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.requests.api import ErrorResponse, Guard, SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items, topic_name
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division, Steps


class GroupCall(Protocol):
    """A method of the group coordinator for one API.

    Implementations: methods of `coordinator.group.coordinator.GroupCoordinator`; the row of the API names its method.
    """

    def __call__(
        self, coordinator: GroupCoordinator, requester: RequestContext, message: Any, respond: Callable[[Any], None], /
    ) -> None:
        """Call `respond` once with the response, now or later."""


def coordinated(
    key: ApiKey,
    ask: GroupCall,
    error_response: ErrorResponse,
    *,
    needs: RequiredPermission | None = None,
    item_needs: tuple[RequiredPermission, ...] = (),
    guard: Guard[GroupContext] | None = None,
    divisions: tuple[Division, ...] = (),
) -> SchemaApi[GroupContext]:
    """API whose response comes from the coordinator."""

    def handle(context: GroupContext, request: Request, message: Any) -> None:
        ask(context.group_coordinator, request_context(request), message, request.answer_with)

    return SchemaApi(key, handle, error_response, needs=needs, item_needs=item_needs, guard=guard).divided(*divisions)


def request_context(request: Request) -> RequestContext:
    """The client as groups store and describe it; the host in the form of Apache Kafka's tools."""
    channel = request.channel
    may_describe: Callable[[str], bool] | None = None
    if request.is_guarded:
        may_describe = partial(request.allowed, AclOperation.DESCRIBE, ResourceType.TOPIC, audit=False)
    return RequestContext(
        request.client_id or "", f"/{channel.client_host}", request.api_version, channel.listener.name, may_describe
    )


def guard_read_topics(context: GroupContext, request: Request, message: Any, refuse: ErrorResponse) -> object | None:
    """`guard_items` for topics, by name or id, with READ."""
    image = context.metadata.image

    def may_read(topic: Any) -> bool:
        name = topic_name(image, topic.name or bytes(topic.topic_id))
        return name is None or request.allowed(AclOperation.READ, ResourceType.TOPIC, name)

    return guard_items(request, message, Items("topics", "topics", refuse), may_read)


def answering_with_operations(request: Request, *, wanted: bool) -> Callable[[Any], None]:
    """A callback that completes `request` with a response that describes groups, with the client's authorized
    operations if `wanted`."""
    if not wanted:
        return request.answer_with

    def done(response: Any) -> None:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = request.authorized_operations(ResourceType.GROUP, group.group_id)
        request.answer_with(response)

    return done


def described_groups(
    request: Request,
    steps: Generator[None, None, Any],
    topics_of: Callable[[Any], Iterable[str]],
    *,
    wanted: bool,
) -> Steps:
    """The description of groups of the consumer or share protocol, with the client's authorized operations if `wanted`.

    Members are shown only to a client that may describe all topics that they subscribe to or read. `topics_of` returns
    these for a member.
    """
    response = yield from steps
    for group in response.groups:
        if request.is_guarded and not (yield from _may_see_members(request, group, topics_of)):
            group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group.error_message = "The group has described topic(s) that the client is not authorized to describe."
            group.members = []
        if wanted and not group.error_code:
            group.authorized_operations = request.authorized_operations(ResourceType.GROUP, group.group_id)
        yield None
    return response


def _may_see_members(
    request: Request, group: Any, topics_of: Callable[[Any], Iterable[str]]
) -> Generator[None, None, bool]:
    asked: set[str] = set()
    for member in group.members:
        for name in topics_of(member):
            if name not in asked:
                asked.add(name)
                if not request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                    return False
        yield
    return True
