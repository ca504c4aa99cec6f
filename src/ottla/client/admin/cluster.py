"""`Cluster`: metadata, leader routing, offsets, raw fetches and administration over blocking connections.

    with Cluster("127.0.0.1:9092", client_id="me", timeout_s=30) as cluster:
        cluster.list_offsets({("topic", 0): EARLIEST_TIMESTAMP})

Invariants: connections are opened on first use, at most one per broker. A call ends within about `timeout_s` (a fetch:
plus its requested wait). Retriable failures (`RETRIABLE_ERRORS`, broken connections) are retried until then, with fresh
metadata and growing pauses. Changes are never sent twice, since the outcome of the first attempt may be unknown.

Left out: record decoding (`ottla.record`), group membership and producing (`client.librdkafka`). Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from ottla.client.admin import acls, admin_calls, cluster_admin, groups, quotas, transactions, users
from ottla.client.admin.acls import AclFilter
from ottla.client.admin.coordinators import CoordinatorType, find_coordinator
from ottla.client.wire import metadata_requests
from ottla.client.wire.broker_connections import BrokerConnections
from ottla.client.wire.connection import MAX_RESPONSE_BYTES, BrokerUnreachable, Connection
from ottla.client.wire.failure import TopicNotFound, TopicReplaced, response_error
from ottla.client.wire.model import (
    BrokerInfo,
    ClientQuota,
    ClusterBroker,
    ClusterInfo,
    CommittedOffset,
    ConfigEntry,
    ConfigOperation,
    FeatureInfo,
    FeatureUpdate,
    FetchResult,
    GroupDescription,
    GroupListing,
    LogDirectory,
    OffsetInfo,
    OngoingReassignment,
    Position,
    ProducerState,
    QuorumInfo,
    ResourceType,
    TopicInfo,
    TransactionDescription,
    TransactionFilters,
    TransactionListing,
)
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError
from ottla.common.kafka.acl import Acl
from ottla.common.kafka.ids import Uuid

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 30.0
FIRST_PAUSE_S = 0.02
MAX_PAUSE_S = 1.0
DEFAULT_FETCH_BYTES = 8 * 1024 * 1024

NOT_SENT_ERRORS = frozenset({ErrorCode.NOT_CONTROLLER})
"""Errors after which a change may be retried: the broker rejected it without any effect."""

NO_COORDINATOR_ERRORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
"""The same for a change of a group."""

NOT_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})
"""The same for a change of a partition."""

FENCE_ERRORS = NO_COORDINATOR_ERRORS | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""The same for the completion of a transaction, for which its coordinator may require a wait."""

DESCRIBED_PARTITIONS = 500
"""Partitions per DescribeProducers request."""


class Cluster:
    """A blocking client of one cluster; a context manager that closes its connections. Not thread-safe."""

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
        self._timeout_s = timeout_s
        self._recently_reachable = recently_reachable
        self._connections = BrokerConnections(bootstrap_servers, client_id, timeout_s, max_response_bytes, security)
        self._brokers: dict[int, BrokerInfo] = {}
        self._info: ClusterInfo | None = None
        self._topics: dict[str, TopicInfo] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; a later call opens them again."""
        self._connections.close()

    def forget_topics(self) -> None:
        """Drop cached topic metadata, in case that topics were deleted and created again in the meantime."""
        self._topics.clear()

    # Metadata

    def describe(self) -> ClusterInfo:
        """Cluster id, controller and live brokers. Raises BrokerUnreachable, KafkaError."""

        def attempt() -> ClusterInfo:
            self._refresh([])
            if self._info is None:
                raise response_error(ErrorCode.BROKER_NOT_AVAILABLE, "metadata")
            return self._info

        return self._retry(attempt)

    def topics(self) -> dict[str, TopicInfo]:
        """All topics of the cluster by name, sorted."""

        def attempt() -> dict[str, TopicInfo]:
            self._refresh(None)
            return {name: self._topics[name] for name in sorted(self._topics)}

        return self._retry(attempt)

    def topic(self, name: str) -> TopicInfo:
        """One topic, never auto-created. Raises TopicNotFound."""

        def attempt() -> TopicInfo:
            self._refresh([name])
            return self._topics[name]

        try:
            return self._retry(attempt)
        except TopicNotFound as error:
            raise metadata_requests.topic_not_found(self._any_connection(), name) from error

    # Offsets and records

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, isolation: str = "read_uncommitted"
    ) -> dict[tuple[str, int], OffsetInfo]:
        """The first offset with a timestamp at or after the given one, or a special offset, for each partition.

        `timestamps` maps (topic, partition) to milliseconds or EARLIEST_, LATEST_, MAX_TIMESTAMP. Raises TopicNotFound,
        KafkaError.
        """
        isolation_level = metadata_requests.isolation_level(isolation)
        return self._ask_leaders(
            timestamps, lambda connection, asked: metadata_requests.list_offsets(connection, asked, isolation_level)
        )

    def offsets_before(self, timestamps: Mapping[Position, int], max_count: int) -> dict[Position, list[int]]:
        """At most `max_count` offsets per partition, by segment time; see `metadata_requests.offsets_before`."""
        return self._ask_leaders(
            timestamps, lambda connection, asked: metadata_requests.offsets_before(connection, asked, max_count)
        )

    def epoch_ends(self, epochs: Mapping[Position, int]) -> dict[Position, int]:
        """The end offset of a leader epoch for each partition; NO_OFFSET if it is unknown.

        A larger offset that was read in this epoch or an earlier one has been truncated since (KIP-320). Raises
        TopicNotFound, KafkaError.
        """
        return self._ask_leaders(epochs, metadata_requests.epoch_ends)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        isolation: str = "read_uncommitted",
        topic_id: Uuid | None = None,
    ) -> FetchResult:
        """Stored batches from `offset`, raw; empty if there are none within `max_wait_ms`.

        Returns at least one complete batch, even if it is larger than `max_bytes` (KIP-74). With `topic_id`, another
        topic of the same name is not read. Raises KafkaError OFFSET_OUT_OF_RANGE, TopicNotFound, TopicReplaced.
        """
        isolation_level = metadata_requests.isolation_level(isolation)

        def attempt() -> FetchResult:
            connection = self._connection(self._leader(topic, partition))
            found = self._topics[topic].topic_id
            if topic_id is not None:
                if found != topic_id:
                    raise TopicReplaced(topic, topic_id, found)
                metadata_requests.require_fetch_by_id(connection)
            return metadata_requests.fetch(
                connection,
                metadata_requests.FetchPosition(topic, found, partition, offset),
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                isolation_level=isolation_level,
                timeout_s=self._timeout_s + max_wait_ms / 1000,
            )

        return self._retry(attempt)

    def fetch_several(
        self,
        offsets: Mapping[Position, int],
        *,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = 500,
        isolation: str = "read_uncommitted",
        topic_ids: Mapping[str, Uuid],
    ) -> dict[Position, FetchResult | KafkaError]:
        """The result of `fetch` or its error for each partition, from one leader after another, which share the wait.

        Nothing is retried, but metadata that may be outdated is refreshed at the next call. Raises BrokerUnreachable,
        KafkaError and TopicNotFound if that refresh fails.
        """
        results: dict[Position, FetchResult | KafkaError] = {}
        leaders: dict[int, list[metadata_requests.FetchPosition]] = {}
        missing = {topic for topic, _ in offsets} - self._topics.keys()
        if missing:
            self._refresh(sorted(missing))
        for key, offset in offsets.items():
            try:
                leader = self._leader(*key)
            except KafkaError as error:
                results[key] = error
                continue
            found = self._topics[key[0]].topic_id
            if found != topic_ids[key[0]]:
                results[key] = TopicReplaced(key[0], topic_ids[key[0]], found)
                continue
            position = metadata_requests.FetchPosition(key[0], found, key[1], offset)
            leaders.setdefault(leader, []).append(position)
        wait_ms = max_wait_ms // max(1, len(leaders))
        limits = metadata_requests.FetchLimits(max_bytes, wait_ms, 1, metadata_requests.isolation_level(isolation))
        for leader, positions in leaders.items():
            try:
                results |= metadata_requests.fetch_several(
                    self._connection(leader), positions, limits, self._timeout_s + wait_ms / 1000
                )
            except (BrokerUnreachable, KafkaError) as error:
                failure = (
                    error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
                )
                results |= dict.fromkeys([(each.topic, each.partition) for each in positions], failure)
        if any(isinstance(result, KafkaError) for result in results.values()):
            self._topics.clear()
        return results

    # Administration

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Create a topic (-1: the broker's default) and wait until every partition has a leader.

        Raises KafkaError with the broker's message, for example TOPIC_ALREADY_EXISTS.
        """
        timeout_ms = self._timeout_ms()
        deadline = self._deadline()
        self._change(
            lambda connection: admin_calls.create_topic(
                connection,
                name,
                partitions,
                replication_factor,
                configs or {},
                timeout_ms,
                validate_only=validate_only,
            ),
            deadline=deadline,
        )
        if not validate_only:
            self._retry(lambda: self._require_leaders(name), deadline=deadline)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; every one is tried. Raises KafkaError that lists each failed one."""
        timeout_ms = self._timeout_ms()
        self._change(lambda connection: admin_calls.delete_topics(connection, names, timeout_ms))
        for name in names:
            self._topics.pop(name, None)

    def create_partitions(self, name: str, total_count: int) -> None:
        """Increase the number of partitions to `total_count`, and wait until every partition has a leader."""
        timeout_ms = self._timeout_ms()
        deadline = self._deadline()
        self._change(
            lambda connection: admin_calls.create_partitions(connection, name, total_count, timeout_ms),
            deadline=deadline,
        )
        self._retry(lambda: self._require_leaders(name, total_count), deadline=deadline)

    def describe_configs(
        self, resource_type: ResourceType, name: str, keys: Sequence[str] | None = None
    ) -> list[ConfigEntry]:
        """The configs of a topic or a broker (its node id as text), all or those of `keys`, sorted by name."""

        def attempt() -> list[ConfigEntry]:
            return admin_calls.describe_configs(self._connection_for(resource_type, name), resource_type, name, keys)

        return self._retry(attempt)

    def alter_configs(
        self,
        resource_type: ResourceType,
        name: str,
        changes: Sequence[tuple[str, ConfigOperation, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single configs (IncrementalAlterConfigs); others are unchanged. All changes are applied or none."""
        self._change(
            lambda connection: admin_calls.alter_configs(
                connection, resource_type, name, changes, validate_only=validate_only
            ),
            to=lambda: self._connection_for(resource_type, name),
        )

    def partition_sizes(self, topic: str) -> dict[int, int]:
        """Bytes on disk of each partition's leader; a partition without a leader is omitted."""

        def attempt() -> dict[int, int]:
            self._refresh([topic])
            leaders: dict[int, list[int]] = {}
            for partition in self._topics[topic].partitions:
                if partition.is_led:
                    leaders.setdefault(partition.leader, []).append(partition.index)
            sizes: dict[int, int] = {}
            for leader, partitions in leaders.items():
                for directory in admin_calls.log_directories(self._connection(leader), leader, {topic: partitions}):
                    sizes.update((index, size) for (_, index), size in directory.sizes.items())
            return sizes

        return self._retry(attempt)

    def log_directories(self) -> list[LogDirectory]:
        """All data directories of the live brokers with the size of each replica, by broker and path."""

        def attempt() -> list[LogDirectory]:
            self._refresh([])
            found = [
                directory
                for node_id in sorted(self._brokers)
                for directory in admin_calls.log_directories(self._connection(node_id), node_id)
            ]
            return sorted(found, key=lambda directory: (directory.node_id, directory.path))

        return self._retry(attempt)

    def move_to_directory(self, node_id: int, path: str, positions: Sequence[Position]) -> None:
        """Start moving replicas of a broker to another of its data directories; safe to repeat.

        Raises KafkaError that lists each rejected partition.
        """
        self._change(
            lambda connection: admin_calls.move_to_directory(connection, path, positions),
            to=lambda: self._connection(node_id),
        )

    def delete_records(self, offsets: Mapping[Position, int]) -> dict[Position, int]:
        """Delete the records below an offset (-1: below the high watermark) of each partition; safe to repeat.

        Returns the new log start offsets. Raises TopicNotFound, and KafkaError with every failed partition, for example
        OFFSET_OUT_OF_RANGE and POLICY_VIOLATION (a compacted topic).
        """
        starts: dict[Position, int] = {}

        def attempt() -> dict[Position, int]:
            for leader, keys in self._by_leader([key for key in offsets if key not in starts]).items():
                wanted = {key: offsets[key] for key in keys}
                starts.update(admin_calls.delete_records(self._connection(leader), wanted, self._timeout_ms()))
            return {key: starts[key] for key in offsets}

        return self._retry(attempt)

    # Brokers, elections, reassignments

    def brokers(self) -> list[ClusterBroker]:
        """All registered brokers by id, including fenced ones."""
        return self._retry(lambda: cluster_admin.describe_brokers(self._any_connection()))

    def quorum(self) -> QuorumInfo:
        """Leader, voters and observers of the metadata log."""
        return self._retry(lambda: cluster_admin.describe_quorum(self._any_connection()))

    def elect_leaders(self, positions: Sequence[Position] | None, *, unclean: bool = False) -> list[Position]:
        """Elect the preferred leaders of partitions (None: all), or with `unclean` any live replica.

        Returns the partitions with a new leader. Raises KafkaError that lists each failed election.
        """
        timeout_ms = self._timeout_ms()
        election = cluster_admin.UNCLEAN if unclean else cluster_admin.PREFERRED
        elected: list[Position] = []
        self._change(
            lambda connection: elected.extend(cluster_admin.elect_leaders(connection, positions, election, timeout_ms))
        )
        return elected

    def alter_reassignments(self, targets: Mapping[Position, Sequence[int] | None]) -> None:
        """Start reassignments, or cancel those with the target None. Raises KafkaError that lists each rejected one."""
        timeout_ms = self._timeout_ms()
        self._change(lambda connection: cluster_admin.alter_reassignments(connection, targets, timeout_ms))

    def reassignments(self) -> dict[Position, OngoingReassignment]:
        """All ongoing reassignments."""
        timeout_ms = self._timeout_ms()
        return self._retry(lambda: cluster_admin.list_reassignments(self._any_connection(), timeout_ms))

    def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that will not return."""
        self._change(lambda connection: cluster_admin.unregister_broker(connection, broker_id))

    # Features

    def features(self) -> dict[str, FeatureInfo]:
        """The finalized level of each feature by name, with the range that the connected broker supports."""
        return self._retry(lambda: cluster_admin.describe_features(self._any_connection()))

    def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Change feature levels, all or none. Raises KafkaError with the controller's reason."""
        timeout_ms = self._timeout_ms()
        self._change(
            lambda connection: cluster_admin.update_features(
                connection, updates, timeout_ms, validate_only=validate_only
            )
        )

    def client_quotas(self) -> list[ClientQuota]:
        """All client quotas."""
        return self._retry(lambda: quotas.describe_client_quotas(self._any_connection()))

    def alter_client_quotas(self, entity: quotas.Entity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of one entity, and remove those with the value None."""
        self._change(lambda connection: quotas.alter_client_quotas(connection, entity, changes))

    # Users

    def scram_users(self) -> list[users.ScramUser]:
        """All SCRAM credentials of the cluster, sorted by user."""
        return self._retry(lambda: users.describe_users(self._any_connection()))

    def put_user(self, name: str, mechanism: str, password: str, iterations: int = users.ITERATIONS[0]) -> None:
        """Add a user or change a password."""
        self._change(lambda connection: users.put_user(connection, name, mechanism, password, iterations))

    def remove_user(self, name: str, mechanism: str) -> None:
        """Remove the credential of one mechanism. Raises KafkaError RESOURCE_NOT_FOUND."""
        self._change(lambda connection: users.remove_user(connection, name, mechanism))

    def read(self, ask: Callable[[Connection], T]) -> T:
        """The result of a read request to any broker, for requests without a method here."""
        return self._retry(lambda: ask(self._any_connection()))

    def change(self, ask: Callable[[Connection], T]) -> T:
        """The same for a change, which is sent to the controller."""
        return self._change(ask)

    def acls(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that match the filter. Raises KafkaError SECURITY_DISABLED if brokers have no authorizer."""
        return self._retry(lambda: acls.describe_acls(self._any_connection(), wanted))

    def create_acls(self, added: Sequence[Acl]) -> None:
        """Add ACLs; existing ones are left unchanged."""
        self._change(lambda connection: acls.create_acls(connection, added))

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Remove the ACLs that match any of the filters; returns the removed ones."""
        return self._change(lambda connection: acls.delete_acls(connection, filters))

    # Groups

    def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """All groups of the cluster, sorted by id; filters are Kafka's names of states and types."""

        def attempt() -> list[GroupListing]:
            self._refresh([])
            found: dict[str, GroupListing] = {}
            for node_id in self._brokers:
                for listing in groups.list_groups(self._connection(node_id), states, types):
                    found[listing.group_id] = listing
            return [found[group_id] for group_id in sorted(found)]

        return self._retry(attempt)

    def describe_group(self, group_id: str) -> GroupDescription:
        """State and members of a group of either protocol. Raises KafkaError GROUP_ID_NOT_FOUND."""

        def attempt() -> GroupDescription:
            coordinator = self._coordinator(group_id)
            return groups.describe_group(self._connection(coordinator.node_id), group_id, coordinator)

        return self._retry(attempt)

    def group_offsets(self, group_id: str, *, stable: bool = False) -> dict[Position, CommittedOffset]:
        """All committed offsets of a group; empty for a group that does not exist.

        `stable`: wait for pending transactions that change an offset.
        """
        return self._retry(lambda: groups.fetch_offsets(self._group_connection(group_id), group_id, stable=stable))

    def group_operations(self, group_id: str) -> frozenset[int]:
        """Operations that this user may perform on a group, as ACL numbers. Raises KafkaError
        GROUP_AUTHORIZATION_FAILED."""
        return self._retry(lambda: groups.authorized_operations(self._group_connection(group_id), group_id))

    def commit_group_offsets(self, group_id: str, offsets: Mapping[Position, int]) -> None:
        """Set offsets of a group without members; a missing group is created. Safe to repeat.

        Raises KafkaError UNKNOWN_MEMBER_ID if the group has members.
        """
        self._retry(lambda: groups.commit_offsets(self._group_connection(group_id), group_id, offsets))

    def delete_group_offsets(self, group_id: str, positions: Iterable[Position]) -> None:
        """Delete committed offsets. Raises KafkaError GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC."""
        doomed = list(positions)
        self._retry(lambda: groups.delete_offsets(self._group_connection(group_id), group_id, doomed))

    def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        self._retry(
            lambda: groups.delete_group(self._retry(lambda: self._group_connection(group_id)), group_id),
            NO_COORDINATOR_ERRORS,
        )

    # Transactions

    def transactions(self, filters: TransactionFilters | None = None) -> list[TransactionListing]:
        """All transactional ids of the cluster that match the filters, sorted."""

        def attempt() -> list[TransactionListing]:
            self._refresh([])
            found: dict[str, TransactionListing] = {}
            for node_id in self._brokers:
                for listing in transactions.list_transactions(
                    self._connection(node_id), node_id, filters or TransactionFilters()
                ):
                    found[listing.transactional_id] = listing
            return [found[transactional_id] for transactional_id in sorted(found)]

        return self._retry(attempt)

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """A transactional id and its latest transaction. Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND."""

        def attempt() -> TransactionDescription:
            coordinator = self._coordinator(transactional_id, CoordinatorType.TRANSACTION)
            connection = self._connection(coordinator.node_id)
            return transactions.describe_transaction(connection, transactional_id, coordinator.node_id)

        return self._retry(attempt)

    def producers(
        self, positions: Sequence[Position], broker_id: int | None = None
    ) -> dict[Position, tuple[ProducerState, ...]]:
        """The active producers of each partition, as known to its leader or to the replica on `broker_id`.

        Raises TopicNotFound, KafkaError NOT_LEADER_OR_FOLLOWER for a broker without a replica.
        """
        found: dict[Position, tuple[ProducerState, ...]] = {}

        def attempt() -> dict[Position, tuple[ProducerState, ...]]:
            missing = [key for key in positions if key not in found]
            asked = self._by_leader(missing) if broker_id is None else {broker_id: missing}
            for node_id, keys in asked.items():
                for part in transactions.in_batches(keys, DESCRIBED_PARTITIONS):
                    states, error = transactions.describe_producers(self._broker_connection(node_id), part)
                    found.update(states)
                    if error is not None:
                        raise error
            return {key: found[key] for key in positions}

        return self._retry(attempt, RETRIABLE_ERRORS if broker_id is None else RETRIABLE_ERRORS - NOT_LEADER_ERRORS)

    def abort_transaction(
        self, position: Position, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker for a producer's transaction into one partition, bypassing its coordinator.

        Raises TopicNotFound, KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """

        def attempt() -> None:
            connection = self._retry(lambda: self._connection(self._leader(*position)))
            transactions.write_abort_marker(
                connection,
                position,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
            )

        self._retry(attempt, NOT_LEADER_ERRORS)

    def terminate_transaction(self, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
        """Abort the open transaction of a transactional id and fence its producers; returns after its completion.

        An unknown id is created. `timeout_ms` is the new transaction timeout of the id. Returns the producer id and
        epoch, which now belong to the caller.
        """

        def attempt() -> tuple[int, int]:
            connection = self.transaction_connection(transactional_id)
            return transactions.fence(connection, transactional_id, timeout_ms)

        return self._retry(attempt, FENCE_ERRORS)

    # Connections for callers with their own requests

    def transaction_connection(self, transactional_id: str) -> Connection:
        """A connection to the coordinator of a transactional id, valid until closed or NOT_COORDINATOR."""
        key = transactional_id, CoordinatorType.TRANSACTION
        return self._retry(lambda: self._connection(self._coordinator(*key).node_id))

    def leader_connection(self, position: Position) -> Connection:
        """A connection to the leader of a partition, likewise. Raises TopicNotFound."""
        return self._retry(lambda: self._connection(self._leader(*position)))

    # Routing

    def _coordinator(self, key: str, key_type: CoordinatorType = CoordinatorType.GROUP) -> BrokerInfo:
        coordinator = find_coordinator(self._any_connection(), key_type, key)
        if coordinator.node_id not in self._brokers:
            self._refresh([])
        self._brokers.setdefault(coordinator.node_id, coordinator)
        return coordinator

    def _group_connection(self, group_id: str) -> Connection:
        return self._connection(self._coordinator(group_id).node_id)

    def _timeout_ms(self) -> int:
        return max(1, int(self._timeout_s * 1000))

    def _deadline(self) -> float:
        """End of a call that starts now, on the monotonic clock."""
        return time.monotonic() + self._timeout_s

    def _retry(
        self,
        attempt: Callable[[], T],
        retriable: frozenset[ErrorCode] = RETRIABLE_ERRORS,
        deadline: float | None = None,
    ) -> T:
        """Run `attempt` until it succeeds, fails permanently, or the time is up; then raises its latest failure.

        A call with several steps passes its `deadline` to all of them.
        """
        if deadline is None:
            deadline = self._deadline()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except (TopicNotFound, TopicReplaced):
                raise
            except KafkaError as error:
                if error.code not in retriable or time.monotonic() + pause_s > deadline:
                    raise
            except BrokerUnreachable:
                # The cluster was never reachable: report it to the operator immediately.
                is_unknown = self._info is None and not self._recently_reachable
                if is_unknown or time.monotonic() + pause_s > deadline:
                    raise
            self._topics.clear()
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def _change(
        self,
        change: Callable[[Connection], T],
        to: Callable[[], Connection] | None = None,
        deadline: float | None = None,
    ) -> T:
        """Send a change to the controller (or to `to`), after a read has shown that the cluster responds."""
        until = self._deadline() if deadline is None else deadline

        def connect() -> Connection:
            self._refresh([])
            if to is not None:
                return to()
            controller = self._info.controller_id if self._info is not None else -1
            return self._connection(controller) if controller in self._brokers else self._any_connection()

        return self._retry(lambda: change(self._retry(connect, deadline=until)), NOT_SENT_ERRORS, until)

    def _connection_for(self, resource_type: ResourceType, name: str) -> Connection:
        """A connection for a resource: static configs of a broker are known only to it, all others to every broker."""
        if resource_type is not ResourceType.BROKER or not name:
            return self._any_connection()
        self._refresh([])
        return self._broker_connection(name)

    def _broker_connection(self, node_id: int | str) -> Connection:
        """A connection to the given broker. Raises KafkaError BROKER_ID_NOT_REGISTERED."""
        if str(node_id) not in map(str, self._brokers):
            self._refresh([])
        if str(node_id) not in map(str, self._brokers):
            raise self._no_such_broker(str(node_id))
        return self._connection(int(node_id))

    def _no_such_broker(self, name: str) -> KafkaError:
        known = ", ".join(str(node_id) for node_id in sorted(self._brokers))
        return KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {name!r} does not exist; live brokers: {known}")

    def _by_leader(self, keys: Iterable[tuple[str, int]]) -> dict[int, list[tuple[str, int]]]:
        keys = list(keys)
        unknown = sorted({topic for topic, _ in keys} - self._topics.keys())
        if unknown:
            self._refresh(unknown)
        leaders: dict[int, list[tuple[str, int]]] = {}
        for topic, partition in keys:
            leaders.setdefault(self._leader(topic, partition), []).append((topic, partition))
        return leaders

    def _ask_leaders(
        self,
        questions: Mapping[Position, int],
        ask: Callable[[Connection, Mapping[Position, int]], tuple[dict[Position, T], KafkaError | None]],
    ) -> dict[Position, T]:
        """The responses for each partition, in request order; failed ones are retried alone."""
        found: dict[Position, T] = {}

        def attempt() -> dict[Position, T]:
            missing = [key for key in questions if key not in found]
            for leader, keys in self._by_leader(missing).items():
                answers, error = ask(self._connection(leader), {key: questions[key] for key in keys})
                found.update(answers)
                if error is not None:
                    raise error
            return {key: found[key] for key in questions}

        return self._retry(attempt)

    def _leader(self, topic: str, partition: int) -> int:
        info = self._topics.get(topic)
        if info is None:
            self._refresh([topic])
            info = self._topics[topic]
        if not 0 <= partition < len(info.partitions):
            raise TopicNotFound(topic, partition)
        leader = info.partitions[partition].leader
        if leader < 0:
            raise response_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return leader

    def _require_leaders(self, topic: str, count: int = 1) -> None:
        self._topics.clear()
        try:
            self._refresh([topic])
        except TopicNotFound as error:  # not yet: this broker may lag behind the controller
            raise response_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r}") from error
        partitions = self._topics[topic].partitions
        if len(partitions) < count or any(partition.leader < 0 for partition in partitions):
            raise response_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r}")

    def _connection(self, node_id: int) -> Connection:
        connection = self._connections.open_to(node_id)
        if connection is not None:
            return connection
        broker = self._brokers.get(node_id)
        if broker is None:
            raise response_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}")
        return self._connections.to(node_id, (broker.host, broker.port))

    def _any_connection(self) -> Connection:
        return self._connections.to_any((broker.host, broker.port) for broker in self._brokers.values())

    def _refresh(self, topics: Sequence[str] | None) -> None:
        """Refresh the brokers and the given topics (None: all, an empty list: none)."""
        metadata = metadata_requests.metadata(self._any_connection(), topics)
        self._info = metadata.cluster
        self._brokers = {broker.node_id: broker for broker in metadata.cluster.brokers}
        if topics is None:
            self._topics.clear()
        self._topics.update((topic.name, topic) for topic in metadata.topics)
        if metadata.error is not None:
            raise metadata.error
