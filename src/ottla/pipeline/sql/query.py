"""SQL over loaded tables: Spark reads a table by the list of its data files, without any jar.

The list is that of one version, so a query sees a consistent table during concurrent loads. A table is visible under
the name of its directory, and under `records` when it is the only one.

**Invariant:** no statement that writes is run. Spark's subqueries only read; of all other statements those with a
first word of READING_COMMANDS run. Not supported: tables whose files alone would not give their rows (Delta's
deletion vectors, Iceberg's delete files), which are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.model.failure import NO_ROOM, TOO_DEEP, os_reason, refusal, spark_reason
from ottla.pipeline.model.nesting import require_shallow
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.table import FileLayout, Table
from ottla.pipeline.sql.topic_views import allow_pushdown

DEFAULT_VIEW = "records"
MAX_READERS = 256
"""Tasks that read one table from an object store."""
READS_ONLY = "`ottla pipeline sql` is read-only: it runs queries, SHOW, DESCRIBE and EXPLAIN of a query"
READING_COMMANDS = frozenset({"SHOW", "DESCRIBE", "DESC"})
"""First words of statements that are not queries and change nothing."""
_TOO_COMPLEX = "FAILED_TO_PARSE_TOO_COMPLEX"
_EXPLAIN = re.compile(r"EXPLAIN\s+(?:(?:LOGICAL|FORMATTED|EXTENDED|CODEGEN|COST)\s+)?", re.IGNORECASE)
"""Spark runs EXECUTE IMMEDIATE even in an EXPLAIN, so the explained statement has to be a query."""
_GLOB_CHARACTERS = re.compile(r"([{}\[\]*?\\])")
"""Characters of a pattern in a Hadoop path; a backslash escapes them (FileSystem.globStatus)."""


def view_name(target: Table) -> str:
    """The directory's name as an SQL identifier."""
    name = re.sub(r"\W", "_", target.name, flags=re.ASCII)
    return name if re.match(r"[A-Za-z_]", name) else f"t_{name}"


def view_names(targets: Sequence[Table]) -> list[str]:
    """Names of all tables. Raises OperatorError for two names that differ by case only, which SQL ignores."""
    names = [view_name(target) for target in targets]
    lowered = [name.lower() for name in names]
    twice = next((name for name in names if lowered.count(name.lower()) > 1), None)
    if twice is not None:
        raise OperatorError(f"two tables would be named {twice!r}; rename one of the directories")
    return names


def register_tables(spark: Any, targets: Sequence[Table]) -> list[str]:
    """Make each table visible as a temporary view; returns the names. Raises OperatorError."""
    names = view_names(targets)
    for own, target in zip(names, targets, strict=True):
        frame = read_table(spark, target)
        frame.createOrReplaceTempView(own)
        if len(targets) == 1 and own.lower() != DEFAULT_VIEW:
            frame.createOrReplaceTempView(DEFAULT_VIEW)
            names = [own, DEFAULT_VIEW]
    return names


def read_table(spark: Any, target: Table, paths: Sequence[str] | None = None, *, file_column: str | None = None) -> Any:
    """The newest version of the table as a DataFrame, or of its files those of `paths`. Raises OperatorError.

    `file_column`: one that is added, with the address of the file that each row is from, percent-encoded.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(target.schema(), prefer_timestamp_ntz=True)
    layout = target.layout()
    files = list(target.files() if paths is None else paths)
    if not files:
        frame = spark.createDataFrame([], schema)
        return frame if file_column is None else frame.withColumn(file_column, F.lit(""))
    if layout.store.is_remote:
        if file_column is not None:
            schema = schema.add(file_column, "string")
        return _read_remote(spark, layout, target.schema(), schema, files)
    files = list(map(plain_path, files))
    columns = [f"`{name.replace('`', '``')}`" for name in schema.names]
    try:
        reader = spark.read.schema(schema)
        if layout.partition_columns and not layout.partitions_in_files:
            # With the base path Spark takes partition columns from the directories, as the last columns.
            reader = reader.option("basePath", layout.directory)
        added = [] if file_column is None else [F.input_file_name().alias(file_column)]
        return reader.parquet(*files).select(*columns, *added)
    except PySparkException as error:
        raise OperatorError(f"Spark can't read the table {target.location}: {refusal(error)}") from error


def plain_path(path: str) -> str:
    """A path as Spark's readers take it: nothing in it is a pattern."""
    return _GLOB_CHARACTERS.sub(r"\\\1", path)


def _read_remote(spark: Any, layout: FileLayout, schema: pa.Schema, spark_schema: Any, files: Sequence[str]) -> Any:
    """By Arrow in Python workers, since PySpark has no jar for object stores; all columns are read.

    A column of `spark_schema` after those of `schema` gets the file's address.
    """
    frozen = list(files)
    added = spark_schema.names[len(schema) :]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in (frozen[number] for batch in batches for number in batch.column(0).to_pylist()):
            for rows in open_dataset(layout, schema, [file]).to_batches():
                for name in added:
                    rows = rows.append_column(name, pa.repeat(quote(file, safe=":/"), rows.num_rows))
                yield rows

    return spark.range(0, len(frozen), 1, min(len(frozen), MAX_READERS)).mapInArrow(run, spark_schema)


def run_sql(spark: Any, statement: str, *, reads_topics: bool = False) -> Any:
    """The result as an Arrow table. Raises OperatorError with Spark's first line when the statement is wrong, and
    without running it when it is not a query or is nested too deep; OttlaError when one of its tasks fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException, PythonException

    statement = statement.strip().removesuffix(";")
    require_shallow(statement)
    try:
        _require_reading(spark, statement)
        if reads_topics:
            allow_pushdown(spark, statement)
        return spark.sql(statement).toArrow()
    except (PythonException, Py4JError, ConnectionError, EOFError) as error:  # a task failed, or Java itself is gone
        reason = spark_reason(error)
        if reason == TOO_DEEP:
            raise OperatorError(f"Spark refused the statement: {reason}") from error
        kind = OperatorError if reason.startswith(NO_ROOM) else OttlaError
        raise kind(f"the query failed: {reason}") from error
    except PySparkException as error:
        raise OperatorError(f"Spark refused the statement: {refusal(error)}") from error
    except (OSError, pa.ArrowException) as error:  # columns that are nested deeper than Arrow hands over
        raise OperatorError(
            f"the result can't be converted to Arrow: {os_reason(error)}; convert nested columns to text with to_json"
        ) from error


def _require_reading(spark: Any, statement: str) -> None:
    """Raise OperatorError unless it is a query (explained or not) or one of READING_COMMANDS."""
    from pyspark.errors import AnalysisException, ParseException

    if "".join(statement.split(maxsplit=1)[:1]).upper() in READING_COMMANDS:
        return
    try:
        spark.sql(f"SELECT * FROM (\n{_explained(statement)}\n)")
    except ParseException as error:
        if error.getCondition() == _TOO_COMPLEX:
            raise OperatorError(f"Spark refused the statement: {TOO_DEEP}") from error
        raise OperatorError(f"the statement is not a query: {refusal(error)}; {READS_ONLY}") from error
    except AnalysisException:
        pass  # a query of a missing table or column: running it reports that with the right line


def _explained(statement: str) -> str:
    """The statement that an EXPLAIN explains; any other statement unchanged."""
    explain = _EXPLAIN.match(statement)
    return statement[explain.end() :] if explain else statement
