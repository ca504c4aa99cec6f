"""Execution of reassignments for `ottla cluster`: throttle, wait and progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ottla.cli.command import counted
from ottla.common.kafka.integers import MAX_LONG
from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster

POLL_S = 0.5
RATE_CONFIGS = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICA_CONFIGS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")

throttle_option = click.option(
    "--throttle",
    type=click.IntRange(1, MAX_LONG),
    metavar="BYTES",
    help="Replication throttle in bytes/s for each broker.",
)


def print_dry_run() -> None:
    """State that nothing was changed."""
    click.echo("Dry run: use --execute to apply the change.", err=True)


@contextmanager
def throttled(
    client: Cluster, replicas: Mapping[str, tuple[str, str]], rate: int | None, *, keep: bool
) -> Iterator[None]:
    """Throttle replication during the reassignment; removed at the end, also after an interrupted wait."""
    from ottla.client.wire.model import ConfigOperation, ResourceType

    if rate is None or not replicas:
        yield
        return
    broker_ids = [str(broker.node_id) for broker in client.brokers.all()]
    for name, values in replicas.items():
        changes = [(key, ConfigOperation.SET, value) for key, value in zip(REPLICA_CONFIGS, values, strict=True)]
        client.configs.alter(ResourceType.TOPIC, name, changes)
    for broker_id in broker_ids:
        client.configs.alter(
            ResourceType.BROKER, broker_id, [(key, ConfigOperation.SET, str(rate)) for key in RATE_CONFIGS]
        )
    try:
        yield
    finally:
        if keep:
            click.echo("The throttle stays set: remove it with ottla config.", err=True)
        else:
            for name in replicas:
                client.configs.alter(
                    ResourceType.TOPIC, name, [(key, ConfigOperation.DELETE, None) for key in REPLICA_CONFIGS]
                )
            for broker_id in broker_ids:
                client.configs.alter(
                    ResourceType.BROKER, broker_id, [(key, ConfigOperation.DELETE, None) for key in RATE_CONFIGS]
                )


def wait_for_moves(client: Cluster, moving: set[TopicPartition], *, quiet: bool = False) -> None:
    """Wait until none of these partitions is being reassigned."""
    total = len(moving)
    with _progress(total) as show:
        while True:
            left = moving & client.reassignments.all().keys()
            show(total - len(left))
            if not left:
                break
            time.sleep(POLL_S)
    if not quiet:
        click.echo(f"Moved {counted(total, 'partition')}.", err=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("moving"), BarColumn(), MofNCompleteColumn(), TextColumn("partitions"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.__stderr__), transient=True) as bar:
        task = bar.add_task("moving", total=total)
        yield lambda done: bar.update(task, completed=done)
