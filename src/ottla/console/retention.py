"""Distance of unread records to retention: when the next record that a group has not consumed may be deleted.

Retention deletes whole segments: all whose largest timestamp is older than retention.ms, and the oldest ones while the
others have retention.bytes. So a record is deleted at the earliest when it is older than retention.ms itself, or when
retention.bytes follow it. The bytes that follow are estimated: the share of the offsets that follow, of the size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.wire.model import ConfigEntry

SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")
SHORT = 0.9
"""Share of the retention from which a page warns."""


class Retention(NamedTuple):
    """Limits of a topic; None is unlimited."""

    seconds: float | None
    bytes: int | None


class Distance(NamedTuple):
    """Distance of a record to its deletion."""

    seconds: float | None
    """Until it may be deleted; None if it is not, or the rate is unknown."""
    used: float
    """The share of the retention that has passed; 1 and more if the record may be deleted already."""

    @property
    def is_short(self) -> bool:
        return self.used >= SHORT


def topic_retention(settings: Mapping[str, ConfigEntry]) -> Retention:
    """The retention of a topic with these settings; unlimited without `delete` in its cleanup.policy."""

    def value(name: str) -> str:
        entry = settings.get(name)
        return "" if entry is None or entry.value is None else entry.value.strip()

    def limit(name: str) -> int | None:
        text = value(name)
        return int(text) if text.isascii() and text.isdigit() else None

    if "delete" not in [each.strip() for each in value("cleanup.policy").split(",")]:
        return Retention(None, None)
    retention_ms = limit("retention.ms")
    return Retention(None if retention_ms is None else retention_ms / 1000, limit("retention.bytes"))


def distance(
    retention: Retention, age_s: float | None, bytes_behind: float | None, bytes_per_s: float | None
) -> Distance:
    """The distance of a record of this age with so many bytes behind it; None is unknown."""
    waits: list[float] = []
    used = 0.0
    if retention.seconds is not None and age_s is not None:
        waits.append(max(0.0, retention.seconds - age_s))
        used = age_s / max(retention.seconds, 0.001)
    if retention.bytes is not None and bytes_behind is not None:
        used = max(used, bytes_behind / max(retention.bytes, 1))
        left = max(0.0, retention.bytes - bytes_behind)
        if left == 0:
            waits.append(0.0)
        elif bytes_per_s:
            waits.append(left / bytes_per_s)
    return Distance(min(waits, default=None), used)


def estimate_bytes(start: int, offset: int, end: int, size_bytes: int) -> float:
    """Estimated bytes of the records from `offset`: their share of the offsets of the log."""
    return size_bytes * (end - offset) / (end - start) if end > start else 0.0
