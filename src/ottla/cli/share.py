"""`ottla share`: share groups (queues, KIP-932), their progress, and a consumer."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import (
    CLIENT_ID,
    Group,
    complete_from,
    complete_topic,
    connection_options,
    counted,
    json_option,
    notify,
    open_cluster,
    print_json,
    print_table,
    run_until_terminated,
    security,
    settings_option,
)
from ottla.cli.consume import print_texts, printing_options
from ottla.cli.group_views import delete_groups, group_state_json, print_members, summary_text
from ottla.cli.offset_reset import parse_target, plan_reset, reset_options
from ottla.cli.positions import Selection
from ottla.cli.record_format import make_batch_format, make_formatter
from ottla.cli.share_redrive import redrive
from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ottla.client.admin.cluster import Cluster
    from ottla.client.librdkafka.message_text import Render
    from ottla.client.librdkafka.share_member import Acknowledgement, ShareMember

BATCH_RECORDS = 500
POLL_S = 0.1
SHARE_TYPES = ("share",)
ACKNOWLEDGEMENTS = ("accept", "release", "reject")


def _complete_share_group(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return complete_from(ctx, incomplete, _share_groups)


def _share_groups(cluster: Cluster) -> list[str]:
    return [each.group_id for each in cluster.groups.find(types=SHARE_TYPES)]


_group_argument = click.argument("group_id", metavar="GROUP", shell_complete=_complete_share_group)


@click.group(cls=Group, aliases={"offsets": "describe", "reset": "reset-offsets"})
def share() -> None:
    """Manage and consume share groups (queues)."""


@share.command("list", examples=("ottla share list", "ottla share list --json"))
@json_option
@connection_options
def list_groups(as_json: bool, bootstrap_server: str) -> None:
    """List share groups, their state and lag.

    The lag is the number of records that are not finished. It is unknown if the broker does not know it for a
    partition.
    """
    with open_cluster(bootstrap_server) as cluster:
        listings = cluster.groups.find(types=SHARE_TYPES)
        offsets = cluster.share_groups.offsets_of([each.group_id for each in listings])
    columns = ("group", "state", "lag")
    rows = []
    for each in listings:
        lags = [offset.lag for offset in offsets.get(each.group_id, {}).values()]
        known = [lag for lag in lags if lag is not None]
        rows.append((each.group_id, each.state, sum(known) if known and len(known) == len(lags) else None))
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    print_table(columns, rows, right=("lag",))


@share.command(examples=("ottla share describe workers", "ottla share describe --all --json"))
@click.argument("group_ids", metavar="GROUP...", nargs=-1, shell_complete=_complete_share_group)
@click.option("--all", "all_groups", is_flag=True, help="All share groups of the cluster.")
@json_option
@connection_options
def describe(group_ids: tuple[str, ...], all_groups: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show start offsets and lag.

    For each partition: offset of the first record that is not finished, end (high watermark), and lag, the number of
    records that are not finished, if the broker knows it.
    """
    from ottla.client.views.group_positions import log_ends

    if bool(group_ids) == all_groups:
        raise click.UsageError("give group ids or --all")
    columns = ("topic", "partition", "start_offset", "end", "lag")
    described = []
    with open_cluster(bootstrap_server) as cluster:
        for group_id in _share_groups(cluster) if all_groups else dict.fromkeys(group_ids):
            found = cluster.share_groups.describe(group_id)
            offsets = cluster.share_groups.offsets(group_id)
            ends = log_ends(cluster, offsets)
            rows = [(*key, each.start_offset, ends.get(key), each.lag) for key, each in offsets.items()]
            described.append((found, rows))
    if as_json:
        print_json(
            [
                {**group_state_json(found), "partitions": [dict(zip(columns, row, strict=True)) for row in rows]}
                for found, rows in described
            ]
        )
        return
    for number, (found, rows) in enumerate(described):
        if number:
            click.echo()
        click.echo(summary_text(found))
        print_table(
            tuple(name.replace("_", " ") for name in columns), rows, right=("partition", "start offset", "end", "lag")
        )


@share.command(examples=("ottla share members workers",))
@_group_argument
@json_option
@connection_options
def members(group_id: str, as_json: bool, bootstrap_server: str) -> None:
    """Show the members of a share group.

    For each member: the partitions that it reads. Several members may read the same partition.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.share_groups.describe(group_id)
    print_members(found, as_json=as_json)


@share.command(
    "reset-offsets",
    examples=(
        "ottla share reset-offsets workers jobs --to-earliest",
        "ottla share reset-offsets workers jobs:0,3 --to-offset 1200 --execute",
        "ottla share reset-offsets workers --all-topics --to-datetime 2026-01-31T12:00:00Z --execute",
    ),
)
@_group_argument
@reset_options("a start offset")
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
    """Reset the start offsets of a share group.

    Resets the given topics, or partitions of them. The group must have no members. All records from the new offset are
    delivered again, also finished ones, with a delivery count of 1. The default is a dry run; --execute applies the
    change. Offsets outside the log are clamped to its start or end.
    """
    target = parse_target(targets, topics, all_topics=all_topics)
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.share_groups.describe(group_id)
        if found.members:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"share group {group_id!r} has {counted(len(found.members), 'member')}; stop them first",
            )
        current = {key: each.start_offset for key, each in cluster.share_groups.offsets(group_id).items()}
        reset = plan_reset(cluster, current, topics, target)
        if not reset.planned:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"share group {group_id!r} has no start offsets; name topics"
            )
        if execute:
            cluster.share_groups.alter_offsets(group_id, reset.planned)
    reset.print(executed=execute, as_json=as_json)


@share.command("delete-offsets", examples=("ottla share delete-offsets workers jobs",))
@_group_argument
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic)
@json_option
@connection_options
def delete_offsets(group_id: str, topics: tuple[str, ...], as_json: bool, bootstrap_server: str) -> None:
    """Delete the start offsets of topics.

    The group must have no members. When it reads the topics again, it starts as a new group.
    """
    names = list(dict.fromkeys(topics))
    with open_cluster(bootstrap_server) as cluster:
        cluster.share_groups.delete_offsets(group_id, names)
    if as_json:
        print_json({"group": group_id, "deleted": names})
        return
    click.echo(f"Deleted the start offsets of {counted(len(names), 'topic')} of share group {group_id}.")


@share.command(examples=("ottla share delete workers", "ottla share delete a b --yes --if-exists"))
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True, shell_complete=_complete_share_group)
@click.option("--if-exists", is_flag=True, help="Succeed when a group does not exist.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connection_options
def delete(group_ids: tuple[str, ...], if_exists: bool, yes: bool, as_json: bool, bootstrap_server: str) -> None:
    """Delete share groups.

    The groups must have no members; their start offsets are deleted too. Asks for confirmation on a terminal.
    """
    wanted = list(dict.fromkeys(group_ids))
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(wanted)} with all start offsets?", abort=True)
    with open_cluster(bootstrap_server) as cluster:
        others = {each.group_id for each in cluster.groups.find()} - set(_share_groups(cluster))
        for group_id in wanted:
            if group_id in others:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is not a share group")
        delete_groups(cluster, wanted, if_exists=if_exists, as_json=as_json)


@share.command(
    examples=(
        "ottla share consume workers jobs",
        "ottla share consume workers jobs --max 1 --acknowledge release    # look at a record and give it back",
        "ottla share consume workers jobs orders --timeout 5 --json | jq .value",
    )
)
@_group_argument
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic)
@click.option(
    "--acknowledge",
    "acknowledgement",
    type=click.Choice(ACKNOWLEDGEMENTS),
    default="accept",
    show_default=True,
    help="accept finishes a record, release delivers it again, reject archives it.",
)
@printing_options
@settings_option("--property", "-X", "properties", help_text="librdkafka property.")
@connection_options
def consume(
    group_id: str,
    topics: tuple[str, ...],
    acknowledgement: str,
    max_records: int | None,
    timeout: float | None,
    template: str,
    as_json: bool,
    null: str,
    properties: Mapping[str, str],
    bootstrap_server: str,
) -> None:
    """Print records as a member of a share group.

    Each record goes to one member of the group, and is acknowledged after it was printed. A new group starts at the
    ends of the partitions, unless its config share.auto.offset.reset is earliest. Runs until Ctrl-C.
    """
    from ottla.client.librdkafka.rdkafka import RECONNECT_BACKOFF_MAX_MS
    from ottla.client.librdkafka.share_member import Acknowledgement, ShareMember
    from ottla.client.wire.connection import library_servers

    output_format = "json" if as_json else template
    render = _make_renderer(output_format, null)
    names = list(dict.fromkeys(topics))
    with open_cluster(bootstrap_server) as cluster:
        for name in names:
            cluster.topics.get(name)
        if sys.stderr.isatty():
            _notify_wait(cluster, group_id, names)
    if max_records is None and timeout is None:
        run_until_terminated()
    settings = {
        "bootstrap.servers": library_servers(bootstrap_server),
        "client.id": CLIENT_ID,
        "group.id": group_id,
        "max.poll.records": BATCH_RECORDS if max_records is None else min(BATCH_RECORDS, max_records),
        "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS,
        "log_level": 0,
        **security().library,
        **properties,
    }
    member = ShareMember(settings, notify=notify)
    try:
        member.subscribe(names)
        print_texts(_texts(member, render, Acknowledgement(acknowledgement), max_records, timeout))
    finally:
        member.close()


def _make_renderer(output_format: str, null: str) -> Render:
    """The function that renders messages of the library."""
    from ottla.client.librdkafka.group_consumer import record_of
    from ottla.client.librdkafka.message_text import make_renderer

    on_terminal = sys.stdout.isatty()
    batch_format = make_batch_format(output_format, null, for_terminal=on_terminal)
    if batch_format is not None:
        return make_renderer(*batch_format)
    formatter = make_formatter(output_format, null, for_terminal=on_terminal)
    return lambda messages: b"".join([formatter(record_of(message)) for message in messages])


def _texts(
    member: ShareMember,
    render: Render,
    acknowledgement: Acknowledgement,
    max_records: int | None,
    idle_timeout_s: float | None,
) -> Iterator[bytes]:
    """The text of records as they arrive; they are acknowledged after the request for the next text.

    Ends after `max_records`, of which more that arrive are released, or after the idle timeout.
    """
    from ottla.client.librdkafka.share_member import Acknowledgement

    remaining = max_records
    last_arrival = time.monotonic()
    while remaining is None or remaining > 0:
        messages = member.poll(POLL_S if idle_timeout_s is None else min(POLL_S, idle_timeout_s))
        if not messages:
            if idle_timeout_s is not None and time.monotonic() - last_arrival >= idle_timeout_s:
                return
            continue
        last_arrival = time.monotonic()
        if remaining is not None:
            member.acknowledge(messages[remaining:], Acknowledgement.RELEASE)
            del messages[remaining:]
            remaining -= len(messages)
        yield render(messages)
        member.acknowledge(messages, acknowledgement)


def _notify_wait(cluster: Cluster, group_id: str, names: list[str]) -> None:
    """Report that the command waits, and how a new group reads earlier records."""
    hint = ""
    if not {topic for topic, _ in cluster.share_groups.offsets(group_id)} & {*names}:
        hint = (
            f"; `ottla config set group {group_id} share.auto.offset.reset=earliest` lets a new group read earlier ones"
        )
    notify(f"waiting for records of {', '.join(names)} (Ctrl-C ends){hint}")


share.command(
    examples=(
        "ottla share redrive --dlq dlq.workers --dry-run",
        "ottla share redrive --dlq dlq.workers",
        "ottla share redrive --dlq dlq.workers --group workers --to retries --rate 100",
    )
)(redrive)
