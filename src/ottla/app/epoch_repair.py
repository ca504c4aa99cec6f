"""`ottla cluster repair-epoch`: repair of an exhausted leader epoch, for stopped nodes.

It is in `app` because it takes the broker's lock and changes files. The new epoch is far above every epoch with
committed records and far below the last one. The vote of a node may be discarded: no candidate exists in the epoch of
a repeated vote.

Invariant: only `quorum-state` is changed, and only if its epoch is far above that of the log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.cluster import cluster
from ottla.cli.command import json_option, print_json, print_table
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from ottla.common.platform.disk import Disk


class EpochRepair(NamedTuple):
    """The epochs of a directory before and after the repair."""

    directory: str
    log_epoch: int
    """Epoch of the last batch of the metadata log, or of its newest snapshot."""
    epoch: int
    """Epoch in `quorum-state`."""
    new_epoch: int
    """Equal to `epoch` if no repair is needed."""


@cluster.command(
    examples=(
        "ottla cluster repair-epoch ottla-data",
        "ottla cluster repair-epoch ottla-cluster/broker-* --execute",
    )
)
@click.argument("directories", metavar="DIRECTORY...", nargs=-1, required=True, type=click.Path())
@click.option("--execute", is_flag=True, help="Apply the change; the default is a dry run.")
@json_option
def repair_epoch(directories: tuple[str, ...], execute: bool, as_json: bool) -> None:
    """Reset an exhausted leader epoch.

    For a cluster with nodes that fail at startup with "no leader epoch is left", because the epoch in quorum-state has
    reached the maximum. DIRECTORY is the directory of a stopped node with the metadata log: metadata.log.dir, else the
    first of log.dirs.

    Stop all nodes of the cluster, brokers too. Run this command once per node, on that directory, before you start the
    first: a node without the repair would spread the old epoch again. The new epoch is a million above that of the
    metadata log, and the vote of the node is removed. Topics, records and all other data are unchanged.
    """
    from ottla.app.disk import RealDisk

    disk = RealDisk()
    repairs = repair_all(disk, [os.path.abspath(directory) for directory in directories], execute=execute)
    if as_json:
        print_json({"executed": execute, "directories": [repair._asdict() for repair in repairs]})
    else:
        rows = [(*repair, "" if repair.epoch != repair.new_epoch else "nothing to repair") for repair in repairs]
        numbers = ("log epoch", "epoch", "new epoch")
        print_table(("directory", *numbers, ""), rows, right=numbers)
    if not execute:
        click.echo("Dry run: use --execute to apply the change.", err=True)


def repair_all(disk: Disk, directories: Sequence[str], *, execute: bool) -> list[EpochRepair]:
    """Check all directories, and repair them only if all can be repaired. Raises OperatorError."""
    from ottla.common.platform.disk_refusal import disk_refusal
    from ottla.storage.files.names import LOCK_FILE, META_PROPERTIES

    locks = []
    try:
        for directory in directories:
            if not disk.exists(f"{directory}/{META_PROPERTIES}"):
                raise OperatorError(f"{directory} is not a data directory: it has no {META_PROPERTIES}")
            try:
                locks.append(disk.lock(f"{directory}/{LOCK_FILE}"))
            except BlockingIOError as error:
                raise OperatorError(
                    f"{directory} is in use by a running node or given twice: stop all nodes first"
                ) from error
            except OSError as error:
                raise disk_refusal(error, directory) from error
        repairs = [_look(disk, directory) for directory in directories]
        if execute:
            for repair in repairs:
                _execute(disk, repair)
        return repairs
    finally:
        for lock in locks:
            lock.release()


def _look(disk: Disk, directory: str) -> EpochRepair:
    from ottla.common.platform.disk_refusal import disk_refusal
    from ottla.quorum.election_file import decode_election_state
    from ottla.quorum.metadata_log import DIRECTORY, QUORUM_STATE
    from ottla.quorum.raft_types import FORGOTTEN_EPOCHS, MAX_LEADER_EPOCH

    log_directory = f"{directory}/{DIRECTORY}"
    if not disk.exists(log_directory):
        raise OperatorError(
            f"{directory} contains no {QUORUM_STATE}: give the directory with the metadata log (metadata.log.dir, else "
            "the first of log.dirs)"
        )
    try:
        log_epoch = _log_epoch(disk, log_directory)
        epoch = decode_election_state(disk.read_bytes(f"{log_directory}/{QUORUM_STATE}")).leader_epoch
    except FileNotFoundError as error:
        raise OperatorError(
            f"{log_directory} contains no {QUORUM_STATE}: this node has not taken part in an election and needs no "
            "repair"
        ) from error
    except OSError as error:
        raise disk_refusal(error, log_directory) from error
    except ValueError as error:
        raise OperatorError(f"{log_directory}/{QUORUM_STATE} can't be used: {error}") from error
    limit = log_epoch + FORGOTTEN_EPOCHS
    if limit > MAX_LEADER_EPOCH:
        raise OperatorError(
            f"the metadata log in {log_directory} itself is in leader epoch {log_epoch}, so quorum-state can't be set "
            "back: restore the directory from a copy"
        )
    return EpochRepair(directory, log_epoch, epoch, min(epoch, limit))


def _log_epoch(disk: Disk, directory: str) -> int:
    """The largest epoch of the log, which is that of its last batch; a torn end will be truncated at startup."""
    from ottla.common.platform.files import open_regular
    from ottla.quorum.metadata_log import list_snapshots
    from ottla.storage.files.names import LOG_SUFFIX, parse_offset
    from ottla.storage.repair.reader import SegmentDamage, iter_segment

    largest = max((snapshot.epoch for snapshot in list_snapshots(disk, directory)), default=0)
    for name in reversed([name for name in disk.listdir(directory) if parse_offset(name, LOG_SUFFIX) is not None]):
        found = -1
        with open_regular(f"{directory}/{name}") as segment:
            try:
                for stored in iter_segment(segment):
                    found = max(found, stored.batch.partition_leader_epoch)
            except SegmentDamage:
                pass  # later data was never acknowledged
        if found >= 0:
            return max(found, largest)
    return largest


def _execute(disk: Disk, repair: EpochRepair) -> None:
    """Replace the file, in its current version."""
    from ottla.common.kafka.ids import ZERO_UUID, uuid_to_string
    from ottla.common.platform.disk_refusal import disk_refusal
    from ottla.metadata.log import NO_NODE
    from ottla.quorum.election_file import decode_fields, encode_fields
    from ottla.quorum.metadata_log import DIRECTORY, QUORUM_STATE

    if repair.new_epoch == repair.epoch:
        return
    path = f"{repair.directory}/{DIRECTORY}/{QUORUM_STATE}"
    try:
        fields = decode_fields(disk.read_bytes(path))
        fields |= {"leaderEpoch": repair.new_epoch, "leaderId": NO_NODE, "votedId": NO_NODE}
        if "votedDirectoryId" in fields:
            fields["votedDirectoryId"] = uuid_to_string(ZERO_UUID)
        disk.write_atomic(path, encode_fields(fields))
    except OSError as error:
        raise disk_refusal(error, path) from error
