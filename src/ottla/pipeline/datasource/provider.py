"""Entry point for Spark: the data source "ottla" itself, which creates readers and writers from options.

Spark pickles the class by its name, so the workers' Python imports this module: it needs Ottla's client and its
pipeline, and nothing of the broker. Spark processes of a query that only need options and columns do not need Arrow,
which takes half of the memory and of the time of their start. Modules with Arrow are therefore imported on use.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OperatorError
from ottla.pipeline.datasource.columns import spark_schema
from ottla.pipeline.datasource.options import SourceOptions, for_batch, for_stream, parse_options

if TYPE_CHECKING:
    from ottla.pipeline.datasource.batch import BatchReader
    from ottla.pipeline.datasource.records import OpenCluster
    from ottla.pipeline.datasource.stream import StreamReader

NAME = "ottla"


class OttlaDataSource(DataSource):
    """Topics of a Kafka cluster as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """The connector's columns; invalid options are reported here, before planning."""
        return spark_schema(headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> BatchReader:
        """Reader of a batch query."""
        from ottla.pipeline.datasource.batch import BatchReader, FilteringBatchReader
        from ottla.pipeline.datasource.pushdown import asked_for_filters

        options = for_batch(self._parsed(schema))
        kind = FilteringBatchReader if options.filter_pushdown and asked_for_filters() else BatchReader
        return kind(options, _open(options))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Reader of a streaming query."""
        from ottla.pipeline.datasource.stream import StreamReader

        options = for_stream(self._parsed(schema))
        return StreamReader(options, _open(options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writer of a batch."""
        from ottla.pipeline.datasource.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Writer of a stream."""
        from ottla.pipeline.datasource.sink import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)

    def _parsed(self, schema: Any) -> SourceOptions:
        options = parse_options(self.options)
        names = [part.split()[0] for part in spark_schema(headers=False).split(", ")]
        if schema.fieldNames() != names + ["headers"] * options.include_headers:
            raise OperatorError("the source has fixed columns and accepts no schema; remove .schema(...)")
        return options


def _open(options: SourceOptions) -> OpenCluster:
    return partial(
        Cluster,
        options.bootstrap_servers,
        client_id=options.client_id,
        timeout_s=options.timeout_s,
        security=options.security,
    )
