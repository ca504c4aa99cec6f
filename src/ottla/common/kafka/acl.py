"""Access control entries: principals, operations and resources under Kafka's names and numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"
"""Principal of an unauthenticated connection."""

USER = "User"
"""Type of principals that can authenticate."""


class TokenPrincipal(str):
    """Principal authenticated by a delegation token: it may do everything except request tokens (KIP-48)."""

    __slots__ = ()


def principal_of(kind: str, name: str) -> str:
    """Return a principal from two fields of a message."""
    return f"{kind}:{name}"


def parted(principal: str) -> tuple[str, str]:
    """Return type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name


def principal_name(principal: str) -> str:
    """Return the name of a principal, without its type."""
    return parted(principal)[1]


CLUSTER_NAME = "kafka-cluster"
"""Name of the only resource of type CLUSTER."""


class AclOperation(IntEnum):
    """Operations of ACLs; the numbers are also the bits of authorized operations in responses."""

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


def operations_of(bits: int) -> frozenset[int]:
    """The `AclOperation`s in a field of authorized operations of a response (KIP-430); empty if the broker omits it."""
    known = max(bits, 0)
    return frozenset(number for number in range(known.bit_length()) if known >> number & 1)


class ResourceType(IntEnum):
    """Resource types of ACLs."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def shown(self) -> str:
        """Name in Apache Kafka's audit log: TransactionalId."""
        return self.name.title().replace("_", "")


class PatternType(IntEnum):
    """Pattern type of a resource name (KIP-290); the first two only in filters."""

    ANY = 1
    MATCH = 2
    """Pattern types: literal, prefix and wildcard."""
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Effect of an ACL; the first value only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD = "*"
"""Wildcard for every host, every principal of a type, and, as a literal name, every resource of a type."""

ANY_USER = "User:*"


class Acl(NamedTuple):
    """Access control entry: principal, host, operation, resource and effect. Numbers may be newer than ours."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    """Principal as "User:name"."""
    host: str
    """An address, a network (KIP-1276), or the wildcard."""
    operation: int
    permission: int
