"""`ottla topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from ottla.cli.command import (
    Group,
    bootstrap_option,
    complete_topic,
    json_option,
    open_cluster,
    print_json,
    print_table,
    settings_option,
)
from ottla.client.cluster import Cluster
from ottla.client.failure import TopicNotFound
from ottla.client.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ConfigEntry,
    ConfigOperation,
    OffsetInfo,
    ResourceType,
    TopicInfo,
)
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import uuid_to_string

COUNT = click.IntRange(min=1)


@click.group(cls=Group)
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command(
    examples=(
        "ottla topic create clicks --partitions 6",
        "ottla topic create users --config cleanup.policy=compact --config segment.bytes=16777216",
        "ottla topic create clicks --if-not-exists -b broker1:9092,broker2:9092",
    )
)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--partitions", "-p", type=COUNT, default=None, help="Number of partitions  [default: num.partitions]")
@click.option(
    "--replication-factor",
    "-r",
    type=COUNT,
    default=None,
    help="Replicas of each partition  [default: default.replication.factor]",
)
@settings_option("--config", "-c", help_text="A topic config, such as retention.ms=86400000; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change when the topic exists.")
@bootstrap_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    config: Mapping[str, str],
    if_not_exists: bool,
    bootstrap_server: str,
) -> None:
    """Create one topic or several of the same shape."""
    with open_cluster(bootstrap_server) as cluster:
        for name in names:
            try:
                cluster.create_topic(name, partitions or -1, replication_factor or -1, config)
            except KafkaError as error:
                if if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    click.echo(f"Topic {name} exists already.")
                    continue
                raise
            click.echo(f"Created topic {name}.")


@topic.command("list", examples=("ottla topic list", "ottla topic list --json | jq -r '.[].name'"))
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@json_option
@bootstrap_option
def list_topics(internal: bool, as_json: bool, bootstrap_server: str) -> None:
    """List the topics of the cluster."""
    with open_cluster(bootstrap_server) as cluster:
        topics = [info for info in cluster.topics().values() if internal or not info.is_internal]
    if as_json:
        print_json(
            [
                {
                    "name": info.name,
                    "topic_id": uuid_to_string(info.topic_id),
                    "partitions": len(info.partitions),
                    "replication_factor": _replication_factor(info),
                    "internal": info.is_internal,
                }
                for info in topics
            ]
        )
        return
    print_table(
        ("topic", "partitions", "replicas", "topic id"),
        [
            (info.name, len(info.partitions), _replication_factor(info), uuid_to_string(info.topic_id))
            for info in topics
        ],
        right=("partitions", "replicas"),
    )


@topic.command(examples=("ottla topic describe clicks", "ottla topic describe clicks --json"))
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@json_option
@bootstrap_option
def describe(name: str, as_json: bool, bootstrap_server: str) -> None:
    """Show partitions, leaders, offsets, sizes and the configs that differ from the broker's.

    The end is the high watermark: the offset that the next visible record will have.
    """
    with open_cluster(bootstrap_server) as cluster:
        info = cluster.topic(name)
        configs = cluster.describe_configs(ResourceType.TOPIC, name)
        starts, ends = _offset_ranges(cluster, info)
        sizes = _sizes(cluster, name)
    overrides = {entry.name: _config_value(entry) for entry in configs if entry.source == "topic"}
    partitions = [
        {
            "partition": partition.index,
            "leader": partition.leader if partition.leader >= 0 else None,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "start": _offset(starts, name, partition.index),
            "end": _offset(ends, name, partition.index),
            "bytes": sizes.get(partition.index),
        }
        for partition in info.partitions
    ]
    if as_json:
        identity: dict[str, Any] = {"name": name, "topic_id": uuid_to_string(info.topic_id)}
        print_json({**identity, "internal": info.is_internal, "configs": overrides, "partitions": partitions})
        return
    click.echo(f"Topic {name}, id {uuid_to_string(info.topic_id)}, {len(info.partitions)} partitions")
    for key, value in overrides.items():
        click.echo(f"  {key} = {value}")
    columns = ("partition", "leader", "leader_epoch", "replicas", "isr", "start", "end", "bytes")
    print_table(
        tuple(column.replace("_", " ") for column in columns),
        [tuple(partition[column] for column in columns) for partition in partitions],
        right=("partition", "leader", "leader epoch", "start", "end", "bytes"),
    )


@topic.command(
    examples=(
        "ottla topic alter clicks --partitions 12",
        "ottla topic alter clicks --config retention.ms=3600000 --delete-config segment.bytes",
    )
)
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@click.option("--partitions", "-p", type=COUNT, default=None, help="The new total; partitions are never taken away.")
@settings_option("--config", "-c", help_text="Set a config; may be repeated.")
@click.option("--delete-config", multiple=True, metavar="NAME", help="Back to the broker's value; may be repeated.")
@bootstrap_option
def alter(
    name: str,
    partitions: int | None,
    config: Mapping[str, str],
    delete_config: tuple[str, ...],
    bootstrap_server: str,
) -> None:
    """Add partitions to a topic, set or delete its configs.

    Keys that were hashed over the old number of partitions may go to other ones afterwards.
    """
    if partitions is None and not config and not delete_config:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    changes: list[tuple[str, ConfigOperation, str | None]] = [
        (key, ConfigOperation.SET, value) for key, value in config.items()
    ]
    changes += [(key, ConfigOperation.DELETE, None) for key in delete_config]
    with open_cluster(bootstrap_server) as cluster:
        cluster.topic(name)
        if changes:
            cluster.alter_configs(ResourceType.TOPIC, name, changes)
        if partitions is not None:
            cluster.create_partitions(name, partitions)
    click.echo(f"Altered topic {name}.")


@topic.command(examples=("ottla topic delete clicks", "ottla topic delete a b c --yes --if-exists"))
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic)
@click.option("--if-exists", is_flag=True, help="Succeed when a topic does not exist.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask on a terminal.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, bootstrap_server: str) -> None:
    """Delete topics with all their records. A terminal asks first."""
    with open_cluster(bootstrap_server) as cluster:
        existing = cluster.topics()
        doomed = [name for name in dict.fromkeys(names) if name in existing]
        for name in names:
            if name not in existing and not if_exists:
                raise TopicNotFound(name)
        if doomed and not yes and sys.stdin.isatty():
            click.confirm(f"Delete {', '.join(doomed)} with all records?", abort=True)
        if doomed:
            cluster.delete_topics(doomed)
    for name in doomed:
        click.echo(f"Deleted topic {name}.")


def _replication_factor(info: TopicInfo) -> int:
    return len(info.partitions[0].replicas) if info.partitions else 0


def _offset_ranges(
    cluster: Cluster, info: TopicInfo
) -> tuple[dict[tuple[str, int], OffsetInfo], dict[tuple[str, int], OffsetInfo]]:
    """Start and end of each partition that has a leader."""
    keys = [(info.name, partition.index) for partition in info.partitions if partition.leader >= 0]
    starts = cluster.list_offsets(dict.fromkeys(keys, EARLIEST_TIMESTAMP))
    ends = cluster.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP))
    return starts, ends


def _sizes(cluster: Cluster, name: str) -> dict[int, int]:
    """Sizes are a courtesy: a broker or a role that does not tell them takes nothing else away."""
    try:
        return cluster.partition_sizes(name)
    except KafkaError:
        return {}


def _offset(offsets: Mapping[tuple[str, int], OffsetInfo], name: str, partition: int) -> int | None:
    found = offsets.get((name, partition))
    return None if found is None else found.offset


def _config_value(entry: ConfigEntry) -> str | None:
    return "(hidden)" if entry.is_sensitive else entry.value
