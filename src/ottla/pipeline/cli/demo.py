"""`ottla pipeline demo`: the whole path on one machine."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.cli.command import Command
from ottla.pipeline.cli.options import GivenPath, master_option
from ottla.pipeline.spark.session import require_spark


@click.command(
    cls=Command,
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
    help="An access log in common or combined format, one record a line; without it one is generated.",
)
@click.option(
    "--events",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Lines to generate without --input.",
)
@click.option(
    "--dir",
    "directory",
    type=GivenPath(file_okay=False),
    help="Where broker data and table go; must be new or empty.  [default: a new temporary directory, kept]",
)
@master_option
def demo(input_path: Path | None, events: int, directory: Path | None, master: str) -> None:
    """The whole path on this machine: broker, stock producer, exactly-once load, SQL.

    Starts a broker on a free port, produces an access log keyed by client address through confluent-kafka with zstd,
    loads it by PySpark, prints the most viewed pages and the views per hour, loads again to show that nothing is added,
    and stops everything. A page is the seventh space-separated field of a line, the request's path: what
    `cut -d' ' -f7 FILE | sort | uniq -c` counts.

    A file is refused before anything starts when it is empty, or when more than one in ten of its first 1,000 lines is
    in neither the common nor the combined format of Apache and nginx. Fewer such lines, and later ones, are loaded and
    counted as they are, and their number is told.
    """
    require_spark(master)
    from ottla.pipeline.operations.demo import run_demo

    run_demo(input_path, events, directory, master)
