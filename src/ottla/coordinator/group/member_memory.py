"""Memory limits for group members: the metadata they send when they join, and their assignments.

Without authentication any client may join any group with a full request of metadata, which stays in memory
until its session ends. Three settings limit the size of one member, one group and all groups of the broker. Exceeding
the group's or the broker's limit returns GROUP_MAX_SIZE_REACHED, like Apache Kafka's limit on the number of members.
Members larger than `SMALL_MEMBER_BYTES` may fill only half of the broker's limit, so that they can't lock out small
ones.

Growth is added on admission. Removals are not reported here: when the sum reaches the limit, all groups are counted
again, at most once a second.

Left out: committed offsets (`offset.metadata.max.bytes`, retention), and empty groups, which expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Clock
from ottla.coordinator.group.config import GroupCoordinatorConfig

MEMBER_BYTES = 1024
"""Approximate fixed cost of a member, or of a member id that was handed out."""
NAME_BYTES = 64
"""Approximate fixed cost of each name that the member sent."""
SMALL_MEMBER_BYTES = 16 * 1024

_COUNT_INTERVAL_S = 1.0


def protocols_bytes(protocols: Mapping[str, bytes]) -> int:
    """Return the approximate memory of a JoinGroup's protocols, in bytes."""
    return sum(NAME_BYTES + len(name) + len(metadata) for name, metadata in protocols.items())


class MemberMemory:
    """Memory accounting for all groups of one broker."""

    __slots__ = ("_clock", "_config", "_count", "_counted_s", "_held")

    def __init__(self, config: Callable[[], GroupCoordinatorConfig], clock: Clock, count: Callable[[], int]) -> None:
        """`count()` returns the current size of all groups, in bytes."""
        self._config = config
        self._clock = clock
        self._count = count
        self._counted_s = -_COUNT_INTERVAL_S
        self._held = 0

    def loaded(self, size: int) -> None:
        """Add the size of groups that were loaded from the log, in bytes."""
        self._held += size

    def admit(self, others: int, before: int, after: int) -> None:
        """Reserve memory for a member that grows from `before` to `after` bytes; other members of its group use
        `others`.

        Raises KafkaError GROUP_MAX_SIZE_REACHED.
        """
        growth = after - before
        if growth <= 0:
            return
        config = self._config()
        if others + after > config.group_max_bytes:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The group's members would use more memory than "
                f"group.coordinator.group.max.bytes={config.group_max_bytes}.",
            )
        limit = config.groups_max_bytes if after <= SMALL_MEMBER_BYTES else config.groups_max_bytes // 2
        if self._held + growth > limit:
            now = self._clock.monotonic()
            if now - self._counted_s >= _COUNT_INTERVAL_S:
                self._counted_s = now
                self._held = self._count()
            if self._held + growth > limit:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The members of all groups on this broker would use more than {limit} bytes of memory "
                    "(group.coordinator.max.bytes).",
                )
        self._held += growth
