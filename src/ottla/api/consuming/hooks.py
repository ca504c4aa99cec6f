"""Callbacks of a `Consumer` for rebalances and commits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

CommitHook = Callable[[Mapping[TopicPartition, int], KafkaError | None], object]


class ConsumerHooks:
    """The hooks by event ("assign", "revoke", "lost"), which receive the consumer, and the hook for commits."""

    def __init__(
        self,
        consumer: Any,
        rebalance_hooks: Mapping[str, Callable[[Any, list[TopicPartition]], object] | None],
        on_commit: CommitHook | None,
    ) -> None:
        self.is_running = False
        """True while a hook runs, so that the library waits for it."""
        self.on_commit = on_commit
        self._consumer = consumer
        self._rebalance_hooks = rebalance_hooks

    def call(self, event: str, keys: list[TopicPartition]) -> None:
        """Call the hook of a rebalance, if there is one."""
        called = self._rebalance_hooks[event]
        if called is not None:
            with self.running():
                called(self._consumer, sorted(keys))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A block in which a hook runs."""
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False
