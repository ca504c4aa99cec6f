"""`Cluster`: a blocking client of one cluster, with a service for each subject of its administration.

    with Cluster("127.0.0.1:9092", client_id="me", timeout_s=30) as cluster:
        cluster.records.list_offsets({("topic", 0): EARLIEST_TIMESTAMP})

Services share connections, metadata and retries (`client.admin.router`). Results are immutable values, most of them
dataclasses of `client.wire.model`. A service is imported and created at its first use.

Left out: record decoding (`ottla.record`), group membership and producing (`client.librdkafka`). Not thread-safe.
"""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from ottla.client.admin.router import ClusterRouter
from ottla.client.wire.broker_connections import BrokerConnections
from ottla.client.wire.connection import MAX_RESPONSE_BYTES
from ottla.client.wire.failure import response_error
from ottla.client.wire.model import ClusterInfo
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.admin.acls import AclService
    from ottla.client.admin.brokers import BrokerService
    from ottla.client.admin.configs import ConfigService
    from ottla.client.admin.delegation_tokens import TokenService
    from ottla.client.admin.features import FeatureService
    from ottla.client.admin.groups import GroupService
    from ottla.client.admin.log_directories import LogDirectoryService
    from ottla.client.admin.quorum import MetadataQuorumService
    from ottla.client.admin.quotas import QuotaService
    from ottla.client.admin.reassignments import ReassignmentService
    from ottla.client.admin.records import RecordService
    from ottla.client.admin.topics import TopicService
    from ottla.client.admin.transactions import TransactionService
    from ottla.client.admin.users import UserService

DEFAULT_TIMEOUT_S = 30.0


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

    @cached_property
    def topics(self) -> TopicService:
        """Topics and their partitions."""
        from ottla.client.admin.topics import TopicService

        return TopicService(self._router)

    @cached_property
    def records(self) -> RecordService:
        """Records and offsets of partitions."""
        from ottla.client.admin.records import RecordService

        return RecordService(self._router)

    @cached_property
    def configs(self) -> ConfigService:
        """Configs of topics, brokers and groups."""
        from ottla.client.admin.configs import ConfigService

        return ConfigService(self._router)

    @cached_property
    def groups(self) -> GroupService:
        """Groups and their committed offsets."""
        from ottla.client.admin.groups import GroupService

        return GroupService(self._router)

    @cached_property
    def transactions(self) -> TransactionService:
        """Transactions, their producers and coordinators."""
        from ottla.client.admin.transactions import TransactionService

        return TransactionService(self._router)

    @cached_property
    def brokers(self) -> BrokerService:
        """Registered brokers."""
        from ottla.client.admin.brokers import BrokerService

        return BrokerService(self._router)

    @cached_property
    def log_directories(self) -> LogDirectoryService:
        """Data directories of the brokers."""
        from ottla.client.admin.log_directories import LogDirectoryService

        return LogDirectoryService(self._router)

    @cached_property
    def reassignments(self) -> ReassignmentService:
        """Reassignments, and elections of leaders."""
        from ottla.client.admin.reassignments import ReassignmentService

        return ReassignmentService(self._router)

    @cached_property
    def quorum(self) -> MetadataQuorumService:
        """The quorum of the metadata log."""
        from ottla.client.admin.quorum import MetadataQuorumService

        return MetadataQuorumService(self._router)

    @cached_property
    def features(self) -> FeatureService:
        """Features and their levels."""
        from ottla.client.admin.features import FeatureService

        return FeatureService(self._router)

    @cached_property
    def quotas(self) -> QuotaService:
        """Client quotas."""
        from ottla.client.admin.quotas import QuotaService

        return QuotaService(self._router)

    @cached_property
    def users(self) -> UserService:
        """SCRAM users."""
        from ottla.client.admin.users import UserService

        return UserService(self._router)

    @cached_property
    def acls(self) -> AclService:
        """ACLs."""
        from ottla.client.admin.acls import AclService

        return AclService(self._router)

    @cached_property
    def tokens(self) -> TokenService:
        """Delegation tokens."""
        from ottla.client.admin.delegation_tokens import TokenService

        return TokenService(self._router)
