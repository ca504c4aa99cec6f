"""A consumer's `Membership` on a real or simulated ZooKeeper, from session to session, on one loop.

It makes the machine's requests of the session that is there, wakes it when a watch tells something, and makes another
one for another session. Whoever reads is told what to read (`Reader`), and before that, so that he may commit.

Invariants: after `lost` nothing of before is committed. `may_read` is false from the moment on at which the server may
have given the session up, by this side's clock: a heartbeat of its own counts from when it was sent, since a process
that stood still hears of nothing.

Left out: who reads, and Kafka's offsets, which the reader keeps.
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
    Owned,
    Read,
    Request,
    Start,
    Steps,
    Stop,
    Wait,
)
from ottla.client.wire.model import Position
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Scheduler, TimerHandle
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.session import Code, ZooKeeperError, ZooKeeperSession

HEARTBEATS = 3
"""In the time after which a session is given up."""
LOST = frozenset({Code.CONNECTION_LOSS, Code.SESSION_EXPIRED, Code.OTHER})
"""What is no answer: the call may have been carried out."""

Done = Callable[[Any, KafkaError | None], None]
"""Told once: the answer, or the error."""


class Reader(Protocol):
    """Who reads partitions, and has Kafka's offsets. What it is asked with `done` it answers on the loop."""

    def before_start(
        self, consumer: str, assignment: Mapping[Position, ConsumerThread], done: Callable[[], None]
    ) -> None:
        """Tell whoever wants to know who of the group will read what, before something is started."""
        ...

    def start(self, partitions: Mapping[Position, Owned]) -> None:
        """Read these, too."""
        ...

    def before_stop(self, partitions: tuple[Position, ...], done: Callable[[], None]) -> None:
        """Tell whoever wants to know that these will be stopped; he may commit what was read of them."""
        ...

    def stop(self, partitions: tuple[Position, ...]) -> Mapping[Position, int]:
        """Read these no more; where to go on in those of which something was read."""
        ...

    def lost(self) -> None:
        """Read nothing more: others may read it already."""
        ...

    def fetch_offsets(self, partitions: tuple[Position, ...], done: Done) -> None:
        """What the group has committed in Kafka, or a KafkaError."""
        ...

    def commit_offsets(self, offsets: Mapping[Position, int], done: Done) -> None:
        """Commit in Kafka; the error is a KafkaError."""
        ...


class Participation:
    """See the module. `member` makes a machine for a session, under a name of its own; all belongs to the loop."""

    def __init__(
        self,
        zookeeper: ZooKeeperSession,
        reader: Reader,
        member: Callable[[int], Membership],
        scheduler: Scheduler,
        monotonic: Callable[[], float],
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` is what ZooKeeper gives a session (`zookeeper.session.timeout.ms`)."""
        self._zookeeper = zookeeper
        self._reader = reader
        self._make = member
        self._scheduler = scheduler
        self._monotonic = monotonic
        self._timeout_s = timeout_ms / 1000
        self._session = 0
        self._connected = False
        self._life = 0
        """Rises with each session: what was asked for another is answered to nobody."""
        self._member: Membership | None = None
        self._running: Steps | None = None
        self._wait: Wait | None = None
        self._due: tuple[Steps, Callable[[], object]] | None = None
        """What is done next, once it is announced."""
        self._announced = False
        self._timer: TimerHandle | None = None
        self._committing: tuple[Steps, Callable[[KafkaError | None], None]] | None = None
        self._commits: deque[tuple[Mapping[Position, int], Callable[[KafkaError | None], None]]] = deque()
        self._heard = float("-inf")
        self._left: Callable[[], None] | None = None

    def start(self) -> None:
        """Take part as soon as ZooKeeper answers."""
        self._zookeeper.start(self)

    @property
    def may_read(self) -> bool:
        """Whether what was started is still this consumer's; to be asked before records are given out."""
        return self._member is not None and self._monotonic() < self._heard + self._timeout_s

    @property
    def problem(self) -> Exception | None:
        """What keeps it from its part, if anything."""
        return None if self._member is None else self._member.problem

    def commit(self, offsets: Mapping[Position, int], done: Callable[[KafkaError | None], None]) -> None:
        """Write where the group goes on, as soon as no rebalance is under way.

        The error is the KafkaError of `Membership.commit`, or NETWORK_EXCEPTION where it is not known what was written.
        """
        self._commits.append((offsets, done))
        self._proceed()

    def leave(self, done: Callable[[], None]) -> None:
        """Commit, give everything up and end the session; without a connection it just goes."""
        self._left = done
        if self._member is None or not self._connected:
            self._end()
            return
        self._member.leave()
        self._proceed()

    # What the session tells

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
        """See `SessionListener`. What is read may be read on for as long as `may_read`."""
        self._connected = False
        if self._left is not None:
            self._end()

    def on_expired(self) -> None:
        """See `SessionListener`."""
        self._forget()
        if self._left is not None:
            self._end()

    def _forget(self) -> None:
        """Nothing of this session is its own any more."""
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

    # The machine

    def _proceed(self) -> None:
        """Go on where it waits, if there is something to do."""
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

    def _told(self) -> None:
        """A watch says so, or the time to wait is over."""
        if self._member is not None:
            self._member.notify()
            self._proceed()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self, steps: Steps, answer: object) -> None:
        """Give an answer, or throw it, and make the next request."""
        try:
            request = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
        except StopIteration:
            self._ended(steps, None)
        except AnswerLost:
            self._ended(steps, KafkaError(ErrorCode.NETWORK_EXCEPTION, "What became of the commit is not known."))
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
                refused = f"ZooKeeper does not tell what it has: {error}"
                self._step(steps, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, refused))

        if isinstance(request, Wait):
            self._wait = request
            if request.limit_ms is not None:
                self._timer = self._scheduler.call_later(request.limit_ms / 1000, self._told)
            self._proceed()
        elif isinstance(request, Read):
            self._zookeeper.get(request.path, answered, self._told if request.watch else None)
        elif isinstance(request, Children):
            self._zookeeper.children(request.path, answered, self._told)
        elif isinstance(request, Change):
            self._zookeeper.multi(request.operations, answered)
        elif isinstance(request, FetchOffsets):
            self._reader.fetch_offsets(request.partitions, answered)
        elif isinstance(request, CommitOffsets):
            if self.may_read:  # ZooKeeper refuses a session that is over; Kafka knows of none
                self._reader.commit_offsets(request.offsets, answered)
            else:
                self._step(steps, _over())
        elif isinstance(request, Start):
            announce = partial(self._reader.before_start, *self._standing())
            self._announce(announce, steps, partial(self._reader.start, request.partitions))
        elif isinstance(request, Stop):
            announce = partial(self._reader.before_stop, request.partitions)
            self._announce(announce, steps, partial(self._reader.stop, request.partitions))

    def _standing(self) -> tuple[str, Mapping[Position, ConsumerThread]]:
        member = self._member
        return ("", {}) if member is None else (member.consumer, member.assignment)

    def _announce(
        self, announce: Callable[[Callable[[], None]], None], steps: Steps, act: Callable[[], object]
    ) -> None:
        """Have it announced what is about to be done, and do it then; until then there is time for commits."""
        life = self._life

        def announced() -> None:
            if life == self._life:
                self._announced = True
                self._proceed()

        self._due, self._announced = (steps, act), False
        announce(announced)
        self._proceed()


def _over() -> KafkaError:
    return KafkaError(ErrorCode.ILLEGAL_GENERATION, "The session may be over, and the partitions be others' by now.")
