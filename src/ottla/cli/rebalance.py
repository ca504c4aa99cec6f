"""`ottla cluster rebalance`: spread replicas and leaders over brokers, for example onto a new one.

`client.admin.rebalance_plan` decides the moves. This module reads the cluster, prints the plan, and applies it in
batches. Each batch copies new replicas before old ones are removed, so no partition has fewer replicas in sync than
before. Progress is the state of the cluster itself: an interrupted command is run again, which waits for the ongoing
batch and plans the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import (
    BROKER_ID,
    Command,
    complete_topic,
    connection_options,
    counted,
    json_option,
    notify,
    open_cluster,
    print_json,
    print_table,
    size_text,
)
from ottla.cli.replica_moves import print_dry_run, throttle_option, throttled, wait_for_moves
from ottla.common.errors import OperatorError
from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.admin.reassignment_plan import Plan
    from ottla.client.admin.rebalance_plan import RebalanceInput, RebalancePlan

BATCH_PARTITIONS = 20
"""Partitions that move at the same time: the rest waits, so that an interruption leaves little unfinished."""
ASSUMED_RATE = 50_000_000
"""Bytes per second and broker that an estimate without a throttle assumes."""
GOAL_NAMES = ("rack", "bytes", "partitions", "leaders")


@click.command(
    cls=Command,
    examples=(
        "ottla cluster rebalance                              # dry run",
        "ottla cluster rebalance --broker 4 --execute         # fill the new broker 4",
        "ottla cluster rebalance --by leaders --execute       # move leadership only",
        "ottla cluster rebalance --throttle 20000000 --execute",
    ),
)
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@click.option(
    "--by",
    "goals",
    type=click.Choice(GOAL_NAMES),
    multiple=True,
    default=("rack", "bytes", "leaders"),
    show_default=True,
    help="Goal of the plan; may be repeated.",
)
@click.option(
    "--broker",
    "filled",
    metavar="ID",
    type=BROKER_ID,
    multiple=True,
    help="Broker that gets replicas; may be repeated; by default, all.",
)
@throttle_option
@click.option("--execute", is_flag=True, help="Apply the change; the default is a dry run.")
@json_option
@connection_options
def rebalance(
    names: tuple[str, ...],
    goals: tuple[str, ...],
    filled: tuple[int, ...],
    throttle: int | None,
    execute: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Spread replicas and leaders over brokers.

    Moves partitions of the given topics, or of all. Replicas keep their number and their spread over racks. Partitions
    that are not fully in sync are left as they are. An interrupted rebalance continues when the command is run again.
    """
    from ottla.client.wire.failure import TopicNotFound

    with open_cluster(bootstrap_server) as client:
        given = cluster_state(client, execute=execute)
        for name in names:
            if name not in given.topics:
                raise TopicNotFound(name, known=given.topics)
        others = {
            (topic.name, partition.index)
            for topic in given.topics.values()
            if names and topic.name not in names
            for partition in topic.partitions
        }
        given = given._replace(goals=goals, filled=frozenset(filled), pinned=given.pinned | others)
        apply_plan(client, given, throttle, execute=execute, as_json=as_json)


def cluster_state(client: Cluster, *, execute: bool) -> RebalanceInput:
    """The present cluster. Partitions of ongoing reassignments are pinned, or awaited if a plan will be executed."""
    from ottla.client.admin.rebalance_plan import RebalanceInput

    ongoing = client.reassignments.all()
    if ongoing and execute:
        notify(f"waiting for {counted(len(ongoing), 'ongoing reassignment')}")
        wait_for_moves(client, set(ongoing))
        ongoing = {}
    sizes: dict[TopicPartition, int] = {}
    room: dict[int, int] = {}
    for directory in client.log_directories.all():
        if directory.usable_bytes is not None:
            room[directory.node_id] = room.get(directory.node_id, 0) + directory.usable_bytes
        for key, size in directory.sizes.items():
            sizes[key] = max(size, sizes.get(key, 0))
    return RebalanceInput(
        brokers=client.describe().brokers,
        topics=client.topics.all(),
        sizes=sizes,
        pinned=frozenset(ongoing),
        room=room,
    )


def apply_plan(client: Cluster, given: RebalanceInput, throttle: int | None, *, execute: bool, as_json: bool) -> None:
    """Compute and show a plan; with `execute`, apply it. Raises OperatorError."""
    from ottla.client.admin.rebalance_plan import rebalance_plan

    plan = rebalance_plan(given)
    _show(given, plan, throttle, execute=execute, as_json=as_json)
    if not execute:
        print_dry_run()
    elif plan.targets:
        _execute(client, given, plan, throttle)


def _show(given: RebalanceInput, plan: RebalancePlan, throttle: int | None, *, execute: bool, as_json: bool) -> None:
    """Print the moves, the load of each broker before and after, bytes and the estimated time."""
    moves = [
        {
            "topic": name,
            "partition": index,
            "from": given.topics[name].partitions[index].replicas,
            "to": replicas,
            "bytes": given.sizes.get((name, index), 0)
            * len(set(replicas) - set(given.topics[name].partitions[index].replicas)),
        }
        for (name, index), replicas in plan.targets.items()
    ]
    seconds = plan.seconds(throttle or ASSUMED_RATE)
    if as_json:
        print_json(
            {
                "executed": execute,
                "moves": moves,
                "bytes": plan.moved_bytes,
                "estimated_seconds": round(seconds, 1),
                "brokers": list(broker_changes(given, plan.targets)),
                "not_in_sync": [{"topic": name, "partition": index} for name, index in plan.skipped],
                "on_fewer_racks": [{"topic": name, "partition": index} for name, index in plan.on_fewer_racks],
            }
        )
        return
    if plan.skipped:
        notify(f"{counted(len(plan.skipped), 'partition')} not fully in sync: left as they are")
    if plan.on_fewer_racks:
        name, index = plan.on_fewer_racks[0]
        notify(
            f"{counted(len(plan.on_fewer_racks), 'partition')}, such as {name}-{index}, will be on fewer racks: start "
            "another broker on the rack first to prevent it"
        )
    if not moves:
        click.echo("Nothing to move.")
        return
    rows = [(*list(move.values())[:4], size_text(int(str(move["bytes"])))) for move in moves]
    print_table(("topic", "partition", "from", "to", "copied"), rows, right=("partition", "copied"))
    columns = ("broker", "replicas", "after", "leaders", "leaders after", "size", "size after")
    loads = [
        (*list(each.values())[:5], size_text(each["bytes"]), size_text(each["bytes_after"]))
        for each in broker_changes(given, plan.targets)
    ]
    print_table(columns, loads, right=columns)
    rate = "the throttle" if throttle else f"{size_text(ASSUMED_RATE)}/s for each broker"
    click.echo(
        f"{counted(len(moves), 'partition')} to change, {size_text(plan.moved_bytes)} to copy, about "
        f"{counted(max(1, round(seconds)), 'second')} at {rate}."
    )


def broker_changes(given: RebalanceInput, targets: Plan) -> Iterator[dict[str, Any]]:
    """Replicas, preferred leaders and bytes of each broker before and after."""
    live = {broker.node_id for broker in given.brokers}
    before = {
        (topic.name, partition.index): partition.replicas
        for topic in given.topics.values()
        for partition in topic.partitions
    }
    states = (before, {**before, **targets})
    for broker in sorted(live | given.drained):
        on = [[key for key, replicas in state.items() if broker in replicas] for state in states]
        leads = [sum(state[key][0] == broker for key in keys) for state, keys in zip(states, on, strict=True)]
        sizes = [sum(given.sizes.get(key, 0) for key in keys) for keys in on]
        yield {
            "broker": broker,
            "replicas": len(on[0]),
            "replicas_after": len(on[1]),
            "leaders": leads[0],
            "leaders_after": leads[1],
            "bytes": sizes[0],
            "bytes_after": sizes[1],
        }


def _execute(client: Cluster, given: RebalanceInput, plan: RebalancePlan, throttle: int | None) -> None:
    """Apply the plan in batches, then elect the preferred leaders. Raises OperatorError if a broker is lost."""
    from ottla.client.admin.reassignment_plan import throttled_replicas

    left = iter(plan.targets.items())
    live = {broker.node_id for broker in given.brokers} - given.drained
    done = 0
    with throttled(client, throttled_replicas(plan.targets, given.topics), throttle, keep=False):
        while batch := dict(islice(left, BATCH_PARTITIONS)):
            fenced = live & {broker.node_id for broker in client.brokers.all() if broker.fenced}
            if fenced:
                raise OperatorError(
                    f"broker {min(fenced)} does not serve any more, so the command stops after {done} of "
                    f"{counted(len(plan.targets), 'partition')}: start the broker and run the command again"
                )
            client.reassignments.alter(batch)
            wait_for_moves(client, set(batch), quiet=True)
            done += len(batch)
            notify(f"{done} of {counted(len(plan.targets), 'partition')} done")
    leaders = {
        (topic.name, partition.index): partition.leader
        for topic in client.topics.all().values()
        for partition in topic.partitions
    }
    led_elsewhere = [key for key, replicas in plan.targets.items() if leaders.get(key, replicas[0]) != replicas[0]]
    if led_elsewhere:
        client.reassignments.elect_leaders(led_elsewhere)
