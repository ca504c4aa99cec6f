"""Authorization of requests: required permissions, and the authorizer of the settings.

The API declares the permission for the request as a whole, which the dispatcher checks before the handler runs, and
those for the items in it (topics, groups, configs). For items an API has a guard, called next by the dispatcher. The
guard removes unauthorized items from the request and stores their errors for the response in `Request.amend`, so that
the handler sees only authorized ones. A handler that learns resources only later checks with `Request.allowed`. Without
an authorizer every operation is allowed and no guard is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_authorizer import principals_of
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import Acl, AclOperation, ResourceType
from ottla.common.kafka.ids import Uuid
from ottla.metadata.publisher import MetadataPublisher
from ottla.security.authorizer import StandardAuthorizer


class RequiredPermission(NamedTuple):
    """An operation on a resource; if the whole request needs it, `attribute` of the request has the resource's name.

    The cluster resource needs no attribute.
    """

    operation: AclOperation
    resource_type: ResourceType
    attribute: str = ""


def make_authorizer(config: BrokerConfig, publisher: MetadataPublisher) -> StandardAuthorizer | None:
    """The authorizer that the settings name, with the newest published metadata; None if they name none."""
    if not config.get_str("authorizer.class.name"):
        return None

    def acls() -> Mapping[Uuid, Acl] | None:
        image = publisher.image
        return None if image.offset < 0 else image.acls

    return StandardAuthorizer(
        acls,
        principals_of(config.get_str("super.users") or ""),
        allow_without_acls=config.get_bool("allow.everyone.if.no.acl.found"),
    )


DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Error codes of denials by resource type."""

DENIED_TEXT = "Authorization failed."
"""Apache Kafka's message of a denial."""

NOT_REQUESTED = -(2**31)
"""Value for responses to a request that did not request authorized operations."""

_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        *_CONFIGS,
    ),
}
"""Operations on each resource type that responses describe."""


Item = TypeVar("Item")


def split_allowed(items: Iterable[Item], allowed: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    """Authorized and unauthorized items, each in their order."""
    kept: list[Item] = []
    refused: list[Item] = []
    for item in items:
        (kept if allowed(item) else refused).append(item)
    return kept, refused


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """The bit set of authorized operations in Metadata and Describe responses."""
    return sum(1 << operation for operation in operations)


EVERY_OPERATION = {resource_type: operation_bits(operations) for resource_type, operations in OPERATIONS.items()}
"""All operations, for brokers without an authorizer."""
