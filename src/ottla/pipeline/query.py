"""SQL over loaded tables: Spark reads a Delta table by the list of its data files, without any jar.

The list is that of one version, so a query sees a consistent table whatever is loaded meanwhile. A table is visible
under the name of its directory, and under `records` when it is the only one. Left out: writing through SQL, and tables
with deletion vectors, which are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ottla.common.errors import OperatorError
from ottla.pipeline.tables.delta import DeltaTarget

DEFAULT_VIEW = "records"
COLUMNS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key: string, value: binary>>",
}
"""The columns of `ottla.pipeline.decode.SCHEMA` as Spark SQL writes their types."""


def view_name(target: DeltaTarget) -> str:
    """The directory's name as an SQL identifier."""
    name = re.sub(r"\W", "_", target.path.name, flags=re.ASCII)
    return name if re.match(r"[A-Za-z_]", name) else f"t_{name}"


def register_tables(spark: Any, targets: Sequence[DeltaTarget]) -> list[str]:
    """Make each table visible as a temporary view; returns the names. Raises OperatorError."""
    names = []
    for target in targets:
        frame = read_table(spark, target)
        own = view_name(target)
        if own in names:
            raise OperatorError(f"two tables would be named {own!r}; rename one of the directories")
        names.append(own)
        frame.createOrReplaceTempView(own)
        if len(targets) == 1 and own != DEFAULT_VIEW:
            frame.createOrReplaceTempView(DEFAULT_VIEW)
            names.append(DEFAULT_VIEW)
    return names


def read_table(spark: Any, target: DeltaTarget) -> Any:
    """The newest version of the table as a DataFrame."""
    files = target.files()
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    if not files:
        return spark.createDataFrame([], schema)
    # The base path makes Spark take partition columns from the directories; they come last then.
    return spark.read.schema(schema).option("basePath", str(target.path)).parquet(*files).select(*COLUMNS)


def run_sql(spark: Any, statement: str) -> Any:
    """The result as an Arrow table. Raises OperatorError with Spark's first line when the statement is wrong."""
    from pyspark.errors import PySparkException

    try:
        return spark.sql(statement).toArrow()
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise OperatorError(f"Spark refused the statement: {reason.strip()}") from error
