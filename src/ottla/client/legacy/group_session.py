"""Drives a consumer's `Membership` on a real or simulated ZooKeeper, over several sessions, on one loop.

It sends the requests of the membership in the current session, wakes it when a watch fires, and creates a new one for
a new session. A `Reader` is informed of its partitions before changes take effect, so that it may commit.

Invariants: after `lost` no earlier progress is committed. `may_read` becomes false as soon as the server may have
expired the session, by the local clock: a heartbeat counts from the time when it was sent, since a paused process does
not receive events.

Left out: reading, and Kafka offsets, which the reader manages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from ottla.client.legacy.assignment import ConsumerThread
from ottla.client.legacy.membership import (
    AnswerLost,
    Change,
    Children,
    CommitOffsets,
    FetchOffsets,
    Membership,
    OwnedStream,
    ReadRequest,
    Request,
    StartReading,
    Steps,
    Stop,
    WaitForChange,
)
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import Scheduler, TimerHandle
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.session import Code, ZooKeeperError, ZooKeeperSession

HEARTBEATS = 3
"""Heartbeats within the session timeout."""
LOST = frozenset({Code.CONNECTION_LOSS, Code.SESSION_EXPIRED, Code.OTHER})
"""Errors without an outcome: the call may have been executed."""

Done = Callable[[Any, KafkaError | None], None]
"""Called once, with the response or the error."""


class Reader(Protocol):
    """Reads partitions, and accesses Kafka offsets. It calls each `done` on the loop."""

    def before_start(
        self, consumer: str, assignment: Mapping[TopicPartition, ConsumerThread], done: Callable[[], None]
    ) -> None:
        """Announce the assignment of the group, before something is started."""
        ...

    def start(self, partitions: Mapping[TopicPartition, OwnedStream]) -> None:
        """Also read these partitions."""
        ...

    def before_stop(self, partitions: tuple[TopicPartition, ...], done: Callable[[], None]) -> None:
        """Announce that these partitions will be stopped; their progress may still be committed."""
        ...

    def stop(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
        """Stop reading these partitions; returns the next offset of those with progress."""
        ...

    def lost(self) -> None:
        """Stop reading everything: other consumers may own the partitions already."""
        ...

    def fetch_offsets(self, partitions: tuple[TopicPartition, ...], done: Done) -> None:
        """The offsets that the group has committed in Kafka, or a KafkaError."""
        ...

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], done: Done) -> None:
        """Commit in Kafka; the error is a KafkaError."""
        ...


class Participation:
    """See the module. `member` creates a membership for a session, under a unique name; all calls are on the loop."""

    def __init__(
        self,
        zookeeper: ZooKeeperSession,
        reader: Reader,
        member: Callable[[int], Membership],
        scheduler: Scheduler,
        monotonic: Callable[[], float],
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` is the session timeout (`zookeeper.session.timeout.ms`)."""
        self._zookeeper = zookeeper
        self._reader = reader
        self._make = member
        self._scheduler = scheduler
        self._monotonic = monotonic
        self._timeout_s = timeout_ms / 1000
        self._session = 0
        self._connected = False
        self._life = 0
        """Incremented with each session: responses for an older one are dropped."""
        self._member: Membership | None = None
        self._running: Steps | None = None
        self._wait: WaitForChange | None = None
        self._due: tuple[Steps, Callable[[], object]] | None = None
        """The next step, after its announcement."""
        self._announced = False
        self._timer: TimerHandle | None = None
        self._committing: tuple[Steps, Callable[[KafkaError | None], None]] | None = None
        self._commits: deque[tuple[Mapping[TopicPartition, int], Callable[[KafkaError | None], None]]] = deque()
        self._heard = float("-inf")
        self._left: Callable[[], None] | None = None

    def start(self) -> None:
        """Join the group as soon as ZooKeeper responds."""
        self._zookeeper.start(self)

    @property
    def may_read(self) -> bool:
        """True while the started partitions belong to this consumer; checked before records are returned."""
        return self._member is not None and self._monotonic() < self._heard + self._timeout_s

    @property
    def problem(self) -> Exception | None:
        """The error that prevents membership, if any."""
        return None if self._member is None else self._member.problem

    def commit(self, offsets: Mapping[TopicPartition, int], done: Callable[[KafkaError | None], None]) -> None:
        """Commit offsets, as soon as no rebalance is in progress.

        The error is the KafkaError of `Membership.commit`, or NETWORK_EXCEPTION if the outcome is unknown.
        """
        self._commits.append((offsets, done))
        self._proceed()

    def leave(self, done: Callable[[], None]) -> None:
        """Commit, release everything and end the session; without a connection the session expires."""
        self._left = done
        if self._member is None or not self._connected:
            self._end()
            return
        self._member.leave()
        self._proceed()

    # Session events

    def on_connected(self, session: int) -> None:
        """See `SessionListener`."""
        self._connected = True
        if self._member is not None and session == self._session:
            self._member.notify()
            self._proceed()
            return
        self._session = session
        self._life += 1
        self._heard = float("-inf")
        self._member = self._make(session)
        self._running = self._member.run()
        self._beat(self._life)
        self._step(self._running, None)

    def on_disconnected(self) -> None:
        """See `SessionListener`. Reading may continue as long as `may_read`."""
        self._connected = False
        if self._left is not None:
            self._end()

    def on_expired(self) -> None:
        """See `SessionListener`."""
        self._forget()
        if self._left is not None:
            self._end()

    def _forget(self) -> None:
        """Drop all state of the session."""
        self._life += 1
        self._member = self._running = self._wait = self._due = None
        self._cancel()
        self._reader.lost()
        failed = [done for _, done in self._commits]
        self._commits.clear()
        if self._committing is not None:
            failed.insert(0, self._committing[1])
            self._committing = None
        for done in failed:
            done(_over())

    def _beat(self, life: int) -> None:
        if life != self._life or self._member is None:
            return
        asked = self._monotonic()

        def answered(_: object, error: ZooKeeperError | None) -> None:
            if error is None and life == self._life:
                self._heard = asked

        self._zookeeper.get(paths.CONSUMERS, answered)
        self._scheduler.call_later(self._timeout_s / HEARTBEATS, self._beat, life)

    # The membership

    def _proceed(self) -> None:
        """Resume the waiting membership, if there is something to do."""
        if self._member is None or self._committing is not None or self._running is None:
            return
        if self._due is not None and self._announced:
            (steps, act), self._due = self._due, None
            self._step(steps, act())
        elif self._wait is None and self._due is None:
            return
        elif self._wait is not None and self._member.woken:
            self._wait = None
            self._cancel()
            self._step(self._running, None)
        elif self._commits:
            offsets, done = self._commits.popleft()
            steps = self._member.commit(offsets)
            self._committing = steps, done
            self._step(steps, None)

    def _woken(self) -> None:
        """A watch has fired, or the wait has ended."""
        if self._member is not None:
            self._member.notify()
            self._proceed()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self, steps: Steps, answer: object) -> None:
        """Pass a response or an error to the membership, and send its next request."""
        try:
            request = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
        except StopIteration:
            self._ended(steps, None)
        except AnswerLost:
            self._ended(steps, KafkaError(ErrorCode.NETWORK_EXCEPTION, "The outcome of the commit is unknown."))
        except KafkaError as error:
            self._ended(steps, error)
        else:
            self._ask(steps, request)

    def _ended(self, steps: Steps, error: KafkaError | None) -> None:
        if self._committing is not None and steps is self._committing[0]:
            done = self._committing[1]
            self._committing = None
            done(error)
            self._proceed()
        else:
            self._end()

    def _end(self) -> None:
        if self._left is not None:
            done, self._left = self._left, None
            self._forget()
            self._zookeeper.close(done)

    def _ask(self, steps: Steps, request: Request) -> None:
        life = self._life

        def answered(answer: Any, error: ZooKeeperError | KafkaError | None) -> None:
            if life != self._life:
                return
            if error is None:
                self._step(steps, "" if isinstance(request, Change) else answer)
            elif isinstance(error, KafkaError):
                self._step(steps, error)
            elif error.code in LOST:
                self._step(steps, AnswerLost())
            elif isinstance(request, Change):
                self._step(steps, error.code.value)
            else:
                refused = f"reading from ZooKeeper failed: {error}"
                self._step(steps, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, refused))

        if isinstance(request, WaitForChange):
            self._wait = request
            if request.limit_ms is not None:
                self._timer = self._scheduler.call_later(request.limit_ms / 1000, self._woken)
            self._proceed()
        elif isinstance(request, ReadRequest):
            self._zookeeper.get(request.path, answered, self._woken if request.watch else None)
        elif isinstance(request, Children):
            self._zookeeper.children(request.path, answered, self._woken)
        elif isinstance(request, Change):
            self._zookeeper.multi(request.operations, answered)
        elif isinstance(request, FetchOffsets):
            self._reader.fetch_offsets(request.partitions, answered)
        elif isinstance(request, CommitOffsets):
            if self.may_read:  # ZooKeeper rejects an expired session; Kafka does not know sessions
                self._reader.commit_offsets(request.offsets, answered)
            else:
                self._step(steps, _over())
        elif isinstance(request, StartReading):
            announce = partial(self._reader.before_start, *self._standing())
            self._announce(announce, steps, partial(self._reader.start, request.partitions))
        elif isinstance(request, Stop):
            announce = partial(self._reader.before_stop, request.partitions)
            self._announce(announce, steps, partial(self._reader.stop, request.partitions))

    def _standing(self) -> tuple[str, Mapping[TopicPartition, ConsumerThread]]:
        member = self._member
        return ("", {}) if member is None else (member.consumer, member.assignment)

    def _announce(
        self, announce: Callable[[Callable[[], None]], None], steps: Steps, act: Callable[[], object]
    ) -> None:
        """Announce a step, then execute it; offsets may be committed in between."""
        life = self._life

        def announced() -> None:
            if life == self._life:
                self._announced = True
                self._proceed()

        self._due, self._announced = (steps, act), False
        announce(announced)
        self._proceed()


def _over() -> KafkaError:
    return KafkaError(ErrorCode.ILLEGAL_GENERATION, "The session may have expired; others may own the partitions.")
