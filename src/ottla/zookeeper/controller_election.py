"""Claims of ephemeral znodes: the controller, and the registration of a broker id.

A claim lasts as long as the session that created it, so it is never removed explicitly. After a lost connection the
outcome of a claim is unknown, and the owner of the znode decides; no response has to be stored. A new controller raises
the controller epoch in the same transaction. Its predecessor can write nothing from then on, even before it notices the
end of its session, since each of its writes checks the version of that epoch (`batches`).
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
"""The znodes that the first broker of a cluster creates before there can be a controller."""


class ZnodeOwnership(Enum):
    """The owner of an ephemeral znode, as seen by this session."""

    FREE = "none"
    MINE = "this session's"
    TAKEN = "another session's"


def standing(node: Znode | None, session: int) -> ZnodeOwnership:
    """Ownership of a claim as just read; `node` is None if the znode does not exist."""
    if node is None:
        return ZnodeOwnership.FREE
    return ZnodeOwnership.MINE if node.owner == session else ZnodeOwnership.TAKEN


class ControllerTerm(NamedTuple):
    """One broker's time as the controller."""

    controller_epoch: int
    epoch_version: int
    """Version of `/controller_epoch` during this term, which each of its writes checks."""


def claim_controller(broker_id: int, now_ms: int, epoch: Znode) -> tuple[list[Operation], ControllerTerm]:
    """The call that makes this broker the controller, and the resulting term; `epoch` is `/controller_epoch` as read.

    It fails if another broker was faster (NodeExists, BadVersion). Raises ProtocolError for an invalid epoch.
    """
    controller_epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch.data) + 1
    operations: list[Operation] = [
        SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(controller_epoch), epoch.version),
        Create(paths.CONTROLLER, encode_controller(ControllerClaim(broker_id, now_ms)), ephemeral=True),
    ]
    return operations, ControllerTerm(controller_epoch, epoch.version + 1)


def claim_again(broker_id: int, now_ms: int, claim: Znode, epoch: Znode) -> tuple[list[Operation], ControllerTerm]:
    """As `claim_controller`, by the session that already has `claim`: its earlier writes may still be applied until
    then.

    After a lost connection, or a failed write, the controller reads the tree again. With a new epoch none of its own
    older calls can interleave. Fails if the claim was lost.
    """
    operations, term = claim_controller(broker_id, now_ms, epoch)
    operations[1] = SetData(paths.CONTROLLER, encode_controller(ControllerClaim(broker_id, now_ms)), claim.version)
    return operations, term


class QuorumTakeover(NamedTuple):
    """The versions that a quorum checks on each write, once it has the claim."""

    term: ControllerTerm
    migration_version: int
    """Version of `/migration`, which each of its writes checks and increments."""
    progress: MigrationProgress


def take_over(
    controller: LeaderAndEpoch, now_ms: int, claim: Znode | None, epoch: Znode, migration: Znode | None
) -> tuple[list[Operation], QuorumTakeover] | None:
    """The call by which the active controller of a quorum takes the claim from its owner (KIP-866), permanently.

    The claim is persistent, so that no broker creates one. Returns None if a later epoch of the quorum has it already;
    the progress of that epoch is stored in `/migration`. The call fails if another was faster. Raises ProtocolError.
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
    """Check whether to keep waiting for an id that another session owns: `owners` are the first one seen and the
    newest.

    A killed process leaves its session behind until it expires, so its successor waits. Raises OperatorError if the
    owner outlived its session timeout, or changed: then it is a running process.
    """
    first, newest = owners
    if first != newest or waited_ms > session_timeout_ms:
        raise OperatorError(
            f"Another process is registered in ZooKeeper as broker {broker_id}; stop it, or give this one another "
            "broker.id."
        )
