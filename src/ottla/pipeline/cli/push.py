"""`ottla pipeline push`: rows of a table or of files to a topic, exactly once."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.command import (
    complete_topic,
    connection_options,
    counted,
    json_option,
    open_cluster,
    print_json,
    security,
    settings_option,
)
from ottla.common.errors import OperatorError
from ottla.pipeline.cli.options import TableLocation, absolute, catalog_option
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.spark.session import require_lake

if TYPE_CHECKING:
    from ottla.common.kafka.topic_partition import TopicPartition
    from ottla.pipeline.operations.push import Observe, PushSummary
    from ottla.pipeline.sinks.table import Table
    from ottla.pipeline.sources.rows import FileRows, RowSource, Shape, TableRows


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline push lake/clicks --topic clicks-again          # a table, of any format that `load` writes",
        "ottla pipeline push users.csv --topic users --key-column id   # rows become JSON objects",
        "ottla pipeline push day1.parquet day2.parquet --topic days --value-column payload",
        "ottla pipeline push s3://lake/clicks --topic clicks-again",
        "ottla pipeline push lake.clicks --catalog http://catalog:8181 --topic clicks-again",
        "ottla pipeline push orders.jsonl --topic orders --push-id orders-2 --json",
    ),
)
@click.argument("sources", nargs=-1, required=True, type=TableLocation())
@catalog_option
@click.option("--topic", "-t", required=True, shell_complete=complete_topic, help="Target topic.")
@click.option("--push-id", help="Id of the stored progress.  [default: derived from topic and sources]")
@click.option("--key-column", metavar="NAME", help="Key column.  [default: `key`, if it exists]")
@click.option(
    "--value-column",
    metavar="NAME",
    help="Value column.  [default: `value`, if it exists, else the whole row as JSON]",
)
@click.option("--keep-timestamps", is_flag=True, help="Set record timestamps from the column `timestamp`.")
@settings_option("--property", "-X", "properties", help_text="librdkafka property, such as compression.type=zstd.")
@click.option("--quiet", "-q", is_flag=True, help="Disable the progress bar and the summary.")
@json_option
@connection_options
def push(
    sources: tuple[Path | str, ...],
    catalog_url: str | None,
    topic: str,
    push_id: str | None,
    key_column: str | None,
    value_column: str | None,
    keep_timestamps: bool,
    properties: Mapping[str, str],
    quiet: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Push table rows to a topic.

    Pushes each row of a table, or of Parquet, JSON-lines and CSV files, exactly once. Rows and progress are committed
    together. The same command resumes a push that was killed at any point, and adds nothing after a complete push, for
    as long as the broker retains the offsets of an unused group (offsets.retention.minutes, a week). Another --push-id
    pushes everything again.

    A table of `load` yields its records: key, value and headers. JSON lines are sent unchanged. Rows of other files and
    tables become JSON objects with all columns; values of CSV are text, an empty cell is null, and "" is empty text.
    read_committed consumers see up to 50,000 rows at once. A malformed line ends the push; the error contains its
    number and the number of rows that are already in the topic.
    """
    require_lake()
    from ottla.pipeline.operations import push as pushing
    from ottla.pipeline.sinks.topic import TopicTarget
    from ottla.pipeline.sources.rows import Shape

    name = push_id or default_push_id(topic, sources, catalog_url)
    pushing.group_name(name)
    shape = Shape(key_column, value_column, keep_timestamps=keep_timestamps)
    rows = rows_of(sources, catalog_url, shape, (topic, 0))
    with open_cluster(bootstrap_server) as cluster:
        cluster.topics.get(topic)
    target = TopicTarget(bootstrap_server, topic, properties, security=security())
    with progress_bar(rows, silent=quiet or as_json) as observe:
        summary = pushing.push(target, rows, name, observe)
    print_summary(summary, as_json=as_json, quiet=quiet)


def default_push_id(topic: str, sources: tuple[Path | str, ...], catalog_url: str | None) -> str:
    """An id that is the same for the same command in any directory."""
    names = "\n".join([topic, *(str(absolute(source, catalog_url)) for source in sources)])
    return hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def rows_of(
    sources: tuple[Path | str, ...], catalog_url: str | None, shape: Shape, position: TopicPartition
) -> FileRows:
    """The rows of a table, or of the given files.

    Raises OperatorError for a mixture of both, and for a file that can't be read twice.
    """
    from ottla.pipeline.sinks.open_table import open_table
    from ottla.pipeline.sources.rows import FORMATS, FileRows, format_of
    from ottla.pipeline.stores.local_store import LocalStore

    is_named = catalog_url is not None
    files = [source for source in sources if isinstance(source, Path) and not (is_named or source.is_dir())]
    if len(files) < len(sources):
        if len(sources) > 1:
            raise OperatorError("one table, or some files: name one directory, URL or name in a catalog, or files only")
        return table_rows(open_table(sources[0], catalog_url=catalog_url), shape, position)
    missing = next((path for path in files if not path.exists()), None)
    if missing is not None:
        raise OperatorError(f"{missing} does not exist; a table in a catalog needs --catalog in addition to its name")
    pipe = next((path for path in files if not path.is_file()), None)
    if pipe is not None:  # opening it may block forever
        raise OperatorError(
            f"{pipe} is not a regular file, which a push needs to resume after a kill; write its content to a file"
        )
    kinds = {path: format_of(path) for path in files}
    unknown = next((path for path, kind in kinds.items() if kind is None), None)
    if unknown is not None:
        suffixes = ", ".join(suffix for known in FORMATS.values() for suffix in known)
        raise OperatorError(f"the format of {unknown} is unknown; rename the file to end in one of {suffixes}")
    if len(set(kinds.values())) > 1:
        raise OperatorError("files of one push must have one format: push the others separately")
    root = LocalStore(Path("/"))
    paths = [root.relative(str(path.absolute())) for path in files]
    return FileRows(root, paths, str(kinds[files[0]]), shape, position)


def table_rows(table: Table, shape: Shape, position: TopicPartition) -> TableRows:
    """Rows of the table's newest version. Raises OperatorError for a missing table."""
    from ottla.pipeline.sources.rows import TableRows

    files, schema = table.data_files(), table.schema()
    return TableRows(table.layout().store, files, schema, shape, position)


@contextmanager
def progress_bar(source: RowSource, *, silent: bool) -> Iterator[Observe | None]:
    """A progress bar on a terminal; its length is known if the source knows it."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.__stderr__), transient=True) as bar:
        task = bar.add_task("pushing", total=source.rows)

        def observe(positions: Mapping[TopicPartition, int], rows: int) -> None:
            bar.update(task, completed=rows)

        yield observe


def print_summary(summary: PushSummary, *, as_json: bool, quiet: bool) -> None:
    """Print the summary as JSON, or as sentences."""
    if as_json:
        print_json(summary.to_json())
    elif not quiet:
        before = ", after the rows of earlier runs" if summary.resumed else ""
        if summary.rows == 0:
            click.echo(f"Nothing to add to {summary.topic}{before}.")
            return
        rate = summary.rows / max(summary.seconds, 1e-9)
        click.echo(
            f"Pushed {counted(summary.rows, 'row')} to {summary.topic} in "
            f"{counted(summary.transactions, 'transaction')}{before}: {summary.seconds:.1f} s, {rate:,.0f} rows/s."
        )
