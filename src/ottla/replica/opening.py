"""Logs that this broker opens and removes over several ticks of the loop.

Opening a log creates files, so a metadata update with many partitions is processed in time slices, in the order of the
metadata. Partitions of deleted topics are removed the same way, before others are opened, which may have the same
names. The creator of a topic waits with `when_opened`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from ottla.common.kafka.ids import Uuid
from ottla.common.platform.clock import Clock, Scheduler
from ottla.replica.partition import Partition

OPENING_SLICE_S = 0.005
"""Time that one tick of the loop may spend on removing and opening logs, except for the last of them."""

Key = tuple[Uuid, int]


class PartitionOpening:
    """Partitions of one broker with logs that are still to be opened or removed."""

    __slots__ = (
        "_clock",
        "_finished",
        "_number",
        "_open",
        "_opening",
        "_remove",
        "_removing",
        "_scheduled",
        "_scheduler",
        "_stopped",
        "_waiters",
    )

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        *,
        open_log: Callable[[Key], None],
        remove_log: Callable[[Partition], None],
        finished: Callable[[], None],
    ) -> None:
        """`open_log` opens a partition with the state of the newest image, if this broker still has it; `finished` is
        called once nothing is left.
        """
        self._clock = clock
        self._scheduler = scheduler
        self._open = open_log
        self._remove = remove_log
        self._finished = finished
        self._opening: OrderedDict[Key, int] = OrderedDict()
        """Partitions of this broker with a log that is still to be opened, by rising number. The first entry is removed
        again and again, which in a dict would scan all removed entries each time.
        """
        self._number = 0
        self._scheduled = False
        self._waiters: deque[tuple[int, Callable[[], None]]] = deque()
        """Callbacks that wait until all partitions below a number are open."""
        self._removing: deque[Partition] = deque()
        """Partitions of deleted topics with logs that are still to be removed."""
        self._stopped = False

    def add(self, key: Key) -> None:
        """Open a partition later, unless that is pending; `start` begins."""
        if not self._stopped and key not in self._opening:
            self._opening[key] = self._number
            self._number += 1

    def forget(self, key: Key) -> None:
        """Do not open the partition."""
        self._opening.pop(key, None)

    def remove_later(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions later; `start` begins."""
        self._removing.extend(partitions)

    def start(self) -> None:
        """Process the first time slice, unless a tick is scheduled."""
        if (self._removing or self._opening) and not self._scheduled:
            self._open_some()

    def when_opened(self, done: Callable[[], None]) -> None:
        """Call `done` once all partitions of the metadata so far are open or have failed to open."""
        if self._opening:
            self._waiters.append((self._number, done))
        else:
            done()

    def stop_adding(self) -> None:
        """Open no more logs, and run pending removals: a later start would take those logs for data without a topic,
        and not remove them.
        """
        self._stopped = True
        while self._removing:
            self._remove(self._removing.popleft())

    def release_all(self) -> None:
        """Drop pending partitions, which the next start opens. Waiting callbacks run, since the metadata is
        committed.
        """
        self._opening.clear()
        self._release_waiters()

    def _open_some(self) -> None:
        """Remove and open logs for one time slice, and continue in the next tick of the loop."""
        self._scheduled = False
        until = self._clock.monotonic() + OPENING_SLICE_S
        while self._removing or self._opening:
            if self._removing:
                self._remove(self._removing.popleft())
            else:
                key = next(iter(self._opening))
                self._open(key)
                del self._opening[key]
            if self._clock.monotonic() >= until:
                break
        if self._removing or self._opening:
            self._scheduled = True
            self._scheduler.call_soon(self._open_some)
        else:
            self._finished()
        self._release_waiters()

    def _release_waiters(self) -> None:
        waiters = self._waiters
        while waiters and (not self._opening or next(iter(self._opening.values())) >= waiters[0][0]):
            waiters.popleft()[1]()
