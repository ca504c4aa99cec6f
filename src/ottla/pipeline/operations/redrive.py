"""Redrive: dead letters are decoded again, and those that can be decoded now become rows of their table.

Two commits: the first adds rows to the table, the second removes their dead letters. A kill in between leaves records
in both. So a redrive first looks up in the table the records of all dead letters, and only removes letters of records
that it finds there, by topic, partition, offset, timestamp, key and value. That also applies to a record that a later
load has decoded, after a load that was killed between its dead letters and its rows.

**Invariants:** a record is in the table or in its dead letters at any time. A letter at an offset that the table has
not reached stays: the load that wrote it did not commit, and the next one reads the record again. Of two concurrent
redrives one is refused, since each moves the application id REDRIVES. Loads do not conflict with a redrive: they read
offsets from the table's on, and only add dead letters.

A letter that still can't be decoded stays unchanged, with its first reason. Not supported: tables without Kafka's
columns (results of streams) and snapshots, whose letters did not change their keys.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.common.errors import OperatorError, OttlaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.load.driver import rows_schema
from ottla.pipeline.load.land import UNPLACEABLE
from ottla.pipeline.load.leased_files import leased_files
from ottla.pipeline.load.leases import Lease
from ottla.pipeline.load.shape import require_no_snapshot
from ottla.pipeline.model.decode import DEAD_LETTER_SCHEMA, MAX_TIMESTAMP_MS, SCHEMA
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import app_id
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter, unplaceable
from ottla.pipeline.sinks.partitioning import with_date
from ottla.pipeline.sinks.rewrite import conformed
from ottla.pipeline.sinks.table import (
    DataFile,
    FileLayout,
    StaleCommitError,
    Table,
    TableCommit,
    UnknownCommitError,
    require_no_rollback,
)
from ottla.pipeline.sinks.writer import DataFileWriter, new_load_id
from ottla.pipeline.transform.decoder import add_bounded
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.schema_ids import encoded_values
from ottla.pipeline.transform.schema_report import SchemaReport, reason_kind
from ottla.pipeline.transform.target_schema import SAMPLE_BYTES, settle_samples
from ottla.pipeline.transform.value_format import Samples, ValueFormat
from ottla.record.batch import NO_TIMESTAMP

REDRIVES = "ottla-redrives"
"""Application id that each redrive of a table moves by one, so that concurrent ones conflict."""
BATCH_ROWS = 16_384
BAD_TIME = "the timestamp is not within the years 1970 to 9999"
_PLACE = ["topic", "partition", "offset"]

Bools = npt.NDArray[np.bool_]
StepObserver = Callable[[str], object]
"""Called with the name of each step after it: "written", "added", "removed"."""


@dataclass(slots=True, kw_only=True)
class RedriveSummary:
    """Result of a redrive. `version` is that of the table, None when no row was added."""

    table: str
    dry_run: bool
    version: int | None = None
    rows: int = 0
    """Dead letters that became rows of the table."""
    already_loaded: int = 0
    """Dead letters whose records the table had; they were removed."""
    dead_letters: int = 0
    """Dead letters that still can't be decoded."""
    dead_letter_reasons: dict[str, int] = field(default_factory=dict)
    """Their reasons in the table of dead letters, without the values."""
    present_reasons: dict[str, int] = field(default_factory=dict)
    """Their reasons by this decoding."""
    uncommitted: int = 0
    """Dead letters of a load that did not commit its rows: the next load reads these records again."""
    unselected: int = 0
    """Dead letters with another reason than the selected one."""
    columns_added: list[str] = field(default_factory=list)
    columns_renamed: dict[str, str] = field(default_factory=dict)
    """Field -> its name in the table, for names with characters that a table can't have."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def redrive(
    table: Table,
    value_format: ValueFormat | None,
    *,
    reason: str = "",
    dry_run: bool = False,
    reached: StepObserver = lambda _step: None,
) -> RedriveSummary:
    """Decode the dead letters of a table again, those with `reason` in theirs; rows are added, their letters removed.

    `value_format`: as for a load, None leaves values unchanged. With `dry_run` nothing is changed. Raises
    OperatorError, and StaleCommitError if another redrive or a compaction of the dead letters came first.
    """
    started = time.monotonic()
    summary = RedriveSummary(table=table.location, dry_run=dry_run)
    _require_records(table)
    letters = table.dead_letters()
    if letters.exists():
        for one in (table, letters):
            require_no_rollback(one)
        run = _Redrive(table, letters, reason, summary, reached, letters.layout())
        run.run(value_format)
    summary.seconds = time.monotonic() - started
    return summary


def _require_records(table: Table) -> None:
    """Raise OperatorError for a table that a redrive can't add rows to."""
    if not table.exists():
        raise OperatorError(f"no table found in {table.location}; `ottla pipeline load` creates one")
    require_no_snapshot(table)
    lacking = sorted(set(SCHEMA.names) - set(table.schema().names))
    if lacking:
        raise OperatorError(
            f"the table {table.location} has no column {lacking[0]!r}, so it was not created by `ottla pipeline load`, "
            "and its dead letters can't become rows of it"
        )


@dataclass(slots=True)
class _Selection:
    """The letters to decode again: those with `reason` in theirs, at offsets that the table has reached."""

    reason: str
    unreached: Mapping[TopicPartition, Sequence[tuple[int, int]]]
    """Ranges [start, end) of offsets that a load wrote dead letters of, but did not commit."""

    def split(self, batch: pa.RecordBatch) -> tuple[Bools, Bools]:
        """(selected, uncommitted) for the letters of a batch; both are false for one with another reason."""
        reasons = pc.fill_null(batch.column("reason"), "")
        selected: Bools = np.asarray(pc.match_substring(reasons, self.reason))
        uncommitted = np.zeros(batch.num_rows, np.bool_)
        offsets = batch.column("offset")
        for (topic, partition), ranges in self.unreached.items():
            is_there = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), partition))
            for start, end in ranges:
                within = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
                uncommitted |= np.asarray(pc.fill_null(pc.and_(is_there, within), fill_value=False))
        return selected & ~uncommitted, selected & uncommitted


@dataclass(slots=True)
class _Places:
    """Topics, partitions and offsets of all letters."""

    offsets: pa.Array
    partitions: set[TopicPartition]


@dataclass(slots=True)
class _Redrive:
    table: Table
    letters: Table
    reason: str
    summary: RedriveSummary
    reached: StepObserver
    layout: FileLayout
    """That of the letters."""
    files: list[DataFile] = field(default_factory=list)
    partition_columns: tuple[str, ...] = ()
    resolved: dict[str, list[Bools]] = field(default_factory=dict)
    """Path of a file of letters -> which of its rows are or will be in the table, batch by batch."""

    def run(self, value_format: ValueFormat | None) -> None:
        """Decode, then add the rows, then remove their letters; `summary` gets the result."""
        before = self.table.committed_offsets([REDRIVES])[REDRIVES]  # of rows that the look-up below sees
        self.files = self.letters.data_files()
        self.partition_columns = self.table.layout().partition_columns
        places = self._places()
        selection = _Selection(self.reason, self._unreached(places))
        known = self._known_records(places)
        samples = self._samples(value_format, selection) if value_format is not None else {}
        decoder = self._decoder(value_format, samples) if value_format is not None and samples else None
        if value_format is not None and decoder is None:  # no letter is selected
            self._decode_all(selection, known, None, SCHEMA, None)
            return
        if self.summary.dry_run:
            self._decode_all(selection, known, decoder, rows_schema(self.table, decoder), None)
            return
        load_id = new_load_id()
        with leased_files(self.table, load_id) as lease:
            layout = self.table.ensure(schema := rows_schema(self.table, decoder))
            with PartitionedWriter(layout, schema, "redrive", load_id) as writer:
                self._decode_all(selection, known, decoder, schema, writer)
                files = writer.finish()
                remaining, removed = self._remaining(load_id)
                self.reached("written")
            if files:
                self._add(files, before, load_id, lease)
            self.reached("added")
            if removed:
                self._remove(remaining, removed, load_id, lease)
            self.reached("removed")

    def _add(self, files: Sequence[DataFile], before: int | None, load_id: str, lease: Lease) -> None:
        commit = TableCommit(
            load_id, files, expected={REDRIVES: before}, following={REDRIVES: 1 if before is None else before + 1}
        )
        lease.require()
        try:
            self.summary.version = self.table.commit(commit).version
        except StaleCommitError as error:
            raise StaleCommitError(
                f"another redrive of {self.table.location} was committed in the meantime; nothing of this one was "
                "committed, run it again"
            ) from error

    def _remove(self, remaining: Sequence[DataFile], removed: Sequence[str], load_id: str, lease: Lease) -> None:
        """Remove the letters of records in the table; after a failure the next redrive finds the records."""
        try:
            lease.require()
            self.letters.commit(TableCommit(load_id, remaining, removed))
        except UnknownCommitError:
            raise  # its files may be in the table
        except OttlaError as error:
            kind = OperatorError if isinstance(error, OperatorError) else OttlaError
            raise kind(
                f"{self.summary.rows:,} rows were added to {self.table.location}, but their dead letters could not be "
                f"removed; the next redrive removes them, run it again ({error})"
            ) from error

    # The letters

    def _batches(self, file: DataFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a file of letters, always in the same batches."""
        wanted = DEAD_LETTER_SCHEMA if columns is None else pa.schema([DEAD_LETTER_SCHEMA.field(n) for n in columns])
        try:
            filesystem, [path] = self.layout.store.arrow([file.path])
            with pq.ParquetFile(path, filesystem=filesystem) as parquet:
                for batch in parquet.iter_batches(BATCH_ROWS, columns=columns):
                    yield conformed(batch, wanted)
        except (OSError, pa.ArrowException) as error:
            raise OperatorError(
                f"a file of the dead letters {self.letters.location} can't be read: {os_reason(error)}"
            ) from error

    def _places(self) -> _Places:
        offsets, partitions = [], set()
        for file in self.files:
            for batch in self._batches(file, _PLACE):
                offsets.append(batch.column("offset"))
                found = pa.Table.from_batches([batch]).group_by(["topic", "partition"]).aggregate([])
                partitions |= {(row["topic"], row["partition"]) for row in found.to_pylist()}
        return _Places(pc.unique(pa.chunked_array(offsets, pa.int64())), partitions)

    def _unreached(self, places: _Places) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Ranges of loads that committed dead letters and no rows. The letters' offsets are read before the table's:
        a load in between has committed its rows by then."""
        ids = self.letters.known_topics().ids
        pipelines = sorted({load.pipeline_id for load in self.letters.loads()})
        names = {
            app_id(pipeline, ids[key[0]], key[1]): key
            for pipeline in pipelines
            for key in places.partitions
            if key[0] in ids
        }
        noted = self.letters.committed_offsets(names)
        held = self.table.committed_offsets(names)
        found: dict[TopicPartition, list[tuple[int, int]]] = {}
        for name, key in names.items():
            start, end = held[name] or 0, noted[name]
            if end is not None and start < end:
                found.setdefault(key, []).append((start, end))
        return found

    def _known_records(self, places: _Places) -> frozenset[bytes]:
        """Digests of the table's records at the offsets of letters; files without such offsets are skipped by their
        statistics."""
        paths = self.table.files()
        if not paths or not len(places.offsets):
            return frozenset()
        columns = [*_PLACE, "timestamp", "key", "value"]
        topics = sorted({topic for topic, _ in places.partitions})
        chosen = pc.field("offset").isin(places.offsets) & pc.field("topic").isin(pa.array(topics, pa.string()))
        found: set[bytes] = set()
        try:
            dataset = open_dataset(self.table.layout(), self.table.schema(), paths)
            for batch in dataset.to_batches(columns=columns, filter=chosen):
                found.update(_digests(batch, _milliseconds(batch.column("timestamp"))))
        except (OSError, pa.ArrowException) as error:
            raise OperatorError(
                f"a file of the table {self.table.location} can't be read: {os_reason(error)}"
            ) from error
        return frozenset(found)

    # Decoding

    def _decoder(self, value_format: ValueFormat, samples: Samples) -> RecordDecoder:
        report = SchemaReport()
        decoder = settle_samples(value_format, self.table, samples, report=report, dry_run=self.summary.dry_run)
        self.summary.columns_added, self.summary.columns_renamed = report.columns, report.renamed
        return decoder

    def _samples(self, value_format: ValueFormat, selection: _Selection) -> Samples:
        """Values of the selected letters by topic, the first SAMPLE_BYTES of all; empty if no letter is selected."""
        found: dict[str, list[pa.Array]] = {}
        size = 0
        for batch in chain.from_iterable(map(self._batches, self.files)):
            if size >= SAMPLE_BYTES:
                break
            chosen = batch.filter(pa.array(selection.split(batch)[0]))
            values = encoded_values(chosen, value_format.id_length)
            size += values.nbytes
            for topic in pc.unique(chosen.column("topic")).to_pylist():
                found.setdefault(topic, []).append(values.filter(pc.equal(chosen.column("topic"), topic)))
        return {topic: pa.chunked_array(parts, pa.binary()).combine_chunks() for topic, parts in found.items()}

    def _decode_all(
        self,
        selection: _Selection,
        known: frozenset[bytes],
        decoder: RecordDecoder | None,
        schema: pa.Schema,
        writer: PartitionedWriter | None,
    ) -> None:
        """Decode the selected letters that the table does not have, and note which letters are resolved."""
        stored: Counter[str] = Counter()
        present: Counter[str] = Counter()
        for file in self.files:
            masks = self.resolved[file.path] = []
            for batch in self._batches(file):
                selected, uncommitted = selection.split(batch)
                done = np.zeros(batch.num_rows, np.bool_)
                if known and selected.any():
                    digests = _digests(batch, batch.column("timestamp_ms").to_pylist())
                    done = selected & np.array([digest in known for digest in digests], np.bool_)
                places = np.flatnonzero(selected & ~done)
                reasons = self._decode(batch.take(pa.array(places)), decoder, schema, writer) if len(places) else {}
                failed = places[sorted(reasons)]
                self.summary.already_loaded += int(done.sum())
                self.summary.uncommitted += int(uncommitted.sum())
                self.summary.unselected += int((~selected & ~uncommitted).sum())
                self.summary.rows += len(places) - len(failed)
                self.summary.dead_letters += len(failed)
                add_bounded(stored, _kinds(batch.column("reason").take(pa.array(failed)).to_pylist()))
                add_bounded(present, _kinds(reasons.values()))
                done[places] = True
                done[failed] = False
                masks.append(done)
        self.summary.dead_letter_reasons = dict(stored.most_common())
        self.summary.present_reasons = dict(present.most_common())

    def _decode(
        self,
        letters: pa.RecordBatch,
        decoder: RecordDecoder | None,
        schema: pa.Schema,
        writer: PartitionedWriter | None,
    ) -> dict[int, str]:
        """Write the rows of letters that can be decoded; returns the reasons of the others, by their positions."""
        reasons: dict[int, str] = {}
        start = 0
        records, bad_times = _records(letters)
        for piece in decoder.pieces(records) if decoder is not None else [records]:
            rows, bad = decoder.decode_all(piece) if decoder is not None else (piece, {})
            rows = with_date(rows, schema)
            odd = np.flatnonzero(unplaceable(rows, self.partition_columns))
            bad = dict.fromkeys(odd.tolist(), UNPLACEABLE) | bad
            bad |= dict.fromkeys(np.flatnonzero(bad_times[start : start + piece.num_rows]).tolist(), BAD_TIME)
            if writer is not None:
                good = np.ones(piece.num_rows, np.bool_)
                good[list(bad)] = False
                writer.add(rows.filter(pa.array(good)))
            reasons |= {start + place: text for place, text in bad.items()}
            start += piece.num_rows
        return reasons

    def _remaining(self, load_id: str) -> tuple[list[DataFile], list[str]]:
        """(new files, files that they replace): the letters that stay, of each file that has others too."""
        changed = [file for file in self.files if any(mask.any() for mask in self.resolved[file.path])]
        with DataFileWriter(self.layout, DEAD_LETTER_SCHEMA, {}, "redrive", load_id) as writer:
            for file in changed:
                for batch, done in zip(self._batches(file), self.resolved[file.path], strict=True):
                    writer.add(batch.filter(pa.array(~done)))
            made = writer.finish()
        removed = [self.layout.store.locate(file.path) for file in changed]
        return [made] if made is not None else [], removed


def _records(letters: pa.RecordBatch) -> tuple[pa.RecordBatch, Bools]:
    """Letters as records, and which of them have a timestamp that no table can hold."""
    times = letters.column("timestamp_ms").to_numpy(zero_copy_only=False)
    absent = times == NO_TIMESTAMP
    bad: Bools = ~absent & ((times < 0) | (times > MAX_TIMESTAMP_MS))
    microseconds = pa.array(np.where(absent | bad, 0, times) * 1000, pa.int64(), mask=absent | bad)
    columns = {name: letters.column(name) for name in letters.schema.names}
    columns["timestamp"] = microseconds.cast(SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA), bad


def _milliseconds(timestamps: pa.Array) -> list[int]:
    """Times of rows as letters have them."""
    whole = pc.divide(timestamps.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1000)
    found: list[int] = pc.fill_null(whole, NO_TIMESTAMP).to_pylist()
    return found


def _digests(batch: pa.RecordBatch, milliseconds: Sequence[int]) -> list[bytes]:
    """Digests by which the records of rows and letters are compared."""
    columns = (batch.column(name).to_pylist() for name in (*_PLACE, "key", "value"))
    return [
        blake2b(repr((*place, time_ms)).encode() + _framed(key) + _framed(value), digest_size=16).digest()
        for *place, key, value, time_ms in zip(*columns, milliseconds, strict=True)
    ]


def _framed(content: bytes | None) -> bytes:
    return b"-" if content is None else b"%d:%b" % (len(content), content)


def _kinds(reasons: Iterable[str | None]) -> Counter[str]:
    return Counter(reason_kind(reason or "") for reason in reasons)
