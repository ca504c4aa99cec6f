"""`LibraryConsumer`: the consumer of confluent-kafka with Ottla's errors and time limits.

Invariant: no library call after `closed`, except by the thread that closes it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ottla.api.errors import ClientClosed, library_error
from ottla.api.settings import Settings
from ottla.client.librdkafka.rdkafka import leave_group, library_client
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SEEK_LIMIT_S = 5.0
SEEK_PAUSE_S = 0.01
NO_GROUP = "ottla-without-a-group"


class LibraryConsumer:
    """See the module. `kafka` is the module of the library, `consumer` its object."""

    def __init__(self, settings: Settings) -> None:
        """Connects later. Raises KafkaError INVALID_CONFIG for an invalid property."""
        import confluent_kafka

        properties = settings.library
        self.in_group = bool(properties.setdefault("group.id", ""))
        if not self.in_group:
            properties |= {"group.id": NO_GROUP, "enable.auto.commit": False}
        self.group_id = str(properties["group.id"])
        self.kafka = confluent_kafka
        self.settings = settings
        self.closed = False
        self.on_commit: Callable[[Any, list[Any]], object] | None = None
        """Receives the outcome of commits: an error, and the partitions."""
        self.consumer: Any = library_client(confluent_kafka.Consumer, {**properties, "on_commit": self._on_commit})

    def _on_commit(self, error: Any, results: list[Any]) -> None:
        if self.on_commit is not None:
            self.on_commit(error, results)

    def require_open(self) -> None:
        """Raise ClientClosed if the consumer is closed."""
        if self.closed:
            raise ClientClosed("consumer")

    def require_group(self, what: str) -> None:
        """Raises KafkaError INVALID_GROUP_ID for a consumer without a group."""
        if not self.in_group:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"{what} needs the property group.id")

    @contextlib.contextmanager
    def asking(self, subject: str) -> Iterator[None]:
        """A block with a library call, of which errors are raised as KafkaError."""
        self.require_open()
        try:
            yield
        except self.kafka.KafkaException as error:
            raise library_error(error.args[0], subject) from error

    @property
    def reset_offset(self) -> Any:
        """Start of a partition without a committed offset (`auto.offset.reset`), as the library names it."""
        if self.settings.library["auto.offset.reset"] in ("earliest", "smallest", "beginning"):
            return self.kafka.OFFSET_BEGINNING
        return self.kafka.OFFSET_END

    def partitions(self, keys: Iterable[TopicPartition]) -> list[Any]:
        """Partitions for the library."""
        return [self.kafka.TopicPartition(*key) for key in keys]

    def topic_names(self) -> Iterable[str]:
        """All topics of the cluster. Raises KafkaError."""
        try:
            metadata = self.consumer.list_topics(timeout=self.settings.seconds("default.api.timeout.ms"))
        except self.kafka.KafkaException as error:
            raise library_error(error.args[0], "the topics of the cluster") from error
        names: Iterable[str] = metadata.topics
        return names

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Seek; retried, since a newly assigned partition cannot be moved for a moment."""
        deadline = time.monotonic() + SEEK_LIMIT_S
        while True:
            try:
                self.consumer.seek(self.kafka.TopicPartition(*key, offset))
            except self.kafka.KafkaException as error:
                reason = error.args[0]
                if reason.code() != self.kafka.KafkaError._STATE or time.monotonic() > deadline:
                    raise library_error(reason, f"seek in {key[0]}-{key[1]}") from error
                time.sleep(SEEK_PAUSE_S)
            else:
                return

    def offsets_for_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with a timestamp at or after the given one, for each partition; None if there is none."""
        asked = [self.kafka.TopicPartition(*key, timestamp) for key, timestamp in timestamps_ms.items()]
        with self.asking("offsets for times"):
            found = self.consumer.offsets_for_times(asked, self.settings.seconds("default.api.timeout.ms"))
        raise_first(found, "offset for a time")
        return {(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in found}

    def bound(self, key: TopicPartition, which: int) -> int:
        """The first offset (`OFFSET_BEGINNING`), or the end offset (`OFFSET_END`).

        Not with librdkafka's query for both, which waits forever if the response is lost (its issue 4878).
        """
        found = self.offsets_for_times({key: which})[key]
        if found is None:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{key[0]}-{key[1]} returned no offset")
        return found

    def committed(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of the group; partitions without an offset are omitted."""
        self.require_group("committed offsets")
        asked = self.partitions(keys)
        with self.asking(f"offsets of group {self.group_id!r}"):
            found = self.consumer.committed(asked, self.settings.seconds("default.api.timeout.ms"))
        raise_first(found, f"offset of group {self.group_id!r}")
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def close(self, limit_s: float, *, is_subscribed: bool) -> None:
        """Close, and leave the group of a subscription. After `limit_s`, a thread continues in the background."""
        self.closed = True
        close = self.consumer.close
        if is_subscribed:
            instance_id = self.settings.library.get("group.instance.id")
            close = partial(leave_group, self.consumer, instance_id=instance_id)
        leaving = threading.Thread(target=self._end, args=(close,), name="leaving-the-group", daemon=True)
        leaving.start()
        leaving.join(limit_s)

    def _end(self, close: Callable[[], object]) -> None:
        try:
            close()
        except Exception:  # of a hook during the last commit
            logger.exception("a hook of the consumer of group %r failed during close", self.group_id)


def raise_first(results: Iterable[Any], what: str) -> None:
    """Raise the first error of several partitions, if any."""
    for each in results:
        if each.error is not None:
            raise library_error(each.error, f"{what} in {each.topic}-{each.partition}")
