"""System clock and randomness.

`SystemClock` and `SystemRng` satisfy `ottla.common.platform.clock.Clock` and `Rng`. They have no state. Timers are not
here: an asyncio loop is a `Scheduler`.
"""

from __future__ import annotations

import os
import time


class SystemClock:
    """Wall and monotonic clock of this machine."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch; steps when the machine's clock is set."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds from an arbitrary start; never steps back."""


class SystemRng:
    """The operating system's randomness. Written out because `random` and `secrets` cost milliseconds of start-up."""

    __slots__ = ()

    def random_bytes(self, count: int) -> bytes:
        """`count` unpredictable bytes."""
        return os.urandom(count)

    def randrange(self, stop: int) -> int:
        """A uniform integer in [0, stop); raises ValueError unless `stop` is positive."""
        if stop <= 0:
            raise ValueError("stop must be positive")
        bits = (stop - 1).bit_length()
        byte_count = (bits + 7) // 8
        while True:
            # Rejection sampling for a uniform result; less than half of the draws are rejected.
            value = int.from_bytes(os.urandom(byte_count), "big") >> (byte_count * 8 - bits)
            if value < stop:
                return value
