"""`ottla pipeline replay`: copy a range of a topic or a table into a new topic or a new table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from ottla.cli.positions import METAVAR, Selection, find_positions, parse_selection
from ottla.cli.times import parse_timestamp
from ottla.pipeline.cli.engine import engine_choice, engine_option
from ottla.pipeline.cli.options import (
    TableLocation,
    absolute,
    catalog_option,
    spark_options,
    with_decode_options,
)
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.cli.push import print_summary, progress_bar, table_rows
from ottla.pipeline.sinks.formats import TABLE_FORMATS
from ottla.pipeline.spark.engines import AUTO, LOCAL, SPARK
from ottla.pipeline.spark.session import (
    DEFAULT_MASTER,
    open_session,
    parallelism,
    require_extra,
    require_lake,
    with_small_jvm,
)
from ottla.pipeline.transform.decode_options import DecodeOptions

if TYPE_CHECKING:
    from ottla.pipeline.load.driver import LoadSummary
    from ottla.pipeline.load.engine import EngineChoice, OpenSession
    from ottla.pipeline.operations.push import PushSummary
    from ottla.pipeline.replay.into_table import CopySummary
    from ottla.pipeline.replay.ranges import Bound
    from ottla.pipeline.sinks.table import Table
    from ottla.pipeline.sinks.topic import TopicTarget
    from ottla.pipeline.sources.rows import RowSource

BOUND_HELP = "earliest, latest, an offset, or an ISO 8601 time"


@dataclass(frozen=True, slots=True)
class Replay:
    """Parameters of a replay; one of `selection` and `table` is set."""

    selection: Selection
    table: Table | None
    start: str
    end: str
    replay_id: str

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """The range. Raises click.BadParameter, and OperatorError for an empty range."""
        from ottla.pipeline.replay.ranges import require_order

        bounds = parse_bound(self.start, "--from"), parse_bound(self.end, "--to")
        require_order(*bounds)
        return bounds


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline replay --topic clicks --from 2026-11-22 --to 2026-11-23 --to-topic clicks-of-sunday",
        "ottla pipeline replay --topic clicks:0 --from 1000 --to 2000 --to-topic thousand --keep-timestamps",
        "ottla pipeline replay --table lake/clicks --from 2026-11-22 --to-topic clicks-restored",
        "ottla pipeline replay --topic clicks --from 2026-11-22 --to-table lake/sunday --decode json",
        "ottla pipeline replay --table lake/clicks --from 2026-11-22 --to-table lake/sunday --format iceberg",
        "ottla pipeline replay --table lake.clicks --catalog http://catalog:8181 --to-table lake.again",
        "ottla pipeline replay --table /lake/clicks --to-table lake.clicks --catalog http://catalog:8181",
    ),
)
@click.option(
    "--topic",
    "selection",
    multiple=True,
    callback=parse_selection,
    metavar=METAVAR,
    shell_complete=complete_topic,
    help="Topic to replay, or some of its partitions.",
)
@click.option(
    "--table",
    type=TableLocation(file_okay=False),
    help="Table of `load` to replay: directory or object store URL.",
)
@click.option("--from", "start", default="earliest", show_default=True, metavar="WHERE", help=f"{BOUND_HELP}.")
@click.option("--to", "end", default="latest", show_default=True, metavar="WHERE", help=f"{BOUND_HELP}, exclusive.")
@click.option("--to-topic", metavar="NAME", help="Name of a new topic, with as many partitions as the source.")
@click.option(
    "--to-table", type=TableLocation(file_okay=False), help="Directory of a new table, or its object store URL."
)
@catalog_option
@click.option("--replay-id", help="Id of the stored progress.  [default: derived from source, range and target]")
@click.option("--keep-timestamps", is_flag=True, help="Keep the original record timestamps in a topic.")
@settings_option("--property", "-X", "properties", help_text="librdkafka property, such as compression.type=zstd.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(TABLE_FORMATS),
    help="Format of the new table.  [default: that of --table, else delta]",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="COLUMN",
    help="Partition column of the new table; may be repeated.  [default: those of --table]",
)
@with_decode_options
@engine_option
@spark_options
@click.option("--quiet", "-q", is_flag=True, help="Disable the progress bar and the summary.")
@json_option
@connection_options
def replay(
    selection: Selection,
    table: Path | str | None,
    start: str,
    end: str,
    to_topic: str | None,
    to_table: Path | str | None,
    catalog_url: str | None,
    replay_id: str | None,
    keep_timestamps: bool,
    properties: Mapping[str, str],
    format_name: str | None,
    partition_by: tuple[str, ...],
    decode_options: DecodeOptions,
    engine: str,
    master: str,
    conf: Mapping[str, str],
    quiet: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Replay a range of a topic or table.

    Copies each record of a range of offsets or times exactly once into a new topic or a new table. The same command
    resumes a replay that was killed. The source is not changed, and a target that contains other records is rejected.
    Records and rows are selected by their own timestamps. Records of a topic keep their partition; only committed
    records are copied.

    A table gets the records of a topic as in a load, or the rows of a table with all columns, which Spark copies. Both
    are one commit. With --catalog, --table and --to-table are table names, unless absolute paths or URLs.

    Old timestamps in a new topic are subject to its retention: check retention.ms before you use --keep-timestamps.
    """
    if bool(selection) == (table is not None) or len(selection) > 1:
        raise click.UsageError("name one --topic or a --table to replay")
    if (to_topic is None) == (to_table is None):
        raise click.UsageError("name the target: --to-topic or --to-table")
    _require_fitting(
        "--to-topic", is_given=to_topic is not None, options={"--keep-timestamps": keep_timestamps, "-X": properties}
    )
    decodes = decode_options != DecodeOptions("raw")
    table_options: dict[str, object] = {"--format": format_name, "--partition-by": partition_by, "--decode": decodes}
    table_options |= {"--master": master != DEFAULT_MASTER, "--conf": conf, "--engine": engine != AUTO}
    _require_fitting("--to-table", is_given=to_table is not None, options=table_options)
    _require_fitting("--topic", is_given=bool(selection), options={"--decode": decodes})
    catalogs = _catalogs(table, to_table, catalog_url)
    require_lake()
    from ottla.pipeline.operations.push import group_name
    from ottla.pipeline.sinks.open_table import open_table
    from ottla.pipeline.sinks.topic import TopicTarget

    named, new_name = (each and absolute(each, catalogs[each]) for each in (table, to_table))
    name = replay_id or default_replay_id(selection, named, start, end, to_topic or new_name, keep_timestamps)
    group_name(name)
    source = None if table is None else open_table(table, catalog_url=catalogs[table])
    _require_there(source)
    asked = Replay(selection, source, start, end, name)
    if to_table is None:
        target = TopicTarget(bootstrap_server, to_topic, properties, security=security())
        pushed = _into_topic(asked, target, keep_timestamps=keep_timestamps, silent=quiet or as_json)
        print_summary(pushed, as_json=as_json, quiet=quiet)
        return
    choice = _engine(engine, master, conf, has_rows=source is not None)
    new = _new_table(to_table, catalogs[to_table], format_name, partition_by, source)
    if source is not None:
        copied = _table_into_table(asked, source, new, choice.open_spark)
        _tell(copied.to_json(), copy_text(copied), as_json=as_json, quiet=quiet)
    else:
        loaded = _topic_into_table(asked, new, bootstrap_server, decode_options, choice, parallelism(master))
        _tell(loaded.to_json(), load_text(loaded), as_json=as_json, quiet=quiet)


def _engine(engine: str, master: str, conf: Mapping[str, str], *, has_rows: bool) -> EngineChoice:
    """As `engine_choice`; rows of a table need Spark. Raises OperatorError, click.UsageError."""
    if has_rows and engine == LOCAL:
        raise click.UsageError("rows of a table are copied into a table by Spark only: leave --engine local out")
    if has_rows:
        require_extra()
        engine = SPARK
    open_spark = partial(open_session, master, "ottla pipeline replay", with_small_jvm(conf))
    return engine_choice(engine, master, conf, open_spark)


def _require_fitting(option: str, *, is_given: bool, options: Mapping[str, object]) -> None:
    """Raise click.UsageError for options that have no effect without another."""
    useless = [name for name, value in options.items() if value]
    if useless and not is_given:
        raise click.UsageError(f"{useless[0]} has no effect without {option}")


def _catalogs(
    table: Path | str | None, to_table: Path | str | None, catalog_url: str | None
) -> dict[Path | str, str | None]:
    """The catalog of each location that is a table name. Raises click.UsageError if none is."""
    given = [each for each in (table, to_table) if each is not None]
    found = {each: catalog_url if isinstance(each, Path) and not each.is_absolute() else None for each in given}
    if catalog_url is not None and not any(found.values()):
        raise click.UsageError("--catalog has no effect: neither --table nor --to-table is a table name")
    return found


def _into_topic(asked: Replay, target: TopicTarget, *, keep_timestamps: bool, silent: bool) -> PushSummary:
    from ottla.pipeline.operations.push import push
    from ottla.pipeline.replay.into_topic import require_own_topic
    from ottla.pipeline.replay.ranges import row_bounds, topic_ranges
    from ottla.pipeline.sources.rows import Shape, TopicRows

    bounds, name = asked.bounds, target.topic or ""
    with open_cluster(target.bootstrap_servers) as cluster:
        partitions = -1
        rows: RowSource
        if asked.table is not None:
            shape = Shape(keep_timestamps=keep_timestamps, bounds=row_bounds(*bounds, offsets=True))
            rows = table_rows(asked.table, shape, (name, 0))
        else:
            ranges = topic_ranges(cluster, find_positions(cluster, asked.selection), *bounds)
            chosen = row_bounds(*bounds, offsets=False)
            rows = TopicRows(cluster, ranges, (asked.start, asked.end), chosen, keep_timestamps=keep_timestamps)
            partitions = max(len(cluster.topics.get(each).partitions) for each in asked.selection)
        require_own_topic(cluster, name, asked.replay_id, partitions)
        with progress_bar(rows, silent=silent) as observe:
            return push(target, rows, asked.replay_id, observe)


def _require_there(source: Table | None) -> None:
    """Report a missing table before anything is created. Raises OperatorError."""
    if source is not None:
        source.version()


def _new_table(
    location: Path | str,
    catalog_url: str | None,
    format_name: str | None,
    partition_by: tuple[str, ...],
    source: Table | None,
) -> Table:
    """Open the target; its defaults are those of the source table, but rows of a snapshot do not become a snapshot."""
    from ottla.pipeline.load.shape import shape_of
    from ottla.pipeline.sinks.open_table import open_table

    target = open_table(location, format=format_name, partition_by=partition_by, catalog_url=catalog_url)
    if source is None or target.exists():
        return target
    if format_name is None and catalog_url is None:
        format_name = source.format
    if not partition_by and shape_of(source) is None:
        partition_by = source.layout().partition_columns
    return open_table(location, format=format_name, partition_by=partition_by, catalog_url=catalog_url)


def _topic_into_table(
    asked: Replay,
    target: Table,
    bootstrap_server: str,
    decode_options: DecodeOptions,
    engine: EngineChoice,
    tasks_at_once: int,
) -> LoadSummary:
    from ottla.pipeline.load.driver import load
    from ottla.pipeline.model.plan import PlanSettings
    from ottla.pipeline.replay.into_table import TopicReplay
    from ottla.pipeline.transform.open_format import open_format

    settings = PlanSettings(asked.replay_id, parallelism=tasks_at_once, source="auto")
    value_format = open_format(decode_options, exact_fields=target.layout().partition_columns)
    bounds = asked.bounds
    with open_cluster(bootstrap_server) as cluster:
        planner = TopicReplay(find_positions(cluster, asked.selection), *bounds)
    topics = list(asked.selection)
    return load(
        topics,
        target,
        bootstrap_server,
        engine,
        settings,
        value_format=value_format,
        planner=planner,
        security=security(),
    )


def _table_into_table(asked: Replay, source: Table, target: Table, session: OpenSession) -> CopySummary:
    from ottla.pipeline.replay.into_table import copy_rows
    from ottla.pipeline.replay.ranges import row_bounds

    bounds = row_bounds(*asked.bounds, offsets=True)
    return copy_rows(source, target, asked.replay_id, bounds, session)


def _tell(summary: Mapping[str, Any], text: str, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json(summary)
        return
    for note in summary.get("notes", ()):
        click.echo(f"Note: {note}.", err=True)
    if not quiet:
        click.echo(text)


def load_text(summary: LoadSummary) -> str:
    """Summary sentence for the records of a topic."""
    if summary.version is None:
        return f"Nothing to add to {summary.table}."
    return (
        f"Replayed {counted(summary.rows, 'row')} of {', '.join(summary.topics)} into {summary.table} as version "
        f"{summary.version}: {summary.land_s:.1f} s, {summary.rows_per_s:,.0f} rows/s."
    )


def copy_text(summary: CopySummary) -> str:
    """Summary sentence for the rows of a table."""
    if summary.version is None:
        return f"Nothing to add to {summary.table}: it has the rows of version {summary.source_version}."
    return (
        f"Replayed {counted(summary.rows, 'row')} of version {summary.source_version} of {summary.source} into "
        f"{summary.table} as version {summary.version}: {summary.seconds:.1f} s."
    )


def parse_bound(text: str, option: str) -> Bound:
    """Parse a bound; plain digits are an offset. Raises click.BadParameter."""
    from ottla.pipeline.replay.ranges import Bound

    if text in ("earliest", "latest"):
        return Bound("earliest" if text == "earliest" else "latest")
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Bound("offset", int(text))
    return Bound("time", parse_timestamp(text, option))


def default_replay_id(*parts: object) -> str:
    """An id that is the same for the same command."""
    return "replay-" + hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
