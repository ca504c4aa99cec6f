"""`manifest.json` of a backup, written last: identity, files with sizes and checksums, and directories.

A directory without it is an incomplete backup. The identity of the nodes is only here, so that no broker starts on the
directory of a backup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.app.backup.files import CopiedFile
from ottla.common.errors import DAMAGED_JSON, OperatorError
from ottla.common.kafka.ids import uuid_from_string
from ottla.common.platform.disk import Disk
from ottla.common.platform.files import read_file
from ottla.storage.files.meta_properties import MetaProperties
from ottla.storage.files.names import METADATA_DIR, parse_partition_dir

MANIFEST = "manifest.json"
VERSION = 1
PARTITIONS = "partitions"
"""Directory with the partitions and the offset checkpoints of all of them."""
MAX_MANIFEST_BYTES = 1 << 30
_FILE_NAME = re.compile(
    r"\d{20}\.(log|index|timeindex|txnindex|snapshot)|\d{20}-\d{10}\.checkpoint|leader-epoch-checkpoint"
    r"|partition\.metadata|quorum-state|[a-z-]+-offset-checkpoint"
)


class CopiedDirectory(NamedTuple):
    """A data directory of the source."""

    meta: MetaProperties
    broker_epoch: int
    """Of the registered broker; -1 without one."""
    has_metadata: bool
    siblings: tuple[str, ...]
    """Content of `.ottla_siblings`: ids of all log directories of the node, if it has several."""


class CopiedPartition(NamedTuple):
    """A partition: its files, and the data directories that have a replica, by number."""

    name: str
    end_offset: int
    directories: tuple[int, ...]
    files: tuple[CopiedFile, ...]


class Manifest(NamedTuple):
    """Content of a backup."""

    directories: tuple[CopiedDirectory, ...]
    plan: str | None
    """Content of `cluster.json`."""
    metadata: tuple[CopiedFile, ...]
    checkpoints: tuple[CopiedFile, ...]
    partitions: tuple[CopiedPartition, ...]
    split_transactions: bool
    """Whether transactions ended in every measurement of the ends: some may be complete in a part of their
    partitions."""

    @property
    def cluster_id(self) -> str:
        return self.directories[0].meta.cluster_id

    @property
    def size_bytes(self) -> int:
        return sum(file.size for partition in self.partitions for file in partition.files)


def write_manifest(disk: Disk, backup: str, manifest: Manifest) -> None:
    """Write the file, durably, which completes the backup. Raises OSError."""
    import json

    content = {
        "version": VERSION,
        "cluster_id": manifest.cluster_id,
        "split_transactions": manifest.split_transactions,
        "plan": manifest.plan,
        "directories": [
            {
                **each.meta._asdict(),
                "broker_epoch": each.broker_epoch,
                "has_metadata": each.has_metadata,
                "siblings": each.siblings,
            }
            for each in manifest.directories
        ],
        "metadata": manifest.metadata,
        "checkpoints": manifest.checkpoints,
        "partitions": [each._asdict() for each in manifest.partitions],
    }
    disk.write_atomic(os.path.join(backup, MANIFEST), json.dumps(content, separators=(",", ":")).encode() + b"\n")


def read_manifest(backup: str) -> Manifest:
    """Read and check the file. Raises OperatorError for an incomplete backup or a damaged file."""
    import json

    path = os.path.join(backup, MANIFEST)
    try:
        content = json.loads(read_file(path, MAX_MANIFEST_BYTES))
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']} is not {VERSION}")
        return _parsed(content)
    except FileNotFoundError as error:
        raise OperatorError(
            f"{backup} is not a complete backup: it has no {MANIFEST}, which is written last; use another one"
        ) from error
    except OSError as error:
        raise OperatorError(f"{path} can't be read: {error.strerror or error}") from error
    except DAMAGED_JSON as error:
        raise OperatorError(f"{path} is damaged ({error}): use another backup") from error


def _parsed(content: dict[str, Any]) -> Manifest:
    directories = tuple(
        CopiedDirectory(
            MetaProperties(str(each["cluster_id"]), int(each["node_id"]), str(each["directory_id"])),
            int(each["broker_epoch"]),
            bool(each["has_metadata"]),
            tuple(str(directory_id) for directory_id in each["siblings"]),
        )
        for each in content["directories"]
    )
    for each in directories:
        for text in (each.meta.cluster_id, each.meta.directory_id, *each.siblings):
            uuid_from_string(text)
    if not directories:
        raise ValueError("it has no directory")
    partitions = tuple(_partition(each, len(directories)) for each in content["partitions"])
    plan = content["plan"]
    return Manifest(
        directories,
        None if plan is None else str(plan),
        _files(content["metadata"]),
        _files(content["checkpoints"]),
        partitions,
        bool(content["split_transactions"]),
    )


def _partition(fields: dict[str, Any], directory_count: int) -> CopiedPartition:
    name = str(fields["name"])
    numbers = tuple(int(number) for number in fields["directories"])
    if parse_partition_dir(name) is None or "/" in name or name == METADATA_DIR:
        raise ValueError(f"{name!r} is not a partition")
    if not all(0 <= number < directory_count for number in numbers):
        raise ValueError(f"{name} is in an unknown directory")
    return CopiedPartition(name, int(fields["end_offset"]), numbers, _files(fields["files"]))


def _files(rows: Sequence[Sequence[Any]]) -> tuple[CopiedFile, ...]:
    files = tuple(CopiedFile(str(name), int(size), str(sha256)) for name, size, sha256 in rows)
    for file in files:
        if _FILE_NAME.fullmatch(file.name) is None or file.size < 0:
            raise ValueError(f"{file.name!r} is not a file of a backup")
    return files
