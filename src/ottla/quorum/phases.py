"""Life cycle of one replica in this process, as a state machine without input and output, driven by the driver.

A replica has a phase (`Phase`) and, while it participates, a tenure. The tables `PHASES` and `TENURES` define the
allowed transitions; any other event is a bug, and raises InvariantError. Tenure is separate: a single voter leads
before its start is complete, and still leads while it drains, until all submissions are on disk.

Invariants:
- A replica leads only while it participates, and each epoch at most once, in rising order.
- A failure or close is permanent: its reason never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from ottla.common.errors import InvariantError, KafkaError


class Phase(Enum):
    """Life cycle phase of a replica."""

    NEW = auto()
    """No file is open."""
    OPENING = auto()
    """The files are read, and a single voter elects itself: all within `start`, which raises every error."""
    RUNNING = auto()
    """It sends and answers requests, follows, and may become a candidate."""
    DRAINING = auto()
    """It answers requests, and its appended records may be committed, but it does not fetch and is never a candidate.
    """
    FAILED = auto()
    """Its disk or a listener failed: it no longer participates."""
    CLOSED = auto()


class Tenure(Enum):
    """Leadership state of a participating replica."""

    FOLLOWING = auto()
    """It does not lead, with or without a known leader."""
    TAKING_OVER = auto()
    """It was elected, and the first batch of its epoch is not committed: earlier records may be uncommitted."""
    LEADING = auto()
    """All records that any leader committed are known here; new records are accepted."""


class Event(Enum):
    """Events of a replica."""

    OPEN = auto()
    OPENED = auto()
    STOP = auto()
    FAIL = auto()
    CLOSE = auto()
    ELECTED = auto()
    COMMITTED = auto()
    """The first batch of the led epoch was committed."""
    UNSEATED = auto()
    """It resigned, or another replica leads."""


# Plain module constants: a look-up in an Enum is a call, and the driver needs them in every round.
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
"""The phases in which a replica has a tenure; in all others it does not lead."""
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
    """Phase and tenure of a replica, the epoch that it leads, and the reason of its failure.

    `takes_part`: it was started, and neither failed nor was closed; `failure` is the reason. Each method is an event;
    all raise InvariantError for an event that the tables don't allow here, and then change nothing.
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
        """The epoch that it leads; raises InvariantError if it does not lead."""
        if self.tenure is FOLLOWING:
            raise InvariantError("the epoch was requested from a replica that does not lead")
        return self._last_led_epoch

    def open(self) -> None:
        """Its files are about to be read."""
        self._happen(Event.OPEN)

    def opened(self) -> None:
        """The start is complete."""
        self._happen(Event.OPENED)

    def stop(self) -> None:
        """A stop was requested."""
        self._happen(Event.STOP)

    def fail(self, failure: KafkaError) -> None:
        """Its disk or a listener failed; callers receive `failure`."""
        self._happen(Event.FAIL)
        self.failure = failure

    def close(self, failure: KafkaError) -> None:
        """Its files are about to be closed; callers receive `failure`, unless it failed before."""
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
        """It no longer leads its epoch."""
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
