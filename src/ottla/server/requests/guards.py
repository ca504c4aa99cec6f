"""Guards for requests with a list of items that are authorized separately.

An unauthorized item gets the API's error response, for that item alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.common.platform.shares import finish
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import TopicKey
from ottla.server.requests.api import ErrorResponse
from ottla.server.requests.authorization import DENIED, DENIED_TEXT, split_allowed
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import PART_ITEMS


class Items(NamedTuple):
    """The item lists of an API: the attribute of the request, and that of the response with the results."""

    asked: str
    answered: str
    error_response: ErrorResponse


def topic_denied(_item: object) -> ErrorCode:
    """Error of an unauthorized topic."""
    return DENIED[ResourceType.TOPIC]


def group_denied(_item: object) -> ErrorCode:
    """Error of an unauthorized group."""
    return DENIED[ResourceType.GROUP]


def topic_name(image: MetadataImage, topic: TopicKey) -> str | None:
    """The name of a topic given by name or id; None for an unknown id, which reveals nothing."""
    if isinstance(topic, str):
        return topic
    known = image.topic_by_id(topic)
    return None if known is None else known.name


def guard_items(
    request: Request,
    message: Any,
    items: Items,
    allowed: Callable[[Any], bool],
    code: Callable[[Any], ErrorCode] = topic_denied,
) -> object | None:
    """Remove the items that are not `allowed` from `message`. `code` gives the error code of a refused item.

    Returns the response if no item is left, else None; for a long list, a generator that returns the same.
    """
    steps = _guard_in_steps(request, message, items, allowed, code)
    return finish(steps) if len(getattr(message, items.asked)) <= PART_ITEMS else steps


def _guard_in_steps(
    request: Request,
    message: Any,
    items: Items,
    allowed: Callable[[Any], bool],
    code: Callable[[Any], ErrorCode],
) -> Generator[None, None, object | None]:
    """A denied item costs an audit line and an answer, so a client without rights must not hold the loop either."""
    kept: list[Any] = []
    answers: list[Any] = []
    first_code: ErrorCode | None = None
    asked = getattr(message, items.asked)
    for start in range(0, len(asked), PART_ITEMS):
        kept_here, refused = split_allowed(asked[start : start + PART_ITEMS], allowed)
        kept += kept_here
        for item in refused:
            refused_code = code(item)
            first_code = first_code or refused_code
            answers += getattr(_refusal(message, items, [item], refused_code), items.answered)
        yield
    if first_code is None:
        return None
    if not kept:
        response = _refusal(message, items, [], first_code)
        setattr(response, items.answered, answers)
        return response
    setattr(message, items.asked, kept)
    amend(request, lambda response: getattr(response, items.answered).extend(answers))
    return None


def resource_key(resource: Any) -> tuple[int, str]:
    """Identity of a resource with configs."""
    return resource.resource_type, resource.resource_name


_CONFIG_RESOURCES = {ConfigResourceType.TOPIC: ResourceType.TOPIC, ConfigResourceType.GROUP: ResourceType.GROUP}
"""Resource types with their own config permissions; all others use the cluster's."""


def guard_configs(request: Request, message: Any, operation: AclOperation, items: Items) -> object | None:
    """`guard_items` for resources with configs."""

    def resource_type(item: Any) -> ResourceType:
        return _CONFIG_RESOURCES.get(item.resource_type, ResourceType.CLUSTER)

    def allowed(item: Any) -> bool:
        kind = resource_type(item)
        return request.allowed(operation, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else item.resource_name)

    return guard_items(request, message, items, allowed, lambda item: DENIED[resource_type(item)])


def _refusal(message: Any, items: Items, refused: list[Any], code: ErrorCode) -> object | None:
    alone = copy.copy(message)
    setattr(alone, items.asked, refused)
    return items.error_response(alone, code, DENIED_TEXT)


def amend(request: Request, change: Callable[[Any], object]) -> None:
    """Apply `change` to the response, after earlier changes."""
    before = request.amend

    def changed(response: Any) -> object:
        if before is not None:
            response = before(response)
        change(response)
        return response

    request.amend = changed


def amend_in_steps(request: Request, change: Callable[[Any], Generator[None, None, object]]) -> None:
    """`amend` for a change of a response that may be large."""
    before = request.amend

    def changed(response: Any) -> Generator[None, None, object]:
        if before is not None:
            response = before(response)
        yield from change(response)
        return response

    request.amend = changed
