"""Where what lies in ZooKeeper's tree, under the names of Apache Kafka 3.9.

Paths are made of names that were checked: a topic's can't hold a slash, and names of users and clients are sanitized as
Apache Kafka does it, so that whatever they hold is one step of a path.
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
"""A prefix: ZooKeeper appends ten digits, as to the other notices."""

DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT = f"{LOG_DIR_EVENTS}/log_dir_event_"

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
"""What has to be there before a broker registers; each broker makes what is missing, and its parents, without data."""

_REFUSED = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""What is no part of a name, or refused by ZooKeeper in any path (its `PathUtils`)."""

DEFAULT_ENTITY = "<default>"
"""The name of settings and limits for all that have none of their own."""


def child(path: str, name: str) -> str:
    """The znode `name` below `path`; raises KafkaError INVALID_REQUEST for a name that ZooKeeper can't hold there."""
    if not name or name in (".", "..") or _REFUSED.search(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"ZooKeeper can't hold {name!r} below {path}.")
    return f"{path}/{name}"


def parents(path: str) -> Iterator[str]:
    """All that has to be there before `path`, the highest first, the root left out."""
    position = path.find("/", 1)
    while position > 0:
        yield path[:position]
        position = path.find("/", position + 1)


def broker(broker_id: int) -> str:
    """The registration of a broker, ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Id and replicas of a topic."""
    return child(BROKER_TOPICS, name)


def partitions(topic_name: str) -> str:
    """The folder of a topic's partitions; it has no data."""
    return f"{topic(topic_name)}/partitions"


def partition(topic_name: str, number: int) -> str:
    """The folder of one partition; it has no data."""
    return f"{partitions(topic_name)}/{number}"


def state(topic_name: str, number: int) -> str:
    """Leader and ISR of a partition."""
    return f"{partition(topic_name, number)}/state"


def deletion(topic_name: str) -> str:
    """The wish that a topic be deleted; it has no data."""
    return child(DELETE_TOPICS, topic_name)


def sanitized(name: str | None) -> str:
    """The name of a user, client or address as one step of a path; None is the default of its kind (KIP-55)."""
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


def desanitized(path: str, step: str) -> str | None:
    """Inverse of `sanitized`; raises ProtocolError that names `path` for a step that it would not give."""
    if step == DEFAULT_ENTITY:
        return None
    try:
        name = unquote(step, errors="strict")
    except UnicodeDecodeError:
        name = ""
    if not name or sanitized(name) != step:
        raise ProtocolError(f"znode {path} has {step[:100]!r}, which is no sanitized name")
    return name


def entity(folder: str, name: str | None) -> str:
    """Settings of a user, client, address or broker in its folder; None is the default of its kind."""
    return child(folder, sanitized(name))


def user_client(user: str | None, client: str | None) -> str:
    """The limits of a user's client."""
    return entity(f"{entity(CONFIG_USERS, user)}/clients", client)


def acl(resource_type: str, pattern_type: int, resource_name: str) -> str:
    """All ACLs of a resource, whose type is written as "TransactionalId".

    Raises KafkaError INVALID_REQUEST for a name that ZooKeeper can't hold.
    """
    root = ACLS if pattern_type == PatternType.LITERAL else PREFIXED_ACLS
    return child(f"{root}/{resource_type}", resource_name)


def consumer_ids(group: str) -> str:
    """The registry of a group's consumers; below it one ephemeral znode for each."""
    return f"{child(CONSUMERS, group)}/ids"


def consumer_offset(group: str, topic_name: str, number: int) -> str:
    """How far a group has read a partition."""
    return f"{child(child(CONSUMERS, group) + '/offsets', topic_name)}/{number}"


def consumer_owner(group: str, topic_name: str, number: int) -> str:
    """Which thread of which consumer reads a partition, ephemeral."""
    return f"{child(child(CONSUMERS, group) + '/owners', topic_name)}/{number}"
