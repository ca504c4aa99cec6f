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


PHASES: Mapping[Phase, Mapping[Event, Phase]] = MappingProxyType(
    {
        Phase.NEW: {Event.OPEN: Phase.OPENING, Event.CLOSE: Phase.CLOSED},
        Phase.OPENING: {Event.OPENED: Phase.RUNNING, Event.FAIL: Phase.FAILED, Event.CLOSE: Phase.CLOSED},
        Phase.RUNNING: {Event.STOP: Phase.DRAINING, Event.FAIL: Phase.FAILED, Event.CLOSE: Phase.CLOSED},
        Phase.DRAINING: {Event.FAIL: Phase.FAILED, Event.CLOSE: Phase.CLOSED},
        Phase.FAILED: {Event.CLOSE: Phase.CLOSED},
        Phase.CLOSED: {},
    }
)
TAKING_PART = frozenset({Phase.OPENING, Phase.RUNNING, Phase.DRAINING})
"""The phases in which a replica has a tenure; who leaves them leads nothing any more."""
TENURES: Mapping[Tenure, Mapping[Event, Tenure]] = MappingProxyType(
    {
        Tenure.FOLLOWING: {Event.ELECTED: Tenure.TAKING_OVER},
        Tenure.TAKING_OVER: {Event.COMMITTED: Tenure.LEADING, Event.UNSEATED: Tenure.FOLLOWING},
        Tenure.LEADING: {Event.UNSEATED: Tenure.FOLLOWING},
    }
)
_OF_TENURE = frozenset({Event.ELECTED, Event.COMMITTED, Event.UNSEATED})
_NO_EPOCH = -1


class ReplicaState:
    """Where a replica stands, with what belongs to that: the epoch that it leads, and why it takes no more part.

    Each method is an event; all raise InvariantError for one that the tables don't have here, and change nothing then.
    """

    __slots__ = ("_failure", "_last_led_epoch", "phase", "tenure")

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.tenure = Tenure.FOLLOWING
        self._failure: KafkaError | None = None
        self._last_led_epoch = _NO_EPOCH

    @property
    def takes_part(self) -> bool:
        """Whether it was started and neither failed nor was closed."""
        return self.phase in TAKING_PART

    @property
    def led_epoch(self) -> int:
        """The epoch that it leads; raises InvariantError where it leads none."""
        if self.tenure is Tenure.FOLLOWING:
            raise InvariantError("a replica that leads nothing was asked for its epoch")
        return self._last_led_epoch

    @property
    def failure(self) -> KafkaError | None:
        """Why it takes no more part; None while it does, and before it did."""
        return self._failure

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
        self._failure = failure

    def close(self, failure: KafkaError) -> None:
        """Its files are about to be closed; `failure` is what its callers are told, unless it failed before."""
        self._happen(Event.CLOSE)
        self._failure = self._failure or failure

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
        if phase not in TAKING_PART:
            self.tenure = Tenure.FOLLOWING

    def _misplaced(self, event: Event) -> InvariantError:
        return InvariantError(f"a replica that is {self.phase.name} and {self.tenure.name} can't be {event.name}")
