"""Metadata, leaders and retries of a cluster. Coordinators: `client.admin.coordinators`.

The services of a `Cluster` share one `ClusterRouter`.

Invariants: connections are opened on first use, at most one per broker. A call ends within about `timeout_s` (a fetch:
plus its requested wait). Retriable failures (`RETRIABLE_ERRORS`, broken connections) are retried until then, with fresh
metadata and growing pauses. A change is sent again only after an error that proves it had no effect. A cluster that was
never reachable fails at once.

Left out: the requests of each subject (the other modules of this package).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.client.wire import metadata_requests
from ottla.client.wire.broker_connections import BrokerConnections
from ottla.client.wire.connection import BrokerUnreachable, Connection
from ottla.client.wire.failure import TopicNotFound, TopicReplaced, response_error
from ottla.client.wire.model import BrokerInfo, ClusterInfo, TopicInfo
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

T = TypeVar("T")

FIRST_PAUSE_S = 0.02
MAX_PAUSE_S = 1.0
RESPONSE_MARGIN_S = 5.0

REJECTED_ERRORS = frozenset({ErrorCode.NOT_CONTROLLER})
"""Errors after which a change may be sent again: the broker rejected it without any effect."""

NO_COORDINATOR_ERRORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
"""The same for a change of a group."""

NOT_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})
"""The same for a change of a partition."""


def request_timeout_s(timeout_ms: int) -> float:
    """Longer than the broker's timeout, so that the broker responds with the reason."""
    return timeout_ms / 1000 + RESPONSE_MARGIN_S


class ClusterRouter:
    """See the module. Not thread-safe."""

    def __init__(self, connections: BrokerConnections, timeout_s: float, *, recently_reachable: bool) -> None:
        self.timeout_s = timeout_s
        self.brokers: dict[int, BrokerInfo] = {}
        """Live brokers by id, as of the latest `refresh`."""
        self.topics: dict[str, TopicInfo] = {}
        """Cached topics by name."""
        self.info: ClusterInfo | None = None
        self._connections = connections
        self._recently_reachable = recently_reachable

    def close(self) -> None:
        """Close all connections; a later call opens them again."""
        self._connections.close()

    def timeout_ms(self) -> int:
        """The time for a call, as brokers take it in requests."""
        return max(1, int(self.timeout_s * 1000))

    def deadline(self) -> float:
        """End of a call that starts now, on the monotonic clock."""
        return time.monotonic() + self.timeout_s

    def retry(
        self,
        attempt: Callable[[], T],
        retriable: frozenset[ErrorCode] = RETRIABLE_ERRORS,
        deadline: float | None = None,
    ) -> T:
        """Run `attempt` until it succeeds, fails permanently, or the time is up; then raises its latest failure.

        A call with several steps passes its `deadline` to all of them.
        """
        if deadline is None:
            deadline = self.deadline()
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
                is_unknown = self.info is None and not self._recently_reachable
                if is_unknown or time.monotonic() + pause_s > deadline:
                    raise
            self.topics.clear()
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def change(
        self,
        change: Callable[[Connection], T],
        to: Callable[[], Connection] | None = None,
        deadline: float | None = None,
    ) -> T:
        """Send a change to the controller (or to `to`), after a read has shown that the cluster responds."""
        until = self.deadline() if deadline is None else deadline

        def connect() -> Connection:
            self.refresh([])
            if to is not None:
                return to()
            controller = self.info.controller_id if self.info is not None else -1
            return self.connection(controller) if controller in self.brokers else self.any_connection()

        return self.retry(lambda: change(self.retry(connect, deadline=until)), REJECTED_ERRORS, until)

    def refresh(self, topics: Sequence[str] | None, *, only_existing: bool = False) -> None:
        """Refresh the brokers and the given topics (None: all, an empty list: none).

        Raises the first error of a topic, unless `only_existing`.
        """
        metadata = metadata_requests.metadata(self.any_connection(), topics)
        self.info = metadata.cluster
        self.brokers = {broker.node_id: broker for broker in metadata.cluster.brokers}
        if topics is None:
            self.topics.clear()
        self.topics.update((topic.name, topic) for topic in metadata.topics)
        if metadata.error is not None and not only_existing:
            raise metadata.error

    def any_connection(self) -> Connection:
        """A connection to any broker. Raises BrokerUnreachable."""
        return self._connections.to_any((broker.host, broker.port) for broker in self.brokers.values())

    def connection(self, node_id: int) -> Connection:
        """A connection to a live broker. Raises KafkaError BROKER_NOT_AVAILABLE, BrokerUnreachable."""
        connection = self._connections.open_to(node_id)
        if connection is not None:
            return connection
        broker = self.brokers.get(node_id)
        if broker is None:
            raise response_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}")
        return self._connections.to(node_id, (broker.host, broker.port))

    def broker_connection(self, node_id: int | str) -> Connection:
        """A connection to the given broker. Raises KafkaError BROKER_ID_NOT_REGISTERED."""
        if str(node_id) not in map(str, self.brokers):
            self.refresh([])
        if str(node_id) not in map(str, self.brokers):
            raise self._no_such_broker(str(node_id))
        return self.connection(int(node_id))

    def _no_such_broker(self, name: str) -> KafkaError:
        known = ", ".join(str(node_id) for node_id in sorted(self.brokers))
        return KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {name!r} does not exist; live brokers: {known}")

    def leader(self, topic: str, partition: int) -> int:
        """The leader of a partition. Raises TopicNotFound, KafkaError LEADER_NOT_AVAILABLE."""
        info = self.topics.get(topic)
        if info is None:
            self.refresh([topic])
            info = self.topics[topic]
        if not 0 <= partition < len(info.partitions):
            raise TopicNotFound(topic, partition)
        leader = info.partitions[partition].leader
        if leader < 0:
            raise response_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return leader

    def by_leader(self, keys: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions by their leaders. Raises as `leader`."""
        keys = list(keys)
        unknown = sorted({topic for topic, _ in keys} - self.topics.keys())
        if unknown:
            self.refresh(unknown)
        leaders: dict[int, list[TopicPartition]] = {}
        for topic, partition in keys:
            leaders.setdefault(self.leader(topic, partition), []).append((topic, partition))
        return leaders

    def ask_brokers(
        self, ask: Callable[[Connection, int], Iterable[T]], key: Callable[[T], str | tuple[int, str]]
    ) -> list[T]:
        """The results of all live brokers, which are asked in turn, sorted by key; one for each key."""

        def attempt() -> list[T]:
            self.refresh([])
            found = {key(each): each for node_id in self.brokers for each in ask(self.connection(node_id), node_id)}
            return sorted(found.values(), key=key)

        return self.retry(attempt)

    def ask_leaders(
        self,
        questions: Mapping[TopicPartition, int],
        ask: Callable[[Connection, Mapping[TopicPartition, int]], tuple[dict[TopicPartition, T], KafkaError | None]],
    ) -> dict[TopicPartition, T]:
        """The responses for each partition, in request order; failed ones are retried alone."""
        found: dict[TopicPartition, T] = {}

        def attempt() -> dict[TopicPartition, T]:
            missing = [key for key in questions if key not in found]
            for leader, keys in self.by_leader(missing).items():
                answers, error = ask(self.connection(leader), {key: questions[key] for key in keys})
                found.update(answers)
                if error is not None:
                    raise error
            return {key: found[key] for key in questions}

        return self.retry(attempt)


class ClusterService:
    """Base of the services."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router
