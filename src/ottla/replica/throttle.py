"""How much replication of throttled replicas may take (KIP-73): a rate in bytes a second. Pure.

A leader gives nothing to, and a follower asks nothing for, a replica that is throttled and not in sync while the rate
is exceeded. Replicas in sync are never held back. One fetch may go beyond the rate by its size, and is made good by
waiting: on average the rate is kept, also where it is small against a fetch. Left out: which replicas are throttled
(`replica.manager`).
"""

from __future__ import annotations

UNLIMITED = (1 << 63) - 1
BURST_S = 1.0
"""What was not used is kept for so long."""


class ReplicationQuota:
    """One direction of one broker."""

    __slots__ = ("_at_s", "_left", "bytes_per_s")

    def __init__(self) -> None:
        self.bytes_per_s = UNLIMITED
        self._left = 0.0
        self._at_s = 0.0

    @property
    def limited(self) -> bool:
        return self.bytes_per_s < UNLIMITED

    def record(self, byte_count: int, now_s: float) -> None:
        """Take note of replicated bytes of throttled replicas."""
        self._refill(now_s)
        self._left -= byte_count

    def exceeded(self, now_s: float) -> bool:
        """Whether more went than the rate allows by now."""
        self._refill(now_s)
        return self._left < 0 or self.bytes_per_s == 0

    def _refill(self, now_s: float) -> None:
        if now_s > self._at_s:
            self._left = min(self._left + (now_s - self._at_s) * self.bytes_per_s, BURST_S * self.bytes_per_s)
            self._at_s = now_s


def names_replica(text: str, partition: int, broker_id: int) -> bool:
    """Whether a setting `*.replication.throttled.replicas` (`partition:broker` pairs, or `*`) names that replica."""
    return text.strip() == "*" or f"{partition}:{broker_id}" in [pair.strip() for pair in text.split(",")]
