"""`ottla log scrub`: reads every file of partitions and says what can't be right, alone and against each other.

The CRC of a batch does not cover its base offset and leader epoch: those are compared with the batches around it, the
names of the segments, and `leader-epoch-checkpoint`. Nothing is changed, and no broker is asked.

Left out: gaps between offsets, which compaction makes; an offset or leader epoch of the last batch that is too high,
since nothing that follows contradicts it and the checkpoint may be behind after a crash; what lies in compressed
batches; mending.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from ottla.cli.command import counted
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.record.batch import MAGIC_V2
from ottla.storage.reader import (
    SegmentDamage,
    StoredBatch,
    base_offset_of,
    check_indexes,
    iter_segment,
    read_leader_epochs,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)

LEADER_EPOCHS = "leader-epoch-checkpoint"
_PARTITION = re.compile(r".+-\d+")


@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def scrub(directories: tuple[Path, ...], as_json: bool) -> None:
    """Read all files of data directories, or of single partitions, and name what is damaged.

    CRCs, offsets, leader epochs, indexes and snapshots of producers are checked; nothing is changed. Of a broker that
    runs, what is just being written may seem cut short. The exit code is 1 when anything is wrong.
    """
    partitions = [partition for directory in directories for partition in _partitions(directory)]
    total = Findings(as_json)
    for partition in partitions:
        try:
            _scrub_partition(partition, total)
        except OSError as error:
            where = error.filename or partition
            raise OperatorError(f"cannot read {where}: {(error.strerror or str(error)).lower()}") from error
    total.show_summary(len(partitions))
    if total.problems:
        what = "problem was" if total.problems == 1 else "problems were"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{total.problems} {what} found")


def _partitions(directory: Path) -> list[Path]:
    """The directory itself when it holds segments, else those in it that are named as partitions."""
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise OperatorError(f"cannot read {directory}: {(error.strerror or str(error)).lower()}") from error
    if any(entry.suffix == ".log" and base_offset_of(entry.name) is not None for entry in entries):
        return [directory]
    found = [entry for entry in entries if _PARTITION.fullmatch(entry.name) and entry.is_dir()]
    if not found:
        raise OperatorError(f"{directory} is neither a data directory with partitions in it nor a partition")
    return found


@dataclass
class Findings:
    """What was read, and what was wrong with it, told as it is found."""

    as_json: bool
    segments: int = field(default=0, init=False)
    bytes_read: int = field(default=0, init=False)
    problems: int = field(default=0, init=False)

    def tell(self, path: Path, problem: str, position: int | None = None) -> None:
        self.problems += 1
        if self.as_json:
            document = {"type": "problem", "file": str(path), "position": position, "problem": problem}
            click.echo(json.dumps(document))
        else:
            where = "" if position is None else f" at position {position}"
            click.echo(f"{path}{where}: {problem}")

    def show_summary(self, partitions: int) -> None:
        if self.as_json:
            document = {
                "type": "summary",
                "partitions": partitions,
                "segments": self.segments,
                "bytes": self.bytes_read,
                "problems": self.problems,
            }
            click.echo(json.dumps(document))
            return
        click.echo(
            f"{counted(partitions, 'partition')}, {counted(self.segments, 'segment')}, "
            f"{counted(self.bytes_read, 'byte')} read: {counted(self.problems, 'problem')}"
        )


def _scrub_partition(directory: Path, findings: Findings) -> None:
    """Raises OSError."""
    epochs: list[tuple[int, int]] = []
    segments: list[tuple[int, Path]] = []
    for path in sorted(directory.iterdir()):
        try:
            if path.name == LEADER_EPOCHS:
                epochs = read_leader_epochs(path.read_bytes(), str(path))
            elif (base_offset := base_offset_of(path.name)) is None:
                continue
            elif path.suffix == ".log":
                segments.append((base_offset, path))
            elif path.suffix == ".snapshot":
                read_producer_snapshot(path.read_bytes())
            elif path.suffix == ".txnindex":
                read_transaction_index(path.read_bytes())
        except SegmentDamage as damage:
            findings.tell(path, damage.reason)
    for number, (base_offset, path) in enumerate(segments):
        end = segments[number + 1][0] if number + 1 < len(segments) else None
        _Segment(path, base_offset, end, epochs, findings).scrub()


@dataclass
class _Segment:
    """One segment; `end` is where the next one begins, None for the last."""

    path: Path
    base_offset: int
    end: int | None
    epochs: list[tuple[int, int]]
    findings: Findings

    def scrub(self) -> None:
        """Raises OSError."""
        self.findings.segments += 1
        before = self.findings.problems
        offset_index = self._index(".index")
        time_index = self._index(".timeindex")
        problems = check_indexes(
            self._batches(),
            read_offset_index(offset_index, self.base_offset),
            read_time_index(time_index, self.base_offset),
        )
        if self.findings.problems == before:  # else it is the segment that is wrong
            for problem in problems:
                self.findings.tell(self.path, problem)

    def _index(self, suffix: str) -> bytes:
        path = self.path.with_suffix(suffix)
        return path.read_bytes() if path.exists() else b""

    def _batches(self) -> Iterator[StoredBatch]:
        """Those that can be read, each checked."""
        next_offset, epoch, position = self.base_offset, -1, 0
        with self.path.open("rb") as stream:
            try:
                for stored in iter_segment(stream):
                    for problem in self._problems(stored, next_offset, epoch):
                        self.findings.tell(self.path, problem, stored.position)
                    next_offset = max(next_offset, stored.batch.next_offset)
                    epoch = max(epoch, stored.batch.partition_leader_epoch)
                    position = stored.position + stored.size_bytes
                    yield stored
            except SegmentDamage as damage:
                self.findings.tell(self.path, f"{damage.reason}; what follows was not read", damage.position)
        self.findings.bytes_read += position

    def _problems(self, stored: StoredBatch, next_offset: int, epoch: int) -> Iterator[str]:
        batch = stored.batch
        if not batch.crc_matches():
            yield f"the CRC of the batch at offset {batch.base_offset} is {batch.compute_crc()}, it says {batch.crc}"
        if batch.base_offset < next_offset:
            yield f"offset {batch.base_offset} where {next_offset} or more is due"
        elif self.end is not None and batch.last_offset >= self.end:
            yield f"offset {batch.last_offset} in a segment that ends before {self.end}"
        own = batch.partition_leader_epoch
        if stored.magic != MAGIC_V2:  # it has none
            return
        if own < epoch:
            yield f"leader epoch {own} at offset {batch.base_offset} comes after {epoch}"
            return
        known = [number for number, start in self.epochs if start <= batch.base_offset]
        if not known or own == known[-1]:
            return
        if own < known[-1] or known[-1] < self.epochs[-1][0]:  # else it is newer than all that the file knows
            yield f"leader epoch {own} at offset {batch.base_offset}, {known[-1]} by {LEADER_EPOCHS}"
