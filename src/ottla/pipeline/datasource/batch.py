"""`spark.read.format("ottla")`: a range of offsets of each partition, decided when Spark plans the read.

**Invariant:** a read returns each record of its ranges once, and none from a topic that was recreated meanwhile. The
ranges are decided once for a DataFrame: Spark reuses them, so later records are not in it.

Since Spark reuses the first plan, filters are pushed down only if the option `filterPushdown` promises that the
DataFrame is used once: a second use, with another filter or none, would get the ranges of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter

from ottla.pipeline.datasource.bounds import Bounds
from ottla.pipeline.datasource.offsets import cut
from ottla.pipeline.datasource.options import SourceOptions
from ottla.pipeline.datasource.pushdown import bounds
from ottla.pipeline.datasource.ranges import plan_ranges
from ottla.pipeline.datasource.records import OpenCluster
from ottla.pipeline.datasource.rows import RangePartition, RowReader


class BatchReader(DataSourceReader):
    """One read; Spark pickles it, so it has options and no connection."""

    def __init__(self, options: SourceOptions, open_cluster: OpenCluster) -> None:
        self._options = options
        self._open_cluster = open_cluster
        self._rows = RowReader(open_cluster, options.isolation, options.on_data_loss, options.include_headers)
        self._bounds = Bounds()

    def partitions(self) -> list[RangePartition]:
        """One task for each range. Raises OperatorError, DataLossError, KafkaError."""
        with self._open_cluster() as cluster:
            ranges = plan_ranges(cluster, self._options, self._bounds)
        tasks = cut(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition((whole,), self._bounds) for whole in tasks]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; without any range Spark passes an empty partition."""
        return self._rows.read(partition) if isinstance(partition, RangePartition) else iter(())


class FilteringBatchReader(BatchReader):
    """A reader for Spark's filter pushdown."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take bounds from the filters; Spark evaluates all of them as well."""
        self._bounds = bounds(filters)
        return filters
