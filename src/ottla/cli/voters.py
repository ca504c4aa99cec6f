"""`ottla cluster voters`: changes of the voters of the metadata quorum (KIP-853).

A node with the role controller and a formatted directory replicates the metadata log as an observer until it is added.
`ottla cluster quorum` lists voters and observers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ottla.cli.command import BROKER_ID, Group, connection_options, json_option, open_cluster, print_json
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from ottla.client.wire.model import QuorumReplicaInfo

_directory_option = click.option(
    "--directory-id", metavar="ID", help="Directory id, needed if the node has several in the quorum."
)


@click.group(cls=Group)
def voters() -> None:
    """Manage voters of the metadata quorum."""


@voters.command(examples=("ottla cluster voters add 4 --listener CONTROLLER://host4:9093",))
@click.argument("node_id", metavar="NODE", type=BROKER_ID)
@click.option(
    "--listener",
    "listeners",
    metavar="NAME://HOST:PORT",
    multiple=True,
    required=True,
    help="Controller endpoint of the node; may be repeated.",
)
@_directory_option
@json_option
@connection_options
def add(
    node_id: int, listeners: tuple[str, ...], directory_id: str | None, as_json: bool, bootstrap_server: str
) -> None:
    """Add a voter to the metadata quorum.

    The node must be an observer that has caught up with the leader.
    """
    from ottla.common.config.listener_configs import parse_endpoints

    names = {text.strip().partition("://")[0].upper(): "" for text in listeners}
    endpoints = parse_endpoints("--listener", listeners, names)
    with open_cluster(bootstrap_server) as client:
        found = _one(client.quorum.describe().observers, node_id, directory_id, "observer")
        client.quorum.add_voter(node_id, found.directory_id, endpoints)
    _print_result("added", found, "is now a voter", as_json=as_json)


@voters.command(
    examples=(
        "ottla cluster voters remove 3",
        "ottla cluster voters remove 3 --directory-id JEXY6aqzQY-32P5TStzaFg",
    )
)
@click.argument("node_id", metavar="NODE", type=BROKER_ID)
@_directory_option
@json_option
@connection_options
def remove(node_id: int, directory_id: str | None, as_json: bool, bootstrap_server: str) -> None:
    """Remove a voter from the metadata quorum.

    The node may be running or lost. The majority is then counted over the remaining voters.
    """
    with open_cluster(bootstrap_server) as client:
        found = _one(client.quorum.describe().voters, node_id, directory_id, "voter")
        client.quorum.remove_voter(node_id, found.directory_id)
    _print_result("removed", found, "is no longer a voter", as_json=as_json)


def _one(replicas: Iterable[QuorumReplicaInfo], node_id: int, directory_id: str | None, role: str) -> QuorumReplicaInfo:
    """The selected replica. Raises OperatorError."""
    from ottla.common.kafka.ids import uuid_to_string

    there = {uuid_to_string(each.directory_id): each for each in replicas if each.node_id == node_id}
    if not there:
        raise OperatorError(f"node {node_id} is not a quorum {role}: see `ottla cluster quorum`")
    if directory_id is None and len(there) == 1:
        return next(iter(there.values()))
    if directory_id in there:
        return there[directory_id]
    problem = "has several directories" if directory_id is None else f"has no directory {directory_id!r}"
    raise OperatorError(f"node {node_id} {problem}: give --directory-id with one of {', '.join(there)}")


def _print_result(done: str, replica: QuorumReplicaInfo, now: str, *, as_json: bool) -> None:
    from ottla.common.kafka.ids import uuid_to_string

    directory_id = uuid_to_string(replica.directory_id)
    if as_json:
        print_json({done: replica.node_id, "directory_id": directory_id})
    else:
        click.echo(f"Node {replica.node_id} with directory {directory_id} {now}.")
