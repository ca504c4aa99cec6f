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
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import TopicKey
from ottla.server.requests.api import ErrorResponse
from ottla.server.requests.authorization import DENIED, DENIED_TEXT, split_allowed
from ottla.server.requests.request import Request


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
    """Keep the `allowed` items in `message`; returns the response if none is left. `code` is an item's error."""
    kept, refused = split_allowed(getattr(message, items.asked), allowed)
    if not refused:
        return None
    answers = [answer for item in refused for answer in _answers(message, items, item, code(item))]
    if not kept:
        response = _refusal(message, items, refused, code(refused[0]))
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


def _answers(message: Any, items: Items, item: Any, code: ErrorCode) -> list[Any]:
    answers: list[Any] = getattr(_refusal(message, items, [item], code), items.answered)
    return answers


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
