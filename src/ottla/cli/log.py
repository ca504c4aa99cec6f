"""`ottla log`: files and data directories of partition logs.

`dump` reads files and does not contact a broker. It may run beside a broker: the last batch of the active segment may
then appear truncated, and index entries that the broker has only in memory are missing, which is not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from ottla.cli.command import Group, connection_options, counted, json_option, open_cluster, print_json, print_table
from ottla.cli.log_move import move
from ottla.cli.log_scrub import scrub
from ottla.cli.record_format import format_time, json_bytes
from ottla.common.control_chars import escape_control_chars
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, ProtocolError
from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.common.platform.files import open_regular

if TYPE_CHECKING:
    from ottla.record.batch import BatchView, Record
    from ottla.storage.repair.reader import StoredBatch

INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
LOG_SUFFIX = ".log"
METADATA_SNAPSHOT_SUFFIX = ".checkpoint"
SET_ASIDE_SUFFIXES = (".deleted", ".cleaned", ".swap")
TEXT_FILES = frozenset(
    {
        "cleaner-offset-checkpoint",
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "partition.metadata",
        "quorum-state",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
)
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MAX_SHOWN_BYTES = 200
"""Longest key or value in text output, in bytes; JSON output is not truncated."""


@click.group(cls=Group)
def log() -> None:
    """Inspect, verify and move partition logs."""


@log.command(examples=("ottla log dirs", "ottla log dirs --replicas", "ottla log dirs --json"))
@click.option("--replicas", is_flag=True, help="Show the size of each replica in bytes.")
@json_option
@connection_options
def dirs(replicas: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show the data directories of brokers.

    For each directory of a live broker: replicas, size, usable and total bytes, and whether it is full or offline.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.log_directories.all()
    if as_json:
        print_json(
            [
                {
                    "broker": directory.node_id,
                    "path": directory.path,
                    "state": directory.state,
                    "error": directory.error,
                    "total_bytes": directory.total_bytes,
                    "usable_bytes": directory.usable_bytes,
                    "replicas": [
                        {"topic": topic, "partition": partition, "bytes": size}
                        for (topic, partition), size in sorted(directory.sizes.items())
                    ],
                }
                for directory in found
            ]
        )
        return
    if replicas:
        print_table(
            ("broker", "topic", "partition", "bytes", "path"),
            [
                (directory.node_id, topic, partition, size, directory.path)
                for directory in found
                for (topic, partition), size in sorted(directory.sizes.items())
            ],
            right=("broker", "partition", "bytes"),
        )
        return
    print_table(
        ("broker", "replicas", "bytes", "usable", "total", "state", "path"),
        [
            (
                directory.node_id,
                len(directory.sizes),
                sum(directory.sizes.values()),
                directory.usable_bytes,
                directory.total_bytes,
                directory.state,
                directory.path,
            )
            for directory in found
        ],
        right=("broker", "replicas", "bytes", "usable", "total"),
    )


@log.command(
    examples=(
        "ottla log dump ottla-data/clicks-0/00000000000000000000.log",
        "ottla log dump ottla-data/clicks-0/*.log --records",
        "ottla log dump ottla-data/clicks-0/00000000000000000000.log --json | jq 'select(.type == \"batch\") | .size'",
        "ottla log dump ottla-data/clicks-0/00000000000000000000.index",
    )
)
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--records", is_flag=True, help="Show the records of each batch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump(files: tuple[Path, ...], records: bool, as_json: bool) -> None:
    """Print batches and index entries.

    Reads segments (.log, .checkpoint), .index, .timeindex, .txnindex and .snapshot files. partition.metadata and the
    text checkpoints are printed verbatim.

    CRCs are verified, and the indexes of a .log are compared with it. With --records, records in folders of
    __consumer_offsets and __transaction_state are decoded too; records that a coordinator skips are reported with the
    reason. The exit code is 1 if any problem is found.
    """
    problem_count = 0
    for path in files:
        if len(files) > 1 and not as_json:
            click.echo(f"{path}:")
        if path.suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            _dump_index(path, as_json)
        elif path.suffix == TRANSACTION_INDEX_SUFFIX:
            _dump_aborted(path, as_json)
        elif path.suffix == SNAPSHOT_SUFFIX:
            _dump_producers(path, as_json)
        elif path.name in TEXT_FILES:
            _dump_text(path, as_json)
        else:
            _require_segment(path)
            problem_count += _SegmentDump(path, records, as_json).run()
    if problem_count:
        noun = "problem was" if problem_count == 1 else "problems were"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{problem_count} {noun} found")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, opened for reading. Raises OperatorError with the reason if the operating system refuses."""
    try:
        with open_regular(str(path)) as stream:
            yield stream
    except OSError as error:
        if error.filename not in (None, str(path)):  # an error of the output, not of this file
            raise
        raise OperatorError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error


def _read(path: Path) -> bytes:
    with _opened(path) as stream:
        return stream.read()


def _base_offset(path: Path) -> int:
    from ottla.storage.repair.reader import base_offset_of

    offset = base_offset_of(path.name)
    if offset is None:
        raise OperatorError(f"{path} has no base offset of 20 digits in its name, so its entries cannot be decoded")
    return offset


def _require_segment(path: Path) -> None:
    """Raises OperatorError for a file that is not a segment; a quarantined segment has an additional suffix."""
    name = path.with_suffix("") if path.suffix in SET_ASIDE_SUFFIXES else path
    if name.suffix not in (LOG_SUFFIX, METADATA_SNAPSHOT_SUFFIX):
        raise OperatorError(
            f"{path} is not a file that log dump can read; supported: .log, .checkpoint, .index, .timeindex, "
            ".txnindex, "
            f".snapshot, {', '.join(sorted(TEXT_FILES))}"
        )


def _dump_text(path: Path, as_json: bool) -> None:
    import json

    for line in _read(path).decode(errors="backslashreplace").splitlines():
        click.echo(json.dumps({"type": "line", "line": line}) if as_json else line)


def _dump_aborted(path: Path, as_json: bool) -> None:
    import json

    from ottla.storage.repair.reader import SegmentDamage, read_transaction_index

    try:
        aborted = read_transaction_index(_read(path))
    except SegmentDamage as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: {error}") from error
    for transaction in aborted:
        document = transaction._asdict()
        if as_json:
            click.echo(json.dumps({"type": "aborted_transaction", **document}))
        else:
            click.echo("  ".join(f"{name} {value}" for name, value in document.items()))


def _dump_index(path: Path, as_json: bool) -> None:
    import json

    from ottla.storage.repair.reader import read_offset_index, read_time_index

    base_offset = _base_offset(path)
    if path.suffix == INDEX_SUFFIX:
        for offset, position in read_offset_index(_read(path), base_offset):
            if as_json:
                click.echo(json.dumps({"type": "offset_index_entry", "offset": offset, "position": position}))
            else:
                click.echo(f"offset {offset}  position {position}")
        return
    for timestamp, offset in read_time_index(_read(path), base_offset):
        if as_json:
            click.echo(json.dumps({"type": "time_index_entry", "timestamp": timestamp, "offset": offset}))
        else:
            click.echo(f"timestamp {timestamp}  {format_time(timestamp)}  offset {offset}")


def _dump_producers(path: Path, as_json: bool) -> None:
    import json

    from ottla.storage.repair.reader import SegmentDamage, read_producer_snapshot

    try:
        producers = read_producer_snapshot(_read(path))
    except SegmentDamage as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: {error.reason}") from error
    for producer_id, entry in sorted(producers.items()):
        document = {
            "producer_id": producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.current_txn_first_offset,
        }
        if as_json:
            click.echo(json.dumps({"type": "producer", **document}))
        else:
            click.echo("  ".join(f"{name.replace('_', ' ')} {value}" for name, value in document.items()))


@dataclass
class _SegmentDump:
    """A dump of one segment and its indexes."""

    path: Path
    show_records: bool
    as_json: bool
    batch_count: int = field(default=0, init=False)
    record_count: int = field(default=0, init=False)
    valid_bytes: int = field(default=0, init=False)
    problem_count: int = field(default=0, init=False)

    def run(self) -> int:
        """Print everything; returns the number of problems."""
        from ottla.storage.repair.reader import check_indexes

        offset_index, time_index = self._indexes()
        with _opened(self.path) as stream:
            shown = self._show_batches(stream)
            if self.path.suffix == LOG_SUFFIX:
                index_problems = check_indexes(shown, offset_index, time_index)
                self._problems(None, index_problems)
            else:
                for _ in shown:
                    pass
            self._show_summary(stream.seek(0, 2), len(offset_index), len(time_index))
        return self.problem_count

    def _indexes(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Entries of the offset and time index of the segment; empty for a missing file."""
        from ottla.storage.repair.reader import base_offset_of, read_offset_index, read_time_index

        base_offset = base_offset_of(self.path.name)
        if base_offset is None or self.path.suffix != LOG_SUFFIX:
            return [], []
        index, time_index = self.path.with_suffix(INDEX_SUFFIX), self.path.with_suffix(TIME_INDEX_SUFFIX)
        return (
            read_offset_index(_read(index), base_offset) if index.exists() else [],
            read_time_index(_read(time_index), base_offset) if time_index.exists() else [],
        )

    def _show_batches(self, stream: BinaryIO) -> Iterator[StoredBatch]:
        """Print and yield each batch, up to the first byte that does not belong to a batch."""
        from ottla.storage.repair.reader import SegmentDamage, iter_segment

        next_offset = 0
        try:
            for stored in iter_segment(stream):
                self._show_batch(stored, next_offset)
                next_offset = stored.batch.next_offset
                yield stored
        except SegmentDamage as damage:
            self._problems(damage.position, [damage.reason])

    def _show_batch(self, stored: StoredBatch, next_offset: int) -> None:
        import json

        position, batch = stored.position, stored.batch
        crc_valid = batch.crc_matches()
        self.batch_count += 1
        self.record_count += batch.records_count
        self.valid_bytes = position + stored.size_bytes
        click.echo(json.dumps(_batch_document(stored, crc_valid)) if self.as_json else _batch_text(stored, crc_valid))
        if not crc_valid:
            computed = batch.compute_crc()
            self._problems(position, [f"computed CRC {computed} differs from the stored CRC {batch.crc}"])
        if batch.base_offset < next_offset:
            self._problems(position, [f"offset {batch.base_offset} follows offset {next_offset - 1}"])
        if self.show_records:
            self._show_records(position, batch)

    def _show_records(self, position: int, batch: BatchView) -> None:
        check = None if batch.is_control else _coordinator_check(self.path)
        try:
            for record in batch.records():
                self._show_record(record, batch)
                reason = None if check is None else check(record)
                if reason is not None:
                    self._problems(position, [f"the record at offset {record.offset} can't be decoded: {reason}"])
        except KafkaError as error:
            self._problems(position, [f"the records can't be decoded: {error.message}"])

    def _show_record(self, record: Record, batch: BatchView) -> None:
        import json

        from ottla.record.control import control_record_type

        control = control_record_type(record).name if batch.is_control else None
        if self.as_json:
            document: dict[str, object] = {
                "type": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                **json_bytes("key", record.key),
                **json_bytes("value", record.value),
                "headers": [{"name": name, **json_bytes("value", value)} for name, value in record.headers],
            }
            click.echo(json.dumps(document | ({"control": control} if control else {}), ensure_ascii=False))
            return
        if control is not None:
            click.echo(f"  {record.offset}  {format_time(record.timestamp)}  control {control}")
            return
        headers = "".join(f"  {name}={_shown(value)}" for name, value in record.headers)
        click.echo(
            f"  {record.offset}  {format_time(record.timestamp)}  key {_shown(record.key)}  "
            f"value {_shown(record.value)}{headers}"
        )

    def _problems(self, position: int | None, problems: list[str]) -> None:
        import json

        for problem in problems:
            self.problem_count += 1
            if self.as_json:
                click.echo(json.dumps({"type": "problem", "position": position, "problem": problem}))
            else:
                where = "" if position is None else f" at position {position}"
                click.echo(f"  PROBLEM{where}: {problem}")

    def _show_summary(self, file_bytes: int, offset_entry_count: int, time_entry_count: int) -> None:
        import json

        if self.as_json:
            document = {
                "type": "summary",
                "file": str(self.path),
                "batches": self.batch_count,
                "records": self.record_count,
                "valid_bytes": self.valid_bytes,
                "file_bytes": file_bytes,
                "offset_index_entries": offset_entry_count,
                "time_index_entries": time_entry_count,
                "problems": self.problem_count,
            }
            click.echo(json.dumps(document))
            return
        text = (
            f"{self.batch_count:,} batch{'' if self.batch_count == 1 else 'es'}, "
            f"{counted(self.record_count, 'record')}, {counted(self.valid_bytes, 'byte')}"
        )
        if self.valid_bytes != file_bytes:
            text += f" of {file_bytes:,}"
        if self.path.suffix == LOG_SUFFIX:
            text += f"; {offset_entry_count:,} offset and {time_entry_count:,} time index entries compared"
        click.echo(text)


def _coordinator_check(path: Path) -> Callable[[Record], str | None] | None:
    """For a coordinator's log: a function that returns why a record can't be decoded, or None if it can."""
    decode: Callable[[bytes, bytes | None], object]
    topic = path.absolute().parent.name.rpartition("-")[0]
    if topic == GROUP_METADATA_TOPIC:  # imported here: few dumps need it
        from ottla.coordinator.group.records import decode_record as decode
    elif topic == TRANSACTION_STATE_TOPIC:
        from ottla.coordinator.transaction.records import decode_record as decode
    else:
        return None

    def check(record: Record) -> str | None:
        if record.key is None:
            return "it has no key"
        try:
            decode(record.key, record.value)
        except ProtocolError as error:
            return escape_control_chars(str(error))
        return None

    return check


def _batch_document(stored: StoredBatch, crc_valid: bool) -> dict[str, object]:
    batch = stored.batch
    return {
        "type": "batch",
        "position": stored.position,
        "size": stored.size_bytes,
        "magic": stored.magic,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.records_count,
        "leader_epoch": batch.partition_leader_epoch,
        "compression": stored.compression,
        "crc": stored.crc,
        "crc_valid": crc_valid,
        "timestamp_type": TIMESTAMP_TYPES[batch.timestamp_type],
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
    }


def _batch_text(stored: StoredBatch, crc_valid: bool) -> str:
    from ottla.record.batch import LOG_APPEND_TIME, MAGIC_V2

    batch = stored.batch
    parts = [
        f"position {stored.position}",
        f"offsets {batch.base_offset} to {batch.last_offset}",
        f"count {batch.records_count}",
        f"size {stored.size_bytes}",
        stored.compression,
        f"crc {stored.crc} {'ok' if crc_valid else 'WRONG'}",
        f"leader epoch {batch.partition_leader_epoch}",
        f"{'appended' if batch.timestamp_type == LOG_APPEND_TIME else 'created'} {format_time(batch.max_timestamp)}",
    ]
    if batch.producer_id >= 0:
        sequences = f"{batch.base_sequence} to {batch.last_sequence}"
        parts.append(f"producer {batch.producer_id} epoch {batch.producer_epoch} sequences {sequences}")
    if batch.is_transactional:
        parts.append("transactional")
    if batch.is_control:
        parts.append("control")
    if stored.magic != MAGIC_V2:
        parts.append(f"message format v{stored.magic}")
    return "  ".join(parts)


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data[:MAX_SHOWN_BYTES].decode(errors="backslashreplace")
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return f"{shown}... ({len(data):,} bytes)" if len(data) > MAX_SHOWN_BYTES else shown


log.command(
    examples=("ottla log scrub ottla-data", "ottla log scrub ottla-data/clicks-0 --json | jq 'select(.position)'")
)(scrub)
log.command(
    examples=(
        "ottla log move clicks --broker 1 --to /disk2/ottla",
        "ottla log move clicks:0,1 views --broker 1 --to /disk2/ottla --execute",
    )
)(move)
