"""Bounds what members keep in the coordinator's memory: what they sent when they joined, and what was assigned to them.

Nobody is asked who he is, so any client may join any group with as much metadata as a request holds, and what it sent
stays until its session ends. Three bounds of the settings, from one member to all groups of the broker; the group's and
the broker's answer GROUP_MAX_SIZE_REACHED, as Apache Kafka's bounds on the number of members do. Of the broker's bound,
members that bring more than `SMALL_MEMBER_BYTES` get half, so that they can't keep others out.

Growth is added up as it is admitted, and what went is found by counting all groups anew, at most once a second, when
the sum has reached the bound: no path on which members go has to tell.

Left out: committed offsets (`offset.metadata.max.bytes`, retention), and empty groups, which expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Clock
from ottla.coordinator.group.config import GroupCoordinatorConfig

MEMBER_BYTES = 1024
"""About what a member, or a member id that was handed out, costs besides what it sent."""
NAME_BYTES = 64
"""The same for each name that it sent."""
SMALL_MEMBER_BYTES = 16 * 1024

_COUNT_INTERVAL_S = 1.0


def protocols_bytes(protocols: Mapping[str, bytes]) -> int:
    """What the protocols of a JoinGroup cost to keep."""
    return sum(NAME_BYTES + len(name) + len(metadata) for name, metadata in protocols.items())


class MemberMemory:
    """The account of all groups of one broker."""

    __slots__ = ("_clock", "_config", "_count", "_counted_s", "_held")

    def __init__(self, config: Callable[[], GroupCoordinatorConfig], clock: Clock, count: Callable[[], int]) -> None:
        """`count()` is what all groups hold just now, in bytes."""
        self._config = config
        self._clock = clock
        self._count = count
        self._counted_s = -_COUNT_INTERVAL_S
        self._held = 0

    def loaded(self, size: int) -> None:
        """Groups that hold `size` bytes were read from the log."""
        self._held += size

    def admit(self, others: int, before: int, after: int) -> None:
        """A member that held `before` bytes is about to hold `after`, in a group whose `others` hold that many.

        Raises KafkaError GROUP_MAX_SIZE_REACHED.
        """
        growth = after - before
        if growth <= 0:
            return
        config = self._config()
        if others + after > config.group_max_bytes:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of the group would hold more than {config.group_max_bytes} bytes.",
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
                    f"The members of all groups of this broker would hold more than {limit} bytes.",
                )
        self._held += growth
