"""`ottla log restore`: take back what a start renamed to `-stray`, in the directory of a stopped broker.

It stands here, and not with the other commands of `ottla log`, because it takes the broker's lock and changes files.
Invariants: nothing is removed, and no name that exists is taken; without `--execute` nothing changes at all.

Left out: making a topic known again that the metadata log has forgotten (docs/operations/runbooks/stray-partitions.md).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import click

from ottla.app.disk import RealDisk
from ottla.cli.command import json_option, print_json, print_table
from ottla.cli.log import log as log  # the group, for who adds to it
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.platform.disk import Disk
from ottla.common.platform.disk_refusal import disk_refusal
from ottla.storage.files.directories import shown
from ottla.storage.files.names import LOCK_FILE, STRAY_DIR_SUFFIX, is_cut_short, parse_stray_dir


class Stray(NamedTuple):
    """A directory that was set aside."""

    directory: str
    """Its name now."""
    name: str
    """The name that it had, and gets again."""
    obstacle: str
    """Why it can't get it; empty where it can."""


@log.command(
    examples=(
        "ottla log restore ottla-data",
        "ottla log restore ottla-data --execute",
        "ottla log restore ottla-data clicks-0.6f1c0ab2d3e44f5a8b9c0d1e2f3a4b5c-stray --execute",
    )
)
@click.argument("directory", metavar="DIRECTORY", type=click.Path(exists=True, file_okay=False))
@click.argument("strays", metavar="[STRAY...]", nargs=-1)
@click.option("--execute", is_flag=True, help="Do it; without, only show what would be done.")
@json_option
def restore(directory: str, strays: tuple[str, ...], execute: bool, as_json: bool) -> None:
    """Give directories whose names end with -stray the names that they had.

    DIRECTORY is what --data-dir or log.dirs named at the start that renamed them; its broker must be stopped. Without
    STRAY all of them are taken. A start renames again what its cluster does not have: a partition comes back to stay
    where its topic, with the same id, has a replica on this node. The exit code is 1 when one had to stay as it is.
    """
    disk = RealDisk()
    directory = os.path.abspath(directory)
    try:
        found = _restore(disk, directory, strays, execute) if find_strays(disk, directory, strays) else []
    except BlockingIOError as error:
        raise OperatorError(f"{directory} is in use by a broker that runs: stop that one first") from error
    except OSError as error:
        raise disk_refusal(error, directory) from error
    _report(directory, found, execute, as_json)
    kept = [stray.directory for stray in found if stray.obstacle]
    if kept:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(kept)} of {len(found)} stay as they are ({shown(kept)})")


def find_strays(disk: Disk, directory: str, wanted: Collection[str] = ()) -> list[Stray]:
    """What was set aside in a data directory, by name; only what is `wanted`, if anything is.

    Raises OperatorError for a wish that is no such directory, and OSError.
    """
    present = set(disk.listdir(directory))
    names = {os.path.basename(name.rstrip("/")) for name in wanted} or present
    strays = {name: parse_stray_dir(name) for name in sorted(names & present)}
    strays = {name: was for name, was in strays.items() if was and disk.is_dir(os.path.join(directory, name))}
    if wanted and names - strays.keys():
        raise OperatorError(
            f"{directory} holds no {shown(sorted(names - strays.keys()))} that was set aside: name directories there "
            f"that end with {STRAY_DIR_SUFFIX}, or none for all of them"
        )
    claims = Counter(strays.values())
    found = []
    for name, was in strays.items():
        obstacle = ""
        if is_cut_short(name):
            obstacle = "the end of its topic's name did not fit: rename it by hand"
        elif was in present:
            obstacle = f"{was} is there: move that one elsewhere first"
        elif claims[was] > 1:
            obstacle = f"{claims[was]} have that name: say which one"
        found.append(Stray(name, was or "", obstacle))
    return found


def _restore(disk: Disk, directory: str, wanted: Collection[str], execute: bool) -> list[Stray]:
    """Rename, under the broker's lock, what can be; what was found. Raises BlockingIOError, OSError, OperatorError."""
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
        click.echo(f"Nothing was set aside in {directory}.")
