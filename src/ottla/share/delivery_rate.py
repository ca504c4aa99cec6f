"""Rate limit of the deliveries of one share partition: a token bucket of whole records.

Specific to Ottla. A delivery of a record takes a token, also a repeated one. The bucket holds the tokens of one second.
It is empty at first, so that a change of leaders permits no additional deliveries. It closes when no token is left, and
opens with the tokens of a tenth of a second. So a waiting fetch is tried at most ten times a second.

Levels are integers: a token has as many units as a second has milliseconds, times the number of partitions. The module
is loaded for the first group with `ottla.share.max.records.per.second`.
"""

from __future__ import annotations

from typing import NamedTuple

_SECOND_MS = 1000
_OPENING_MS = 100


class DeliveryRate(NamedTuple):
    """Rate of one share partition: its part of the rate of the group, which the partitions of the topic share."""

    records_per_second: int
    partition_count: int

    def bucket(self, now_ms: int) -> DeliveryBucket:
        """Return an empty bucket."""
        return DeliveryBucket(self, now_ms)


class DeliveryBucket:
    """Token bucket at one time, which only moves forward."""

    __slots__ = ("_at_ms", "_level", "opens_ms", "rate")

    def __init__(self, rate: DeliveryRate, now_ms: int) -> None:
        self.rate = rate
        self._level = 0
        self._at_ms = now_ms
        self.opens_ms: int | None = None
        """Time when deliveries may continue; None while the bucket is open."""
        self._close()

    def open_at(self, now_ms: int) -> bool:
        """Open the bucket if its time has come; returns whether it was opened."""
        if self.opens_ms is None or now_ms < self.opens_ms:
            return False
        self.opens_ms = None
        return True

    def available(self, now_ms: int) -> int:
        """Return the number of records that may be delivered now."""
        if self.opens_ms is not None:
            return 0
        full = max(self._token, self.rate.records_per_second * _SECOND_MS)
        self._level = min(full, self._level + (now_ms - self._at_ms) * self.rate.records_per_second)
        self._at_ms = now_ms
        return self._level // self._token

    def take(self, count: int) -> None:
        """Take the tokens of delivered records, after `available`."""
        self._level -= count * self._token
        if self._level < self._token:
            self._close()

    @property
    def _token(self) -> int:
        return _SECOND_MS * self.rate.partition_count

    def _close(self) -> None:
        opening = max(self._token, self.rate.records_per_second * _OPENING_MS)
        self.opens_ms = self._at_ms - (self._level - opening) // self.rate.records_per_second
