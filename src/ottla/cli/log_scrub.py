"""`ottla log scrub`: reads every file of partitions and says what can't be right, alone and against each other.

The rule is the broker's own (`storage.repair.segment_scrub`). Nothing is changed, and no broker is asked.

Left out: mending.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from ottla.cli.command import counted
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.storage.repair.reader import (
    SegmentDamage,
    base_offset_of,
    open_before,
    read_cleaned,
    read_leader_epochs,
    read_log_starts,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)
from ottla.storage.repair.segment_scrub import AbortedCheck, IndexCheck, SegmentFacts, SegmentScrub, unknown_end

LEADER_EPOCHS = "leader-epoch-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
_PARTITION = re.compile(r".+-\d+")
_READ_BYTES = 1024 * 1024
_READ_SUFFIXES = frozenset({".log", ".snapshot", ".txnindex"})
_UNKNOWN_START = 2**63 - 1
"""Nothing is missed where all of a log may be deleted."""


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
            is_read = path.suffix in _READ_SUFFIXES and base_offset_of(path.name) is not None
            if (is_read or path.name == LEADER_EPOCHS) and not path.is_file():
                findings.tell(path, "it is no file")  # a pipe would be waited for
            elif path.name == LEADER_EPOCHS:
                epochs = read_leader_epochs(path.read_bytes(), str(path))
            elif (base_offset := base_offset_of(path.name)) is None:
                continue
            elif path.suffix == ".log":
                segments.append((base_offset, path))
            elif path.suffix == ".snapshot":
                read_producer_snapshot(path.read_bytes())
            elif path.suffix == ".txnindex" and not path.with_suffix(".log").exists():
                read_transaction_index(path.read_bytes())
        except SegmentDamage as damage:
            findings.tell(path, damage.reason)
    missing = _may_be_missing(directory)
    seen: Mapping[int, int] = {}
    for number, (base_offset, path) in enumerate(segments):
        end = segments[number + 1][0] if number + 1 < len(segments) else None
        seen = _scrub_segment(path, base_offset, end, epochs, seen, findings, missing)


class _Missing(NamedTuple):
    """What a partition rightly lacks, as far as the checkpoints above it tell."""

    was_cleaned: bool
    """Batches may be missing anywhere."""
    log_start_offset: int
    """What is below is deleted, and may lie there still."""


def _may_be_missing(directory: Path) -> _Missing:
    """Of the partition in `directory`. Raises OSError."""
    above, name = directory.absolute().parent, directory.absolute().name
    cleaned, starts = above / CLEANER_OFFSETS, above / LOG_STARTS
    try:
        was_cleaned = name in read_cleaned(_content(cleaned), str(cleaned))
    except SegmentDamage:
        was_cleaned = True
    try:
        return _Missing(was_cleaned, read_log_starts(_content(starts), str(starts)).get(name, 0))
    except SegmentDamage:
        return _Missing(was_cleaned, _UNKNOWN_START)


class _Source:
    """Where a scrub reads."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, length: int, position: int) -> bytes:
        self._stream.seek(position)
        return self._stream.read(length)


def _aborted_check(
    source: _Source, path: Path, base_offset: int, seen_before: Mapping[int, int], missing: _Missing
) -> AbortedCheck:
    """`seen_before` are the open transactions of the segment before.

    Raises OSError, and SegmentDamage for an index that can't be one.
    """
    entries = read_transaction_index(_content(path.with_suffix(".txnindex")))
    known = None if missing.was_cleaned else open_before(base_offset, _content(path.with_suffix(".snapshot")))
    return AbortedCheck(
        source,
        base_offset,
        entries,
        known,
        was_cleaned=missing.was_cleaned,
        log_start_offset=missing.log_start_offset,
        seen_before=seen_before,
    )


def _scrub_segment(
    path: Path,
    base_offset: int,
    end_offset: int | None,
    epochs: list[tuple[int, int]],
    seen_before: Mapping[int, int],
    findings: Findings,
    missing: _Missing,
) -> Mapping[int, int]:
    """One segment and its indexes; `end_offset` is where the next one begins, None for the last.

    `seen_before` are the transactions that are open there and have records before, by producer id; returns those that
    are so behind it. Raises OSError.
    """
    index_problems: list[str] = []
    check = IndexCheck(
        read_offset_index(_content(path.with_suffix(".index")), base_offset),
        read_time_index(_content(path.with_suffix(".timeindex")), base_offset),
        index_problems.append,
    )
    end = unknown_end(base_offset) if end_offset is None else end_offset
    before = findings.problems
    with path.open("rb") as stream:
        facts = SegmentFacts(base_offset, end, stream.seek(0, 2), epochs, epochs_are_complete=False)

        def tell(position: int, problem: str) -> None:
            findings.tell(path, problem, position)

        source = _Source(stream)
        aborted: AbortedCheck | None = None
        try:
            aborted = _aborted_check(source, path, base_offset, seen_before, missing)
        except SegmentDamage as damage:
            index_problems.append(f".txnindex: {damage.reason}")
        scrub = SegmentScrub(source, facts, check, tell, aborted)
        while not scrub.is_done:
            scrub.run(_READ_BYTES)
    if aborted is not None and aborted.problem:
        index_problems.append(f".txnindex: {aborted.problem}")
    findings.segments += 1
    findings.bytes_read += scrub.position
    if findings.problems != before:  # it is the segment that is wrong
        return {}
    for problem in index_problems:
        findings.tell(path, problem)
    return {} if aborted is None else aborted.seen


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
