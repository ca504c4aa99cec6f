"""Paths in ZooKeeper's tree, with the names of Apache Kafka 3.9.

Paths are built from validated names: a topic name can't contain a slash, and names of users and clients are sanitized
as in Apache Kafka, so that any name is one component of a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.acl import PatternType

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_FOLDER = "/cluster"
CLUSTER_ID = f"{CLUSTER_FOLDER}/id"
FEATURE = "/feature"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CONFIG_USERS = "/config/users"
CONFIG_CLIENTS = "/config/clients"
CONFIG_IPS = "/config/ips"
CONFIG_CLIENT_METRICS = "/config/client-metrics"
CONFIG_GROUPS = "/config/groups"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"
"""A prefix: ZooKeeper appends ten digits, as for other notifications."""

DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"

ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
PREFIXED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE = "acl_changes_"

TOKENS = "/delegation_token/tokens"
TOKEN_CHANGE = "/delegation_token/token_changes/token_change_"

CONSUMERS = "/consumers"

MIGRATION = "/migration"

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    BROKER_TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    CONFIG_TOPICS,
    CONFIG_CLIENTS,
    CONFIG_USERS,
    CONFIG_BROKERS,
    CONFIG_IPS,
)
"""Znodes that must exist before a broker registers; each broker creates missing ones, and their parents, without
data."""

_REFUSED = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""Characters that are invalid in a name, or that ZooKeeper rejects in any path (its `PathUtils`)."""

DEFAULT_ENTITY = "<default>"
"""Name of the default settings and quotas."""


def child(path: str, name: str) -> str:
    """Return the znode `name` below `path`; raises KafkaError INVALID_REQUEST for a name that ZooKeeper rejects."""
    if not name or name in (".", "..") or _REFUSED.search(name):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"ZooKeeper can't store {name!r} below {path}. A name must not be empty, '.' or '..', nor contain '/', "
            "control or private-use characters.",
        )
    return f"{path}/{name}"


def parents(path: str) -> Iterator[str]:
    """Yield the ancestors of `path`, the highest first, without the root."""
    position = path.find("/", 1)
    while position > 0:
        yield path[:position]
        position = path.find("/", position + 1)


def broker(broker_id: int) -> str:
    """Return the ephemeral registration of a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the znode with id and replicas of a topic."""
    return child(BROKER_TOPICS, name)


def partitions(topic_name: str) -> str:
    """Return the parent of a topic's partitions; it has no data."""
    return f"{topic(topic_name)}/partitions"


def partition(topic_name: str, number: int) -> str:
    """Return the parent of one partition's state; it has no data."""
    return f"{partitions(topic_name)}/{number}"


def state(topic_name: str, number: int) -> str:
    """Return the znode with leader and ISR of a partition."""
    return f"{partition(topic_name, number)}/state"


def deletion(topic_name: str) -> str:
    """Return the deletion request of a topic; it has no data."""
    return child(DELETE_TOPICS, topic_name)


def sanitized(name: str | None) -> str:
    """Return the name of a user, client or address as one path component; None is the default of its type (KIP-55)."""
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


def desanitized(path: str, step: str) -> str | None:
    """Inverse of `sanitized`; raises ProtocolError with `path` for a component that `sanitized` can't return."""
    if step == DEFAULT_ENTITY:
        return None
    try:
        name = unquote(step, errors="strict")
    except UnicodeDecodeError:
        name = ""
    if not name or sanitized(name) != step:
        raise ProtocolError(f"znode {path} has {step[:100]!r}, which is not a sanitized name")
    return name


def entity(folder: str, name: str | None) -> str:
    """Return the settings znode of a user, client, address or broker; None is the default of its type."""
    return child(folder, sanitized(name))


def user_client(user: str | None, client: str | None) -> str:
    """Return the quota znode of a user's client."""
    return entity(f"{entity(CONFIG_USERS, user)}/clients", client)


def acl(resource_type: str, pattern_type: int, resource_name: str) -> str:
    """Return the znode with all ACLs of a resource; the type is written e.g. as "TransactionalId".

    Raises KafkaError INVALID_REQUEST for a name that ZooKeeper rejects.
    """
    root = ACLS if pattern_type == PatternType.LITERAL else PREFIXED_ACLS
    return child(f"{root}/{resource_type}", resource_name)


def consumer_ids(group: str) -> str:
    """Return the registry of a group's consumers, with one ephemeral child for each."""
    return f"{child(CONSUMERS, group)}/ids"


def consumer_offset(group: str, topic_name: str, number: int) -> str:
    """Return the znode with a group's offset in a partition."""
    return f"{child(child(CONSUMERS, group) + '/offsets', topic_name)}/{number}"


def consumer_owner(group: str, topic_name: str, number: int) -> str:
    """Return the ephemeral znode with the consumer thread that reads a partition."""
    return f"{child(child(CONSUMERS, group) + '/owners', topic_name)}/{number}"
