"""Differential cases of authorization: ACLs of several users, and permitted and denied requests of each API.

Nearly all requests change nothing, so that every user can send the same; created and deleted resources contain the user
name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from differential_data import UNKNOWN_ID
from differential_pair import Pair, TopicId, wait_for
from differential_records import batch
from differential_wire import User

PASSWORD = "of-a-user"
ANY, ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(1, 10)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS = range(10, 15)
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
THE_CLUSTER, WILDCARD = "kafka-cluster", "*"
CONFIG_TOPIC, CONFIG_BROKER, CONFIG_GROUP = 2, 4, 32

UNPRIVILEGED = User("nobody", PASSWORD)
READER = User("reader", PASSWORD)
WRITER = User("writer", PASSWORD)
NEAR, FAR = User("guest", PASSWORD), User("guest", PASSWORD, "127.0.0.2")
"""The same user, with more permissions from one address than from the other."""
MANAGER = User("manager", PASSWORD)
USERS = (UNPRIVILEGED, READER, WRITER, NEAR, FAR, MANAGER)
NAMES = sorted({user.name for user in USERS})

THERE = ("open-a", "open-b", "secret-a", "public", "other")
TOPICS = (*THERE, "open-none", "nowhere")
"""The last two topics do not exist."""
GROUPS = ("g-a", "g-b", "other")
TRANSACTIONAL_IDS = ("x-a", "y-a")
NEWEST_LEVEL = 33
MEMBER_ID = str(uuid.UUID(int=7 << 64 | 1))
NO_ID = uuid.UUID(int=0)
TIMEOUT_MS = 10_000

Row = tuple[str, str, int, dict[str, Any]]
"""Case, API, version, body."""


def _acl(user: str, kind: int, name: str, operation: int, *, pattern: int = LITERAL, **more: Any) -> dict[str, Any]:
    entry = {"resource_type": kind, "resource_name": name, "resource_pattern_type": pattern, "operation": operation}
    return {**entry, "principal": f"User:{user}", "host": WILDCARD, "permission_type": ALLOW, **more}


ACLS = [
    _acl("reader", TOPIC, "open", READ, pattern=PREFIXED),
    _acl("reader", TOPIC, "open-b", READ, permission_type=DENY),
    _acl("reader", TOPIC, "open-a", DESCRIBE_CONFIGS),
    _acl("reader", GROUP, "g-a", READ),
    _acl("reader", TRANSACTIONAL_ID, "x", DESCRIBE, pattern=PREFIXED),
    _acl("reader", CLUSTER, THE_CLUSTER, DESCRIBE),
    _acl("reader", USER, "User:writer", DESCRIBE_TOKENS),
    _acl("writer", TOPIC, "open-a", WRITE),
    _acl("writer", TOPIC, "open-a", ALTER),
    _acl("writer", TOPIC, "open-a", ALTER_CONFIGS),
    _acl("writer", TOPIC, "made-writer", CREATE, pattern=PREFIXED),
    _acl("writer", TOPIC, "doomed-writer", DELETE),
    _acl("writer", TOPIC, "open", DELETE, pattern=PREFIXED, permission_type=DENY),
    _acl("writer", TRANSACTIONAL_ID, "x", WRITE, pattern=PREFIXED),
    _acl("writer", GROUP, WILDCARD, READ),
    _acl("writer", GROUP, "g", DESCRIBE, pattern=PREFIXED, permission_type=DENY),
    _acl("writer", CLUSTER, THE_CLUSTER, DESCRIBE_CONFIGS),
    _acl("guest", TOPIC, "open-a", ALL, host="127.0.0.2"),
    _acl("guest", TOPIC, "open", READ, pattern=PREFIXED, host="127.0.0.1"),
    _acl("guest", TOPIC, "open-b", DESCRIBE, host="127.0.0.2", permission_type=DENY),
    _acl("guest", TOPIC, "other", READ, host="127.0.0.2/31"),
    _acl("guest", GROUP, WILDCARD, ALL, host="127.0.0.0/31"),
    _acl("guest", CLUSTER, THE_CLUSTER, ALL, host="10.0.0.0/8"),
    _acl("guest", CLUSTER, THE_CLUSTER, CREATE, host="127.0.0.2"),
    _acl("*", TOPIC, "public", DESCRIBE),
    _acl("*", TOPIC, "public", WRITE, host="127.0.0.2", permission_type=DENY),
    *(
        _acl("manager", kind, name, ALL)
        for kind, name in (
            *((each, WILDCARD) for each in (TOPIC, GROUP, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER)),
            (CLUSTER, THE_CLUSTER),
        )
    ),
    _acl("manager", TOPIC, "secret", ALL, pattern=PREFIXED, permission_type=DENY),
    _acl("manager", TRANSACTIONAL_ID, "y-a", DESCRIBE, permission_type=DENY),
]


def configs(names: list[str] = NAMES) -> dict[str, str]:
    """Returns the configs of both brokers: an authorizer, and a listener that knows the users."""
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in names)
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ASKING:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.asking.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        f"required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "of-all-nodes",
    }


def prepare(pair: Pair) -> None:
    """Create topics with one record each, groups with offsets, and then the ACLs, on both brokers."""
    newest = {"feature": "metadata.version", "max_version_level": NEWEST_LEVEL, "upgrade_type": 1}
    for side in pair.sides:  # ACLs of networks require it; a new Ottla cluster starts at an older one
        pair.request_one(side, "update_features", 2, {"feature_updates": [newest], "validate_only": False})
    pair.await_coordinators()
    pair.create(*THERE, *(f"{kind}-{name}" for name in NAMES for kind in ("doomed", "by-id")))
    for topic in THERE:
        pair.ask("fill", "produce", 12, _produce([topic]))
    for group in GROUPS:
        pair.ask("fill", "offset_commit", 9, _commit(group, [{"name": topic} for topic in THERE]))
    for transactional_id in TRANSACTIONAL_IDS:
        pair.ask("fill", "init_producer_id", 4, _producer(transactional_id))
    pair.ask("the ACLs", "create_acls", 3, {"creations": ACLS})
    pair.settle()
    for user in USERS:
        _await_acls(pair, user)


def _await_acls(pair: Pair, user: User) -> None:
    """Wait until `user` sees the public topic: its ACL is the last in the request except for the manager's."""
    with pair.acting(user):
        for side in pair.sides:
            wait_for(lambda side=side: "public" in _seen(pair, side), f"{side.name} has the ACLs")


def _seen(pair: Pair, side: Any) -> set[str]:
    return {topic["name"] for topic in pair.request_one(side, "metadata", 12, {"topics": None})["topics"]}


def _produce(topics: list[str], records: bytes | None = None, **more: Any) -> dict[str, Any]:
    data = [
        {
            "name": topic,
            "topic_id": TopicId(topic) if topic in THERE else NO_ID,
            "partition_data": [{"index": 0, "records": batch() if records is None else records}],
        }
        for topic in topics
    ]
    return {"acks": -1, "timeout": TIMEOUT_MS, "transactional_id": None, "topic_data": data, **more}


def _commit(group: str, topics: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    rows = [{**topic, "partitions": partitions} for topic in topics]
    return {"group_id": group, "member_id": "", "topics": rows, **more}


def _producer(transactional_id: str | None) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": TIMEOUT_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }


def _there() -> list[dict[str, Any]]:
    """Topics by id, and an unassigned id."""
    return [{"topic_id": each} for each in (*map(TopicId, THERE), UNKNOWN_ID)]


def rows(user: str) -> Iterator[Row]:
    """The requests of each user."""
    yield from _topics(user)
    yield from _records()
    yield from _groups()
    yield from _transactions()
    yield from _settings()
    yield from _security(user)
    yield from _cluster()
    yield from _changes(user)


def _topics(user: str) -> Iterator[Row]:
    named = [{"topic_id": NO_ID, "name": name} for name in TOPICS]
    asked = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    yield "by name", "metadata", 12, {"topics": named, **asked}
    yield "by name", "metadata", 8, {"topics": named, **asked, "include_cluster_authorized_operations": True}
    yield "all", "metadata", 12, {"topics": None, **asked}
    by_id = [{"topic_id": TopicId(name), "name": None} for name in THERE]
    yield "by id", "metadata", 12, {"topics": [*by_id, {"topic_id": UNKNOWN_ID, "name": None}], **asked}
    yield "by name", "describe_topic_partitions", 0, {"topics": [{"name": name} for name in TOPICS], "cursor": None}
    yield "all", "describe_topic_partitions", 0, {"topics": [], "cursor": None}
    yield "log dirs", "describe_log_dirs", 4, {"topics": [{"topic": name, "partitions": [0]} for name in TOPICS]}
    new = [
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for name in (f"made-{user}", "made-elsewhere", "open-new", "open-a")
    ]
    yield "validate only", "create_topics", 7, {"topics": new, "validate_only": True}
    grown = [{"name": name, "count": 3, "assignments": None} for name in TOPICS]
    yield "validate only", "create_partitions", 3, {"topics": grown, "timeout": TIMEOUT_MS, "validate_only": True}


def _records() -> Iterator[Row]:
    yield "by name", "produce", 12, _produce(list(TOPICS))
    yield "by id", "produce", 13, _produce(list(THERE))
    for topic in ("open-a", "other", "nowhere"):
        yield topic, "produce", 12, _produce([topic])
        for transactional_id in TRANSACTIONAL_IDS:
            records = batch(producer=(70, 0, 0), attributes=0x10)
            transactional = _produce([topic], records, transactional_id=transactional_id)
            yield f"{transactional_id} to {topic}", "produce", 12, transactional
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    asked = {"max_wait": 0, "min_bytes": 0, "max_bytes": 10_000, "session_id": 0, "session_epoch": -1}
    asked |= {"isolation_level": 0, "rack_id": "", "forgotten_topics_data": []}
    for replica in (-1, 5):
        named = [{"topic": name, "partitions": [partition]} for name in (TOPICS if replica < 0 else THERE)]
        yield f"by name, replica {replica}", "fetch", 12, {"replica_id": replica, "topics": named, **asked}
    by_id = [{**each, "partitions": [partition]} for each in _there()]
    yield "by id", "fetch", 16, {"topics": by_id, **asked}
    latest = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in TOPICS]
    yield "latest", "list_offsets", 7, {"replica_id": -1, "isolation_level": 0, "topics": latest}
    epochs = [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]} for name in TOPICS]
    for replica in (-1, 5):
        yield f"replica {replica}", "offset_for_leader_epoch", 4, {"replica_id": replica, "topics": epochs}
    first = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in TOPICS]
    yield "from 0", "delete_records", 2, {"topics": first, "timeout": TIMEOUT_MS}
    producers = [{"name": name, "partition_indexes": [0]} for name in TOPICS]
    yield "producers", "describe_producers", 0, {"topics": producers}


def _groups() -> Iterator[Row]:
    named = [{"name": name} for name in TOPICS]
    for group in GROUPS:
        yield group, "find_coordinator", 3, {"key": group, "key_type": 0}
        yield group, "offset_commit", 9, _commit(group, named)
        yield f"{group} by id", "offset_commit", 10, _commit(group, _there())
        some = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("other", "nowhere")]
        yield f"{group}, of topics that have none", "offset_delete", 0, {"group_id": group, "topics": some}
        member = {"group_id": group, "member_id": "m", "generation_id": 5, "protocol_type": None}
        yield group, "heartbeat", 4, member
        following = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
        yield group, "sync_group", 5, {**member, **following}
        protocols = [{"name": "range", "metadata": b""}]
        joining = {"session_timeout": 6_000, "rebalance_timeout": 6_000, "protocol_type": "consumer"}
        yield group, "join_group", 9, {**member, **joining, "protocols": protocols}
        yield group, "leave_group", 5, {"group_id": group, "members": [{"member_id": "m", "group_instance_id": None}]}
        beat = {"group_id": group, "member_id": MEMBER_ID, "member_epoch": 5, "topic_partitions": None}
        for topics in (None, ["open-a"], ["open-a", "other"]):
            yield f"{group}, {topics}", "consumer_group_heartbeat", 1, {**beat, "subscribed_topic_names": topics}
    yield "all", "find_coordinator", 4, {"key_type": 0, "coordinator_keys": list(GROUPS)}
    by_name = [{"name": name, "partition_indexes": [0]} for name in TOPICS]
    by_id = [{**each, "partition_indexes": [0]} for each in _there()]
    for version, topics in ((9, by_name), (9, None), (10, by_id), (10, None)):
        asked = [{"group_id": group, "topics": topics} for group in GROUPS]
        yield f"{'all' if topics is None else 'some'}", "offset_fetch", version, {"groups": asked}
    described = {"include_authorized_operations": True}
    yield "all", "describe_groups", 5, {"groups": list(GROUPS), **described}
    yield "all", "consumer_group_describe", 1, {"group_ids": list(GROUPS), **described}
    yield "all", "list_groups", 5, {"states_filter": [], "types_filter": []}
    yield "that are not there", "delete_groups", 2, {"groups_names": ["g-none", "none"]}


def _transactions() -> Iterator[Row]:
    identity = {"producer_id": 70, "producer_epoch": 0}
    yield "all", "find_coordinator", 4, {"key_type": 1, "coordinator_keys": list(TRANSACTIONAL_IDS)}
    yield "no id", "init_producer_id", 4, _producer(None)
    for each in TRANSACTIONAL_IDS:
        mine = {"transactional_id": each, **identity}
        yield each, "init_producer_id", 4, _producer(each)
        for topics in (["open-a"], ["open-a", "other"], ["open-a", "nowhere"]):
            named = [{"name": name, "partitions": [0]} for name in topics]
            yield f"{each}, {topics}", "add_partitions_to_txn", 3, {**mine, "topics": named}
        for group in GROUPS:
            yield f"{each}, {group}", "add_offsets_to_txn", 3, {**mine, "group_id": group}
            offsets = _commit(group, [{"name": name} for name in TOPICS], generation_id=-1, **mine)
            yield f"{each}, {group}", "txn_offset_commit", 3, offsets
        yield each, "end_txn", 3, {**mine, "committed": False}
    several = [
        {"transactional_id": each, **identity, "verify_only": True, "topics": [{"name": "open-a", "partitions": [0]}]}
        for each in TRANSACTIONAL_IDS
    ]
    yield "several", "add_partitions_to_txn", 5, {"transactions": several}
    yield "all", "describe_transactions", 0, {"transactional_ids": [*TRANSACTIONAL_IDS, "x-none", "none"]}
    shown = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": "[xy]-.*"}
    yield "some", "list_transactions", 2, shown
    marked = [{"name": "nowhere", "partition_indexes": [0]}]
    marker = {**identity, "transaction_result": False, "topics": marked, "coordinator_epoch": 0}
    yield "nowhere", "write_txn_markers", 1, {"markers": [marker]}


def _settings() -> Iterator[Row]:
    kinds = [*((CONFIG_TOPIC, name) for name in TOPICS), (CONFIG_BROKER, "1"), (CONFIG_BROKER, "")]
    kinds += [(CONFIG_GROUP, group) for group in GROUPS]
    names = {
        CONFIG_TOPIC: "retention.ms",
        CONFIG_BROKER: "log.cleaner.threads",
        CONFIG_GROUP: "consumer.session.timeout.ms",
    }
    values = {CONFIG_TOPIC: "90000", CONFIG_BROKER: "1", CONFIG_GROUP: "50000"}
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": [names[kind]]} for kind, name in kinds
    ]
    yield "all", "describe_configs", 4, {"resources": asked}
    for api, version, more in (("alter_configs", 2, {}), ("incremental_alter_configs", 1, {"config_operation": 0})):
        changed = [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": names[kind], "value": values[kind], **more}],
            }
            for kind, name in kinds
        ]
        yield "validate only", api, version, {"resources": changed, "validate_only": True}
    for types in ([], [CONFIG_TOPIC], [CONFIG_GROUP]):
        yield f"{types}", "list_config_resources", 1, {"resource_types": types}


def _security(user: str) -> Iterator[Row]:
    everything = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    everything |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    yield "all", "describe_acls", 3, everything
    yield "one", "create_acls", 3, {"creations": [_acl(f"friend-of-{user}", TOPIC, "friends", READ)]}
    mine = {**everything, "principal_filter": f"User:friend-of-{user}"}
    yield "none and one", "delete_acls", 3, {"filters": [mine, {**mine, "principal_filter": "User:none"}]}
    # Apache Kafka never responds to an unauthorized request, and requests all users by null.
    yield "all", "describe_user_scram_credentials", 0, {"users": []}
    yield "one", "describe_user_scram_credentials", 0, {"users": [{"name": "reader"}]}
    new = {"name": f"friend-of-{user}", "mechanism": 1, "iterations": 4_096, "salt": b"s" * 16}
    asked = {"deletions": [], "upsertions": [{**new, "salted_password": b"p" * 32}]}
    yield "upsert", "alter_user_scram_credentials", 0, asked
    gone = {"deletions": [{"name": "none", "mechanism": 1}], "upsertions": []}
    yield "delete", "alter_user_scram_credentials", 0, gone
    yield "all", "describe_delegation_token", 3, {"owners": None}
    for owner in NAMES:
        named = {"owners": [{"principal_type": "User", "principal_name": owner}]}
        yield f"of {owner}", "describe_delegation_token", 3, named
    yield "unknown", "renew_delegation_token", 2, {"hmac": b"none", "renew_period": -1}
    yield "unknown", "expire_delegation_token", 2, {"hmac": b"none", "expiry_time_period": -1}
    yield "all", "describe_client_quotas", 1, {"components": [], "strict": False}
    limit = {
        "entity": [{"entity_type": "user", "entity_name": user}],
        "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
    }
    yield "validate only", "alter_client_quotas", 1, {"entries": [limit], "validate_only": True}


def _cluster() -> Iterator[Row]:
    for version in (0, 2):
        yield "operations", "describe_cluster", version, {"include_cluster_authorized_operations": True}
    metadata_log = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    yield "all", "describe_quorum", 0, {"topics": metadata_log}
    level = {"feature": "metadata.version", "max_version_level": 99, "upgrade_type": 1}
    yield "validate only", "update_features", 2, {"feature_updates": [level], "validate_only": True}
    yield "unknown", "unregister_broker", 0, {"broker_id": 77}
    elected = [{"topic": name, "partitions": [0]} for name in TOPICS]
    yield "some", "elect_leaders", 2, {"election_type": 0, "topic_partitions": elected, "timeout": TIMEOUT_MS}
    moved = [{"name": name, "partitions": [{"partition_index": 0, "replicas": None}]} for name in TOPICS]
    yield "some", "alter_partition_reassignments", 1, {"topics": moved, "timeout": TIMEOUT_MS}
    yield "all", "list_partition_reassignments", 0, {"topics": None, "timeout": TIMEOUT_MS}
    placed = [{"path": "/no/such", "topics": [{"name": "open-a", "partitions": [0]}]}]
    yield "one", "alter_replica_log_dirs", 2, {"dirs": placed}
    voter = {"cluster_id": None, "voter_id": 9, "voter_directory_id": UNKNOWN_ID}
    yield "unknown", "remove_raft_voter", 0, voter


def _changes(user: str) -> Iterator[Row]:
    """Requests for new resources are last, because the brokers apply them with a delay and no other request may see
    them.
    """
    topic = {"name": f"made-{user}", "num_partitions": 1, "replication_factor": 1}
    yield "one", "create_topics", 7, {"topics": [topic], "validate_only": False}
    made = [{"topic_id": NO_ID, "name": f"{kind}-{user}-asked"} for kind in ("made", "auto")]
    yield "making", "metadata", 12, {"topics": made, "allow_auto_topic_creation": True}
    for owner in (None, user, "writer"):
        named = {"owner_principal_type": owner and "User", "owner_principal_name": owner}
        yield f"of {owner}", "create_delegation_token", 3, {**named, "renewers": [], "max_lifetime": -1}
    doomed = [f"doomed-{user}", "open-b", "secret-a", "nowhere"]
    if user == "manager":
        doomed.remove("open-b")
    yield "by name", "delete_topics", 5, {"topic_names": doomed, "timeout": TIMEOUT_MS}
    by_id = [{"topic_id": TopicId(name), "name": None} for name in (f"by-id-{user}", "secret-a")]
    by_id.append({"topic_id": UNKNOWN_ID, "name": None})
    yield "by id", "delete_topics", 6, {"topics": by_id, "timeout": TIMEOUT_MS}


# -- authentication ----------------------------------------------------------------------------------------------------

_HANDSHAKE = ("sasl_handshake", 1, {"mechanism": "PLAIN"})


def _shown(token: bytes, version: int = 2) -> tuple[str, int, dict[str, Any]]:
    return "sasl_authenticate", version, {"auth_bytes": token}


_RIGHT = _shown(f"\0reader\0{PASSWORD}".encode())
_VERSIONS = ("api_versions", 3, {"client_software_name": "software", "client_software_version": "1"})
_METADATA = ("metadata", 9, {"topics": [], "allow_auto_topic_creation": False})

LOGINS: dict[str, list[tuple[str, int, dict[str, Any]]]] = {
    **{f"unknown mechanism {name!r}": [("sasl_handshake", 1, {"mechanism": name})] for name in ("GSSAPI", "", "plain")},
    "unknown mechanism, version 0": [("sasl_handshake", 0, {"mechanism": "GSSAPI"})],
    "another after an unknown one": [("sasl_handshake", 1, {"mechanism": "GSSAPI"}), _HANDSHAKE],
    **{f"right, version {version}": [_HANDSHAKE, _shown(_RIGHT[2]["auth_bytes"], version)] for version in range(3)},
    **{f"wrong, version {version}": [_HANDSHAKE, _shown(b"\0reader\0wrong", version)] for version in range(3)},
    "unknown user": [_HANDSHAKE, _shown(b"\0stranger\0wrong")],
    "for himself": [_HANDSHAKE, _shown(f"reader\0reader\0{PASSWORD}".encode())],
    "for another": [_HANDSHAKE, _shown(f"manager\0reader\0{PASSWORD}".encode())],
    **{
        f"token {token!r}": [_HANDSHAKE, _shown(token)]
        for token in (
            b"",
            b"\0",
            b"\0\0",
            b"\0reader",
            b"\0reader\0",
            b"\0\0x",
            b"reader",
            b"\0reader\0x\0y",
            b"\xff\0a\0b",
        )
    },
    "a token first": [_RIGHT],
    "another request first": [_METADATA],
    "versions first": [_VERSIONS, _HANDSHAKE, _RIGHT, _METADATA],
    "versions twice": [_VERSIONS, _VERSIONS],
    "another request between": [_HANDSHAKE, _METADATA],
    "versions between": [_HANDSHAKE, _VERSIONS],
    "two handshakes": [_HANDSHAKE, _HANDSHAKE],
    "a token more": [_HANDSHAKE, _RIGHT, _RIGHT],
    "a handshake more": [_HANDSHAKE, _RIGHT, _HANDSHAKE, _METADATA],
    "right after wrong": [_HANDSHAKE, _shown(b"\0reader\0wrong"), _RIGHT],
}
"""Requests of a new connection, from the first one on."""
