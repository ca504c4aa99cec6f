"""Who may do what with what: principals, operations and resources under Kafka's names and numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that was not asked who it is."""

USER = "User"
"""The kind of principals that can say who they are."""


class TokenPrincipal(str):
    """A principal that came in by a delegation token: the same for all purposes but to ask for tokens (KIP-48)."""

    __slots__ = ()


def principal_of(kind: str, name: str) -> str:
    """A principal of two fields of a message."""
    return f"{kind}:{name}"


def parted(principal: str) -> tuple[str, str]:
    """Kind and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name


def principal_name(principal: str) -> str:
    """The name of a principal, without its kind."""
    return parted(principal)[1]


CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class AclOperation(IntEnum):
    """What may be allowed; the numbers are also the bits of authorized operations in responses."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What it may be allowed with."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def shown(self) -> str:
        """As Apache Kafka's audit log has it: TransactionalId."""
        return self.name.title().replace("_", "")


class PatternType(IntEnum):
    """How the name of a resource is meant (KIP-290); the first two only in filters."""

    ANY = 1
    MATCH = 2
    """Whatever holds for a name: literal, as a prefix, or by the wildcard."""
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an ACL does; the first only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD = "*"
"""Every host, every principal of a kind, and as a literal name every resource of a type."""

EVERYBODY = "User:*"


class Acl(NamedTuple):
    """One access control entry: whom it allows or denies what, with which resources. Numbers may be newer than ours."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    """As "User:name"."""
    host: str
    """An address, a network (KIP-1276), or the wildcard."""
    operation: int
    permission: int
