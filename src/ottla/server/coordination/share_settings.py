"""Effective settings of a share group: its own ones within the bounds of the broker, else those of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.group_configs import (
    DEAD_LETTER_TOPIC,
    GROUP_CONFIGS,
    RETRY_BACKOFF,
    RETRY_BACKOFF_MAX,
    RETRY_BACKOFF_MULTIPLIER,
    SHARE_MAX_RECORDS_PER_SECOND,
)
from ottla.common.errors import KafkaError
from ottla.metadata.image import MetadataImage, dead_letters_enabled
from ottla.share.settings import LATEST, ShareSettings

if TYPE_CHECKING:
    from ottla.share.retry_backoff import RetryBackoff


def max_share_sessions(config: BrokerConfig) -> int:
    """Return `group.share.max.share.sessions`."""
    return config.get_int("group.share.max.share.sessions")


def share_settings(image: MetadataImage, config: BrokerConfig, group_id: str) -> ShareSettings:
    """Return the settings of a group."""
    own = image.group_configs(group_id)
    return ShareSettings(
        delivery_count_limit=_number(own, config, "delivery.count.limit"),
        max_record_locks=_number(own, config, "partition.max.record.locks"),
        lock_duration_ms=_number(own, config, "record.lock.duration.ms"),
        isolation_level=own.get("share.isolation.level", ShareSettings().isolation_level),
        auto_offset_reset=own.get("share.auto.offset.reset", LATEST),
        renew_enabled=own.get("share.renew.acknowledge.enable", "true") != "false",
        dead_letters=bool(dead_letter_topic(image, group_id)),
        retry=_retry_backoff(own) if RETRY_BACKOFF in own else None,
        max_records_per_second=_max_rate(own) if SHARE_MAX_RECORDS_PER_SECOND in own else None,
    )


def dead_letter_topic(image: MetadataImage, group_id: str) -> str:
    """Return the name of a group's dead-letter topic; empty if it has none, or share.version is below 2."""
    if not dead_letters_enabled(image):
        return ""
    return image.group_configs(group_id).get(DEAD_LETTER_TOPIC, "").strip()


def group_value(own: Mapping[str, str], name: str) -> Any:
    """Return a setting without a broker setting, from the settings of a group or by default."""
    key = GROUP_CONFIGS[name]
    try:
        return key.parse(own[name]) if name in own else key.default
    except KafkaError:  # set by another version of this program
        return key.default


def _retry_backoff(own: Mapping[str, str]) -> RetryBackoff | None:
    first_ms = group_value(own, RETRY_BACKOFF)
    if not first_ms:
        return None
    from ottla.share.retry_backoff import RetryBackoff  # imported here: few groups have a back-off

    return RetryBackoff(first_ms, group_value(own, RETRY_BACKOFF_MULTIPLIER), group_value(own, RETRY_BACKOFF_MAX))


def _max_rate(own: Mapping[str, str]) -> int | None:
    rate: int = group_value(own, SHARE_MAX_RECORDS_PER_SECOND)
    return rate if rate > 0 else None


def _number(own: Mapping[str, str], config: BrokerConfig, name: str) -> int:
    text = own.get(f"share.{name}")
    if text is None or not text.isdecimal():
        return config.get_int(f"group.share.{name}")
    low, high = config.get_int(f"group.share.min.{name}"), config.get_int(f"group.share.max.{name}")
    return min(max(int(text), low), high)
