"""Source for jobs on a broker's own host: the leader's segment files, without a request for each few megabytes.

Only planned ranges are read: their ends are high watermarks or last stable offsets from the broker, so all records
below them are in the files. The files are checked first: the directory must belong to the broker that leads
the partition now (cluster and node id) and to the planned topic (its id). After anything missing or unexpected (a
segment that retention removed, a range that begins below the log start offset, a bad batch) the read continues with
Fetch, which reports deleted records as usual.

**Invariant:** the rows are those of Fetch, without aborted transactions under read_committed (from the indexes of
aborted transactions of all segments from the range's first on, since a marker may be beyond the range).

Not supported: segments of tiered storage, and directories that no live broker reports.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from ottla.client.wire.model import EARLIEST_TIMESTAMP, ClusterInfo, LogDirectory
from ottla.common.errors import KafkaError, OperatorError
from ottla.common.platform.files import open_regular, within
from ottla.pipeline.model.decode import DecodeError, DecodeResult
from ottla.pipeline.model.plan import ClusterView, OffsetRange, OnDataLoss, SourceKind
from ottla.pipeline.sources import fetch
from ottla.pipeline.sources.source import RangePart, ReadRange, decode_part
from ottla.record.batch import LOG_OVERHEAD
from ottla.record.legacy.stored import whole_size
from ottla.storage.repair.reader import SegmentDamage, base_offset_of, read_offset_index, read_transaction_index

logger = logging.getLogger(__name__)

READ_BYTES = 8 << 20
MAX_BATCH_BYTES = 1 << 30
MAX_INDEX_BYTES = 64 << 20


class DirectoryView(Protocol):
    """The part of `Cluster.log_directories` that locates segment files."""

    def all(self) -> list[LogDirectory]: ...


class BrokerHost(Protocol):
    """The part of `Cluster` that locates segment files."""

    def describe(self) -> ClusterInfo: ...
    @property
    def log_directories(self) -> DirectoryView: ...


def open_source(kind: SourceKind, cluster: BrokerHost) -> ReadRange:
    """The source of that kind; with "auto" segment files if a live broker's are on this machine, else Fetch.

    Raises OperatorError when "segments" finds none on this machine.
    """
    if kind == "fetch":
        return fetch.read_range
    directories: dict[int, tuple[str, ...]] = {}
    cluster_id = ""
    try:
        cluster_id = cluster.describe().cluster_id or ""
        for each in cluster.log_directories.all():
            if each.error is None and _belongs(Path(each.path), cluster_id, each.node_id):
                directories[each.node_id] = (*directories.get(each.node_id, ()), each.path)
    except KafkaError:  # DescribeLogDirs needs permissions that a reader may lack
        if kind == "segments":
            raise
    if directories:
        return SegmentSource(cluster_id, directories)
    if kind == "segments":
        raise OperatorError(
            "no broker of this cluster has its log directory on this machine, which --source segments needs; "
            "use --source fetch"
        )
    return fetch.read_range


class _AbortedRange(NamedTuple):
    """An aborted transaction; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class _OffsetMissing(Exception):
    """The files lack the wanted offset; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """Reads from `directories` (node id -> paths); implements `ReadRange`, and is sent to the workers."""

    cluster_id: str
    directories: Mapping[int, tuple[str, ...]]

    def __call__(
        self, cluster: ClusterView, whole: OffsetRange, *, isolation: str, on_data_loss: OnDataLoss
    ) -> Iterator[RangePart]:
        offset = whole.start_offset
        try:
            folder = self._folder(cluster, whole)
            for part in _read(folder, whole, isolation):
                yield part
                offset = part.decoded.next_offset
            fetch.require_whole(cluster, whole)
        except (_OffsetMissing, OSError, DecodeError, SegmentDamage) as reason:
            logger.info(
                "topic %s partition %d: fetching from offset %d on: %s", whole.topic, whole.partition, offset, reason
            )
            rest = replace(whole, start_offset=offset)
            yield from fetch.read_range(cluster, rest, isolation=isolation, on_data_loss=on_data_loss)

    def _folder(self, cluster: ClusterView, whole: OffsetRange) -> Path:
        """The leader's directory of the partition. Raises _OffsetMissing."""
        partitions = cluster.topics.get(whole.topic).partitions
        leader = partitions[whole.partition].leader if whole.partition < len(partitions) else -1
        for path in map(Path, self.directories.get(leader, ())):
            folder = path / f"{whole.topic}-{whole.partition}"
            if (
                _belongs(path, self.cluster_id, leader)
                and _fields(folder / "partition.metadata").get("topic_id") == whole.topic_id
            ):
                key = (whole.topic, whole.partition)
                if cluster.records.list_offsets({key: EARLIEST_TIMESTAMP})[key].offset > whole.start_offset:
                    raise _OffsetMissing("the range begins below the log start offset")
                return folder
        raise _OffsetMissing(f"the files of the leader, broker {leader}, are not on this machine")


def _belongs(path: Path, cluster_id: str, node_id: int) -> bool:
    fields = _fields(path / "meta.properties")
    return bool(cluster_id) and (fields.get("cluster.id"), fields.get("node.id")) == (cluster_id, str(node_id))


def _fields(path: Path) -> dict[str, str]:
    """`name=value` and `name: value` lines of a small file; empty if it can't be read."""
    try:
        with open_regular(str(path)) as stream:
            text = stream.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = (line.replace(":", "=", 1).partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _read(folder: Path, whole: OffsetRange, isolation: str) -> Iterator[RangePart]:
    """The parts of a range. Raises _OffsetMissing, DecodeError, SegmentDamage, OSError before it skips any record."""
    offset = whole.start_offset
    bases = _segments_from(folder, offset)
    aborted = _aborted(folder, bases, whole) if isolation == "read_committed" else []
    for number, base in enumerate(bases):
        following = bases[number + 1] if number + 1 < len(bases) else None
        for part in _read_segment(folder, base, offset, whole, aborted):
            yield part
            offset = part.decoded.next_offset
        if offset >= whole.end_offset:
            return
        if following is not None and following >= whole.end_offset:
            yield RangePart(DecodeResult(whole.end_offset))  # compaction left nothing there
            return
        offset = max(offset, following or 0)
    raise _OffsetMissing(f"the files end at offset {offset}")


def _segments_from(folder: Path, offset: int) -> list[int]:
    """Base offsets of the segment that contains `offset` and of all later ones."""
    found = (base_offset_of(path.name) for path in folder.iterdir() if path.suffix == ".log")
    bases = sorted(base for base in found if base is not None)
    first = max((base for base in bases if base <= offset), default=None)
    if first is None:
        raise _OffsetMissing(f"no segment contains offset {offset}")
    return [base for base in bases if base >= first]


def _read_segment(
    folder: Path, base: int, offset: int, whole: OffsetRange, aborted: Sequence[_AbortedRange]
) -> Iterator[RangePart]:
    with open_regular(str(folder / f"{base:020d}.log"), buffering=0) as stream:
        position = _position_of(folder, base, offset)
        while offset < whole.end_offset:
            stream.seek(position)
            data = _read_whole(stream, READ_BYTES)
            size = _whole_batches_size(data)
            if not size and len(data) >= LOG_OVERHEAD:
                wanted = LOG_OVERHEAD + int.from_bytes(data[8:12], "big", signed=True)
                if not len(data) < wanted <= MAX_BATCH_BYTES:
                    raise _OffsetMissing(f"a batch at position {position} is cut short")
                stream.seek(position)
                data = _read_whole(stream, wanted)
                size = _whole_batches_size(data)
            if not size:
                return
            reaching = [one for one in aborted if one.last_offset >= offset]
            part = decode_part(memoryview(data)[:size], whole, offset, reaching)
            yield part
            position, offset = position + size, max(offset, part.decoded.next_offset)


def _read_whole(stream: BinaryIO, size: int) -> bytes:
    found = stream.read(size)
    return bytes(found or b"")


def _whole_batches_size(data: bytes) -> int:
    """Size in bytes of the complete batches. Raises DecodeError."""
    try:
        return whole_size(data)
    except KafkaError as error:
        raise DecodeError(error.code, error.message) from error


def _position_of(folder: Path, base: int, offset: int) -> int:
    """Start position in a segment: the last indexed batch that ends below `offset`, else the first."""
    try:
        data = _small(folder / f"{base:020d}.index")
    except OSError:
        return 0
    return max((position for last, position in read_offset_index(data, base) if last < offset), default=0)


def _aborted(folder: Path, bases: Sequence[int], whole: OffsetRange) -> list[_AbortedRange]:
    """The aborted transactions that overlap a range."""
    found: list[_AbortedRange] = []
    for base in bases:
        try:
            data = _small(folder / f"{base:020d}.txnindex")
        except FileNotFoundError:
            continue
        found += [_AbortedRange(*one[:3]) for one in read_transaction_index(data)]
    return [one for one in found if one.first_offset < whole.end_offset and one.last_offset >= whole.start_offset]


def _small(path: Path) -> bytes:
    with open_regular(str(path)) as stream:
        return within(stream.read(MAX_INDEX_BYTES + 1), MAX_INDEX_BYTES)
