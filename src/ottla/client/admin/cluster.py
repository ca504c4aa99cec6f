"""`Cluster`: metadata, leader routing, offsets, raw fetches and administration over blocking connections.

    with Cluster("127.0.0.1:9092", client_id="me", timeout_s=30) as cluster:
        cluster.list_offsets({("topic", 0): EARLIEST_TIMESTAMP})

Invariants: nothing connects before the first use; at most one connection to a broker; every call ends within about
`timeout_s` (a fetch: plus the wait that it asks for), with an answer or an error. Failures that a client may answer by
trying again (`RETRIABLE_ERRORS`, broken connections) are, with fresh metadata and growing pauses, until the time is up;
administration that changes something is never sent twice, since its first outcome may be unknown.

Not included: decoding of records (`ottla.record`), group membership and producing (`client.librdkafka`). Not thread-safe.
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
"""What a change may be tried again after: the broker refused it untouched."""

NO_COORDINATOR_ERRORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
"""The same for a change of a group."""

NOT_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})
"""The same for a change of a partition."""

FENCE_ERRORS = NO_COORDINATOR_ERRORS | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""The same for the end of a transactional id's transaction, which its coordinator asks to wait for."""

DESCRIBED_PARTITIONS = 500
"""Of one DescribeProducers request."""


class Cluster:
    """A blocking client of one cluster; not thread-safe. A context manager that closes its connections."""

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
        for unreachable brokers. Raises OperatorError for addresses that cannot be parsed."""
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
        """Close every connection; a later call would open them again."""
        self._connections.close()

    def forget_topics(self) -> None:
        """Ask about topics anew: for whoever comes back after a while, and may mean another topic of the same name."""
        self._topics.clear()

    # Metadata

    def describe(self) -> ClusterInfo:
        """Cluster id, controller and live brokers, as of now. Raises BrokerUnreachable, KafkaError."""

        def attempt() -> ClusterInfo:
            self._refresh([])
            if self._info is None:
                raise response_error(ErrorCode.BROKER_NOT_AVAILABLE, "metadata")
            return self._info

        return self._retry(attempt)

    def topics(self) -> dict[str, TopicInfo]:
        """Every topic of the cluster by name, as of now, in the order of the names."""

        def attempt() -> dict[str, TopicInfo]:
            self._refresh(None)
            return {name: self._topics[name] for name in sorted(self._topics)}

        return self._retry(attempt)

    def topic(self, name: str) -> TopicInfo:
        """One topic, as of now; raises TopicNotFound. It is never created by asking."""

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
        """For each partition the first offset whose record is at least that old, or what a special timestamp names.

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
        """For each partition the offset where the log of that leader epoch ends; NO_OFFSET where that is not known.

        An offset that was read in that epoch or before and lies above was cut off since (KIP-320). Raises
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
        """Stored batches from `offset` on, raw; empty when none came within `max_wait_ms`.

        At least one whole batch comes even when it is larger than `max_bytes` (KIP-74). With `topic_id` nothing comes
        from another topic of the same name. Raises KafkaError OFFSET_OUT_OF_RANGE, TopicNotFound, TopicReplaced.
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
        """What `fetch` gives for each partition, or why not; from one leader after another, which share the wait.

        Nothing is tried again, but metadata that may be old is asked for anew at the next call. Raises
        BrokerUnreachable, KafkaError and TopicNotFound when that metadata does not come.
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

        Raises KafkaError with the broker's words, TOPIC_ALREADY_EXISTS among others.
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
        """Delete topics; every one is tried. Raises KafkaError that names each one that failed."""
        timeout_ms = self._timeout_ms()
        self._change(lambda connection: admin_calls.delete_topics(connection, names, timeout_ms))
        for name in names:
            self._topics.pop(name, None)

    def create_partitions(self, name: str, total_count: int) -> None:
        """Raise the number of partitions to `total_count`, and wait until every one has a leader."""
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
        """The configs of a topic or a broker (its node id as text), all or those of `keys`, in order of their names."""

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
        """Change configs one by one (IncrementalAlterConfigs); what isn't named stays. All changes or none apply."""
        self._change(
            lambda connection: admin_calls.alter_configs(
                connection, resource_type, name, changes, validate_only=validate_only
            ),
            to=lambda: self._connection_for(resource_type, name),
        )

    def partition_sizes(self, topic: str) -> dict[int, int]:
        """Bytes on disk of each partition's leader; a partition without one is missing."""

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
        """Every data directory of every live broker, with the bytes of all replicas in it, by broker and path."""

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
        """Replicas of a broker begin to move to another of its data directories; safe to repeat.

        Raises KafkaError that names each partition that was refused.
        """
        self._change(
            lambda connection: admin_calls.move_to_directory(connection, path, positions),
            to=lambda: self._connection(node_id),
        )

    def delete_records(self, offsets: Mapping[Position, int]) -> dict[Position, int]:
        """Remove the records below an offset (-1: below the high watermark) of each partition; safe to repeat.

        Returns where each log begins now. Raises TopicNotFound, KafkaError with every partition that refused, among
        them OFFSET_OUT_OF_RANGE and POLICY_VIOLATION (a compacted topic).
        """
        starts: dict[Position, int] = {}

        def attempt() -> dict[Position, int]:
            for leader, keys in self._by_leader([key for key in offsets if key not in starts]).items():
                wanted = {key: offsets[key] for key in keys}
                starts.update(admin_calls.delete_records(self._connection(leader), wanted, self._timeout_ms()))
            return {key: starts[key] for key in offsets}

        return self._retry(attempt)

    # Brokers, elections, moves of replicas

    def brokers(self) -> list[ClusterBroker]:
        """Every registered broker, fenced ones too, by id."""
        return self._retry(lambda: cluster_admin.describe_brokers(self._any_connection()))

    def quorum(self) -> QuorumInfo:
        """Leader, voters and observers of the metadata log."""
        return self._retry(lambda: cluster_admin.describe_quorum(self._any_connection()))

    def elect_leaders(self, positions: Sequence[Position] | None, *, unclean: bool = False) -> list[Position]:
        """Give partitions (None: all) to their preferred leaders, or with `unclean` to any live replica.

        Returns those whose leader changed. Raises KafkaError that names each partition without success.
        """
        timeout_ms = self._timeout_ms()
        election = cluster_admin.UNCLEAN if unclean else cluster_admin.PREFERRED
        elected: list[Position] = []
        self._change(
            lambda connection: elected.extend(cluster_admin.elect_leaders(connection, positions, election, timeout_ms))
        )
        return elected

    def alter_reassignments(self, targets: Mapping[Position, Sequence[int] | None]) -> None:
        """Begin moves of replicas, or cancel those whose target is None. Raises KafkaError that names each refusal."""
        timeout_ms = self._timeout_ms()
        self._change(lambda connection: cluster_admin.alter_reassignments(connection, targets, timeout_ms))

    def reassignments(self) -> dict[Position, OngoingReassignment]:
        """Every move of replicas that is under way."""
        timeout_ms = self._timeout_ms()
        return self._retry(lambda: cluster_admin.list_reassignments(self._any_connection(), timeout_ms))

    def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that will not come back."""
        self._change(lambda connection: cluster_admin.unregister_broker(connection, broker_id))

    # Features

    def features(self) -> dict[str, FeatureInfo]:
        """The finalized level of each feature, and what the broker that answers supports, by name."""
        return self._retry(lambda: cluster_admin.describe_features(self._any_connection()))

    def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Raise or lower levels, all or none. Raises KafkaError with the controller's reason."""
        timeout_ms = self._timeout_ms()
        self._change(
            lambda connection: cluster_admin.update_features(
                connection, updates, timeout_ms, validate_only=validate_only
            )
        )

    def client_quotas(self) -> list[ClientQuota]:
        """The limits of users, client ids and addresses that are set."""
        return self._retry(lambda: quotas.describe_client_quotas(self._any_connection()))

    def alter_client_quotas(self, entity: quotas.Entity, changes: Mapping[str, float | None]) -> None:
        """Set limits of one entity, and remove those whose value is None."""
        self._change(lambda connection: quotas.alter_client_quotas(connection, entity, changes))

    # Users

    def scram_users(self) -> list[users.ScramUser]:
        """Every credential for SCRAM that the cluster has, by name of the user."""
        return self._retry(lambda: users.describe_users(self._any_connection()))

    def put_user(self, name: str, mechanism: str, password: str, iterations: int = users.ITERATIONS[0]) -> None:
        """Add a user, or give one another password."""
        self._change(lambda connection: users.put_user(connection, name, mechanism, password, iterations))

    def remove_user(self, name: str, mechanism: str) -> None:
        """Take the password for one mechanism away. Raises KafkaError RESOURCE_NOT_FOUND."""
        self._change(lambda connection: users.remove_user(connection, name, mechanism))

    def read(self, ask: Callable[[Connection], T]) -> T:
        """What any broker says, by a request that has no method here."""
        return self._retry(lambda: ask(self._any_connection()))

    def change(self, ask: Callable[[Connection], T]) -> T:
        """The same for a change, which the controller gets."""
        return self._change(ask)

    def acls(self, wanted: AclFilter) -> list[Acl]:
        """What matches the filter. Raises KafkaError SECURITY_DISABLED where brokers have no authorizer."""
        return self._retry(lambda: acls.describe_acls(self._any_connection(), wanted))

    def create_acls(self, added: Sequence[Acl]) -> None:
        """Add ACLs; those that are there stay."""
        self._change(lambda connection: acls.create_acls(connection, added))

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Remove what matches any of the filters; what was removed."""
        return self._change(lambda connection: acls.delete_acls(connection, filters))

    # Groups

    def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """Every group of the cluster in the order of the ids; filters are Kafka's names of states and types."""

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
        """All offsets that a group has committed; empty for a group that doesn't exist.

        `stable`: waits for transactions that are about to change one.
        """
        return self._retry(lambda: groups.fetch_offsets(self._group_connection(group_id), group_id, stable=stable))

    def group_operations(self, group_id: str) -> frozenset[int]:
        """What this user may do with a group, by the numbers of ACLs. Raises KafkaError GROUP_AUTHORIZATION_FAILED."""
        return self._retry(lambda: groups.authorized_operations(self._group_connection(group_id), group_id))

    def commit_group_offsets(self, group_id: str, offsets: Mapping[Position, int]) -> None:
        """Set offsets of a group without members; one that doesn't exist comes into being. Safe to repeat.

        Raises KafkaError UNKNOWN_MEMBER_ID when the group has members.
        """
        self._retry(lambda: groups.commit_offsets(self._group_connection(group_id), group_id, offsets))

    def delete_group_offsets(self, group_id: str, positions: Iterable[Position]) -> None:
        """Forget committed offsets. Raises KafkaError GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC."""
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
        """Every transactional id of the cluster that the filters let pass, in the order of the ids."""

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
        """The producers that each partition knows, as its leader or the replica on `broker_id` does.

        Raises TopicNotFound, KafkaError NOT_LEADER_OR_FOLLOWER for a broker that has no replica.
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
        """Write an abort marker for a producer's transaction into one partition, past its coordinator.

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
        """Abort what a transactional id has open and fence its producers; returns when the transaction has ended.

        An id that doesn't exist comes into being. `timeout_ms` is the id's transaction timeout from then on. Returns
        the producer id and epoch that are the caller's now.
        """

        def attempt() -> tuple[int, int]:
            connection = self.transaction_connection(transactional_id)
            return transactions.fence(connection, transactional_id, timeout_ms)

        return self._retry(attempt, FENCE_ERRORS)

    # For whoever speaks by himself

    def transaction_connection(self, transactional_id: str) -> Connection:
        """To the coordinator of a transactional id; good until it is closed or answers that it is not."""
        key = transactional_id, CoordinatorType.TRANSACTION
        return self._retry(lambda: self._connection(self._coordinator(*key).node_id))

    def leader_connection(self, position: Position) -> Connection:
        """To the leader of a partition, likewise. Raises TopicNotFound."""
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
        """When a call that begins now gives up, on the monotonic clock."""
        return time.monotonic() + self._timeout_s

    def _retry(
        self,
        attempt: Callable[[], T],
        retriable: frozenset[ErrorCode] = RETRIABLE_ERRORS,
        deadline: float | None = None,
    ) -> T:
        """Run `attempt` until it succeeds, fails for good, or the time is up; then its latest failure is raised.

        A call of several steps gives all of them its own `deadline`.
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
                # Before anybody had an answer there is nothing to hope for: tell the operator at once.
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
        """Send a change to the controller (or where `to` says), once a read has shown that the cluster answers."""
        until = self._deadline() if deadline is None else deadline

        def connect() -> Connection:
            self._refresh([])
            if to is not None:
                return to()
            controller = self._info.controller_id if self._info is not None else -1
            return self._connection(controller) if controller in self._brokers else self._any_connection()

        return self._retry(lambda: change(self._retry(connect, deadline=until)), NOT_SENT_ERRORS, until)

    def _connection_for(self, resource_type: ResourceType, name: str) -> Connection:
        """Static configs of a broker are known to that broker only; all others to every broker."""
        if resource_type is not ResourceType.BROKER or not name:
            return self._any_connection()
        self._refresh([])
        return self._broker_connection(name)

    def _broker_connection(self, node_id: int | str) -> Connection:
        """To one broker that the caller named. Raises KafkaError BROKER_ID_NOT_REGISTERED."""
        if str(node_id) not in map(str, self._brokers):
            self._refresh([])
        if str(node_id) not in map(str, self._brokers):
            raise self._no_such_broker(str(node_id))
        return self._connection(int(node_id))

    def _no_such_broker(self, name: str) -> KafkaError:
        known = ", ".join(str(node_id) for node_id in sorted(self._brokers))
        return KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {name!r}; live brokers: {known}")

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
        """The answer for each partition, in the order of the questions; those that failed are asked again alone."""
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
        except TopicNotFound as error:  # not here yet: the broker that answers may lag behind the controller
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
        """Ask for the brokers and the given topics (None: all of them, an empty list: none)."""
        metadata = metadata_requests.metadata(self._any_connection(), topics)
        self._info = metadata.cluster
        self._brokers = {broker.node_id: broker for broker in metadata.cluster.brokers}
        if topics is None:
            self._topics.clear()
        self._topics.update((topic.name, topic) for topic in metadata.topics)
        if metadata.error is not None:
            raise metadata.error
