"""Where a legacy consumer keeps its offsets, and how a group moves from one place to the other.

`offsets.storage` names the place, `dual.commit.enabled` has both written for as long as a group moves. As in Kafka 0.9
the larger of the two is where a consumer goes on: the other may be from before the move began. So nobody can go back
meanwhile, and who tries is refused. Beyond 0.9 this holds in both directions, as its documentation promises: there the
second place was only written with `offsets.storage=kafka`, and a group that moved back read what it had read before.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError, OperatorError


class OffsetStorage(Enum):
    """A place for offsets, by the value of `offsets.storage`."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"


class OffsetPlaces(NamedTuple):
    """Where offsets are written: the first place decides whether a commit succeeded."""

    first: OffsetStorage
    second: OffsetStorage | None = None

    def resumed_at(self, offsets: Mapping[OffsetStorage, int]) -> int | None:
        """Where a partition is read on, by the offsets that the places have; None where none of them has one."""
        known = [offsets[place] for place in self if place is not None and place in offsets]
        return max(known, default=None)

    def goes_back(self, offset: int, offsets: Mapping[OffsetStorage, int]) -> bool:
        """Whether an offset would not be where the partition is read on, as the other place has a larger one."""
        resumed_at = self.resumed_at(offsets)
        return self.second is not None and resumed_at is not None and offset < resumed_at

    def check_commit(self, offset: int, offsets: Mapping[OffsetStorage, int]) -> None:
        """Raises KafkaError INVALID_REQUEST for an offset that goes back."""
        if self.goes_back(offset, offsets):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Offset {offset} is below the committed {self.resumed_at(offsets)}: a group can't go back while "
                "dual.commit.enabled is set.",
            )


def offset_places(settings: Mapping[str, str]) -> OffsetPlaces:
    """The places that settings name: ZooKeeper alone by default; with `offsets.storage=kafka` both, unless dual commits
    are off.

    Raises OperatorError for a value that is none.
    """
    named = settings.get("offsets.storage", OffsetStorage.ZOOKEEPER.value).strip().lower()
    if named not in [each.value for each in OffsetStorage]:
        raise OperatorError(f"offsets.storage is {named!r}, and has to be zookeeper or kafka")
    first = OffsetStorage(named)
    dual = settings.get("dual.commit.enabled", str(first is OffsetStorage.KAFKA)).strip().lower()
    if dual not in ("true", "false"):
        raise OperatorError(f"dual.commit.enabled is {dual!r}, and has to be true or false")
    second = next(each for each in OffsetStorage if each is not first)
    return OffsetPlaces(first, second if dual == "true" else None)
