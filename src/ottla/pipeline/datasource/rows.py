"""Ranges of offsets as Arrow batches with the columns of Spark's Kafka connector, inside a Python worker.

The tasks of a stream are small and many, so a worker reuses its connections for tasks of the same query.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.pipeline.datasource.bounds import Bounds
from ottla.pipeline.datasource.offsets import SourceCluster
from ottla.pipeline.datasource.query import current_query
from ottla.pipeline.datasource.records import OpenCluster, read_records
from ottla.pipeline.datasource.worker_heap import freeze_heap
from ottla.pipeline.model.decode import HEADERS_TYPE, SCHEMA
from ottla.pipeline.model.lru_pool import LruPool
from ottla.pipeline.model.plan import SKIP_DATA_LOSS, OffsetRange, OnDataLoss
from ottla.pipeline.sources.source import RecordsDeletedError

KEPT_CLUSTERS: LruPool[SourceCluster] = LruPool(4, lambda cluster: cluster.close())
"""Pool of this worker, by settings and query."""
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type")


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """Input of one task: ranges of several partitions if each has few records."""

    ranges: tuple[OffsetRange, ...]
    bounds: Bounds = field(default_factory=Bounds)
    """Rows outside these bounds may be skipped."""


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads a partition; sent to the workers."""

    open_cluster: OpenCluster
    isolation: str
    on_data_loss: OnDataLoss
    headers: bool
    settings: Hashable = None
    """All settings of `open_cluster`; only tasks with equal settings share connections."""

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        """The rows of each range in the order of their offsets. Raises DataLossError, DecodeError, KafkaError."""
        with self._cluster() as cluster:
            try:
                for whole in partition.ranges:
                    for rows in read_records(cluster, whole, partition.bounds, self.isolation, self.on_data_loss):
                        yield _as_spark(rows, headers=self.headers)
            except RecordsDeletedError as error:
                raise RecordsDeletedError(f"{error}; {SKIP_DATA_LOSS} to read the remaining records") from error
        freeze_heap("read")

    def _cluster(self) -> AbstractContextManager[SourceCluster]:
        query = current_query()
        if self.settings is None or query is None:
            return self.open_cluster(recently_reachable=True)  # the cluster was reachable during planning
        return self._kept_cluster((self.settings, query.query_id))

    @contextmanager
    def _kept_cluster(self, key: Hashable) -> Iterator[SourceCluster]:
        """The pooled connection of an earlier task of the query, or a new one; closed after any error."""
        cluster = KEPT_CLUSTERS.take(key)
        if cluster is None:
            cluster = self.open_cluster(recently_reachable=True).__enter__()  # stays open until the worker ends
        else:
            cluster.topics.forget()
        try:
            yield cluster
        except BaseException:
            cluster.close()
            raise
        KEPT_CLUSTERS.keep(key, cluster)


def _as_spark(batch: pa.RecordBatch, *, headers: bool) -> pa.RecordBatch:
    columns = [batch.column(name) for name in _COLUMNS]
    fields = [
        pa.field("timestampType" if name == "timestamp_type" else name, SCHEMA.field(name).type) for name in _COLUMNS
    ]
    if headers:
        columns.append(batch.column("headers"))
        fields.append(pa.field("headers", HEADERS_TYPE))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
