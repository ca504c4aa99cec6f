"""`ottla backup` and `ottla restore`."""

from __future__ import annotations

import errno
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.command import Command, counted, json_option, print_json, size_text
from ottla.cli.log_scrub import Findings, partitions_in, scrub_partition
from ottla.common.errors import ErrorCode, KafkaError, OperatorError

if TYPE_CHECKING:
    from ottla.app.backup.manifest import Manifest

PROGRESS_INTERVAL_S = 2.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHOWN_PROBLEMS = 3


@click.command(
    "backup",
    cls=Command,
    examples=(
        "ottla backup /backup/monday --data-dir /var/lib/ottla",
        "ottla backup /backup/monday --config server.properties",
        "ottla backup /backup/monday --data-dir ./ottla-cluster --json",
    ),
)
@click.argument("backup", metavar="BACKUP", type=click.Path())
@click.option("--data-dir", metavar="DIR", type=click.Path(), help="Data directory  [default: ./ottla-data]")
@click.option("--config", metavar="FILE", type=click.Path(), help="Broker configuration with log.dirs.")
@json_option
def backup_command(backup: str, data_dir: str | None, config: str | None, as_json: bool) -> None:
    """Copy the data of a node or local cluster.

    BACKUP is a new directory. The node may run and receives no request; the command reads its data directories, as the
    same user on the same machine. DIR is the directory of a single node, or of all brokers of `ottla start --brokers`.
    One node of a cluster on several hosts is refused: see `ottla mirror`.

    The backup contains topics, settings, users, committed offsets and transactions: everything that was acknowledged
    before the command began. It is verified at the end like by `ottla log scrub`, and incomplete without the file
    manifest.json. File systems with reflinks (Btrfs, XFS) share its blocks.
    """
    from ottla.app.backup.copying import BackupRun
    from ottla.app.backup.manifest import write_manifest
    from ottla.app.backup.source import find_source
    from ottla.app.disk import RealDisk
    from ottla.app.start import raise_descriptor_limit

    raise_descriptor_limit()  # the segments of compacted partitions are opened together
    began = time.monotonic()
    disk, backup = RealDisk(), os.path.abspath(backup)
    try:
        source = find_source(disk, config, data_dir)
        above = [] if source.plan is None else [source.plan.data_dir]
        _create_backup(backup, [*above, *(directory.path for directory in source.directories)])
        result = BackupRun(disk, source, backup, _progress()).run()
        _scrub(backup, result.manifest)
        write_manifest(disk, backup, result.manifest)
    except OSError as error:
        raise _refusal(error, backup, "the backup is incomplete and can't be restored: remove it") from error
    manifest = result.manifest
    if as_json:
        print_json(
            {
                **_document(manifest),
                "backup": backup,
                "metadata_offset": result.metadata_offset,
                "shared_bytes": result.shared_bytes,
                "split_transactions": manifest.split_transactions,
                "seconds": round(time.monotonic() - began, 3),
            }
        )
        return
    shared = f", {size_text(result.shared_bytes)} of them shared" if result.shared_bytes else ""
    click.echo(
        f"{backup}: {counted(len(manifest.partitions), 'partition')}, {size_text(manifest.size_bytes)}{shared}, "
        "verified"
    )
    if manifest.split_transactions:
        click.echo(
            "Transactions ended during each measurement of the log ends: some may be complete in a part of their "
            "partitions only. Repeat the backup at a lower load if that matters.",
            err=True,
        )


@click.command(
    "restore",
    cls=Command,
    examples=(
        "ottla restore /backup/monday --data-dir /var/lib/ottla",
        "ottla restore /backup/monday --config server.properties",
        "ottla restore /backup/monday --data-dir ./copy --cluster-id $(ottla format --random-uuid)",
    ),
)
@click.argument("backup", metavar="BACKUP", type=click.Path())
@click.option("--data-dir", metavar="DIR", type=click.Path(), help="New data directory  [default: ./ottla-data]")
@click.option("--config", metavar="FILE", type=click.Path(), help="Broker configuration with log.dirs.")
@click.option("--cluster-id", metavar="ID", help="Cluster id of the restored data  [default: that of the backup]")
@json_option
def restore_command(
    backup: str, data_dir: str | None, config: str | None, cluster_id: str | None, as_json: bool
) -> None:
    """Restore a backup into new data directories.

    The directories must be missing or empty. Node ids, ports and topic ids are those of the backup. Start the restored
    data with the same settings, as the same user. Use a new cluster id if the original still exists: clients and nodes
    then can't mistake one for the other.
    """
    from ottla.app.backup.manifest import read_manifest
    from ottla.app.backup.restoring import Restore, plan_target
    from ottla.app.backup.source import node_directories
    from ottla.app.disk import RealDisk
    from ottla.common.kafka.ids import uuid_from_string

    disk, backup = RealDisk(), os.path.abspath(backup)
    if cluster_id is not None:
        try:
            uuid_from_string(cluster_id)
        except ValueError as error:
            raise OperatorError(
                f"--cluster-id {cluster_id!r} is not an id of 22 URL-safe characters: create one with "
                "`ottla format --random-uuid`"
            ) from error
    manifest = read_manifest(backup)
    paths = node_directories(config, data_dir)
    try:
        target = plan_target(disk, manifest, paths)
        Restore(disk, backup, manifest, target, _progress()).run(cluster_id or manifest.cluster_id)
    except OSError as error:
        raise _refusal(error, paths[0], "the restored directories are incomplete: remove them") from error
    if as_json:
        document = _document(manifest)
        print_json({**document, "cluster_id": cluster_id or manifest.cluster_id, "directories": list(target.paths)})
        return
    brokers = "" if target.plan is None else f" --brokers {len(target.paths)}"
    where = f"--data-dir {shlex.quote(','.join(paths))}" if config is None else f"--config {shlex.quote(config)}"
    click.echo(
        f"{counted(len(manifest.partitions), 'partition')} restored, cluster id {cluster_id or manifest.cluster_id}\n"
        f"Start with: ottla start{brokers} {where}"
    )


def _document(manifest: Manifest) -> dict[str, object]:
    return {
        "cluster_id": manifest.cluster_id,
        "nodes": sorted({directory.meta.node_id for directory in manifest.directories}),
        "partitions": len(manifest.partitions),
        "bytes": manifest.size_bytes,
    }


def _create_backup(backup: str, sources: list[str]) -> None:
    """Create the directory. Raises OperatorError if it is not empty or inside of the data, and OSError."""
    real = os.path.realpath(backup)
    for path in map(os.path.realpath, sources):
        if os.path.commonpath((real, path)) in (real, path):
            raise OperatorError(f"{backup} and the data directory {path} contain one another: choose another BACKUP")
    if os.path.lexists(backup) and (not os.path.isdir(backup) or os.listdir(backup)):
        raise OperatorError(f"{backup} exists and is not empty: choose a new directory")
    os.makedirs(backup, mode=0o700, exist_ok=True)


def _refusal(error: OSError, path: str, consequence: str) -> OperatorError:
    if error.errno in _FULL:
        return OperatorError(f"the disk of {path} is full, {consequence}, and free space or choose another disk")
    where = error.filename or path
    return OperatorError(f"{where} can't be used ({error.strerror or error}), {consequence}, and check the file")


def _progress() -> Callable[[str], None]:
    """Print a line on standard error, at most every `PROGRESS_INTERVAL_S`."""
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_INTERVAL_S:
            last = time.monotonic()
            click.echo(text, err=True)

    return show


class _Problems(Findings):
    """Problems of the copy."""

    def __init__(self) -> None:
        super().__init__(as_json=False)
        self.texts: list[str] = []

    def report(self, path: Path, problem: str, position: int | None = None) -> None:
        self.problems += 1
        self.texts.append(f"{path}{'' if position is None else f' at position {position}'}: {problem}")


def _scrub(backup: str, manifest: Manifest) -> None:
    """Verify all logs of the backup. Raises KafkaError for damage, OSError."""
    from ottla.app.backup.manifest import PARTITIONS

    found = _Problems()
    directories = [Path(backup), *([Path(backup, PARTITIONS)] if manifest.partitions else [])]
    for directory in directories:
        for partition in partitions_in(directory):
            scrub_partition(partition, found)
    if found.problems:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{counted(found.problems, 'problem')} in the copy, so the backup is incomplete; run `ottla log scrub` on "
            f"the data directories: {'; '.join(found.texts[:_SHOWN_PROBLEMS])}",
        )
