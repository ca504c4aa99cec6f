"""Who may do what with what: principals, operations and resources under Kafka's names and numbers."""

from __future__ import annotations

from enum import IntEnum

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that was not asked who it is."""

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
