"""Topics in PySpark programs: `spark.read.format("ottla")` and `spark.readStream.format("ottla")`.

    import ottla.spark

    views = spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "views")

Importing this module registers the format with the active Spark session; with one that starts later, `register` does.
Options and columns are those of Spark's own Kafka connector, which needs a jar; this needs none.
"""

from __future__ import annotations

from typing import Any

from ottla.pipeline.datasource.provider import OttlaDataSource

__all__ = ["register"]


def register(spark: Any) -> None:
    """Register the format "ottla" with a session, classic or of Spark Connect; again does no harm."""
    spark.dataSource.register(OttlaDataSource)


def _register_with_the_active_session() -> None:
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)


_register_with_the_active_session()
