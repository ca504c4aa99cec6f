"""A topic as an Arrow dataset, for engines that push filters into their scans: its committed records.

The offset ranges are fixed when the dataset is created, so that all scans of a statement see the same records. A scan
fetches only ranges that can pass its filter, and applies the filter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from ottla.cli.command import CLIENT_ID
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.pipeline.datasource.bounds import GREATEST, LEAST, UNBOUNDED, Bounds
from ottla.pipeline.datasource.options import for_batch, parse_options
from ottla.pipeline.datasource.ranges import bounded_ranges, plan_ranges
from ottla.pipeline.datasource.records import OpenCluster, read_records
from ottla.pipeline.model.decode import SCHEMA
from ottla.pipeline.sql.topic_views import read_options

_FORMAT = ds.ParquetFileFormat()
_FILESYSTEM = pyarrow.fs.LocalFileSystem()


class TopicDataset(ds.Dataset):
    """Scanned by DuckDB as any dataset of Arrow: by `schema` and `scanner`."""

    def __init__(self, topic: str, bootstrap_servers: str, security: ClientSecurity = PLAINTEXT) -> None:
        """Raises OperatorError, KafkaError."""
        self._topic = topic
        self._options = for_batch(parse_options(read_options(topic, bootstrap_servers)))
        self._open: OpenCluster = partial(Cluster, bootstrap_servers, client_id=CLIENT_ID, security=security)
        with self._open() as cluster:
            self._ranges = plan_ranges(cluster, self._options, Bounds())
        self.failure: Exception | None = None
        """The error that ended a scan; the engine reports it in its own words."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a loaded table."""
        return SCHEMA

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> TopicScan:
        """A scan of the records that pass a filter, with these columns."""
        names = SCHEMA.names if columns is None else list(columns)
        return TopicScan(pa.schema([SCHEMA.field(name) for name in names]), self._batches(names, filter))

    def _batches(self, names: Sequence[str], filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        options = self._options
        wanted = bounds_of(filter, self._topic, [one.partition for one in self._ranges])
        try:
            with self._open() as cluster:
                for whole in bounded_ranges(cluster, options.isolation, self._ranges, wanted):
                    for batch in read_records(cluster, whole, wanted, options.isolation, options.on_data_loss):
                        yield (batch if filter is None else batch.filter(filter)).select(names)
        except Exception as error:
            self.failure = error
            raise


@dataclass(frozen=True, slots=True)
class TopicScan:
    """One scan, with the methods that DuckDB calls on an Arrow scanner."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def to_reader(self) -> pa.RecordBatchReader:
        """The records; to be read once."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches)


def bounds_of(filter: pc.Expression | None, topic: str, partitions: Iterable[int]) -> Bounds:
    """Bounds of a topic that a filter can pass.

    An Arrow expression can't be inspected. Instead, Arrow's file pruning is used: it decides whether rows with known
    values of a column can pass the filter.
    """
    if filter is None:
        return Bounds()
    of_topic = pc.field("topic") == topic

    def passes(known: pc.Expression) -> bool:
        fragment = _FORMAT.make_fragment("", _FILESYSTEM, partition_expression=of_topic & known)
        dataset = ds.FileSystemDataset([fragment], SCHEMA, _FORMAT, _FILESYSTEM)
        return any(True for _ in dataset.get_fragments(filter))

    def column(name: str) -> tuple[int, int]:
        return _range(pc.field(name), SCHEMA.field(name).type, passes)

    wanted = frozenset(one for one in partitions if passes(pc.field("partition") == pa.scalar(one, pa.int32())))
    return Bounds({name: column(name) for name in ("offset", "timestamp")}, {"partition": wanted})


def _range(field: pc.Expression, kind: pa.DataType, passes: Callable[[pc.Expression], bool]) -> tuple[int, int]:
    """The least and the greatest value that can pass, by bisection: Arrow is right where it excludes all values."""
    if passes(field.is_null()):
        return UNBOUNDED
    above = bisect_left(range(GREATEST), True, key=lambda value: passes(field < pa.scalar(value, kind)))
    end = bisect_left(range(GREATEST), True, key=lambda value: not passes(field >= pa.scalar(value, kind)))
    return (above - 1 if above > 0 else LEAST), (end - 1 if end < GREATEST else GREATEST)
