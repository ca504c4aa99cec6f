"""`ottla cluster`: brokers, metadata quorum, leader elections and partition reassignments.

The subcommands `decommission`, `features`, `rebalance` and `voters` are in modules of these names. A command that moves
replicas is a dry run unless `--execute` is given. It waits for the end of the reassignment and shows progress. The
reassignment continues if the wait is interrupted; `ottla cluster reassign --status` shows it.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import (
    Group,
    complete_topic,
    connection_options,
    counted,
    json_option,
    open_cluster,
    print_json,
    print_table,
)
from ottla.cli.decommission import decommission
from ottla.cli.features import features
from ottla.cli.positions import METAVAR, Selection, find_positions, parse_selection
from ottla.cli.rebalance import rebalance
from ottla.cli.replica_moves import print_dry_run, throttle_option, throttled, wait_for_moves
from ottla.cli.voters import voters
from ottla.common.errors import DAMAGED_JSON, OperatorError
from ottla.common.platform.files import read_file, within

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.admin.reassignment_plan import Plan
    from ottla.client.wire.model import QuorumInfo, QuorumReplicaInfo

GONE = "gone"
MAX_CAUSES = 20
"""Most partitions without a leader that `describe` lists; --json lists all."""
MAX_PLAN_BYTES = 64 << 20


@click.group(cls=Group)
def cluster() -> None:
    """Manage brokers, quorum and replicas."""


cluster.add_command(decommission)
cluster.add_command(features)
cluster.add_command(rebalance)
cluster.add_command(voters)


@cluster.command(
    examples=("ottla cluster describe", "ottla cluster describe --problems", "ottla cluster describe --json")
)
@click.option("--problems", is_flag=True, help="List problems only, each with the command that fixes it.")
@json_option
@connection_options
def describe(problems: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show the state of the cluster."""
    from ottla.client.views.health import cluster_health

    if problems:
        _print_problems(bootstrap_server, as_json=as_json)
        return

    with open_cluster(bootstrap_server) as client:
        health, leaderless, fenced = cluster_health(client)
        expiring = _expiring_certificates(client)
    summary = health._asdict()
    if as_json:
        summary["last_seen_ms"] = {each.node_id: each.last_seen_ms for each in fenced}
        summary["expiring_certificates"] = expiring
        print_json({**summary, "partitions_without_leader": [each._asdict() for each in leaderless]})
        return
    width = max(len(name) for name in summary) + 2
    for name, value in summary.items():
        text = ",".join(str(item) for item in value) or "none" if isinstance(value, list) else str(value)
        click.echo(f"{name.replace('_', ' ') + ':':<{width}}{text}")
    for broker in fenced:
        click.echo(f"broker {broker.node_id} is fenced, {broker.text}")
    for each in leaderless[:MAX_CAUSES]:
        click.echo(f"{each.topic}-{each.partition} has no leader: {each.cause}")
    if len(leaderless) > MAX_CAUSES:
        click.echo(f"{len(leaderless) - MAX_CAUSES} more partitions have no leader: --json lists all")
    for row in expiring:
        click.echo(
            f"the certificate of broker {row['broker']} expires on {row['date']}, in {row['days']} days: replace it, "
            "for example with `ottla security renew`"
        )


def _print_problems(bootstrap_server: str, *, as_json: bool) -> None:
    from ottla.client.views.problems import cluster_problems

    with open_cluster(bootstrap_server) as client:
        found = cluster_problems(client)
    if as_json:
        print_json([each._asdict() for each in found])
        return
    for each in found:
        click.echo(f"{each.problem}\n  {each.remedy}")
    if not found:
        click.echo("No problems.")


def _expiring_certificates(client: Cluster) -> list[dict[str, Any]]:
    """The brokers whose certificates expire within the days of a warning."""
    from ottla.common.certificate_expiry import WARNING_DAYS, date_text, days_left

    now_s = time.time()
    return [
        {"broker": broker_id, "date": date_text(expiry_s), "days": days_left(expiry_s, now_s)}
        for broker_id, expiry_s in sorted(client.brokers.certificate_expiries().items())
        if days_left(expiry_s, now_s) <= WARNING_DAYS
    ]


@cluster.command(examples=("ottla cluster brokers", "ottla cluster brokers --json | jq '.[] | select(.fenced)'"))
@json_option
@connection_options
def brokers(as_json: bool, bootstrap_server: str) -> None:
    """List the registered brokers.

    For each broker: state, rack, the number of partitions that it leads and replicates, and its version. Fenced brokers
    have the time since their last metadata fetch. It is unknown if it was before the last election of a controller, and
    five minutes after the end of a broker without a controller.
    """
    from ottla.client.views.health import broker_loads
    from ottla.common.platform.endpoint import format_address

    with open_cluster(bootstrap_server) as client:
        loads = broker_loads(client)
    rows = [
        {
            "id": each.node_id,
            "address": format_address(each.host, each.port),
            "rack": each.rack,
            "state": "fenced" if each.fenced else "live",
            "leads": each.leads,
            "replicas": each.replicas,
            "in_sync": each.in_sync,
            "version": each.version,
            "last_seen_ms": None if each.last_seen is None else each.last_seen.last_seen_ms,
        }
        for each in loads
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("id", "address", "rack", "state", "leads", "replicas", "in sync", "version", "last seen")
    texts = [None if each.last_seen is None else each.last_seen.age_text for each in loads]
    cells = [(*list(row.values())[:-1], text) for row, text in zip(rows, texts, strict=True)]
    print_table(columns, cells, right=("id", "leads", "replicas", "in sync"))


@cluster.command(examples=("ottla cluster quorum", "ottla cluster quorum --json"))
@json_option
@connection_options
def quorum(as_json: bool, bootstrap_server: str) -> None:
    """Show the metadata quorum.

    Leader, voters and observers of the metadata log, with the lag of each. A replica that has stopped fetching is
    marked as gone.
    """
    with open_cluster(bootstrap_server) as client:
        info = client.quorum.describe()
    rows = [_quorum_row(info, replica, "voter") for replica in info.voters]
    rows += [_quorum_row(info, replica, "observer") for replica in info.observers]
    if as_json:
        print_json(
            {
                "leader": info.leader_id,
                "leader_epoch": info.leader_epoch,
                "high_watermark": info.high_watermark,
                "replicas": rows,
            }
        )
        return
    click.echo(f"leader {info.leader_id}, epoch {info.leader_epoch}, high watermark {info.high_watermark}")
    columns = ("node", "role", "state", "log end", "lag", "directory id")
    print_table(columns, [tuple(row.values()) for row in rows], right=("node", "log end", "lag"))
    for row in rows:
        if row["role"] == "voter" and row["state"] == GONE:
            click.echo(
                f"Voter {row['node']} is gone: start it, or, if its disk is lost, rebuild it and run "
                f"`ottla cluster voters replace {row['node']}`."
            )


def _quorum_row(info: QuorumInfo, replica: QuorumReplicaInfo, role: str) -> dict[str, Any]:
    from ottla.common.kafka.ids import uuid_to_string

    leader_end = max((each.log_end_offset for each in info.voters if each.node_id == info.leader_id), default=-1)
    return {
        "node": replica.node_id,
        "role": "leader" if replica.node_id == info.leader_id and role == "voter" else role,
        "state": {True: GONE, False: "live", None: None}[info.is_gone(replica)],
        "log_end_offset": replica.log_end_offset,
        "lag": max(0, leader_end - replica.log_end_offset),
        "directory_id": uuid_to_string(replica.directory_id),
    }


@cluster.command(
    examples=(
        "ottla cluster elect                     # every partition to its preferred leader",
        "ottla cluster elect clicks users:3,5",
        "ottla cluster elect users:3 --unclean   # may lose committed records",
    )
)
@click.argument("targets", metavar=f"[{METAVAR}]...", nargs=-1, callback=parse_selection, shell_complete=complete_topic)
@click.option("--unclean", is_flag=True, help="Allow a leader outside the ISR; may lose records.")
@json_option
@connection_options
def elect(targets: Selection, unclean: bool, as_json: bool, bootstrap_server: str) -> None:
    """Elect partition leaders.

    Elects preferred leaders; with --unclean, any live replica for partitions that have no leader.
    """
    if unclean and not targets:
        raise OperatorError("an unclean election may lose records: name the topics or partitions to elect")
    with open_cluster(bootstrap_server) as client:
        positions = find_positions(client, targets) if targets else None
        elected = sorted(client.reassignments.elect_leaders(positions, unclean=unclean))
    if as_json:
        print_json([{"topic": name, "partition": index} for name, index in elected])
    elif not elected:
        click.echo("No election was needed.")
    else:
        for name, index in elected:
            click.echo(f"Elected a leader for {name}-{index}.")


@cluster.command(
    examples=(
        "ottla cluster reassign clicks --replication-factor 3 --execute",
        "ottla cluster reassign --plan moves.json --throttle 20000000 --execute",
        "ottla cluster reassign --status",
        "ottla cluster reassign --cancel --execute",
    )
)
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@click.option("--replication-factor", type=click.IntRange(min=1), help="New number of replicas of each partition.")
@click.option(
    "--plan",
    type=click.Path(readable=False, allow_dash=True),
    metavar="FILE",
    help="JSON file in the format of kafka-reassign-partitions; - is standard input.",
)
@throttle_option
@click.option("--status", is_flag=True, help="Show ongoing reassignments only.")
@click.option("--cancel", is_flag=True, help="Cancel ongoing reassignments.")
@click.option("--execute", is_flag=True, help="Apply the change; the default is a dry run.")
@click.option("--no-wait", is_flag=True, help="Do not wait for completion.")
@json_option
@connection_options
def reassign(
    names: tuple[str, ...],
    replication_factor: int | None,
    plan: str | None,
    throttle: int | None,
    status: bool,
    cancel: bool,
    execute: bool,
    no_wait: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Reassign partition replicas.

    Moves replicas as a plan file says, or changes the replication factor of topics.
    """
    from ottla.client.admin.reassignment_plan import with_replication_factor

    with open_cluster(bootstrap_server) as client:
        if status or cancel:
            _show_or_cancel(client, cancel and execute, as_json)
            if cancel and not execute:
                print_dry_run()
            return
        if (plan is None) == (replication_factor is None):
            raise OperatorError("give either --plan, or topics and --replication-factor")
        if plan is not None:
            targets = read_plan(plan)
        elif names and replication_factor is not None:
            targets = with_replication_factor(
                client.describe().brokers, client.topics.all(), list(dict.fromkeys(names)), replication_factor
            )
        else:
            raise OperatorError("--replication-factor needs topics")
        _move(client, targets, throttle, execute=execute, wait=not no_wait, as_json=as_json)


def read_plan(path: str) -> Plan:
    """Read a plan file, see `parse_plan`; `-` is standard input. Raises OperatorError."""
    try:
        if path == "-":
            data = within(sys.stdin.buffer.read(MAX_PLAN_BYTES + 1), MAX_PLAN_BYTES)
        else:
            data = read_file(path, MAX_PLAN_BYTES)
    except OSError as error:
        raise OperatorError(f"--plan {path} can't be read: {error.strerror or error}") from error
    return parse_plan(data)


def parse_plan(text: str | bytes) -> Plan:
    """The target replicas in a plan of `kafka-reassign-partitions`. Raises OperatorError."""
    import json

    try:
        content = json.loads(text)
        return {
            (str(item["topic"]), int(item["partition"])): tuple(int(replica) for replica in item["replicas"])
            for item in content["partitions"]
        }
    except DAMAGED_JSON as error:
        raise OperatorError(
            f"the plan can't be read ({type(error).__name__}: {error}); it looks like "
            '{"version":1,"partitions":[{"topic":"clicks","partition":0,"replicas":[1,2]}]}'
        ) from error


def _show_or_cancel(client: Cluster, cancel: bool, as_json: bool) -> None:
    ongoing = client.reassignments.all()
    if cancel and ongoing:
        client.reassignments.alter(dict.fromkeys(ongoing))
    rows = [
        (name, index, moving.replicas, moving.adding, moving.removing)
        for (name, index), moving in sorted(ongoing.items())
    ]
    columns = ("topic", "partition", "replicas", "adding", "removing")
    if as_json:
        print_json({"cancelled": cancel, "moves": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif not rows:
        click.echo("No reassignment is in progress.")
    else:
        print_table(columns, rows, right=("partition",))
        if cancel:
            click.echo(f"Cancelled {counted(len(rows), 'reassignment')}.")


def _move(client: Cluster, targets: Plan, throttle: int | None, *, execute: bool, wait: bool, as_json: bool) -> None:
    """Show the plan; with `execute`, apply it."""
    from ottla.client.admin.reassignment_plan import throttled_replicas

    topics = client.topics.all()
    rows = []
    for name, index in targets:
        if name not in topics or index >= len(topics[name].partitions):
            raise OperatorError(f"the plan names {name}-{index}, which does not exist")
        rows.append((name, index, topics[name].partitions[index].replicas, targets[name, index]))
    columns = ("topic", "partition", "from", "to")
    if as_json:
        print_json({"executed": execute, "moves": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif rows:
        print_table(columns, rows, right=("partition",))
    else:
        click.echo("Nothing to move.")
    if not execute:
        print_dry_run()
        return
    if not targets:
        return
    with throttled(client, throttled_replicas(targets, topics), throttle, keep=not wait):
        client.reassignments.alter(targets)
        if wait:
            wait_for_moves(client, set(targets))
