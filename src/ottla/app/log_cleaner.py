"""`ottla log cleaner`: progress of the log cleaner in a data directory, its last passes and the next ones.

The command reads files only: segments, the cleaner's checkpoint, and the last report of the broker
(`storage.directory.cleaner_report`), which is seconds old while the broker runs. Dirty and clean bytes are counted by
segment, like the cleaner does, without deleted records at the start; the active segment counts as neither.

Left out: compacted logs that were never cleaned in a directory without a cleaner report, since only the metadata log
has their cleanup policy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.app.log_restore import log
from ottla.cli.command import json_option, print_json, print_table
from ottla.cli.record_format import format_time
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from ottla.common.platform.disk import Disk
    from ottla.storage.directory.cleaner_report import LogReport
    from ottla.storage.directory.log_cleaner import PassReport


class CleanedLog(NamedTuple):
    """A partition that is compacted, or was cleaned before."""

    topic: str
    partition: int
    cleaned_to: int | None
    """None if it was never cleaned."""
    clean_bytes: int
    dirty_bytes: int
    active_bytes: int
    report: LogReport | None
    """The broker's last report of the partition; None if there is none."""

    @property
    def dirty_ratio(self) -> float:
        """Share of dirty bytes before the active segment, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


@log.command(examples=("ottla log cleaner ottla-data", "ottla log cleaner ottla-data --json | jq '.[].dirty_ratio'"))
@click.argument("directory", metavar="DIRECTORY", type=click.Path(exists=True, file_okay=False))
@json_option
def cleaner(directory: str, as_json: bool) -> None:
    """Show the progress of the log cleaner.

    For each compacted partition: its last pass and the reason why it waits; the highest dirty ratio comes first.
    DIRECTORY is one of --data-dir or log.dirs. The broker may be running; it reports every log.cleaner.backoff.ms. A
    log is due when its dirty ratio exceeds min.cleanable.dirty.ratio, or a record has waited longer than
    max.compaction.lag.ms.
    """
    from ottla.app.disk import RealDisk
    from ottla.common.platform.disk_refusal import disk_refusal
    from ottla.storage.files.checkpoints import CheckpointCorruption
    from ottla.storage.files.names import CLEANER_OFFSET_CHECKPOINT

    disk, path = RealDisk(), os.path.abspath(directory)
    try:
        found = cleaned_logs(disk, path)
        if not found and not _holds_logs(disk, path):
            raise OperatorError(f"{directory} is not a data directory: give one of --data-dir or log.dirs")
    except CheckpointCorruption as error:
        raise OperatorError(
            f"{error}: restart the broker, which replaces the file (without {CLEANER_OFFSET_CHECKPOINT} it cleans all "
            "logs from their start)"
        ) from error
    except OSError as error:
        raise disk_refusal(error, directory) from error
    if as_json:
        print_json([_document(each) for each in found])
        return
    numbers = ("partition", "dirty ratio", "dirty bytes", "clean bytes", "active bytes", "cleaned to")
    of_pass = ("read", "dropped", "mb/s")
    columns = ("topic", *numbers, "last pass", *of_pass, "next")
    print_table(columns, [_row(each) for each in found], right=numbers + of_pass)


def _document(each: CleanedLog) -> dict[str, object]:
    last_pass = None
    if each.report is not None and each.report.last_pass is not None:
        done = each.report.last_pass
        last_pass = {**done._asdict(), "mb_per_second": round(mb_per_second(done), 3)}
    return {
        "topic": each.topic,
        "partition": each.partition,
        "cleaned_to": each.cleaned_to,
        "clean_bytes": each.clean_bytes,
        "dirty_bytes": each.dirty_bytes,
        "active_bytes": each.active_bytes,
        "dirty_ratio": round(each.dirty_ratio, 4),
        "state": None if each.report is None else each.report.state,
        "reason": _reason(each),
        "retry_ms": None if each.report is None or each.report.retry_ms < 0 else each.report.retry_ms,
        "last_pass": last_pass,
    }


def _row(each: CleanedLog) -> tuple[object, ...]:
    done = each.report.last_pass if each.report is not None else None
    last_pass: tuple[object, ...] = ("-", "-", "-", "-")
    if done is not None:
        last_pass = (format_time(done.ended_ms), done.read_bytes, done.dropped_bytes, f"{mb_per_second(done):.1f}")
    return (
        each.topic,
        each.partition,
        f"{each.dirty_ratio:.2f}",
        each.dirty_bytes,
        each.clean_bytes,
        each.active_bytes,
        "never" if each.cleaned_to is None else each.cleaned_to,
        *last_pass,
        _next(each),
    )


def _next(each: CleanedLog) -> str:
    from ottla.storage.directory.cleaner_report import UNCLEANABLE

    report, reason = each.report, _reason(each)
    if report is None:
        return reason
    if report.state == UNCLEANABLE:
        return f"{report.state}, retry at {format_time(report.retry_ms)}: {reason}"
    return f"{report.state}: {reason}" if reason else report.state


def _reason(each: CleanedLog) -> str:
    return "no report from its broker" if each.report is None else each.report.reason


def mb_per_second(done: PassReport) -> float:
    """Read rate of a pass in MB/s."""
    return done.read_bytes / 1e6 / max(done.seconds, 1e-3)


def cleaned_logs(disk: Disk, directory: str) -> list[CleanedLog]:
    """Existing logs in the checkpoint or the report, sorted by dirty ratio. Raises CheckpointCorruption, OSError."""
    from ottla.storage.files.checkpoints import read_offsets
    from ottla.storage.files.names import CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, partition_dir

    cleaned_to = read_offsets(disk, os.path.join(directory, CLEANER_OFFSET_CHECKPOINT))
    starts = read_offsets(disk, os.path.join(directory, LOG_START_OFFSET_CHECKPOINT))
    reports = {(report.topic, report.partition): report for report in _reports(disk, directory)}
    found = []
    for key in {**cleaned_to, **reports}:
        folder = os.path.join(directory, partition_dir(*key))
        if disk.is_dir(folder):
            begun = max(cleaned_to.get(key, 0), starts.get(key, 0))
            clean, dirty, active = _sizes(disk, folder, begun)
            found.append(CleanedLog(*key, cleaned_to.get(key), clean, dirty, active, reports.get(key)))
    return sorted(found, key=lambda each: (-each.dirty_ratio, each.topic, each.partition))


def _holds_logs(disk: Disk, directory: str) -> bool:
    """True if the directory is a data directory of a broker."""
    from ottla.storage.files.directories import partition_directories
    from ottla.storage.files.names import META_PROPERTIES

    return disk.exists(os.path.join(directory, META_PROPERTIES)) or bool(partition_directories(disk, directory))


def _reports(disk: Disk, directory: str) -> Sequence[LogReport]:
    from ottla.storage.directory.cleaner_report import parse_report
    from ottla.storage.files.names import CLEANER_REPORT_FILE

    path = os.path.join(directory, CLEANER_REPORT_FILE)
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return ()
    return parse_report(data, path).logs


def _sizes(disk: Disk, folder: str, dirty_offset: int) -> tuple[int, int, int]:
    """Bytes of the segments below `dirty_offset`, from `dirty_offset`, and of the active one. Raises OSError."""
    from ottla.storage.files.names import LOG_SUFFIX, parse_offset

    names = {name: parse_offset(name, LOG_SUFFIX) for name in disk.listdir(folder)}
    segments = sorted((offset, name) for name, offset in names.items() if offset is not None)
    sizes = [_size(disk, os.path.join(folder, name)) for _, name in segments]
    ends = [offset for offset, _ in segments[1:]]  # without the active segment
    clean = sum(size for size, end in zip(sizes, ends, strict=False) if end <= dirty_offset)
    active = sizes[-1] if sizes else 0
    return clean, sum(sizes) - active - clean, active


def _size(disk: Disk, path: str) -> int:
    try:
        return disk.size(path)
    except FileNotFoundError:  # removed by a running broker
        return 0
