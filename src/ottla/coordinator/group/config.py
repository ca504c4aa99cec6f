"""Typed settings of the group coordinator; names and defaults are those of Apache Kafka 4.x.

Each shard gets a callable that returns the current settings, so a dynamic change applies to the next request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.config.group_configs import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    clamped,
)

DEFAULT_ASSIGNORS = ("uniform", "range")


class GroupCoordinatorConfig(NamedTuple):
    """`group.*` and `offsets.*` settings; times in milliseconds, sizes in bytes."""

    # classic groups
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    classic_new_member_join_timeout_ms: int = 300_000
    """Session timeout of a new member while its first JoinGroup waits for the rebalance; fixed in Kafka."""

    # memory of members (`member_memory`)
    group_member_max_bytes: int = 1024 * 1024
    """`group.coordinator.member.max.bytes`: limit for the metadata of a JoinGroup or heartbeat, or an assignment."""
    group_max_bytes: int = 64 * 1024 * 1024
    """`group.coordinator.group.max.bytes`: limit for all members of a group."""
    groups_max_bytes: int = 256 * 1024 * 1024
    """`group.coordinator.max.bytes`: limit for all members of all groups that this broker coordinates."""

    # offsets
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    """`offsets.retention.minutes`."""
    offsets_retention_check_interval_ms: int = 600_000

    # consumer groups (KIP-848)
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_assignment_interval_ms: int = 1_000
    """Minimum time between two target assignments of a group (KIP-1263)."""
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """The first one is the default, used when no member requests an assignor."""
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000

    # share groups (KIP-932)
    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_assignment_interval_ms: int = 1_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000
    group_share_max_size: int = 200
    group_share_initialize_retry_interval_ms: int = 30_000

    def session_timeout_ms(self, overrides: Mapping[str, str]) -> int:
        """Return the session timeout of consumer protocol members in a group with these config overrides."""
        return clamped(
            SESSION_TIMEOUT,
            overrides,
            self.group_consumer_session_timeout_ms,
            self.group_consumer_min_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )

    def heartbeat_interval_ms(self, overrides: Mapping[str, str]) -> int:
        """Return the heartbeat interval of consumer protocol members in a group with these config overrides."""
        return clamped(
            HEARTBEAT_INTERVAL,
            overrides,
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_min_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )

    def assignment_interval_ms(self, overrides: Mapping[str, str]) -> int:
        """Return the minimum time between target assignments of a group with these config overrides."""
        return clamped(
            ASSIGNMENT_INTERVAL,
            overrides,
            self.group_consumer_assignment_interval_ms,
            self.group_consumer_min_assignment_interval_ms,
            self.group_consumer_max_assignment_interval_ms,
        )

    def share_session_timeout_ms(self, overrides: Mapping[str, str]) -> int:
        """Return the session timeout of members of a share group with these config overrides."""
        return clamped(
            SHARE_SESSION_TIMEOUT,
            overrides,
            self.group_share_session_timeout_ms,
            self.group_share_min_session_timeout_ms,
            self.group_share_max_session_timeout_ms,
        )

    def share_heartbeat_interval_ms(self, overrides: Mapping[str, str]) -> int:
        """Return the heartbeat interval of members of a share group with these config overrides."""
        return clamped(
            SHARE_HEARTBEAT_INTERVAL,
            overrides,
            self.group_share_heartbeat_interval_ms,
            self.group_share_min_heartbeat_interval_ms,
            self.group_share_max_heartbeat_interval_ms,
        )

    def share_assignment_interval_ms(self, overrides: Mapping[str, str]) -> int:
        """Return the minimum time between target assignments of a share group with these config overrides."""
        return clamped(
            SHARE_ASSIGNMENT_INTERVAL,
            overrides,
            self.group_share_assignment_interval_ms,
            self.group_share_min_assignment_interval_ms,
            self.group_share_max_assignment_interval_ms,
        )
