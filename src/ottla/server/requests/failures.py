"""Rate-limited reports of defects and of misbehaving clients: one log line per place and interval.

A hostile or broken client can cause the same report a hundred thousand times a second; the log gets one line per place
in `INTERVAL_S` with the number of suppressed ones.
"""

from __future__ import annotations

import logging

from ottla.common.platform.clock import Clock

INTERVAL_S = 10.0
MAX_PLACES = 256
"""Maximum of remembered places; above it the oldest is dropped, so the table is bounded."""

logger = logging.getLogger(__name__)


class Failures:
    """Rate-limited reports. Satisfies `ottla.replica.purgatory.Failures`."""

    __slots__ = ("_clock", "_places", "count")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[str, tuple[float, int]] = {}
        self.count = 0

    def __call__(self, where: str, error: BaseException) -> None:
        """Report a defect of the broker: logged with its traceback."""
        self.count += 1
        self._report(logging.ERROR, where, f"unexpected {type(error).__name__}: {error}", error)

    def warn(self, where: str, message: str) -> None:
        """Report a problem caused by a client or the machine: logged without traceback."""
        self._report(logging.WARNING, where, message, None)

    def _report(self, level: int, where: str, message: str, error: BaseException | None) -> None:
        now = self._clock.monotonic()
        last, held_back = self._places.pop(where, (now - INTERVAL_S, 0))
        if now - last < INTERVAL_S:
            self._places[where] = (last, held_back + 1)
            return
        if len(self._places) >= MAX_PLACES:
            del self._places[next(iter(self._places))]
        self._places[where] = (now, 0)
        suffix = f" ({held_back} similar messages were suppressed)" if held_back else ""
        logger.log(level, "%s: %s%s", where, message, suffix, exc_info=error)
