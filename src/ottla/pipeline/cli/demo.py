"""`ottla pipeline demo`: the whole path on one machine."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.pipeline.cli.options import GivenPath, master_option
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.spark.session import require_spark


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline demo",
        "ottla pipeline demo --input /var/log/apache2/access.log",
        "ottla pipeline demo --events 1000000 --dir /tmp/ottla-demo",
    ),
)
@click.option(
    "--input",
    "input_path",
    type=GivenPath(exists=True, dir_okay=False),
    help="Access log in common or combined format, one record per line  [default: a generated log]",
)
@click.option(
    "--events",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Number of lines to generate without --input.",
)
@click.option(
    "--dir",
    "directory",
    type=GivenPath(file_okay=False),
    help="Directory for broker data and table, new or empty  [default: a new temporary directory, kept]",
)
@master_option
def demo(input_path: Path | None, events: int, directory: Path | None, master: str) -> None:
    """Run the whole pipeline on this machine.

    Starts a broker on a free port and produces an access log through confluent-kafka with zstd, keyed by client
    address. Loads it with PySpark, prints the most viewed pages and the views per hour, and loads again to show that
    nothing is added. A page is the seventh space-separated field of a line, the request path, as in `cut -d' ' -f7 FILE
    | sort | uniq -c`.

    An empty file is rejected before anything starts, and a file of which more than one in ten of the first 1,000 lines
    are in neither the common nor the combined format of Apache and nginx. Fewer such lines, and later ones, are loaded
    unchanged; their number is reported.
    """
    require_spark(master)
    from ottla.pipeline.operations.demo import run_demo

    run_demo(input_path, events, directory, master)
