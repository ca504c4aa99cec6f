"""Throttle of replication traffic (KIP-73): a rate in bytes a second. Pure.

While the rate is exceeded, a leader sends nothing to, and a follower requests nothing for, a replica that is throttled
and not in sync. In-sync replicas are never throttled. One fetch may exceed the rate by its size, and later ones wait
for it: on average the rate holds, also if it is small compared with a fetch. The selection of throttled replicas is in
`replica.throttles`.
"""

from __future__ import annotations

UNLIMITED = (1 << 63) - 1
BURST_S = 1.0
"""Time that unused capacity is retained."""


class ReplicationQuota:
    """Throttle of one direction of one broker."""

    __slots__ = ("_at_s", "_left", "bytes_per_s")

    def __init__(self) -> None:
        self.bytes_per_s = UNLIMITED
        self._left = 0.0
        self._at_s = 0.0

    @property
    def limited(self) -> bool:
        return self.bytes_per_s < UNLIMITED

    def record(self, byte_count: int, now_s: float) -> None:
        """Count replicated bytes of throttled replicas."""
        self._refill(now_s)
        self._left -= byte_count

    def exceeded(self, now_s: float) -> bool:
        """Return whether more bytes were sent than the rate allows by now."""
        self._refill(now_s)
        return self._left < 0 or self.bytes_per_s == 0

    def _refill(self, now_s: float) -> None:
        if now_s > self._at_s:
            self._left = min(self._left + (now_s - self._at_s) * self.bytes_per_s, BURST_S * self.bytes_per_s)
            self._at_s = now_s


def names_replica(text: str, partition: int, broker_id: int) -> bool:
    """Return whether `*.replication.throttled.replicas` (`partition:broker` pairs, or `*`) contains that replica."""
    return text.strip() == "*" or f"{partition}:{broker_id}" in [pair.strip() for pair in text.split(",")]
