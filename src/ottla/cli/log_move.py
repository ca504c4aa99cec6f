"""`ottla log move`: replica moves between the data directories of a broker (AlterReplicaLogDirs, KIP-113).

The broker copies while the replica is online, and switches to the copy at the end. The move continues if the wait is
interrupted. Moves to other brokers: `ottla cluster reassign`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ottla.cli.command import (
    BROKER_ID,
    complete_topic,
    connection_options,
    counted,
    json_option,
    open_cluster,
    print_json,
    print_table,
)
from ottla.cli.positions import METAVAR, Selection, find_positions, parse_selection
from ottla.common.errors import OperatorError
from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.wire.model import LogDirectory

POLL_S = 0.5


@click.argument(
    "targets", metavar=f"{METAVAR}...", nargs=-1, required=True, callback=parse_selection, shell_complete=complete_topic
)
@click.option(
    "--broker",
    "node_id",
    type=BROKER_ID,
    required=True,
    metavar="ID",
    help="Broker id of the replicas.",
)
@click.option("--to", "path", required=True, metavar="DIR", help="Target directory, one of log.dirs of the broker.")
@click.option("--execute", is_flag=True, help="Apply the change; the default is a dry run.")
@click.option("--no-wait", is_flag=True, help="Do not wait for completion.")
@json_option
@connection_options
def move(
    targets: Selection, node_id: int, path: str, execute: bool, no_wait: bool, as_json: bool, bootstrap_server: str
) -> None:
    """Move replicas between data directories.

    The directories belong to one broker. The replicas stay online during the move.
    """
    with open_cluster(bootstrap_server) as client:
        positions = find_positions(client, targets)
        places = _places(client, node_id, path)
        for name, index in positions:
            if (name, index) not in places:
                raise OperatorError(
                    f"broker {node_id} has no replica of {name}-{index}: `ottla log dirs --replicas` lists its replicas"
                )
        moving = [position for position in positions if places[position] != path]
        moves = [(*position, places[position], path) for position in moving]
        columns = ("topic", "partition", "from", "to")
        if as_json:
            rows = [dict(zip(columns, row, strict=True)) for row in moves]
            print_json({"executed": execute, "broker": node_id, "moves": rows})
        elif moves:
            print_table(columns, moves, right=("partition",))
        else:
            click.echo("Nothing to move.")
        if not execute:
            click.echo("Dry run: use --execute to apply the change.", err=True)
        elif moves:
            client.log_directories.move(node_id, path, moving)
            if not no_wait:
                _wait(client, node_id, path, moving)


def _places(client: Cluster, node_id: int, path: str) -> dict[TopicPartition, str]:
    """The directory of each replica of a broker. Raises OperatorError if the broker or the directory is unknown."""
    directories = _directories(client, node_id)
    if path not in [each.path for each in directories]:
        known = ", ".join(each.path for each in directories)
        raise OperatorError(f"{path} is not in log.dirs of broker {node_id}: give --to one of {known}")
    return {position: each.path for each in directories for position in each.sizes}


def _directories(client: Cluster, node_id: int) -> list[LogDirectory]:
    directories = [each for each in client.log_directories.all() if each.node_id == node_id]
    if not directories:
        raise OperatorError(f"broker {node_id} is not registered: `ottla cluster brokers` lists the brokers")
    return directories


def _wait(client: Cluster, node_id: int, path: str, moving: list[TopicPartition]) -> None:
    """Wait until all replicas are in `path`. Raises OperatorError if the directory fails."""
    while True:
        (there,) = [each for each in _directories(client, node_id) if each.path == path]
        if there.error is not None:
            raise OperatorError(
                f"{path} of broker {node_id} failed ({there.error}): repair its disk, then move the replicas again"
            )
        if there.sizes.keys() >= set(moving):
            break
        time.sleep(POLL_S)
    click.echo(f"Moved {counted(len(moving), 'partition')}.", err=True)
