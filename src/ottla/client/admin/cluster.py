"""`Cluster`: a blocking client of one cluster, with a service for each subject of its administration.

    with Cluster("127.0.0.1:9092", client_id="me", timeout_s=30) as cluster:
        cluster.records.list_offsets({("topic", 0): EARLIEST_TIMESTAMP})

Services share connections, metadata and retries (`client.admin.router`). Results are immutable values, most of them
dataclasses of `client.wire.model`. A service is imported and created at its first use.

Left out: record decoding (`ottla.record`), group membership and producing (`client.librdkafka`). Not thread-safe.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.client.admin.router import ClusterRouter
from ottla.client.wire.broker_connections import BrokerConnections
from ottla.client.wire.connection import MAX_RESPONSE_BYTES
from ottla.client.wire.failure import response_error
from ottla.client.wire.model import ClusterInfo
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.admin.acls import AclService
    from ottla.client.admin.activity import ActivityService
    from ottla.client.admin.brokers import BrokerService
    from ottla.client.admin.client_metrics import ClientMetricsService
    from ottla.client.admin.configs import ConfigService
    from ottla.client.admin.delegation_tokens import TokenService
    from ottla.client.admin.features import FeatureService
    from ottla.client.admin.groups import GroupService
    from ottla.client.admin.log_directories import LogDirectoryService
    from ottla.client.admin.quorum import MetadataQuorumService
    from ottla.client.admin.quotas import QuotaService
    from ottla.client.admin.reassignments import ReassignmentService
    from ottla.client.admin.records import RecordService
    from ottla.client.admin.share_groups import ShareGroupAdminService
    from ottla.client.admin.topics import TopicService
    from ottla.client.admin.transactions import TransactionService
    from ottla.client.admin.users import UserService

DEFAULT_TIMEOUT_S = 30.0


def _service(module: str, kind: str) -> cached_property[Any]:
    """A service of a cluster, of this class and this module of the package."""
    return cached_property(
        lambda cluster: getattr(import_module(f"ottla.client.admin.{module}"), kind)(cluster._router)
    )


class Cluster:
    """See the module. A context manager that closes its connections."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "ottla",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        security: ClientSecurity = PLAINTEXT,
        recently_reachable: bool = False,
    ) -> None:
        """Connects lazily. `recently_reachable`: another task of this job just reached it, so the first call also waits
        for unreachable brokers. Raises OperatorError for malformed addresses."""
        connections = BrokerConnections(bootstrap_servers, client_id, timeout_s, max_response_bytes, security)
        self._router = ClusterRouter(connections, timeout_s, recently_reachable=recently_reachable)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; a later call opens them again."""
        self._router.close()

    def describe(self) -> ClusterInfo:
        """Cluster id, controller and live brokers. Raises BrokerUnreachable, KafkaError."""

        def attempt() -> ClusterInfo:
            self._router.refresh([])
            if self._router.info is None:
                raise response_error(ErrorCode.BROKER_NOT_AVAILABLE, "metadata")
            return self._router.info

        return self._router.retry(attempt)

    topics: cached_property[TopicService] = _service("topics", "TopicService")
    """Topics and their partitions."""
    records: cached_property[RecordService] = _service("records", "RecordService")
    """Records and offsets of partitions."""
    configs: cached_property[ConfigService] = _service("configs", "ConfigService")
    """Configs of topics, brokers, groups and client metrics subscriptions."""
    client_metrics: cached_property[ClientMetricsService] = _service("client_metrics", "ClientMetricsService")
    """Client metrics subscriptions."""
    groups: cached_property[GroupService] = _service("groups", "GroupService")
    """Groups and their committed offsets."""
    share_groups: cached_property[ShareGroupAdminService] = _service("share_groups", "ShareGroupAdminService")
    """Share groups and their start offsets."""
    transactions: cached_property[TransactionService] = _service("transactions", "TransactionService")
    """Transactions, their producers and coordinators."""
    brokers: cached_property[BrokerService] = _service("brokers", "BrokerService")
    """Registered brokers."""
    log_directories: cached_property[LogDirectoryService] = _service("log_directories", "LogDirectoryService")
    """Data directories of the brokers."""
    reassignments: cached_property[ReassignmentService] = _service("reassignments", "ReassignmentService")
    """Reassignments, and elections of leaders."""
    quorum: cached_property[MetadataQuorumService] = _service("quorum", "MetadataQuorumService")
    """The quorum of the metadata log."""
    features: cached_property[FeatureService] = _service("features", "FeatureService")
    """Features and their levels."""
    quotas: cached_property[QuotaService] = _service("quotas", "QuotaService")
    """Client quotas."""
    users: cached_property[UserService] = _service("users", "UserService")
    """SCRAM users."""
    acls: cached_property[AclService] = _service("acls", "AclService")
    """ACLs."""
    tokens: cached_property[TokenService] = _service("delegation_tokens", "TokenService")
    """Delegation tokens."""
    activity: cached_property[ActivityService] = _service("activity", "ActivityService")
    """Offsets, sizes and groups of all brokers, in one pass."""
