"""Offset storage of a legacy consumer, and the migration of a group between both storages.

`offsets.storage` selects the storage; with `dual.commit.enabled` both are written during a migration. As in Kafka 0.9,
a consumer resumes from the larger of both offsets, since the other one may be older than the migration. Smaller
offsets therefore have no effect, and such a commit is rejected. Unlike 0.9 this works in both directions, as its
documentation promises: 0.9 wrote the second storage only with `offsets.storage=kafka`, so that a group that moved back
read records again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError, OperatorError


class OffsetStorage(Enum):
    """Offset storage, by the value of `offsets.storage`."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"


class OffsetPlaces(NamedTuple):
    """The storages that offsets are written to: the first one decides whether a commit succeeds."""

    first: OffsetStorage
    second: OffsetStorage | None = None

    def resumed_at(self, offsets: Mapping[OffsetStorage, int]) -> int | None:
        """The resume offset of a partition from the offsets in the storages; None if there is none."""
        known = [offsets[place] for place in self if place is not None and place in offsets]
        return max(known, default=None)

    def goes_back(self, offset: int, offsets: Mapping[OffsetStorage, int]) -> bool:
        """True if an offset has no effect, because the other storage has a larger one."""
        resumed_at = self.resumed_at(offsets)
        return self.second is not None and resumed_at is not None and offset < resumed_at

    def check_commit(self, offset: int, offsets: Mapping[OffsetStorage, int]) -> None:
        """Raises KafkaError INVALID_REQUEST for an offset without effect."""
        if self.goes_back(offset, offsets):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Offset {offset} is below the committed {self.resumed_at(offsets)}: a group can't be reset to a "
                "smaller offset while "
                "dual.commit.enabled is set.",
            )


def offset_places(settings: Mapping[str, str]) -> OffsetPlaces:
    """The storages that settings select: ZooKeeper only by default; with `offsets.storage=kafka` both, unless dual
    commits are disabled.

    Raises OperatorError for an invalid value.
    """
    named = settings.get("offsets.storage", OffsetStorage.ZOOKEEPER.value).strip().lower()
    if named not in [each.value for each in OffsetStorage]:
        raise OperatorError(f"offsets.storage is {named!r}, but must be zookeeper or kafka")
    first = OffsetStorage(named)
    dual = settings.get("dual.commit.enabled", str(first is OffsetStorage.KAFKA)).strip().lower()
    if dual not in ("true", "false"):
        raise OperatorError(f"dual.commit.enabled is {dual!r}, but must be true or false")
    second = next(each for each in OffsetStorage if each is not first)
    return OffsetPlaces(first, second if dual == "true" else None)
