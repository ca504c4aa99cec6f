"""`ottla log cleaner`: how far the compacted logs of a data directory are cleaned, told by its files alone.

A broker may run meanwhile. Dirty and clean bytes are counted by whole segments, as the cleaner counts them; the active
segment is neither.

Left out: compacted logs that were never cleaned, since only the metadata log says that they are compacted, and limits
of what may be cleaned that no file tells (last stable offset, `min.compaction.lag.ms`).
"""

from __future__ import annotations

import os
from typing import NamedTuple

import click

from ottla.app.disk import RealDisk
from ottla.app.log_restore import log
from ottla.cli.command import json_option, print_json, print_table
from ottla.common.disk import Disk
from ottla.common.disk_refusal import disk_refusal
from ottla.common.errors import OperatorError
from ottla.storage.checkpoints import CheckpointCorruption, read_offsets
from ottla.storage.names import CLEANER_OFFSET_CHECKPOINT, LOG_SUFFIX, parse_offset, partition_dir


class CleanedLog(NamedTuple):
    """A partition that was cleaned before."""

    topic: str
    partition: int
    cleaned_to: int
    clean_bytes: int
    dirty_bytes: int
    active_bytes: int

    @property
    def dirty_ratio(self) -> float:
        """Share of the bytes before the active segment that the cleaner has not seen, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


@log.command(examples=("ottla log cleaner ottla-data", "ottla log cleaner ottla-data --json | jq '.[].dirty_ratio'"))
@click.argument("directory", metavar="DIRECTORY", type=click.Path(exists=True, file_okay=False))
@json_option
def cleaner(directory: str, as_json: bool) -> None:
    """Show how far the log cleaner came with each partition that it ever cleaned, the dirtiest first.

    DIRECTORY is what --data-dir or log.dirs names; its broker may run. A log is due when its dirty ratio exceeds
    min.cleanable.dirty.ratio, or a record waits longer than max.compaction.lag.ms.
    """
    try:
        found = cleaned_logs(RealDisk(), os.path.abspath(directory))
    except CheckpointCorruption as error:
        raise OperatorError(f"{error}: the next start cleans all logs from their start") from error
    except OSError as error:
        raise disk_refusal(error, directory) from error
    if as_json:
        print_json([{**each._asdict(), "dirty_ratio": round(each.dirty_ratio, 4)} for each in found])
        return
    columns = ("topic", "partition", "dirty ratio", "dirty bytes", "clean bytes", "active bytes", "cleaned to")
    rows = [
        (
            each.topic,
            each.partition,
            f"{each.dirty_ratio:.2f}",
            each.dirty_bytes,
            each.clean_bytes,
            each.active_bytes,
            each.cleaned_to,
        )
        for each in found
    ]
    print_table(columns, rows, right=columns[1:])


def cleaned_logs(disk: Disk, directory: str) -> list[CleanedLog]:
    """What the checkpoint names and the directory holds, the dirtiest first. Raises CheckpointCorruption, OSError."""
    found = []
    for (topic, partition), cleaned_to in read_offsets(
        disk, os.path.join(directory, CLEANER_OFFSET_CHECKPOINT)
    ).items():
        folder = os.path.join(directory, partition_dir(topic, partition))
        if disk.is_dir(folder):
            found.append(_cleaned_log(disk, folder, topic, partition, cleaned_to))
    return sorted(found, key=lambda each: (-each.dirty_ratio, each.topic, each.partition))


def _cleaned_log(disk: Disk, folder: str, topic: str, partition: int, cleaned_to: int) -> CleanedLog:
    names = {name: parse_offset(name, LOG_SUFFIX) for name in disk.listdir(folder)}
    segments = sorted((offset, name) for name, offset in names.items() if offset is not None)
    sizes = [_size(disk, os.path.join(folder, name)) for _, name in segments]
    ends = [offset for offset, _ in segments[1:]]  # of all but the active one
    clean = sum(size for size, end in zip(sizes, ends, strict=False) if end <= cleaned_to)
    active = sizes[-1] if sizes else 0
    return CleanedLog(topic, partition, cleaned_to, clean, sum(sizes) - active - clean, active)


def _size(disk: Disk, path: str) -> int:
    try:
        return disk.size(path)
    except FileNotFoundError:  # a running broker has removed it meanwhile
        return 0
