"""Claims of ephemeral znodes: who is the controller, and which process is the broker of an id.

A claim lasts as long as the session that made it, so nobody has to take it back. After a lost connection nobody knows
whether a claim was made: the owner of the znode says so, and no answer has to be remembered. Whoever becomes the
controller raises the controller's epoch in the same transaction; whoever was it before can write nothing from then on,
since each of its writes checks the version of that epoch (`batches`), whether or not it knows that its session is over.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ottla.common.errors import OperatorError
from ottla.metadata.log import LeaderAndEpoch
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import (
    ControllerClaim,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from ottla.protocol.znodes.migration import MigrationProgress, decode_migration, encode_migration
from ottla.protocol.znodes.operations import Create, Delete, Operation, SetData, Znode

FIRST_EPOCH = Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(0))
"""What the first broker of a cluster makes, before anyone can be the controller."""


class ZnodeOwnership(Enum):
    """Whose an ephemeral znode is."""

    FREE = "nobody's"
    MINE = "this session's"
    TAKEN = "another session's"


def standing(node: Znode | None, session: int) -> ZnodeOwnership:
    """Whose a claim is, as read just now; None where there is no such znode."""
    if node is None:
        return ZnodeOwnership.FREE
    return ZnodeOwnership.MINE if node.owner == session else ZnodeOwnership.TAKEN


class ControllerTerm(NamedTuple):
    """One broker's time as the controller."""

    controller_epoch: int
    epoch_version: int
    """Of `/controller_epoch`, for as long as it lasts: what each of its writes checks."""


def claim_controller(broker_id: int, now_ms: int, epoch: Znode) -> tuple[list[Operation], ControllerTerm]:
    """The call that makes this broker the controller, and what it then is; `epoch` is `/controller_epoch` as read.

    It fails where another was faster (NodeExists, BadVersion). Raises ProtocolError for an epoch that is none.
    """
    controller_epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch.data) + 1
    operations: list[Operation] = [
        SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(controller_epoch), epoch.version),
        Create(paths.CONTROLLER, encode_controller(ControllerClaim(broker_id, now_ms)), ephemeral=True),
    ]
    return operations, ControllerTerm(controller_epoch, epoch.version + 1)


def claim_again(broker_id: int, now_ms: int, claim: Znode, epoch: Znode) -> tuple[list[Operation], ControllerTerm]:
    """As `claim_controller`, by the session that has `claim` already: what it wrote before may yet happen until then.

    After a lost connection, or a write that failed, the controller reads the tree anew; with a new epoch none of its
    own older calls comes in between. Fails where the claim was lost.
    """
    operations, reign = claim_controller(broker_id, now_ms, epoch)
    operations[1] = SetData(paths.CONTROLLER, encode_controller(ControllerClaim(broker_id, now_ms)), claim.version)
    return operations, reign


class QuorumTakeover(NamedTuple):
    """What a quorum writes on, once its claim is made."""

    reign: ControllerTerm
    migration_version: int
    """Of `/migration`, which each of its writes checks and raises."""
    progress: MigrationProgress


def take_over(
    controller: LeaderAndEpoch, now_ms: int, claim: Znode | None, epoch: Znode, migration: Znode | None
) -> tuple[list[Operation], QuorumTakeover] | None:
    """The call by which the active controller of a quorum takes the claim from whoever has it (KIP-866), for good.

    The claim is persistent, so that no broker makes one. None where a later epoch of the quorum has it already; what
    that epoch wrote is kept in `/migration`. The call fails where another was faster. Raises ProtocolError.
    """
    found = None if claim is None else decode_controller(paths.CONTROLLER, claim.data)
    if found is not None and found.kraft_controller_epoch > controller.epoch:
        return None
    controller_epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch.data) + 1
    before = None if migration is None else decode_migration(paths.MIGRATION, migration.data)
    progress = MigrationProgress(*controller, *(() if before is None else before[2:]))
    data = encode_migration(progress)
    operations: list[Operation] = [
        SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(controller_epoch), epoch.version),
        *([] if claim is None else [Delete(paths.CONTROLLER, claim.version)]),
        Create(paths.CONTROLLER, encode_controller(ControllerClaim(controller.leader_id, now_ms, controller.epoch))),
        Create(paths.MIGRATION, data) if migration is None else SetData(paths.MIGRATION, data, migration.version),
    ]
    version = 0 if migration is None else migration.version + 1
    return operations, QuorumTakeover(ControllerTerm(controller_epoch, epoch.version + 1), version, progress)


def check_broker_id(broker_id: int, owners: tuple[int, int], waited_ms: int, session_timeout_ms: int) -> None:
    """Whether to go on waiting for an id that another session has: `owners` are the first one seen and the newest.

    A process that was killed leaves its session behind for as long as that lasts, so its successor waits. Raises
    OperatorError when the owner outlived its time, or another came: then it is a process that lives.
    """
    first, newest = owners
    if first != newest or waited_ms > session_timeout_ms:
        raise OperatorError(
            f"Another process is registered in ZooKeeper as broker {broker_id}; stop it, or give this one another "
            "broker.id."
        )
