"""`ottla group`: consumer groups and their committed offsets."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import (
    Group,
    complete_group,
    complete_topic,
    connection_options,
    counted,
    json_option,
    open_cluster,
    print_json,
    print_table,
)
from ottla.cli.group_views import delete_groups, group_state_json, print_members, summary_text
from ottla.cli.offset_reset import parse_target, plan_reset, reset_options
from ottla.cli.positions import METAVAR, Selection, parse_selection
from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.views.group_positions import GroupPosition

STATES = ("Empty", "Assigning", "Reconciling", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
TYPES = ("classic", "consumer")
WITHOUT_MEMBERS = ("Empty", "Dead")


@click.group(cls=Group)
def group() -> None:
    """Manage consumer groups."""


@group.command("list", examples=("ottla group list", "ottla group list --state Stable --type consumer --json"))
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Group state; may be repeated.",
)
@click.option(
    "--type",
    "types",
    type=click.Choice((*TYPES, "share"), case_sensitive=False),
    multiple=True,
    help="Group type; may be repeated.",
)
@json_option
@connection_options
def list_groups(states: tuple[str, ...], types: tuple[str, ...], as_json: bool, bootstrap_server: str) -> None:
    """List groups and their lag.

    Includes groups of every type. The lag is the sum over the partitions with a committed offset.
    """
    from ottla.client.views.group_positions import total_lags

    with open_cluster(bootstrap_server) as cluster:
        listings = cluster.groups.find(states, types)
        lags = total_lags(cluster, [each.group_id for each in listings if each.group_type in (None, *TYPES)])
    if as_json:
        print_json(
            [
                {
                    "group": each.group_id,
                    "type": each.group_type,
                    "protocol_type": each.protocol_type,
                    "state": each.state,
                    "lag": lags.get(each.group_id),
                }
                for each in listings
            ]
        )
        return
    print_table(
        ("group", "type", "protocol type", "state", "lag"),
        [
            (each.group_id, each.group_type, each.protocol_type or "-", each.state, lags.get(each.group_id))
            for each in listings
        ],
        right=("lag",),
    )


@group.command(
    examples=(
        "ottla group describe billing",
        "ottla group describe billing audit --json",
        "ottla group describe --all",
    )
)
@click.argument("group_ids", metavar="GROUP...", nargs=-1, shell_complete=complete_group)
@click.option("--all", "all_groups", is_flag=True, help="All consumer groups of the cluster.")
@json_option
@connection_options
def describe(group_ids: tuple[str, ...], all_groups: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show committed offsets and lag.

    For each partition: committed offset, end (high watermark), lag, and the owner. A partition without a committed
    offset has neither offset nor lag. For share groups: `ottla share describe`.
    """
    from ottla.client.views.group_positions import group_positions

    if bool(group_ids) == all_groups:
        raise click.UsageError("give group ids or --all")
    with open_cluster(bootstrap_server) as cluster:
        if all_groups:
            wanted = [each.group_id for each in cluster.groups.find() if each.group_type in (None, *TYPES)]
        else:
            wanted = list(dict.fromkeys(group_ids))
        described = [group_positions(cluster, group_id) for group_id in wanted]
    if as_json:
        print_json(
            [
                {**group_state_json(found), "partitions": [_partition_row(each) for each in positions]}
                for found, positions in described
            ]
        )
        return
    for number, (found, positions) in enumerate(described):
        if number:
            click.echo()
        click.echo(summary_text(found))
        columns = ("topic", "partition", "offset", "end", "lag", "member", "client_id", "host")
        print_table(
            tuple(column.replace("_", " ") for column in columns),
            [tuple(map(_partition_row(each).get, columns)) for each in positions],
            right=("partition", "offset", "end", "lag"),
        )


def _partition_row(position: GroupPosition) -> dict[str, Any]:
    committed, owner = position.committed, position.owner
    return {
        "topic": position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "end": position.end,
        "lag": position.lag,
        "metadata": None if committed is None else committed.metadata or None,
        "member": None if owner is None else owner.member_id,
        "client_id": None if owner is None else owner.client_id,
        "host": None if owner is None else owner.host,
    }


@group.command(examples=("ottla group members billing", "ottla group members billing --json | jq '.[].client_id'"))
@click.argument("group_id", metavar="GROUP", shell_complete=complete_group)
@json_option
@connection_options
def members(group_id: str, as_json: bool, bootstrap_server: str) -> None:
    """Show the members of a group.

    For each member: its assignment, and under the consumer protocol its target assignment where that differs.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.groups.describe(group_id)
    print_members(found, as_json=as_json)


@group.command(examples=("ottla group state billing", "ottla group state billing --json"))
@click.argument("group_id", metavar="GROUP", shell_complete=complete_group)
@json_option
@connection_options
def state(group_id: str, as_json: bool, bootstrap_server: str) -> None:
    """Show the state of a group.

    State, protocol, assignor, epochs and coordinator.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.groups.describe(group_id)
    values = group_state_json(found)
    if as_json:
        print_json(values)
        return
    print_table(("name", "value"), [(name.replace("_", " "), value) for name, value in values.items()])


@group.command(
    "reset-offsets",
    examples=(
        "ottla group reset-offsets billing clicks --to-earliest",
        "ottla group reset-offsets billing clicks:0,3 --to-offset 1200 --execute",
        "ottla group reset-offsets billing --all-topics --to-datetime 2026-01-31T12:00:00Z --execute",
        "ottla group reset-offsets billing --all-topics --by-duration 1d12h",
        "ottla group reset-offsets billing clicks --shift-by -100 --execute",
    ),
)
@click.argument("group_id", metavar="GROUP", shell_complete=complete_group)
@reset_options("a committed offset")
@json_option
@connection_options
def reset_offsets(
    group_id: str,
    topics: Selection,
    all_topics: bool,
    execute: bool,
    as_json: bool,
    bootstrap_server: str,
    **targets: Any,
) -> None:
    """Reset the committed offsets of a group.

    Resets the given topics, or partitions of them. The group must have no members. The default is a dry run; --execute
    applies the change. Offsets outside the log are clamped to its start or end. A missing group is created.
    """
    from ottla.client.admin.groups import group_not_found

    target = parse_target(targets, topics, all_topics=all_topics)
    with open_cluster(bootstrap_server) as cluster:
        _require_no_members(cluster, group_id)
        committed = {key: each.offset for key, each in cluster.groups.offsets(group_id).items()}
        reset = plan_reset(cluster, committed, topics, target)
        if not reset.planned:
            raise group_not_found(group_id)
        if execute:
            cluster.groups.commit_offsets(group_id, reset.planned)
    reset.print(executed=execute, as_json=as_json)


def _require_no_members(cluster: Cluster, group_id: str) -> None:
    try:
        found = cluster.groups.describe(group_id)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if found.state not in WITHOUT_MEMBERS:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group_id!r} is {found.state} with {counted(len(found.members), 'member')}; "
            "offsets can be set only while it has no members",
        )


@group.command(
    "delete-offsets",
    examples=(
        "ottla group delete-offsets billing clicks",
        "ottla group delete-offsets billing clicks:0,3",
    ),
)
@click.argument("group_id", metavar="GROUP", shell_complete=complete_group)
@click.argument(
    "topics", metavar=f"{METAVAR}...", nargs=-1, required=True, callback=parse_selection, shell_complete=complete_topic
)
@json_option
@connection_options
def delete_offsets(group_id: str, topics: Selection, as_json: bool, bootstrap_server: str) -> None:
    """Delete committed offsets.

    No member of the group may be subscribed to the topics.
    """
    with open_cluster(bootstrap_server) as cluster:
        cluster.groups.describe(group_id)
        committed = cluster.groups.offsets(group_id)
        doomed = [
            key
            for key in committed
            if key[0] in topics and (topics[key[0]] is None or key[1] in (topics[key[0]] or ()))
        ]
        if doomed:
            cluster.groups.delete_offsets(group_id, doomed)
    if as_json:
        print_json({"group": group_id, "deleted": [{"topic": name, "partition": index} for name, index in doomed]})
        return
    click.echo(f"Deleted {counted(len(doomed), 'offset')} of group {group_id}.")


@group.command(examples=("ottla group delete billing", "ottla group delete a b c --yes --if-exists"))
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_group)
@click.option("--if-exists", is_flag=True, help="Succeed when a group does not exist.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connection_options
def delete(
    group_ids: tuple[str, ...],
    if_exists: bool,
    yes: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Delete consumer groups.

    The groups must have no members; their committed offsets are deleted too. Asks for confirmation on a terminal.
    """
    wanted = list(dict.fromkeys(group_ids))
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(wanted)} with all committed offsets?", abort=True)
    with open_cluster(bootstrap_server) as cluster:
        delete_groups(cluster, wanted, if_exists=if_exists, as_json=as_json)
