"""`ottla log restore`: renames quarantined `-stray` directories of a stopped broker back to their original names.

It is in `app` because it takes the broker's lock and changes files. Invariants: nothing is removed or overwritten;
without `--execute` nothing changes.

Left out: recreating a topic that the metadata log no longer contains (see
docs/operations/runbooks/stray-partitions.md).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.command import json_option, print_json, print_table
from ottla.cli.log import log as log  # reexported for modules that add commands
from ottla.common.errors import ErrorCode, KafkaError, OperatorError

if TYPE_CHECKING:
    from ottla.common.platform.disk import Disk


class Stray(NamedTuple):
    """A quarantined directory."""

    directory: str
    """Its current name."""
    name: str
    """Its original name, to be restored."""
    obstacle: str
    """The reason why it cannot be restored; empty if it can."""


@log.command(
    examples=(
        "ottla log restore ottla-data",
        "ottla log restore ottla-data --execute",
        "ottla log restore ottla-data clicks-0.6f1c0ab2d3e44f5a8b9c0d1e2f3a4b5c-stray --execute",
    )
)
@click.argument("directory", metavar="DIRECTORY", type=click.Path(exists=True, file_okay=False))
@click.argument("strays", metavar="[STRAY...]", nargs=-1)
@click.option("--execute", is_flag=True, help="Apply the change; the default is a dry run.")
@json_option
def restore(directory: str, strays: tuple[str, ...], execute: bool, as_json: bool) -> None:
    """Restore quarantined log directories.

    Renames directories with the suffix -stray to their original names. DIRECTORY is one of --data-dir or log.dirs; its
    broker must be stopped. Without STRAY, all of them are restored. A restored partition stays only if the metadata
    assigns a replica of its topic, with the same id, to this node: otherwise the next start renames it again. The exit
    code is 1 if a directory can't be restored.
    """
    from ottla.app.disk import RealDisk
    from ottla.common.platform.disk_refusal import disk_refusal
    from ottla.storage.files.directories import shown

    disk = RealDisk()
    directory = os.path.abspath(directory)
    try:
        found = _restore(disk, directory, strays, execute) if find_strays(disk, directory, strays) else []
    except BlockingIOError as error:
        raise OperatorError(f"{directory} is in use by a running broker: stop the broker first") from error
    except OSError as error:
        raise disk_refusal(error, directory) from error
    _report(directory, found, execute, as_json)
    kept = [stray.directory for stray in found if stray.obstacle]
    if kept:
        problem = "were not restored" if execute else "can't be restored"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(kept)} of {len(found)} directories {problem} ({shown(kept)}); the "
            f"{'field' if as_json else 'column'} `state` has the reasons",
        )


def find_strays(disk: Disk, directory: str, wanted: Collection[str] = ()) -> list[Stray]:
    """Quarantined directories in a data directory, sorted by name; with `wanted`, only those.

    Raises OperatorError for a wanted name that is not a quarantined directory, and OSError.
    """
    from ottla.storage.files.directories import shown
    from ottla.storage.files.names import STRAY_DIR_SUFFIX, is_cut_short, parse_stray_dir

    present = set(disk.listdir(directory))
    names = {os.path.basename(name.rstrip("/")) for name in wanted} or present
    strays = {name: parse_stray_dir(name) for name in sorted(names & present)}
    strays = {
        name: original for name, original in strays.items() if original and disk.is_dir(os.path.join(directory, name))
    }
    if wanted and names - strays.keys():
        raise OperatorError(
            f"{directory} has no quarantined {shown(sorted(names - strays.keys()))}: give directories there "
            f"with the suffix {STRAY_DIR_SUFFIX}, or none for all of them"
        )
    claims = Counter(strays.values())
    found = []
    for name, original in strays.items():
        obstacle = ""
        if is_cut_short(name):
            obstacle = "the name is truncated: rename the directory by hand"
        elif original in present:
            obstacle = f"{original} exists: move it elsewhere first"
        elif claims[original] > 1:
            obstacle = f"{claims[original]} directories have this original name: select one"
        found.append(Stray(name, original or "", obstacle))
    return found


def _restore(disk: Disk, directory: str, wanted: Collection[str], execute: bool) -> list[Stray]:
    """Rename the directories under the broker's lock; returns all. Raises BlockingIOError, OSError, OperatorError."""
    from ottla.storage.files.names import LOCK_FILE

    lock = disk.lock(os.path.join(directory, LOCK_FILE))
    try:
        found = find_strays(disk, directory, wanted)
        for stray in found:
            if execute and not stray.obstacle:
                disk.rename(os.path.join(directory, stray.directory), os.path.join(directory, stray.name))
        if execute:
            disk.fsync_dir(directory)
        return found
    finally:
        lock.release()


def _report(directory: str, found: Sequence[Stray], execute: bool, as_json: bool) -> None:
    done = "restored" if execute else "can be restored"
    rows = [(stray.directory, stray.name, stray.obstacle or done) for stray in found]
    if as_json:
        print_json(
            [
                {"directory": now, "name": name, "restored": execute and not stray.obstacle, "state": state}
                for (now, name, state), stray in zip(rows, found, strict=True)
            ]
        )
    elif rows:
        print_table(("directory", "name", "state"), rows)
    else:
        click.echo(f"No quarantined directories in {directory}.")
