"""Membership in a consumer group based on confluent-kafka, only for its partition assignment.

Invariants: nothing is fetched and no offset is read or committed. The library's heartbeats keep the member in the group
only while `poll` is called (`max.poll.interval.ms`). An assignment ends as soon as the group revokes it, also during
work: the caller must ensure by other means that two owners cause no harm.

Left out: records (`ottla.client.librdkafka.group_consumer`). Not thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from ottla.client.librdkafka.rdkafka import (
    RECONNECT_BACKOFF_MAX_MS,
    kafka_error,
    leave_group,
    library_client,
    require_group_id,
    require_text,
)
from ottla.client.wire.connection import library_servers
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.kafka.topic_partition import TopicPartition

SESSION_TIMEOUT_MS = 10_000
"""Time until the partitions of a killed member are reassigned."""
METADATA_INTERVAL_MS = 30_000
"""Time until new partitions are assigned."""
LEAVE_LIMIT_S = 5.0


class Membership:
    """One group member; it joins with `join` and leaves with `leave`."""

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        *,
        client_id: str = "ottla",
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """Sends no request before `join`. Raises KafkaError INVALID_GROUP_ID for an empty id."""
        require_group_id(group_id)
        self._group_id = group_id
        self._settings: dict[str, Any] = {
            "bootstrap.servers": library_servers(bootstrap_servers),
            "client.id": client_id,
            "group.id": group_id,
            "enable.auto.commit": False,
            "partition.assignment.strategy": "roundrobin",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 10,
            "topic.metadata.refresh.interval.ms": METADATA_INTERVAL_MS,
            "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS,
            "log_level": 0,
            **security.library,
        }
        require_text(self._settings.values())
        self._consumer: Any = None
        self._topics: list[str] = []
        self.assignment: frozenset[TopicPartition] | None = None
        """The assignment; None between two assignments. Each assignment is a new object, even if it is equal."""

    def join(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics. Raises KafkaError INVALID_CONFIG."""
        wanted = sorted(topics)
        if self._consumer is None:
            import confluent_kafka

            self._consumer = library_client(confluent_kafka.Consumer, self._settings)
        elif wanted == self._topics:
            return
        self._topics, self.assignment = wanted, None
        self._consumer.subscribe(wanted, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def poll(self, wait_s: float) -> None:
        """Process changes of the group, and wait for one. Raises KafkaError if the group rejects the member."""
        message = self._consumer.poll(wait_s)
        error = None if message is None else message.error()
        if error is not None and error.code() > 0:  # negative codes are the library's own, from which it recovers
            raise kafka_error(error, f"group {self._group_id!r}")

    def leave(self) -> None:
        """Give all partitions back; if the cluster does not respond in time, the session expires."""
        consumer, self._consumer, self.assignment = self._consumer, None, None
        if consumer is not None:
            leaving = threading.Thread(target=leave_group, args=(consumer,), name="leaving-the-group", daemon=True)
            leaving.start()
            leaving.join(LEAVE_LIMIT_S)

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.assign([])  # or the library would fetch from them
        if consumer is self._consumer:
            self.assignment = frozenset({(each.topic, each.partition) for each in partitions})

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        if consumer is self._consumer:
            self.assignment = None
