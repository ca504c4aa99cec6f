"""`ConsumerMembership`: the subscription of a consumer and the rebalances of its group."""

from __future__ import annotations

import re
import time
from typing import Any

from ottla.api.consuming.commits import ConsumerCommits
from ottla.api.consuming.hooks import ConsumerHooks
from ottla.api.consuming.library import LibraryConsumer
from ottla.api.consuming.positions import ConsumerPositions
from ottla.api.topic_filter import TopicFilter, Topics
from ottla.client.librdkafka.rdkafka import require_text
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

REFRESH_MS = 300_000
"""Kafka's default of `metadata.max.age.ms`."""


class ConsumerMembership:
    """See the module."""

    def __init__(
        self,
        library: LibraryConsumer,
        positions: ConsumerPositions,
        commits: ConsumerCommits,
        hooks: ConsumerHooks,
        refresh_s: float,
    ) -> None:
        """`refresh_s`: interval in which a filter looks for new topics."""
        properties = library.settings.library
        self.is_subscribed = False
        self._library = library
        self._positions = positions
        self._commits = commits
        self._hooks = hooks
        self._cooperative = properties.get("group.protocol") == "consumer" or "cooperative" in str(
            properties.get("partition.assignment.strategy", "")
        )
        self._refresh_s = refresh_s
        self._filter: TopicFilter | None = None
        self._filtered: list[str] = []
        self._refresh_at = 0.0

    def subscribe(self, topics: Topics) -> None:
        """Subscribe to these topics, instead of the previous ones. Raises KafkaError."""
        if isinstance(topics, re.Pattern):
            topics = TopicFilter(topics)
        if isinstance(topics, TopicFilter):
            self._filter, self._filtered, self._refresh_at = topics, [], 0.0
            self.refresh_filter()
            return
        self._filter = None
        self._subscribe([topics] if isinstance(topics, str) else list(topics))

    def unsubscribe(self) -> None:
        """Forget the subscription, for an assignment by the caller."""
        self._filter = None
        self.is_subscribed = False

    def _subscribe(self, names: list[str]) -> None:
        require_text(names)
        for name in names:
            if name.startswith("^"):  # a regular expression for the library
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{name!r} is not a topic: subscribe to a TopicFilter instead",
                )
        self.is_subscribed = bool(names)
        consumer = self._library.consumer
        if not names:
            consumer.unsubscribe()
            return
        with self._library.asking(f"subscribing to {', '.join(map(repr, names))}"):
            consumer.subscribe(names, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def refresh_filter(self) -> None:
        """Subscribe to new topics of the filter, if it is time to look for them. Raises KafkaError."""
        if self._filter is None or time.monotonic() < self._refresh_at:
            return
        names = self._library.topic_names()
        self._refresh_at = time.monotonic() + self._refresh_s
        found = self._filter.chosen(names)
        if found != self._filtered:
            self._filtered = found
            self._subscribe(found)

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        positions = self._positions
        keys = [(each.topic, each.partition) for each in partitions]
        assigning = positions.assigning = dict.fromkeys(keys, self._library.kafka.OFFSET_INVALID)
        try:
            positions.owned |= set(keys)
            positions.reassigned = True
            self._call("assign", keys)
            for each in partitions:
                each.offset = assigning[each.topic, each.partition]
        finally:
            positions.assigning = None
        consumer = self._library.consumer
        (consumer.incremental_assign if self._cooperative else consumer.assign)(partitions)

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        self._give_up("revoke", partitions)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        self._give_up("lost", partitions)

    def _give_up(self, event: str, partitions: list[Any]) -> None:
        keys = [(each.topic, each.partition) for each in partitions]
        self._commits.store_done()
        try:
            self._call(event, keys)
        finally:
            self._positions.revoke(keys)

    def _call(self, event: str, keys: list[TopicPartition]) -> None:
        if not self._library.closed:
            self._hooks.call(event, keys)
