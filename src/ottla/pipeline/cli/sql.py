"""`ottla pipeline sql`: queries over loaded tables and over topics."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ottla.cli.command import connection_options, json_option, open_cluster, print_json, print_table, security
from ottla.common.errors import OperatorError
from ottla.pipeline.cli.options import GivenPath, TableLocation, catalog_option, spark_options
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.spark.engines import DUCKDB, ENGINES, SPARK
from ottla.pipeline.spark.session import DEFAULT_MASTER, open_session, require_extra, require_lake

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.pipeline.sinks.table import Table

SMALL_RESULT_ROWS = 1000
"""Largest result with a hint to DuckDB."""


@click.command(
    cls=PipelineCommand,
    examples=(
        'ottla pipeline sql "select partition, count(*) from clicks group by 1" --table lake/clicks',
        'ottla pipeline sql "select cast(value as string) from records limit 5" --table lake/clicks --json',
        "ottla pipeline sql \"select count(*) from topic.clicks where timestamp > now() - interval '1' hour\"",
        "ottla pipeline sql 'select * from topic.`page-views` where partition = 0' --output views.parquet",
        'ottla pipeline sql "select count(*) from records where partition = 0" --table lake/clicks --engine duckdb',
    ),
)
@click.argument("statement")
@click.option(
    "--table",
    "tables",
    multiple=True,
    type=TableLocation(file_okay=False),
    help="Directory or URL of a table; may be repeated.",
)
@click.option(
    "--output",
    "-o",
    type=GivenPath(dir_okay=False),
    help="Output file for the result: .csv, .json or .parquet.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=SPARK,
    show_default=True,
    help="Query engine; DuckDB starts faster and needs no Java.",
)
@catalog_option
@spark_options
@json_option
@connection_options
def sql(
    statement: str,
    tables: tuple[Path | str, ...],
    output: Path | None,
    as_csv: bool,
    engine: str,
    catalog_url: str | None,
    master: str,
    conf: Mapping[str, str],
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Query tables and topics with SQL.

    Runs one query; a statement that would write is rejected. A table is visible under the name of its directory, a
    single table also as `records`. A topic is visible as `topic.NAME`, with its currently committed records. Topic
    columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers. Filters on topic, partition,
    offset and timestamp limit the data that is fetched. Binary columns are printed as UTF-8, other bytes as \\xNN.

    --engine spark takes Spark SQL. --engine duckdb, of the extra 'ottla[duckdb]', takes DuckDB's SQL, which quotes
    special names with double quotes: topic."page-views", and the column "offset". DuckDB runs in this process with 1
    GiB of memory, returns at most 1 GiB of results, and reads only the files of the tables.
    """
    if (output is not None) + as_csv + as_json > 1:
        raise click.UsageError("Give one of --output, --csv and --json.")
    if not statement.strip(" \t\r\n;"):
        raise click.UsageError("The statement is empty.")
    if engine == DUCKDB and (master != DEFAULT_MASTER or conf):
        raise click.UsageError("--master, --conf and --environment are Spark's: they say nothing with --engine duckdb.")
    require_lake() if engine == DUCKDB else require_extra()
    from ottla.pipeline.model.results import ResultFile, as_records, file_kind, write_csv
    from ottla.pipeline.sinks.open_table import open_table
    from ottla.pipeline.sql.query import view_names

    if engine == DUCKDB:
        from ottla.pipeline.sql.duckdb_query import require_duckdb

        require_duckdb()
    if output is not None:
        file_kind(output)
    targets = [open_table(path, catalog_url=catalog_url) for path in tables]
    for target in targets:
        target.version()  # report a missing table before Spark starts
    view_names(targets)
    topics = _named_topics(statement, bootstrap_server, master, alone=not targets)
    with ResultFile(output) if output is not None else nullcontext() as file:
        if engine == DUCKDB:
            result = _by_duckdb(statement, targets, topics, bootstrap_server)
        else:
            result = _by_spark(statement, targets, topics, bootstrap_server, master, conf)
        if file is not None:
            file.write(result)
    if as_json:
        print_json(as_records(result))
    elif as_csv:
        write_csv(result, sys.stdout)
    elif output is None:
        _print(result)
    hint = duckdb_hint(click.get_current_context(), result.num_rows)
    if hint is not None and sys.stderr.isatty():
        click.echo(hint, err=True)


def duckdb_hint(context: click.Context, row_count: int) -> str | None:
    """A sentence about the engine without Spark's start, for a small result of a query that named no engine.

    The engine is never changed by itself: the dialects differ, and a query must not change with its result.
    """
    named = context.get_parameter_source("engine") is not ParameterSource.DEFAULT
    if named or row_count > SMALL_RESULT_ROWS or context.params["master"] != DEFAULT_MASTER:
        return None
    extra = "" if find_spec("duckdb") else ", of the extra 'ottla[duckdb]',"
    return f"For small results --engine duckdb{extra} needs no start of Spark; its SQL is that of DuckDB."


def _by_spark(
    statement: str,
    targets: Sequence[Table],
    topics: Sequence[str],
    bootstrap_server: str,
    master: str,
    conf: Mapping[str, str],
) -> pa.Table:
    from ottla.pipeline.sql.query import register_tables, run_sql
    from ottla.pipeline.sql.topic_views import DATABASE, DATABASE_SETTING, register_topics

    if topics:
        conf = {**conf, DATABASE_SETTING: DATABASE}
    with open_session(master, "ottla pipeline sql", conf) as spark:
        register_tables(spark, targets)
        register_topics(spark, topics, bootstrap_server, security())
        return run_sql(spark, statement, reads_topics=bool(topics))


def _by_duckdb(statement: str, targets: Sequence[Table], topics: Sequence[str], bootstrap_server: str) -> pa.Table:
    from ottla.pipeline.sql.duckdb_query import open_query

    with open_query() as query:
        query.register_tables(targets)
        query.register_topics(topics, bootstrap_server, security())
        return query.run(statement)


def _named_topics(statement: str, bootstrap_server: str, master: str, *, alone: bool) -> list[str]:
    """The topics that a statement names; a request to the cluster is sent only if it names any, or no table is
    given."""
    from ottla.pipeline.sql.topic_views import names_in, topics_in

    names = names_in(statement)
    if not names:
        if alone:
            raise click.UsageError("Name a table with --table, or a topic as topic.NAME in the statement.")
        return []
    with open_cluster(bootstrap_server) as cluster:
        topics = topics_in(statement, cluster.topics.all())
    if not topics and alone:
        raise OperatorError(f"topic {names[0]!r} does not exist on {bootstrap_server}")
    if topics and master.startswith("sc://"):
        raise OperatorError(
            "topics can't be queried on Spark Connect, because its server names views in its own way: use --engine "
            "duckdb, leave --master out or name spark://HOST:7077"
        )
    return topics


def _print(result: pa.Table) -> None:
    from ottla.pipeline.model.results import rows_of

    numeric = [field.name for field in result.schema if str(field.type).startswith(("int", "uint", "float", "double"))]
    print_table(list(result.column_names), rows_of(result), right=numeric)
