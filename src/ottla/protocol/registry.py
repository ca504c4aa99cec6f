"""The APIs of the Kafka protocol: their keys, and the messages and versions of the implemented ones.

The messages of an API are declared in one module, `ottla.protocol.messages.<its key's name in lower case>`, and below
them its row, `SPEC = ApiSpec(...)`. `API` imports the module on the first lookup, so that tools and brokers only load
the messages that they use. `VERSIONS` has the versions of all APIs, since a broker advertises them to its first client.
The APIs that a node serves are declared beside the handlers (`server.wiring.apis`), and exactly these are advertised.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import IntEnum
from importlib import import_module
from typing import Final

from ottla.common.errors import InvariantError
from ottla.protocol.schema import Versions, schema_of

_MESSAGES = "ottla.protocol.messages"


class ApiKey(IntEnum):
    """Every assigned API key of Apache Kafka, implemented here or not."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    UNREGISTER_CONTROLLER = 94


VERSIONS: Final[Mapping[int, Versions]] = {
    ApiKey.PRODUCE: Versions(0, 13),
    ApiKey.FETCH: Versions(0, 18),
    ApiKey.LIST_OFFSETS: Versions(0, 11),
    ApiKey.METADATA: Versions(0, 13),
    ApiKey.OFFSET_COMMIT: Versions(0, 10),
    ApiKey.OFFSET_FETCH: Versions(0, 10),
    ApiKey.FIND_COORDINATOR: Versions(0, 6),
    ApiKey.JOIN_GROUP: Versions(0, 9),
    ApiKey.HEARTBEAT: Versions(0, 4),
    ApiKey.LEAVE_GROUP: Versions(0, 5),
    ApiKey.SYNC_GROUP: Versions(0, 5),
    ApiKey.DESCRIBE_GROUPS: Versions(0, 6),
    ApiKey.LIST_GROUPS: Versions(0, 5),
    ApiKey.SASL_HANDSHAKE: Versions(0, 1),
    ApiKey.API_VERSIONS: Versions(0, 5),
    ApiKey.CREATE_TOPICS: Versions(2, 7),
    ApiKey.DELETE_TOPICS: Versions(1, 6),
    ApiKey.DELETE_RECORDS: Versions(0, 2),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Versions(0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Versions(0, 4),
    ApiKey.END_TXN: Versions(0, 5),
    ApiKey.WRITE_TXN_MARKERS: Versions(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: Versions(0, 6),
    ApiKey.DESCRIBE_ACLS: Versions(1, 3),
    ApiKey.CREATE_ACLS: Versions(1, 3),
    ApiKey.DELETE_ACLS: Versions(1, 3),
    ApiKey.DESCRIBE_CONFIGS: Versions(1, 4),
    ApiKey.ALTER_CONFIGS: Versions(0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Versions(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Versions(1, 5),
    ApiKey.SASL_AUTHENTICATE: Versions(0, 2),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: Versions(1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Versions(1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Versions(1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Versions(1, 3),
    ApiKey.DELETE_GROUPS: Versions(0, 3),
    ApiKey.ELECT_LEADERS: Versions(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0),
    ApiKey.OFFSET_DELETE: Versions(0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Versions(0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    ApiKey.VOTE: Versions(0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: Versions(0, 1),
    ApiKey.END_QUORUM_EPOCH: Versions(0, 1),
    ApiKey.DESCRIBE_QUORUM: Versions(0, 2),
    ApiKey.ALTER_PARTITION: Versions(2, 3),
    ApiKey.UPDATE_FEATURES: Versions(0, 2),
    ApiKey.ENVELOPE: Versions(0, 0),
    ApiKey.FETCH_SNAPSHOT: Versions(0, 1),
    ApiKey.DESCRIBE_CLUSTER: Versions(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Versions(0, 0),
    ApiKey.BROKER_REGISTRATION: Versions(0, 4),
    ApiKey.BROKER_HEARTBEAT: Versions(0, 2),
    ApiKey.UNREGISTER_BROKER: Versions(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Versions(0, 0),
    ApiKey.LIST_TRANSACTIONS: Versions(0, 2),
    ApiKey.ALLOCATE_PRODUCER_IDS: Versions(0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Versions(0, 1),
    ApiKey.CONTROLLER_REGISTRATION: Versions(0, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Versions(0, 0),
    ApiKey.PUSH_TELEMETRY: Versions(0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Versions(0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Versions(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: Versions(1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: Versions(1, 1),
    ApiKey.SHARE_FETCH: Versions(1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: Versions(1, 2),
    ApiKey.ADD_RAFT_VOTER: Versions(0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Versions(0, 0),
    ApiKey.UPDATE_RAFT_VOTER: Versions(0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: Versions(0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Versions(0, 1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Versions(0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Versions(0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Versions(0, 0),
    ApiKey.UNREGISTER_CONTROLLER: Versions(0, 0),
}
"""Served and advertised versions of every implemented API, by key, in the order of keys as in ApiVersions.

These are the versions that the request declares, except InitProducerId 6, which belongs to two-phase commit.
"""


def api_name(key: ApiKey) -> str:
    """Kafka's name of an API, as in `CreateTopics`."""
    return key.name.title().replace("_", "")


class ApiSpec:
    """One API, declared below its messages.

    Versions `min_version` to `max_version` are served and advertised in ApiVersions.
    """

    __slots__ = ("flexible_from", "key", "max_version", "min_version", "name", "request", "response")

    def __init__(self, key: ApiKey, request: type, response: type) -> None:
        self.key = key
        self.name = api_name(key)
        self.request = request
        self.response = response
        self.min_version, self.max_version = VERSIONS[key]
        self.flexible_from = schema_of(request).flexible_from

    @property
    def versions(self) -> Versions:
        """The served versions."""
        return Versions(self.min_version, self.max_version)

    def supports(self, version: int) -> bool:
        """Return whether `version` is served."""
        return self.min_version <= version <= self.max_version

    def request_header_version(self, version: int) -> int:
        """Return 2 with a tag section, 1 without (KIP-482); also for unsupported versions."""
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """Return 1 with a tag section, 0 without; always 0 for ApiVersions (KIP-511)."""
        return 1 if version >= self.flexible_from and self.key is not ApiKey.API_VERSIONS else 0


class _Apis(Mapping[int, ApiSpec]):
    """Specs by key, each loaded once."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[int, ApiSpec] = {}

    def __getitem__(self, key: int) -> ApiSpec:
        """Raises KeyError for an API that is not implemented."""
        found = self._found.get(key)
        if found is None:
            if key not in VERSIONS:
                raise KeyError(key)
            found = self._found[key] = import_module(f"{_MESSAGES}.{ApiKey(key).name.lower()}").SPEC
        return found

    def __contains__(self, key: object) -> bool:
        return key in VERSIONS

    def __iter__(self) -> Iterator[int]:
        return iter(VERSIONS)

    def __len__(self) -> int:
        return len(VERSIONS)


API: Mapping[int, ApiSpec] = _Apis()
"""Every implemented API, by key, in the order of keys as in ApiVersions."""


def spec_of_request(message: object) -> ApiSpec:
    """Return the API of a request message, by its declaring module; raises InvariantError for other messages."""
    cls = type(message)
    spec = getattr(sys.modules[cls.__module__], "SPEC", None)
    if not isinstance(spec, ApiSpec) or spec.request is not cls:
        raise InvariantError(f"{cls.__name__} is not a request")
    return spec
