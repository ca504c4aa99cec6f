"""What a request has to be allowed to do, and who says whether it is.

The row of an API names what it needs as a whole, which the dispatcher asks for before the handler runs, and what it
needs for each thing that it names (topics, groups, settings), which the handler asks for by `Request.allowed`. Without
an authorizer everybody may do everything, and nobody is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode


class Need(NamedTuple):
    """An operation on a resource; where the whole request needs it, `attribute` of the request has the resource's name.

    The cluster needs none.
    """

    operation: AclOperation
    resource_type: ResourceType
    attribute: str = ""


class Authorizer(Protocol):
    """Decides by the rules of the cluster."""

    def allows(
        self, principal: str, client_host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether `principal` ("User:name") may do this from `client_host`."""
        ...


DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What a client hears that may not."""

NOT_REQUESTED = -(2**31)
"""Authorized operations in a response to a request that did not ask for them."""

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
"""What there is to be allowed with each type of resource that responses describe."""


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """The bit set of authorized operations in Metadata and Describe responses."""
    return sum(1 << operation for operation in operations)


EVERY_OPERATION = {resource_type: operation_bits(operations) for resource_type, operations in OPERATIONS.items()}
"""What everybody may do without an authorizer."""
