"""`ottla cluster voters`: who votes in the quorum of the metadata log (KIP-853); `ottla cluster quorum` shows them.

A node with the role controller and a formatted directory follows the log as an observer until it is added.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from ottla.cli.command import BROKER_ID, Group, connection_options, json_option, open_cluster, print_json
from ottla.client.admin.voters import add_voter, remove_voter
from ottla.client.wire.model import QuorumReplicaInfo
from ottla.common.config.listener_configs import parse_endpoints
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string

TIMEOUT_MS = 30_000
_directory_option = click.option(
    "--directory-id", metavar="ID", help="Which one is meant, where the node is there with several directories."
)


@click.group(cls=Group)
def voters() -> None:
    """Who votes in the quorum of the metadata log."""


@voters.command(examples=("ottla cluster voters add 4 --listener CONTROLLER://host4:9093",))
@click.argument("node_id", metavar="NODE", type=BROKER_ID)
@click.option(
    "--listener",
    "listeners",
    metavar="NAME://HOST:PORT",
    multiple=True,
    required=True,
    help="Where the other controllers reach it; may be repeated.",
)
@_directory_option
@json_option
@connection_options
def add(
    node_id: int, listeners: tuple[str, ...], directory_id: str | None, as_json: bool, bootstrap_server: str
) -> None:
    """Make an observer a voter, once it has what the leader has."""
    names = {text.strip().partition("://")[0].upper(): "" for text in listeners}
    endpoints = parse_endpoints("--listener", listeners, names)
    with open_cluster(bootstrap_server) as client:
        found = _one(client.quorum().observers, node_id, directory_id, "observer")
        client.change(lambda connection: add_voter(connection, node_id, found.directory_id, endpoints, TIMEOUT_MS))
    _tell("added", found, "votes in the quorum now", as_json=as_json)


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
    """Take a voter out for good, whether it runs or is lost: fewer voters make a majority then."""
    with open_cluster(bootstrap_server) as client:
        found = _one(client.quorum().voters, node_id, directory_id, "voter")
        client.change(lambda connection: remove_voter(connection, node_id, found.directory_id))
    _tell("removed", found, "votes no more", as_json=as_json)


def _one(replicas: Iterable[QuorumReplicaInfo], node_id: int, directory_id: str | None, role: str) -> QuorumReplicaInfo:
    """The replica that is meant. Raises OperatorError."""
    there = {uuid_to_string(each.directory_id): each for each in replicas if each.node_id == node_id}
    if not there:
        raise OperatorError(f"node {node_id} is no {role}: `ottla cluster quorum` lists those that are")
    if directory_id is None and len(there) == 1:
        return next(iter(there.values()))
    if directory_id in there:
        return there[directory_id]
    what = "has several directories" if directory_id is None else f"has no directory {directory_id!r} there"
    raise OperatorError(f"node {node_id} {what}: name one by --directory-id: {', '.join(there)}")


def _tell(done: str, replica: QuorumReplicaInfo, now: str, *, as_json: bool) -> None:
    directory_id = uuid_to_string(replica.directory_id)
    if as_json:
        print_json({done: replica.node_id, "directory_id": directory_id})
    else:
        click.echo(f"Node {replica.node_id} with directory {directory_id} {now}.")
