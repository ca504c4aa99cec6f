"""`ottla pipeline`: load topics into a lake table, query and maintain it, push it back, run a demo of the whole path.

One module a command. The commands import Spark, Arrow and the table formats only when they run, so `--help` needs none
of them.
"""

from __future__ import annotations

import click

from ottla.cli.command import Group
from ottla.pipeline.cli.demo import demo as demo_command
from ottla.pipeline.cli.doctor import doctor as doctor_command
from ottla.pipeline.cli.load import load as load_command
from ottla.pipeline.cli.maintain import compact as compact_command
from ottla.pipeline.cli.maintain import vacuum as vacuum_command
from ottla.pipeline.cli.package import package as package_command
from ottla.pipeline.cli.push import push as push_command
from ottla.pipeline.cli.redrive import redrive as redrive_command
from ottla.pipeline.cli.replay import replay as replay_command
from ottla.pipeline.cli.snapshot import snapshot as snapshot_command
from ottla.pipeline.cli.sql import sql as sql_command
from ottla.pipeline.cli.status import status as status_command
from ottla.pipeline.cli.stream import stream as stream_command


@click.group(cls=Group)
def pipeline() -> None:
    """Load topics into lake tables and query them.

    Tables are Delta, Iceberg or Parquet files, written exactly once with Spark.
    """


for command in (
    load_command,
    snapshot_command,
    sql_command,
    status_command,
    stream_command,
    push_command,
    replay_command,
    redrive_command,
    demo_command,
    doctor_command,
    compact_command,
    vacuum_command,
    package_command,
):
    pipeline.add_command(command)
