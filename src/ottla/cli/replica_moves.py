"""Execution of reassignments for `ottla cluster`: throttle, wait and progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from ottla.cli.command import counted, notify
from ottla.cli.progress import count_progress
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.integers import MAX_LONG
from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.wire.model import ResourceType

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
    """Throttle replication on the live brokers during the reassignment.

    The throttle is removed at the end, also after an interrupted wait; with `keep`, only after an error.
    """
    if rate is None or not replicas:
        yield
        return
    from ottla.client.wire.model import ConfigOperation, ResourceType

    settings = [
        *((ResourceType.TOPIC, name, zip(REPLICA_CONFIGS, values, strict=True)) for name, values in replicas.items()),
        *(
            (ResourceType.BROKER, str(broker.node_id), ((key, str(rate)) for key in RATE_CONFIGS))
            for broker in client.brokers.all()
            if not broker.fenced
        ),
    ]
    with ExitStack() as undo:
        for kind, name, values in settings:
            changes = [(key, ConfigOperation.SET, value) for key, value in values]
            undo.callback(_remove_throttle, client, kind, name, [key for key, _, _ in changes])
            client.configs.alter(kind, name, changes)
        yield
        if keep:
            undo.pop_all()
            click.echo("The throttle stays set: remove it with ottla config.", err=True)


def _remove_throttle(client: Cluster, kind: ResourceType, name: str, keys: Sequence[str]) -> None:
    """Remove the throttle of a broker or topic. On failure, name the command that removes it."""
    from ottla.client.wire.model import ConfigOperation

    try:
        client.configs.alter(kind, name, [(key, ConfigOperation.DELETE, None) for key in keys])
    except (KafkaError, OperatorError) as error:
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return  # deleted in the meantime, with its configs
        options = " ".join(f"--delete {key}" for key in keys)
        notify(f"the throttle is still set: run `ottla config alter {kind.name.lower()} {name} {options}` ({error})")


def wait_for_moves(client: Cluster, moving: set[TopicPartition], *, quiet: bool = False) -> None:
    """Wait until none of these partitions is being reassigned."""
    total = len(moving)
    with count_progress("moving", "partitions", total) as show:
        while True:
            left = moving & client.reassignments.all().keys()
            show(total - len(left))
            if not left:
                break
            time.sleep(POLL_S)
    if not quiet:
        click.echo(f"Moved {counted(total, 'partition')}.", err=True)
