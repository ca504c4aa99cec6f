"""Effective settings of a share group: its own ones within the bounds of the broker, else those of the broker.

Settings are read by name. Those that the broker does not register have the defaults of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.config.broker_configs import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.share.settings import LATEST, ShareSettings


class _Number(NamedTuple):
    """A setting with its broker-wide default and bounds."""

    name: str
    default: int
    low: int
    high: int


_LIMIT = _Number("delivery.count.limit", 5, 2, 10)
_LOCKS = _Number("partition.max.record.locks", 2000, 100, 4000)
_LOCK_DURATION = _Number("record.lock.duration.ms", 30_000, 15_000, 60_000)
_MAX_SESSIONS = "group.share.max.share.sessions"
DEFAULT_MAX_SESSIONS = 2000


def max_share_sessions(config: BrokerConfig) -> int:
    """Return `group.share.max.share.sessions`."""
    return _broker_int(config, _MAX_SESSIONS, DEFAULT_MAX_SESSIONS)


def share_settings(image: MetadataImage, config: BrokerConfig, group_id: str) -> ShareSettings:
    """Return the settings of a group."""
    own = image.group_configs(group_id)
    return ShareSettings(
        delivery_count_limit=_number(own, config, _LIMIT),
        max_record_locks=_number(own, config, _LOCKS),
        lock_duration_ms=_number(own, config, _LOCK_DURATION),
        isolation_level=own.get("share.isolation.level", ShareSettings().isolation_level),
        auto_offset_reset=own.get("share.auto.offset.reset", LATEST),
        renew_enabled=own.get("share.renew.acknowledge.enable", "true") != "false",
    )


def _number(own: Mapping[str, str], config: BrokerConfig, setting: _Number) -> int:
    text = own.get(f"share.{setting.name}")
    if text is None or not text.isdecimal():
        return _broker_int(config, f"group.share.{setting.name}", setting.default)
    low = _broker_int(config, f"group.share.min.{setting.name}", setting.low)
    high = _broker_int(config, f"group.share.max.{setting.name}", setting.high)
    return min(max(int(text), low), high)


def _broker_int(config: BrokerConfig, name: str, default: int) -> int:
    try:
        return config.get_int(name)
    except KeyError:
        return default
