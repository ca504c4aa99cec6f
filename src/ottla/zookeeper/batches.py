"""Operations as multi() calls: each checks the controller's epoch, and each fits the server's size limit.

A group of operations is atomic. Between groups a call may end, and the controller may fail. So callers order groups
such that after each of them the tree is consistent.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.znodes.operations import Check, Operation, size_bytes
from ottla.protocol.znodes.paths import CONTROLLER_EPOCH

MAX_BATCH_BYTES = 512 * 1024
"""Half of a server's default limit (`jute.maxbuffer`)."""
MAX_GROUP_BYTES = MAX_BATCH_BYTES - size_bytes(Check(CONTROLLER_EPOCH, 0))

Group = list[Operation]


def check_size(group: Group) -> None:
    """Raise KafkaError POLICY_VIOLATION for a group that fits into no call."""
    size = sum(map(size_bytes, group))
    if size > MAX_GROUP_BYTES:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The change needs a znode {group[0].path} that is too large for ZooKeeper: {size} bytes.",
        )


def batches(groups: Iterable[Group], epoch_version: int) -> list[list[Operation]]:
    """The groups, each of which fits, in their order, as calls that first check the version of the controller's
    epoch."""
    made: list[list[Operation]] = []
    room = 0
    for group in groups:
        size = sum(map(size_bytes, group))
        if not made or size > room:
            made.append([Check(CONTROLLER_EPOCH, epoch_version)])
            room = MAX_GROUP_BYTES
        made[-1] += group
        room -= size
    return made
