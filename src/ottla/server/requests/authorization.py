"""What a request has to be allowed to do, and who says whether it is.

The row of an API names what it needs as a whole, which the dispatcher asks for before the handler runs, and what it
needs for each thing that it names (topics, groups, settings). For those a row has a guard, which the dispatcher calls
next: it takes out of the request what may not be asked, and leaves in `Request.amend` what is to be said of it in the
response, so that the handler sees what is allowed and nothing else. A handler that only then knows what is named asks
by `Request.allowed`. Without an authorizer everybody may do everything, no guard is called and nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_authorizer import principals_of
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import Acl, AclOperation, ResourceType
from ottla.common.kafka.ids import Uuid
from ottla.metadata.publisher import MetadataPublisher
from ottla.security.authorizer import StandardAuthorizer


class RequiredPermission(NamedTuple):
    """An operation on a resource; where the whole request needs it, `attribute` of the request has the resource's name.

    The cluster needs none.
    """

    operation: AclOperation
    resource_type: ResourceType
    attribute: str = ""


class Authorizer(Protocol):
    """Decides by the rules of the cluster."""

    def allows(
        self,
        principal: str,
        client_host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        request: str,
        audit: bool = True,
    ) -> bool:
        """Whether `principal` ("User:name") may do this from `client_host`, in a request of that name.

        `audit`: a refusal goes into the audit log. It does not where nothing was asked for by name: in filters, and for
        the operations that responses describe.
        """
        ...

    def allows_any(
        self, principal: str, client_host: str, operation: AclOperation, resource_type: ResourceType, *, request: str
    ) -> bool:
        """Whether `principal` may do this with any resource of that type."""
        ...


def make_authorizer(config: BrokerConfig, publisher: MetadataPublisher) -> Authorizer | None:
    """The authorizer that the settings name, by the newest metadata that is published; None where they name none."""
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
"""What a client hears that may not."""

DENIED_TEXT = "Authorization failed."
"""In words, as Apache Kafka has them."""

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


Item = TypeVar("Item")


def split_allowed(items: Iterable[Item], allowed: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    """What may be asked, and what may not, each in its order."""
    kept: list[Item] = []
    refused: list[Item] = []
    for item in items:
        (kept if allowed(item) else refused).append(item)
    return kept, refused


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """The bit set of authorized operations in Metadata and Describe responses."""
    return sum(1 << operation for operation in operations)


EVERY_OPERATION = {resource_type: operation_bits(operations) for resource_type, operations in OPERATIONS.items()}
"""What everybody may do without an authorizer."""
