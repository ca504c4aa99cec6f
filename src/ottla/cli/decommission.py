"""`ottla cluster decommission`: move all replicas off a broker, and remove the registration of an empty one.

The moves are planned and applied as those of `ottla cluster rebalance`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ottla.cli.command import BROKER_ID, Command, connection_options, counted, json_option, open_cluster, print_json
from ottla.cli.rebalance import apply_plan, cluster_state
from ottla.cli.replica_moves import throttle_option
from ottla.common.errors import KafkaError, OperatorError

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.common.kafka.topic_partition import TopicPartition


@click.command(
    cls=Command,
    examples=(
        "ottla cluster decommission 4             # dry run",
        "ottla cluster decommission 4 --execute   # then stop broker 4",
        "ottla cluster decommission 4 --unregister",
    ),
)
@click.argument("broker_id", metavar="BROKER", type=BROKER_ID)
@throttle_option
@click.option("--execute", is_flag=True, help="Apply the change; the default is a dry run.")
@click.option("--unregister", is_flag=True, help="Remove the registration of a stopped broker without replicas.")
@json_option
@connection_options
def decommission(
    broker_id: int, throttle: int | None, execute: bool, unregister: bool, as_json: bool, bootstrap_server: str
) -> None:
    """Move all replicas off a broker.

    Replicas go to the broker with the fewest, on another rack than the other replicas if there is one. Partitions that
    are not fully in sync are left as they are, except for replicas on a dead broker that is decommissioned. An
    interrupted command continues when it is run again.

    The broker can then be stopped and removed from the cluster with --unregister.
    """
    with open_cluster(bootstrap_server) as client:
        known = {broker.node_id: broker for broker in client.brokers.all()}
        if broker_id not in known:
            raise OperatorError(
                f"broker {broker_id} is not registered; registered brokers: {', '.join(map(str, known))}"
            )
        if unregister:
            _unregister(client, broker_id, live=not known[broker_id].fenced, as_json=as_json)
            return
        given = cluster_state(client, execute=execute)._replace(goals=(), drained=frozenset({broker_id}))
        apply_plan(client, given, throttle, execute=execute, as_json=as_json)
        if not execute:
            return
        left = _replicas_on(client, broker_id)
        if left:
            name, index = left[0]
            raise OperatorError(
                f"broker {broker_id} still has {counted(len(left), 'replica')}, such as that of {name}-{index}: "
                "correct what `ottla cluster describe --problems` lists, then run this command again"
            )
    if not as_json:
        click.echo(f"Broker {broker_id} has no replicas: stop it, then run this command with --unregister.")


def _unregister(client: Cluster, broker_id: int, *, live: bool, as_json: bool) -> None:
    left = _replicas_on(client, broker_id)
    if left:
        raise OperatorError(
            f"broker {broker_id} still has {counted(len(left), 'replica')}: move them with "
            f"`ottla cluster decommission {broker_id} --execute`, then run --unregister again"
        )
    if live:
        raise OperatorError(f"broker {broker_id} is still running and would register again: stop it first")
    client.brokers.unregister(broker_id)
    if as_json:
        print_json({"unregistered": broker_id})
        return
    click.echo(f"Broker {broker_id} is unregistered.")
    with suppress(KafkaError):  # a cluster with ZooKeeper metadata has no quorum
        if any(each.node_id == broker_id for each in client.quorum.describe().voters):
            click.echo(f"It is still a voter: remove it with `ottla cluster voters remove {broker_id}`.")


def _replicas_on(client: Cluster, broker_id: int) -> list[TopicPartition]:
    """The partitions with a replica on a broker."""
    return [
        (name, partition.index)
        for name, topic in client.topics.all().items()
        for partition in topic.partitions
        if broker_id in partition.replicas
    ]
