"""Topics in PySpark programs: `spark.read.format("ottla")` and `spark.readStream.format("ottla")`.

    import ottla.spark

    views = spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "views")

Importing this module registers the format with the active Spark session; use `register` for a session that starts
later. Options and columns are those of Spark's own Kafka connector, but no jar is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ottla.common.extras import install_command

try:
    from ottla.pipeline.datasource.provider import OttlaDataSource
    from ottla.pipeline.spark.session import name_programs_python

    import_module("ottla.pipeline.datasource.rows")  # including the modules that workers import to read
except ImportError as error:
    if not error.name or error.name.startswith("ottla"):
        raise
    raise ImportError(
        f"ottla.spark needs the packages of 'ottla[pipeline]': {error}; run {install_command('ottla[pipeline]')}",
        name=error.name,
    ) from None

__all__ = ["register"]


def register(spark: Any) -> None:
    """Register the format "ottla" with a session, classic or Spark Connect; idempotent.

    The workers of a local session use this program's Python from now on, unless PYSPARK_PYTHON or spark.pyspark.python
    is set: by default Spark uses the python3 on PATH, which may not have Ottla.
    """
    name_programs_python(spark)
    spark.dataSource.register(OttlaDataSource)


def _register_with_the_active_session() -> None:
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)


_register_with_the_active_session()
