"""Settings of a share group that its share partitions apply, with the defaults of Apache Kafka."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.share.retry_backoff import RetryBackoff

READ_COMMITTED = "read_committed"
EARLIEST = "earliest"
LATEST = "latest"
_BY_DURATION = "by_duration:"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


class ShareSettings(NamedTuple):
    """`share.*` settings of a group, within the bounds of the broker, and `ottla.share.*` settings."""

    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    lock_duration_ms: int = 30_000
    isolation_level: str = "read_uncommitted"
    auto_offset_reset: str = LATEST
    renew_enabled: bool = True
    dead_letters: bool = False
    """Whether the group has a dead-letter topic."""
    retry: RetryBackoff | None = None
    """Delay of failed records; None: they are available again at once."""
    max_records_per_second: int | None = None
    """Limit of the deliveries of a topic; None: no limit."""

    @property
    def isolation_delivery_count(self) -> int:
        """Delivery count from which on records are delivered apart from others, since one of them may be poisonous."""
        return max(2, (self.delivery_count_limit + 1) // 2)


def reset_duration_ms(reset: str) -> int | None:
    """Return the duration of a reset `by_duration:PnDTnHnMn.nS`; None for any other reset."""
    if not reset.startswith(_BY_DURATION):
        return None
    match = _DURATION.fullmatch(reset[len(_BY_DURATION) :].upper())
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60
    return whole * 1000 + int(float(seconds or 0) * 1000)
