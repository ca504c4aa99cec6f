"""Delay between a failed delivery of a record to a share group and the next one.

Specific to Ottla: Kafka delivers a failed record again at once. The delay grows with the delivery count. A jitter of 0
to 20 % keeps records that failed at the same time apart. It is a hash of the first of them, so records that fail
together are delivered together, and every leader computes the same delay. The module is loaded for the first group with
`ottla.share.retry.backoff.ms`.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from ottla.common.kafka.share_state import SharePartitionKey

_JITTER_STEPS = 1001
_JITTER_DIVISOR = 5000
"""The highest of the steps adds a fifth."""
_MAX_EXPONENT = 64
"""Above it every multiplier has reached the maximum; a stored delivery count may be so high that a power overflows."""


class RetryBackoff(NamedTuple):
    """Settings of a group, in milliseconds."""

    first_ms: int
    multiplier: float
    max_ms: int

    def base_ms(self, delivery_count: int) -> int:
        """Return the delay after the last of `delivery_count` failed deliveries, without jitter; 0 for no delivery."""
        if delivery_count <= 0:
            return 0
        return int(min(self.first_ms * self.multiplier ** min(delivery_count - 1, _MAX_EXPONENT), self.max_ms))

    def delay_ms(self, key: SharePartitionKey, offset: int, delivery_count: int) -> int:
        """Return the delay of records that failed together and begin at `offset`."""
        base_ms = self.base_ms(delivery_count)
        step = crc32(b"%b:%d:%d:%d" % (key.topic_id, key.partition, offset, delivery_count)) % _JITTER_STEPS
        return base_ms + base_ms * step // _JITTER_DIVISOR
