"""A member of a share group (KIP-932) on confluent-kafka, with Ottla's errors.

Invariants: every record is acknowledged explicitly, and before the next `poll`. Acknowledgements are sent with the next
`poll`, by `commit` and by `close`. The broker releases records without an acknowledgement when the member leaves.

Left out: iteration and policies, which are those of the command line (`ottla share consume`) and of the API
(`ottla.api.share_consumer`). Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from ottla.client.librdkafka.rdkafka import (
    LibraryOutage,
    kafka_error,
    library_client,
    require_group_id,
    require_text,
)
from ottla.client.wire.outage import Notify
from ottla.common.errors import ErrorCode, KafkaError


class Acknowledgement(Enum):
    """Acknowledgement of a delivered record; the names are those of `confluent_kafka.AcknowledgeType`."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


class ShareMember:
    """See the module."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        notify: Notify | None = None,
        as_error: Callable[[Any, str], KafkaError] = kafka_error,
    ) -> None:
        """Connects later. `settings` have librdkafka's names. `notify` gets a message when the cluster becomes
        unreachable, and when records arrive again. `as_error` converts an error of the library.

        Raises KafkaError INVALID_CONFIG for a property that librdkafka rejects, INVALID_GROUP_ID for an empty id.
        """
        import confluent_kafka

        require_group_id(str(settings.get("group.id", "")))
        self._as_error = as_error
        self._types = {each: getattr(confluent_kafka.AcknowledgeType, each.name) for each in Acknowledgement}
        self._outage = LibraryOutage(notify)
        forced = {"share.acknowledgement.mode": "explicit", "error_cb": self._outage.on_error}
        try:
            self.consumer = library_client(confluent_kafka.ShareConsumer, {**settings, **forced})
        except ValueError as error:  # a property of other consumers
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error).rpartition(": ")[2]) from error

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read these topics, instead of the previous ones. Raises KafkaError for an invalid name."""
        from confluent_kafka import KafkaException

        require_text(topics)
        try:
            self.consumer.subscribe(list(topics))
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
        except KafkaException as error:
            raise self._as_error(error.args[0], "") from error

    def poll(self, wait_s: float) -> list[Any]:
        """The next messages with records; empty after `wait_s`. Raises KafkaError for an error that lasts."""
        from confluent_kafka import KafkaException

        try:
            messages = self.consumer.poll(wait_s)
        except KafkaException as error:
            raise self._as_error(error.args[0], "") from error
        records = []
        for message in messages:
            failure = message.error()
            if failure is None:
                records.append(message)
            elif failure.fatal() or not failure.retriable():
                raise self._as_error(failure, message.topic() or "")
        if records:
            self._outage.ended()
        return records

    def acknowledge(self, messages: Iterable[Any], acknowledgement: Acknowledgement) -> None:
        """Acknowledge messages of the last `poll`."""
        kind = self._types[acknowledgement]
        for message in messages:
            self.consumer.acknowledge(message, kind)

    def commit(self, timeout_s: float) -> None:
        """Send acknowledgements and wait until they are stored. Raises the first KafkaError of a partition."""
        from confluent_kafka import KafkaException

        try:
            results = self.consumer.commit_sync(timeout_s)
        except KafkaException as error:
            raise self._as_error(error.args[0], "acknowledgements") from error
        for partition, failure in results.items():
            if failure is not None:
                subject = f"acknowledgements of {partition.topic}-{partition.partition}"
                raise self._as_error(failure.args[0], subject) from failure

    def close(self) -> None:
        """Send acknowledgements and leave the group."""
        self.consumer.close()
