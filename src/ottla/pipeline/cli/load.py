"""`ottla pipeline load`: topics into lake tables, exactly once."""

from __future__ import annotations

from functools import partial

import click

from ottla.pipeline.cli.options import TopicsPattern, topics_or_pattern
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.cli.table_loads import load_table, load_tables, table_for
from ottla.pipeline.cli.table_run import TableRun, with_table_run
from ottla.pipeline.spark.session import require_lake

PARALLEL_TABLES = 4
MAX_PARALLEL_TABLES = 64


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline load --topics clicks --table lake/clicks",
        "ottla pipeline load -t clicks,orders --table lake/events --partition-by topic",
        r"ottla pipeline load --topics-pattern 'shop\..*' --table 'lake/{topic}'",
        "ottla pipeline load -t clicks --table lake/clicks --format iceberg",
        "ottla pipeline load -t clicks --table lake/clicks --schedule hourly",
        "ottla pipeline load -t clicks --table lake/clicks --schedule '*/15 * * * *' --json",
        "ottla pipeline load -t clicks --table lake/clicks --decode json --from 2026-03-02",
        "ottla pipeline load -t clicks --table lake/clicks --engine local --master 'local[8]'",
        "ottla pipeline load -t clicks --table /lake/clicks --master spark://host:7077 --json",
        "ottla pipeline load -t clicks --table lake/clicks --decode json --max-dead-letters 0.1% --numbers exact",
    ),
)
@with_table_run(
    click.option(
        "--parallel-tables",
        type=click.IntRange(1, MAX_PARALLEL_TABLES),
        help=f"Maximum number of tables that are loaded at a time with {{topic}} in --table.  [default: "
        f"{PARALLEL_TABLES}]",
    ),
    click.option(
        "--partition-by",
        multiple=True,
        metavar="COLUMN",
        help="Partition column of a new table: topic, partition, a decoded column, or date, the day of a "
        "record's timestamp; may be repeated.",
    ),
    topics=topics_or_pattern("Topics to load; may be repeated."),
    table="Directory of the table, or its URL in an object store such as s3://bucket/path; created by the first load. "
    "With {topic} each topic has a table of its own.",
    group="ottla-load.TABLE.PIPELINE-ID",
)
def load(
    run: TableRun, topics_pattern: TopicsPattern | None, parallel_tables: int | None, partition_by: tuple[str, ...]
) -> None:
    """Load topics into tables exactly once.

    Adds the new records of topics to a table of Delta, Iceberg or Parquet files. Data and offsets are committed
    together: a load that is killed at any point and repeated neither loses nor duplicates a record, and a load without
    new records adds nothing. A failed task is retried up to four attempts; local[N,F] makes F attempts. A record that
    cannot be decoded, or that does not fit the columns, goes to TABLE/_dead_letters with the reason; 'ottla pipeline
    redrive' decodes it again.

    --decode adds columns beside those of Kafka. Without --schema, the fields of JSON and CSV are inferred from the
    records, all of them up to 4 MiB a topic, and new fields are added to the table as they appear. JSON names match
    without regard to case; a space, tab, line feed or one of ,;{}()= in a name is _ in the table. A CSV field is text
    unless all inspected values are plain numbers or booleans: codes such as 02134, +49, 0x1A, 1e5 and nan stay text. An
    existing table settles the width of CSV. A field with the name of a Kafka column gets the prefix value_. A later
    load may decode differently: the table then has the columns of both, and a row is null in columns that it lacks.
    Column types stay or widen; values that do not fit become dead letters, and an incompatible --schema is rejected.

    With --envelope the values are change events of a database: each is a row with the kind of the change in __op. A
    deletion has the deleted row, as far as the event has it. 'ottla pipeline snapshot' applies the changes instead.

    A table can contain topics of several clusters, but not two topics with the same name; such a load is rejected. A
    boundary is earliest, latest, offset:N, or a time as an ISO date or in milliseconds; a time selects the first record
    at or after it. A pipeline id resumes from its last offset; --from is rejected once it has loaded something.

    With {topic} in --table, each topic is loaded into a table of its own, several at a time. All other options, such as
    --schema and --message, apply to every topic. A topic that fails does not stop the others. A directory has the
    name of its topic, after the prefix topic if that begins with . or _; with --catalog, . and - in a topic's name are
    _ in the table's. Topics that would share a table are not loaded. --json then prints an object with topics, a list
    with one object per topic (also its error, exit_code and retriable), and totals. The exit code is the highest of the
    topics.

    Exit code 0: the table is up to date; 1: the load failed and may be retried, or records are lost; 2: the load fails
    until the problem is corrected; 3: more dead letters than --max-dead-letters, and nothing was committed. --json
    prints rows, dead_letters, dead_letter_reasons, columns_added, columns_renamed, fields_without_column, nulled,
    offsets, version (null without a new one), engine and seconds, one line a run; after a failure error, exit_code and
    retriable. With --schedule, a failed run is reported and the next catches up, unless it is the first.

    --engine auto loads up to 4 GiB of stored records without Spark: small loads in this process, others in one worker
    process per CPU. More is loaded by Spark, if it is installed; --master, --conf and --environment select Spark too.
    Both engines give the same table and the same guarantees. --engine local --master local[N] limits the processes to
    N.

    On a cluster, Ottla itself is shipped with the job. The other packages of 'ottla[pipeline]' are shipped with
    --environment, or are in the Python that --conf spark.pyspark.python=PATH selects. Every worker must reach the table
    and the brokers under the same names.
    """
    require_lake()
    from ottla.pipeline.load.topic_tables import PLACE

    names = sorted(set(run.topics))
    if topics_pattern is None and not names:
        raise click.UsageError("name topics with --topics, or select them with --topics-pattern")
    if topics_pattern is not None and names:
        raise click.UsageError("--topics and --topics-pattern exclude each other: use one of them")
    is_template = PLACE in str(run.table)
    if parallel_tables is not None and not is_template:
        raise click.UsageError("--parallel-tables needs a table for each topic: add {topic} to --table")
    find_topics = (lambda: run.topics) if topics_pattern is None else partial(topics_pattern.find, run.bootstrap_server)
    if is_template and (topics_pattern is not None or len(names) > 1):
        load_tables(run, partition_by, find_topics, parallel=parallel_tables or PARALLEL_TABLES)
    else:
        load_table(table_for(run, names[0]) if is_template else run, partition_by, find_topics)
