"""`ottla cluster voters`: changes of the voters of the metadata quorum (KIP-853).

A node with the role controller and a formatted directory replicates the metadata log as an observer until it is added.
`ottla cluster quorum` lists voters and observers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.command import BROKER_ID, Group, connection_options, json_option, open_cluster, print_json
from ottla.common.errors import OperatorError, OttlaError

if TYPE_CHECKING:
    from ottla.client.wire.model import QuorumInfo, QuorumReplicaInfo
    from ottla.common.platform.endpoint import Endpoint

MAX_LAG = 100
"""Records of the metadata log that a node may lack before it becomes a voter: the log grows all the time."""

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
    endpoints = _endpoints(listeners)
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


@voters.command(
    examples=(
        "ottla cluster voters replace 3",
        "ottla cluster voters replace 3 --listener CONTROLLER://newhost3:9093",
    )
)
@click.argument("node_id", metavar="NODE", type=BROKER_ID)
@click.option(
    "--listener",
    "listeners",
    metavar="NAME://HOST:PORT",
    multiple=True,
    help="Controller endpoint, if it changed; may be repeated.",
)
@json_option
@connection_options
def replace(node_id: int, listeners: tuple[str, ...], as_json: bool, bootstrap_server: str) -> None:
    """Replace a voter whose disk was lost.

    The node runs with a new directory and has caught up as an observer. The command removes the voter of the lost
    directory and adds the new one. An interrupted replacement continues when the command is run again.
    """
    with open_cluster(bootstrap_server) as client:
        info = client.quorum.describe()
        change = voter_replacement(info, node_id)
        endpoints = _endpoints(listeners) or info.listeners.get(node_id, ())
        if not endpoints:
            raise OperatorError(
                f"the controller endpoint of node {node_id} is unknown, since no voter has this id: give --listener "
                "NAME://HOST:PORT"
            )
        for old in change.removed:
            client.quorum.remove_voter(node_id, old.directory_id)
        try:
            client.quorum.add_voter(node_id, change.added.directory_id, endpoints)
        except OttlaError as error:
            options = " ".join(f"--listener {each.listener_name}://{each.address}" for each in endpoints)
            raise OperatorError(
                f"node {node_id} was not added as a voter ({error}): run `ottla cluster voters replace {node_id} "
                f"{options}` again"
            ) from error
    _print_result("replaced", change.added, "is now a voter", as_json=as_json)


class VoterReplacement(NamedTuple):
    """Voters of lost directories of one node, and its new directory."""

    removed: tuple[QuorumReplicaInfo, ...]
    added: QuorumReplicaInfo


def voter_replacement(info: QuorumInfo, node_id: int) -> VoterReplacement:
    """The changes that replace the voter of a node.

    Raises OperatorError unless exactly one running observer of this node has caught up and the removal keeps a majority
    of running voters.
    """
    from ottla.common.kafka.ids import uuid_to_string

    removed = tuple(each for each in info.voters if each.node_id == node_id)
    running = [each for each in removed if not info.is_gone(each)]
    found = [each for each in info.observers if each.node_id == node_id and not info.is_gone(each)]
    if running:
        raise OperatorError(
            f"voter {node_id} is running with directory {uuid_to_string(running[0].directory_id)}: there is nothing to "
            "replace"
        )
    if len(found) != 1:
        raise OperatorError(
            f"node {node_id} does not run as an observer with a new directory: format its empty directory with "
            "`ottla format --no-initial-controllers`, start it, and run this command again"
        )
    leader_end = max((each.log_end_offset for each in info.voters if each.node_id == info.leader_id), default=0)
    if leader_end - found[0].log_end_offset > MAX_LAG:
        raise OperatorError(
            f"node {node_id} still copies the metadata log: wait until `ottla cluster quorum` shows no lag"
        )
    left = [each for each in info.voters if each not in removed]
    live = [each for each in left if not info.is_gone(each)]
    if 2 * len(live) <= len(left):
        raise OperatorError(
            f"without node {node_id}, only {len(live)} of {len(left)} voters are running, fewer than a majority: start "
            "another voter first"
        )
    return VoterReplacement(removed, found[0])


def _endpoints(listeners: tuple[str, ...]) -> list[Endpoint]:
    """The endpoints of `--listener`. Raises OperatorError."""
    from ottla.common.config.listener_configs import parse_endpoints

    names = {text.strip().partition("://")[0].upper(): "" for text in listeners}
    return list(parse_endpoints("--listener", listeners, names)) if listeners else []


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
