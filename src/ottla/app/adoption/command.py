"""`ottla adopt`: report on a data directory, and the command that would serve it.

It is in `app` because it takes the broker's lock and uses the broker's recovery rules.
Invariant: the command does not change the directory; `ottla start` takes it over.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import Command, counted, json_option, print_json, print_table, program, size_text
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from ottla.app.adoption.inspection import Inspection
    from ottla.common.platform.disk import Disk, FileLock


@click.command(
    cls=Command,
    examples=("ottla adopt /var/lib/kafka/data", "ottla adopt /disk1/kafka /disk2/kafka --verify"),
)
@click.argument("directories", metavar="DIRECTORY...", nargs=-1, required=True, type=click.Path())
@click.option("--verify", is_flag=True, help="Verify all batches, not only those of a recovery.")
@json_option
def adopt(directories: tuple[str, ...], verify: bool, as_json: bool) -> None:
    """Check a Kafka data directory for adoption.

    DIRECTORY are all log.dirs of a stopped Apache Kafka node in KRaft mode. Nothing in them is changed. The command
    lists their contents and the effect of a start; `ottla start` serves the directories in place. If anything prevents
    that, it is reported and the exit code is 2. Apache Kafka likewise starts on directories of Ottla.
    """
    from ottla.app.adoption.inspection import inspect
    from ottla.app.disk import RealDisk
    from ottla.common.platform.disk_refusal import disk_refusal

    disk = RealDisk()
    paths = [os.path.abspath(directory) for directory in directories]
    for path in paths:
        if not os.path.isdir(path):
            raise OperatorError(f"{path} is not a directory: give the log.dirs of a Kafka node")
    locks: list[FileLock] = []
    try:
        for path in paths:
            locks += _lock(disk, path)
        found = inspect(disk, paths, everything=verify)
    except OSError as error:
        raise disk_refusal(error, ", ".join(paths)) from error
    finally:
        for lock in locks:
            lock.release()
    if as_json:
        print_json(_document(found))
    else:
        print_table(("item", "found", "on a start"), _rows(found))
    if found.obstacles:
        for obstacle in found.obstacles[1:]:
            click.echo(f"ottla: {obstacle}", err=True)
        raise OperatorError(found.obstacles[0])
    if not as_json:
        click.echo(f"\n{_next_step(found)}")


def _lock(disk: Disk, directory: str) -> list[FileLock]:
    """The broker's lock; empty if no broker ever ran there, since the lock file would be a change."""
    from ottla.storage.files.names import LOCK_FILE

    path = f"{directory}/{LOCK_FILE}"
    try:
        return [disk.lock(path)] if disk.exists(path) else []
    except BlockingIOError as error:
        raise OperatorError(
            f"{directory} is in use by a running broker or given twice: stop the broker first"
        ) from error


def _rows(found: Inspection) -> Iterator[tuple[str, str, str]]:
    """Table rows: item, contents, and effect of a start."""
    from ottla.app.adoption.inspection import settings_count
    from ottla.common.config.config_def import ConfigResourceType
    from ottla.storage.files.directories import shown

    image, metadata, meta = found.image, found.metadata, found.meta
    yield "node", f"{meta.node_id} of cluster {meta.cluster_id}", "the same"
    for directory in found.directories:
        yield "directory id", f"{directory.meta.directory_id} ({directory.path})", "unchanged"
    walked = size_text(sum(stored.walked_bytes for stored in found.partitions))
    stop = ("clean", "no recovery") if found.clean_stop else ("unclean", f"{walked} to recover")
    yield "last stop", *stop
    yield (
        "voters",
        ", ".join(map(str, metadata.voter_ids)) or "-",
        "voters of its quorum" if found.is_member else "this node only",
    )
    yield "features", ", ".join(f"{name} {level}" for name, level in sorted(image.features.items())) or "-", "the same"
    size = size_text(sum(stored.size_bytes for stored in found.partitions))
    yield "topics", str(len({stored.topic for stored in found.partitions})), "served"
    yield "partitions", f"{len(found.partitions)} with {size}", "served"
    yield "topic settings", str(settings_count(image, ConfigResourceType.TOPIC)), "in force"
    if found.unknown_settings:
        yield "unknown settings", shown(found.unknown_settings), "kept, without effect"
    yield "broker settings", str(settings_count(image, ConfigResourceType.BROKER)), "in force"
    yield "client quotas", str(len(image.client_quotas)), "kept"
    if image.scram_credentials:
        yield "SCRAM credentials", str(len(image.scram_credentials)), "in force"
    if image.acls:
        yield "ACLs", str(len(image.acls)), "in force with authorizer.class.name, which a start requires"
    if image.delegation_tokens:
        yield "delegation tokens", str(len(image.delegation_tokens)), "in force with delegation.token.secret.key"
    yield from _coordinator_rows(found)
    for item, names, effect in (
        ("strays", found.strays, "renamed to -stray, kept"),
        ("set aside", found.set_aside, "-delete is removed, -stray kept, the move of a -future resumed"),
    ):
        if names:
            yield item, shown(names), effect
    for cut in found.cuts:
        yield "torn end", f"{cut.path} at {cut.position}", f"{counted(cut.size_bytes, 'byte')} truncated: {cut.defect}"


def _coordinator_rows(found: Inspection) -> Iterator[tuple[str, str, str]]:
    from ottla.storage.files.directories import shown

    groups, transactions = found.groups, found.transactions
    unreadable = sum(each.unreadable for each in (groups, transactions) if each is not None)
    if unreadable:
        yield (
            "coordinator records",
            f"{unreadable} can't be decoded",
            "skipped and logged: see ottla log dump --records",
        )
    if groups is not None:
        for kind, count in groups.types.items():
            built = kind in ("classic", "consumer")
            if built or count:
                yield f"{kind} groups", str(count), "loaded" if built else "kept, not loaded"
        pending = f", {groups.pending_offsets} in open transactions" if groups.pending_offsets else ""
        yield "offsets", f"{groups.offsets}{pending}", "unchanged"
    if transactions is not None:
        yield "transactional ids", str(transactions.ids), "loaded"
        if transactions.open:
            yield "open transactions", shown(transactions.open), "completed by their producers or aborted on timeout"


def _next_step(found: Inspection) -> str:
    if found.is_member:
        return (
            "It is one node of a cluster: stop Apache Kafka on all nodes, check each directory, and start each node "
            f"with its own configuration: {program()} start --config server.properties"
        )
    node = "" if found.meta.node_id == 1 else f" --set node.id={found.meta.node_id}"
    paths = ",".join(directory.path for directory in found.directories)
    several = len(found.directories) > 1
    where = f"--set {shlex.quote(f'log.dirs={paths}')}" if several else f"--data-dir {shlex.quote(paths)}"
    return f"Start it with its own configuration, or with {program()} start {where}{node}"


def _document(found: Inspection) -> dict[str, Any]:
    from ottla.common.kafka.ids import uuid_to_string

    image, metadata = found.image, found.metadata
    return {
        "directories": [
            {"path": directory.path, "id": directory.meta.directory_id, "clean_stop": directory.clean_stop}
            for directory in found.directories
        ],
        "node_id": found.meta.node_id,
        "cluster_id": found.meta.cluster_id,
        "clean_stop": found.clean_stop,
        "voters": list(metadata.voter_ids),
        "leader_epoch": metadata.leader_epoch,
        "features": dict(sorted(image.features.items())),
        "delegation_tokens": len(image.delegation_tokens),
        "unreadable": dict(metadata.unreadable),
        "partitions": [
            {
                "path": stored.path,
                "topic": stored.topic,
                "partition": stored.partition,
                "topic_id": None if stored.topic_id is None else uuid_to_string(stored.topic_id),
                "segments": stored.segments,
                "bytes": stored.size_bytes,
            }
            for stored in found.partitions
        ],
        "groups": None if found.groups is None else found.groups._asdict(),
        "transactions": None if found.transactions is None else found.transactions._asdict(),
        "client_quotas": len(image.client_quotas),
        "scram_credentials": len(image.scram_credentials),
        "unknown_settings": found.unknown_settings,
        "strays": found.strays,
        "set_aside": found.set_aside,
        "cuts": [cut._asdict() for cut in found.cuts],
        "obstacles": found.obstacles,
    }
