"""Randomness of a simulation: one seed, any number of independent streams.

Each part of the world draws from its own stream (`fork`), so that an additional fault in one part does not change the
draws of the others, and a failing seed remains recognizable after a small change. SplitMix64, implemented here because
the sequence must be the same on every Python version. Implements `ottla.common.platform.clock.Rng`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class SimRng:
    """A deterministic stream; the same seed gives the same."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def _next(self) -> int:
        self._state = (self._state + _GAMMA) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def fork(self, label: str) -> SimRng:
        """An independent stream for `label`; does not depend on earlier draws of this one."""
        return SimRng(self._state ^ (zlib.crc32(label.encode()) * _GAMMA))

    def randrange(self, stop: int) -> int:
        """An integer in [0, stop); uniform enough for `stop` far below 2**64."""
        return self._next() % stop

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes."""
        words = [self._next().to_bytes(8, "big") for _ in range((count + 7) // 8)]
        return b"".join(words)[:count]

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * (self._next() / (1 << 64))

    def chance(self, probability: float) -> bool:
        """True with `probability`."""
        return self._next() < probability * (1 << 64)

    def choice(self, items: Sequence[T]) -> T:
        """One of `items`."""
        return items[self.randrange(len(items))]
