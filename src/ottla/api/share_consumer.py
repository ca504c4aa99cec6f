"""`ShareConsumer`: takes records of topics as a member of a share group, a queue of jobs (KIP-932).

    with ShareConsumer("localhost:9092", {"group.id": "workers"}, topics="jobs") as worker:
        for job in worker:
            if not do(job.value):
                worker.release(job)

Invariants: a record is accepted when the caller requests more records, commits, or leaves the `with` block without an
exception, unless the caller has released or rejected it. Other records are released: those that were not returned, and
those that caused an exception. Acknowledgements are sent with the next request for records, by `commit` and at the end.

Built on confluent-kafka, which has no renewal of locks yet. Not thread-safe, except for `stop`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic

from ottla.api.errors import ClientClosed, UndecodableRecord, library_error
from ottla.api.forks import ended_in_children
from ottla.api.messages import Record
from ottla.api.records import RK, RV, Deserializer, deserialize
from ottla.api.settings import Config, read_settings
from ottla.client.librdkafka.share_member import Acknowledgement, ShareMember
from ottla.client.wire.time_limit import require_seconds
from ottla.common.errors import ErrorCode, KafkaError

POLL_S = 0.1
"""Timeout of library calls, which cannot be interrupted: short, so that Ctrl-C and `stop` are handled."""


class Job(Record[RK, RV]):
    """A record that was delivered to a member of a share group."""

    __slots__ = ()

    @property
    def delivery_count(self) -> int:
        """Number of deliveries of the record, including this one."""
        return int(self.message.delivery_count() or 1)


class ShareConsumer(Generic[RK, RV]):
    """See the module. A context manager that acknowledges and leaves the group.

    `topics`: a name or names. Without deserializers, keys and values are bytes.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        config: Config | None = None,
        *,
        topics: str | Iterable[str] = (),
        key_deserializer: Deserializer[RK] | None = None,
        value_deserializer: Deserializer[RV] | None = None,
    ) -> None:
        """Connects later. Raises KafkaError INVALID_CONFIG for an invalid property, INVALID_GROUP_ID without one."""
        settings = read_settings(bootstrap_servers, config, {})
        library = {"max.poll.records": settings.own["max.poll.records"], **settings.library}
        self._deserializers = (key_deserializer, value_deserializer)
        self._commit_timeout_s = settings.seconds("default.api.timeout.ms")
        self._member = ShareMember(library, as_error=library_error)
        self.group_id = str(library["group.id"])
        self._batch: list[Job[RK, RV]] = []
        self._acknowledgements: dict[int, Acknowledgement] = {}
        """By the place in the batch, of records that the caller has released or rejected."""
        self._places: dict[tuple[str, int, int], int] = {}
        self._current = self._returned = 0
        """Places of the first record that is being processed, and of the first that was not returned."""
        self._closed = self._stopped = False
        self._failure: KafkaError | None = None
        ended_in_children(self)
        if topics != ():  # an empty name is invalid, and rejected as such
            self.subscribe(topics)

    def __enter__(self) -> ShareConsumer[RK, RV]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._returned = self._current
        self.close()

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read these topics, instead of the previous ones. Raises KafkaError for an invalid name."""
        self._require_open()
        self._member.subscribe([topics] if isinstance(topics, str) else list(topics))

    # Reading

    def __iter__(self) -> Iterator[Job[RK, RV]]:
        """Iterate over records until `stop` or `close`."""
        self._require_open()
        while not self._stopped and not self._closed:
            if self.fill(POLL_S):
                yield self.take(1)[0]

    def poll(self, timeout_s: float) -> list[Job[RK, RV]]:
        """The available records; waits for the first one, empty after the timeout.

        They may be more than `max.poll.records`, since a batch is delivered as a whole. Raises KafkaError for permanent
        errors, such as TOPIC_AUTHORIZATION_FAILED, and UNSUPPORTED_VERSION if the cluster has no share groups. Raises
        ValueError for a `timeout_s` of NaN.
        """
        require_seconds(timeout_s)
        deadline = time.monotonic() + timeout_s
        left_s = timeout_s
        while not self.fill(min(POLL_S, left_s)):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._stopped:
                return []
        return self.take(None)

    def take(self, count: int | None) -> list[Job[RK, RV]]:
        """Return at most `count` fetched records, or all."""
        self._current = self._returned
        self._returned = len(self._batch) if count is None else min(len(self._batch), self._current + count)
        return self._batch[self._current : self._returned]

    def fill(self, wait_s: float) -> bool:
        """Fetch the next records if none are left; returned ones are acknowledged. Returns True if there are some."""
        self._require_open()
        if self._returned < len(self._batch):
            return True
        self._acknowledge()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._batch = self._decoded(self._member.poll(wait_s))
        self._places = {_place(job): number for number, job in enumerate(self._batch)}
        return bool(self._batch)

    def _decoded(self, messages: list[Any]) -> list[Job[RK, RV]]:
        """The records before the first that can't be decoded; that one and the following are released."""
        for number, message in enumerate(messages):
            try:
                deserialize(message, *self._deserializers)
            except Exception as error:
                self._failure = UndecodableRecord(message.topic(), message.partition(), message.offset(), error)
                self._member.acknowledge(messages[number:], Acknowledgement.RELEASE)
                del messages[number:]
        return [Job(message) for message in messages]

    # Acknowledgements

    def accept(self, job: Job[RK, RV]) -> None:
        """The record is done. This is the default; it takes back `release` and `reject`."""
        self._decide(job, Acknowledgement.ACCEPT)

    def release(self, job: Job[RK, RV]) -> None:
        """Deliver the record again, to any member, up to the group's `share.delivery.count.limit`."""
        self._decide(job, Acknowledgement.RELEASE)

    def reject(self, job: Job[RK, RV]) -> None:
        """Deliver the record no more: it can't be processed."""
        self._decide(job, Acknowledgement.REJECT)

    def _decide(self, job: Job[RK, RV], acknowledgement: Acknowledgement) -> None:
        self._require_open()
        place = self._places.get(_place(job))
        if place is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"the record of {job.topic}-{job.partition} at offset {job.offset} is not one of the last that this "
                "consumer returned, and was acknowledged",
            )
        self._acknowledgements[place] = acknowledgement

    def _acknowledge(self) -> None:
        """Acknowledge the batch: returned records as decided, the others are released."""
        batch, self._batch = self._batch, []
        decided, self._acknowledgements = self._acknowledgements, {}
        returned, self._current, self._returned = self._returned, 0, 0
        self._places = {}
        for number, job in enumerate(batch):
            default = Acknowledgement.ACCEPT if number < returned else Acknowledgement.RELEASE
            self._member.acknowledge([job.message], decided.get(number, default))

    def commit(self) -> None:
        """Acknowledge all returned records and wait until that is stored; records that were not returned are released.

        Raises KafkaError, such as INVALID_RECORD_STATE for a record whose lock has ended.
        """
        self._require_open()
        self._acknowledge()
        self._member.commit(self._commit_timeout_s)

    # Close

    def stop(self) -> None:
        """End iterations after their current record; from any thread, and from a signal handler."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """True if iterations are to end."""
        return self._stopped

    def close(self) -> None:
        """Acknowledge all returned records, release the others, and leave the group; idempotent."""
        if not self._closed:
            self._acknowledge()
            self._closed = self._stopped = True
            self._member.close()

    def end_in_child(self) -> Any:
        """See `forks`."""
        self._closed = self._stopped = True
        return self._member.consumer

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed("consumer")


def _place(job: Job[Any, Any]) -> tuple[str, int, int]:
    return job.topic, job.partition, job.offset
