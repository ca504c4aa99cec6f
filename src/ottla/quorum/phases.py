"""The phases of one replica in this process, as a state machine without input and output: the driver asks it.

A replica has a life (`Phase`) and, while it takes part, a tenure. The tables `PHASES` and `TENURES` say what may follow
what; any other event is a bug, and raises InvariantError. Tenure is a region of its own: an only voter leads before its
start is done, and leads on while it drains, until what was submitted is on disk.

Invariants:
- A replica leads only while it takes part, and an epoch at most once, each newer than the last one.
- What it failed of, or that it was closed, is known from then on and never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from ottla.common.errors import InvariantError, KafkaError


class Phase(Enum):
    """The life of a replica."""

    NEW = auto()
    """Nothing is open."""
    OPENING = auto()
    """The files are read, and an only voter elects itself: all within `start`, whose caller gets every error."""
    RUNNING = auto()
    """It answers and asks, follows and stands for leader."""
    DRAINING = auto()
    """It answers, and what it appended may be committed, but it fetches nothing and stands for nothing."""
    FAILED = auto()
    """Its disk or a listener failed: it takes no more part."""
    CLOSED = auto()


class Tenure(Enum):
    """What a replica that takes part does as leader."""

    FOLLOWING = auto()
    """It leads nothing, whether it knows a leader or not."""
    TAKING_OVER = auto()
    """It was elected, and the first batch of its epoch is not committed: nobody knows what was before it."""
    LEADING = auto()
    """All that any leader committed is known here; records are taken."""


class Event(Enum):
    """What happens to a replica."""

    OPEN = auto()
    OPENED = auto()
    STOP = auto()
    FAIL = auto()
    CLOSE = auto()
    ELECTED = auto()
    COMMITTED = auto()
    """The first batch of the epoch that it leads."""
    UNSEATED = auto()
    """It resigned, or somebody else leads."""


# Under names of their own, since a look-up in an Enum is a call, and the driver asks in every round.
NEW, OPENING, RUNNING, DRAINING, FAILED, CLOSED = Phase
FOLLOWING, TAKING_OVER, LEADING = Tenure

PHASES: Mapping[Phase, Mapping[Event, Phase]] = MappingProxyType(
    {
        NEW: {Event.OPEN: OPENING, Event.CLOSE: CLOSED},
        OPENING: {Event.OPENED: RUNNING, Event.FAIL: FAILED, Event.CLOSE: CLOSED},
        RUNNING: {Event.STOP: DRAINING, Event.FAIL: FAILED, Event.CLOSE: CLOSED},
        DRAINING: {Event.FAIL: FAILED, Event.CLOSE: CLOSED},
        FAILED: {Event.CLOSE: CLOSED},
        CLOSED: {},
    }
)
TAKING_PART = frozenset({OPENING, RUNNING, DRAINING})
"""The phases in which a replica has a tenure; who leaves them leads nothing any more."""
TENURES: Mapping[Tenure, Mapping[Event, Tenure]] = MappingProxyType(
    {
        FOLLOWING: {Event.ELECTED: TAKING_OVER},
        TAKING_OVER: {Event.COMMITTED: LEADING, Event.UNSEATED: FOLLOWING},
        LEADING: {Event.UNSEATED: FOLLOWING},
    }
)
_OF_TENURE = frozenset({Event.ELECTED, Event.COMMITTED, Event.UNSEATED})
_NO_EPOCH = -1


class ReplicaState:
    """Where a replica stands, with what belongs to that: the epoch that it leads, and why it takes no more part.

    `takes_part`: it was started, and neither failed nor was closed; `failure` is why it does no more. Each method is an
    event; all raise InvariantError for one that the tables don't have here, and change nothing then.
    """

    __slots__ = ("_last_led_epoch", "failure", "phase", "takes_part", "tenure")

    def __init__(self) -> None:
        self.phase = NEW
        self.takes_part = False
        self.tenure = FOLLOWING
        self.failure: KafkaError | None = None
        self._last_led_epoch = _NO_EPOCH

    @property
    def led_epoch(self) -> int:
        """The epoch that it leads; raises InvariantError where it leads none."""
        if self.tenure is FOLLOWING:
            raise InvariantError("a replica that leads nothing was asked for its epoch")
        return self._last_led_epoch

    def open(self) -> None:
        """Its files are about to be read."""
        self._happen(Event.OPEN)

    def opened(self) -> None:
        """The start is done."""
        self._happen(Event.OPENED)

    def stop(self) -> None:
        """It was told to take no more part."""
        self._happen(Event.STOP)

    def fail(self, failure: KafkaError) -> None:
        """Its disk or a listener failed; `failure` is what its callers are told."""
        self._happen(Event.FAIL)
        self.failure = failure

    def close(self, failure: KafkaError) -> None:
        """Its files are about to be closed; `failure` is what its callers are told, unless it failed before."""
        self._happen(Event.CLOSE)
        self.failure = self.failure or failure

    def elected(self, epoch: int) -> None:
        """It leads `epoch`, which it never led."""
        if epoch <= self._last_led_epoch:
            raise InvariantError(f"epoch {epoch} is led after epoch {self._last_led_epoch}")
        self._happen(Event.ELECTED)
        self._last_led_epoch = epoch

    def committed(self) -> None:
        """A record of the epoch that it leads is committed."""
        self._happen(Event.COMMITTED)

    def unseated(self) -> None:
        """It leads its epoch no more."""
        self._happen(Event.UNSEATED)

    def _happen(self, event: Event) -> None:
        if event in _OF_TENURE:
            tenure = TENURES[self.tenure].get(event) if self.takes_part else None
            if tenure is None:
                raise self._misplaced(event)
            self.tenure = tenure
            return
        phase = PHASES[self.phase].get(event)
        if phase is None:
            raise self._misplaced(event)
        self.phase = phase
        self.takes_part = phase in TAKING_PART
        if not self.takes_part:
            self.tenure = FOLLOWING

    def _misplaced(self, event: Event) -> InvariantError:
        return InvariantError(f"a replica that is {self.phase.name} and {self.tenure.name} can't be {event.name}")
