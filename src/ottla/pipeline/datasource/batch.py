"""`spark.read.format("ottla")`: a range of offsets of each partition, decided when Spark plans the read.

**Invariant:** a read gives each record of its ranges once, and nothing from a topic that was made again meanwhile. The
ranges are decided once for a DataFrame: Spark keeps them for all its uses, so that what arrives later is not in it.

That Spark keeps the first plan is also why filters are pushed down only where the option `filterPushdown` says that
the DataFrame is used once: a second use, with another filter or none, would be given the ranges of the first.
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
    """One read; Spark pickles it, so it holds options and no connection."""

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
        """The rows of a range; Spark asks for one with no value when there is no range at all."""
        return self._rows.read(partition) if isinstance(partition, RangePartition) else iter(())


class FilteringBatchReader(BatchReader):
    """The same where Spark asks what of the filters can be left to the source."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take bounds from the filters; all of them are left to Spark as well."""
        self._bounds = bounds(filters)
        return filters
