"""`ottla log scrub`: verification of all files of partitions, alone and against each other.

The checks are those of the broker (`storage.repair.segment_scrub`). The command is offline and changes nothing; it does
not repair damage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from ottla.cli.command import counted
from ottla.common.errors import ErrorCode, KafkaError, OperatorError

if TYPE_CHECKING:
    from ottla.storage.repair.segment_scrub import AbortedCheck

LEADER_EPOCHS = "leader-epoch-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
_PARTITION = re.compile(r".+-\d+")
_READ_BYTES = 1024 * 1024
_READ_SUFFIXES = frozenset({".log", ".snapshot", ".txnindex"})
_UNKNOWN_START = 2**63 - 1
"""The value where the whole log may be deleted, so that a gap is not an error."""


@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def scrub(directories: tuple[Path, ...], as_json: bool) -> None:
    """Verify partition logs on disk.

    Reads all files of data directories, or of single partition directories. CRCs, offsets, leader epochs, indexes and
    producer snapshots are checked; nothing is changed. Beside a running broker, the data being written may appear
    truncated. The exit code is 1 if any problem is found.
    """
    partitions = [partition for directory in directories for partition in partitions_in(directory)]
    total = Findings(as_json)
    for partition in partitions:
        try:
            scrub_partition(partition, total)
        except OSError as error:
            where = error.filename or partition
            raise OperatorError(f"cannot read {where}: {(error.strerror or str(error)).lower()}") from error
    total.show_summary(len(partitions))
    if total.problems:
        noun = "problem was" if total.problems == 1 else "problems were"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{total.problems} {noun} found")


def partitions_in(directory: Path) -> list[Path]:
    """The directory if it contains segments, otherwise the partition directories in it."""
    from ottla.storage.repair.reader import base_offset_of

    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise OperatorError(f"cannot read {directory}: {(error.strerror or str(error)).lower()}") from error
    if any(entry.suffix == ".log" and base_offset_of(entry.name) is not None for entry in entries):
        return [directory]
    found = [entry for entry in entries if _PARTITION.fullmatch(entry.name) and entry.is_dir()]
    if not found:
        raise OperatorError(f"{directory} is neither a partition directory nor a data directory with partitions")
    return found


@dataclass
class Findings:
    """Statistics of the files that were read; problems are printed as they are found."""

    as_json: bool
    segments: int = field(default=0, init=False)
    bytes_read: int = field(default=0, init=False)
    problems: int = field(default=0, init=False)

    def report(self, path: Path, problem: str, position: int | None = None) -> None:
        import json

        self.problems += 1
        if self.as_json:
            document = {"type": "problem", "file": str(path), "position": position, "problem": problem}
            click.echo(json.dumps(document))
        else:
            where = "" if position is None else f" at position {position}"
            click.echo(f"{path}{where}: {problem}")

    def show_summary(self, partitions: int) -> None:
        import json

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


def scrub_partition(directory: Path, findings: Findings) -> None:
    """Check one partition directory. Raises OSError."""
    from ottla.storage.repair.reader import (
        SegmentDamage,
        base_offset_of,
        read_leader_epochs,
        read_producer_snapshot,
        read_transaction_index,
    )

    epochs: list[tuple[int, int]] = []
    segments: list[tuple[int, Path]] = []
    for path in sorted(directory.iterdir()):
        try:
            is_read = path.suffix in _READ_SUFFIXES and base_offset_of(path.name) is not None
            if (is_read or path.name == LEADER_EPOCHS) and not path.is_file():
                findings.report(path, "not a regular file")  # reading a pipe would block
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
            findings.report(path, damage.reason)
    missing = _may_be_missing(directory)
    seen: Mapping[int, int] = {}
    for number, (base_offset, path) in enumerate(segments):
        end = segments[number + 1][0] if number + 1 < len(segments) else None
        seen = _scrub_segment(path, base_offset, end, epochs, seen, findings, missing)


class _MissingData(NamedTuple):
    """The data that may be missing from a partition, according to the checkpoints in its data directory."""

    was_cleaned: bool
    """The log was compacted, so batches may be missing anywhere."""
    log_start_offset: int
    """Data below this offset is deleted, but its files may still exist."""


def _may_be_missing(directory: Path) -> _MissingData:
    """The permitted gaps of the partition in `directory`. Raises OSError."""
    from ottla.storage.repair.reader import SegmentDamage, read_cleaned, read_log_starts

    above, name = directory.absolute().parent, directory.absolute().name
    cleaned, starts = above / CLEANER_OFFSETS, above / LOG_STARTS
    try:
        was_cleaned = name in read_cleaned(_content(cleaned), str(cleaned))
    except SegmentDamage:
        was_cleaned = True
    try:
        return _MissingData(was_cleaned, read_log_starts(_content(starts), str(starts)).get(name, 0))
    except SegmentDamage:
        return _MissingData(was_cleaned, _UNKNOWN_START)


class _Source:
    """Segment file that a scrub reads."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, length: int, position: int) -> bytes:
        self._stream.seek(position)
        return self._stream.read(length)


def _aborted_check(
    source: _Source, path: Path, base_offset: int, seen_before: Mapping[int, int], missing: _MissingData
) -> AbortedCheck:
    """The transaction index check of a segment; `seen_before` are the open transactions of the previous segment.

    Raises OSError, and SegmentDamage for a malformed index.
    """
    from ottla.storage.repair.reader import open_before, read_transaction_index
    from ottla.storage.repair.segment_scrub import AbortedCheck

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
    missing: _MissingData,
) -> Mapping[int, int]:
    """Check one segment and its indexes; `end_offset` is the base offset of the next one, None for the last.

    `seen_before` are the transactions that are open at its start with earlier records, by producer id. Returns those
    that are open at its end. Raises OSError.
    """
    from ottla.storage.repair.reader import SegmentDamage, read_offset_index, read_time_index
    from ottla.storage.repair.segment_scrub import IndexCheck, SegmentFacts, SegmentScrub, unknown_end

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

        def report(position: int, problem: str) -> None:
            findings.report(path, problem, position)

        source = _Source(stream)
        aborted: AbortedCheck | None = None
        try:
            aborted = _aborted_check(source, path, base_offset, seen_before, missing)
        except SegmentDamage as damage:
            index_problems.append(f".txnindex: {damage.reason}")
        scrub = SegmentScrub(source, facts, check, report, aborted)
        while not scrub.is_done:
            scrub.run(_READ_BYTES)
    if aborted is not None and aborted.problem:
        index_problems.append(f".txnindex: {aborted.problem}")
    findings.segments += 1
    findings.bytes_read += scrub.position
    if findings.problems != before:  # the segment is damaged, not its index
        return {}
    for problem in index_problems:
        findings.report(path, problem)
    return {} if aborted is None else aborted.seen


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
