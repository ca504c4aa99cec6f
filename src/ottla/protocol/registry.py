"""The APIs of the Kafka protocol: their keys, and the messages and versions of the implemented ones.

An API is declared in one module, `ottla.protocol.messages.<its key's name in lower case>`: its messages, and below them
its row, `SPEC = ApiSpec(...)`. There is a single declaration: `API` imports the module on the first lookup, so that a
tool only loads the messages that it uses. The APIs that a node serves are declared beside the handlers
(`server.wiring.apis`), and exactly these are advertised.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import IntEnum
from importlib import import_module

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


class ApiSpec:
    """One API, declared below its messages.

    Versions `min_version` to `max_version` are served and advertised in ApiVersions.
    """

    __slots__ = ("flexible_from", "key", "max_version", "min_version", "name", "request", "response")

    def __init__(
        self,
        key: ApiKey,
        request: type,
        response: type,
        *,
        max_version: int | None = None,
    ) -> None:
        schema = schema_of(request)
        self.key = key
        self.name = request.__name__.removesuffix("Request")
        self.request = request
        self.response = response
        self.min_version = schema.versions.low
        self.max_version = schema.versions.high if max_version is None else max_version
        self.flexible_from = schema.flexible_from

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
    """Specs by key, each loaded once; iterating loads the messages of all APIs."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[int, ApiSpec] = {}

    def __getitem__(self, key: int) -> ApiSpec:
        """Raises KeyError for an API that is not implemented."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = _load(key)
        return found

    def __iter__(self) -> Iterator[int]:
        return (key for key in ApiKey if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _load(key: int) -> ApiSpec:
    try:
        module = f"{_MESSAGES}.{ApiKey(key).name.lower()}"
    except ValueError:
        raise KeyError(key) from None
    try:
        spec: ApiSpec = import_module(module).SPEC
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise KeyError(key) from None
    return spec


API: Mapping[int, ApiSpec] = _Apis()
"""Every implemented API, by key, in the order of keys as in ApiVersions."""


def spec_of_request(message: object) -> ApiSpec:
    """Return the API of a request message, by its declaring module; raises InvariantError for other messages."""
    cls = type(message)
    spec = getattr(sys.modules[cls.__module__], "SPEC", None)
    if not isinstance(spec, ApiSpec) or spec.request is not cls:
        raise InvariantError(f"{cls.__name__} is not a request")
    return spec
