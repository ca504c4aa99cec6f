"""`ottla pipeline stream`: a continuous query over topics, from a file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.command import (
    connection_options,
    counted,
    json_option,
    notify,
    print_json,
    run_until_terminated,
    security,
)
from ottla.common.errors import OperatorError
from ottla.pipeline.cli.options import GivenPath, spark_options
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.spark.session import is_local, open_session, parallelism, require_extra

if TYPE_CHECKING:
    from ottla.pipeline.stream.progress import BatchProgress, Observe, StreamSummary

PARTITIONS_SETTING = "spark.sql.shuffle.partitions"


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline stream news-feed.toml",
        "ottla pipeline stream news-feed.toml --once --json",
        "ottla pipeline stream alerts.toml --checkpoint /var/lib/streams/alerts",
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--checkpoint",
    type=GivenPath(file_okay=False),  # Spark's checkpoint can't be in an object store without a jar
    metavar="DIR",
    help="Checkpoint directory.  [default: .ottla-streams/NAME beside the table, for a topic here]",
)
@click.option("--once", is_flag=True, help="Stop at the current end of the topics.")
@spark_options
@click.option("--quiet", "-q", is_flag=True, help="Disable the line per batch and the summary.")
@json_option
@connection_options
def stream(
    file: Path,
    checkpoint: Path | None,
    once: bool,
    master: str,
    conf: Mapping[str, str],
    quiet: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Run a streaming query from a file.

    FILE defines SQL or a Python function over topics, with results in a table or a topic. Results are exactly once: a
    stream that is killed at any point and repeated neither loses nor duplicates a row. A record that cannot be decoded
    goes to the dead letters, TABLE/_dead_letters or DIR/dead-letters, with the reason.

    The stream runs until it is interrupted, or with --once until it reaches the end of the topics at its start. With
    --json each batch is one line; with --once only the summary is printed.
    """
    require_extra()
    if master.startswith("sc://"):
        raise OperatorError(
            "a stream can't run on Spark Connect, because its server would have to write the results; name a master "
            "such as spark://HOST:7077"
        )
    from ottla.pipeline.stream.definition import read_definition
    from ottla.pipeline.stream.run import SESSION_SETTINGS, StreamJob, default_checkpoint, run_stream

    if not once:
        run_until_terminated()
    definition = read_definition(file)
    settings = {**SESSION_SETTINGS, **conf}
    if is_local(master):  # each state partition adds cost to every batch
        settings = {PARTITIONS_SETTING: str(max(parallelism(master), 2)), **settings}
    session = partial(open_session, master, f"ottla pipeline stream {definition.name}", settings)
    job = StreamJob(
        definition, bootstrap_server, checkpoint or default_checkpoint(definition), once=once, security=security()
    )
    summary = run_stream(job, session, _observer(once=once, quiet=quiet, as_json=as_json))
    if as_json and once:
        print_json(summary.to_json())
    elif not quiet and not as_json:
        click.echo(summary_text(summary))


def _observer(*, once: bool, quiet: bool, as_json: bool) -> Observe | None:
    """Prints the progress of each batch."""
    if as_json and not once:
        return lambda batch: print_json(batch.to_json(), indent=None)
    return None if quiet or as_json else lambda batch: notify(batch_text(batch))


def batch_text(batch: BatchProgress) -> str:
    """`batch 12: 5,000 rows in, 40 rows out, 2,500 rows/s, lag 0, watermark 2026-03-02T10:20:00.000Z`."""
    parts = [
        f"{counted(batch.rows_in, 'row')} in",
        f"{counted(batch.rows_out, 'row')} out",
        f"{batch.rows_per_s:,.0f} rows/s",
        f"lag {batch.lag:,}",
    ]
    parts += [f"watermark {batch.watermark}"] if batch.watermark else []
    parts += [counted(batch.dead_letters, "dead letter")] if batch.dead_letters else []
    parts += [f"{counted(batch.late_rows, 'row')} too late"] if batch.late_rows else []
    return f"batch {batch.batch}: {', '.join(parts)}"


def summary_text(summary: StreamSummary) -> str:
    """Summary of a run in a few sentences."""
    if not summary.batches:
        return f"Nothing new for {summary.name}; {summary.result} is unchanged."
    text = (
        f"Streamed {counted(summary.rows_in, 'row')} through {summary.name} into {summary.result}: "
        f"{counted(summary.rows_out, 'row')} of results, {summary.seconds:.1f} s, lag {summary.lag:,}."
    )
    if summary.dead_letters:
        text += (
            f" {counted(summary.dead_letters, 'record')} could not be decoded and went to {summary.dead_letter_table}."
        )
    if summary.late_rows:
        text += f" {counted(summary.late_rows, 'row')} were later than the watermark and are in no result."
    return text
