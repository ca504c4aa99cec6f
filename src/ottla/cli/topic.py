"""`ottla topic`: topics, their configs and offsets."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
    settings_option,
)
from ottla.cli.positions import METAVAR, Selection, find_positions, parse_selection
from ottla.cli.settings import names_explained
from ottla.cli.times import parse_timestamp
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.integers import MAX_INT, MAX_LONG, MAX_SHORT
from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.wire.model import ConfigEntry, ConfigOperation, TopicInfo

PARTITION_COUNT = click.IntRange(1, MAX_INT)
SPECIAL_TIMES = ("earliest", "latest", "max-timestamp")


@click.group(cls=Group)
def topic() -> None:
    """Manage topics."""


@topic.command(
    examples=(
        "ottla topic create clicks --partitions 6",
        "ottla topic create users --config cleanup.policy=compact --config segment.bytes=16777216",
        "ottla topic create clicks --if-not-exists -b broker1:9092,broker2:9092",
    )
)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--partitions", "-p", type=PARTITION_COUNT, default=None, help="Number of partitions  [default: num.partitions]"
)
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(1, MAX_SHORT),
    default=None,
    help="Replicas per partition  [default: default.replication.factor]",
)
@settings_option("--config", "-c", help_text="Topic config, such as retention.ms=86400000; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic already exists.")
@json_option
@connection_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    config: Mapping[str, str],
    if_not_exists: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Create topics.

    All topics get the same partitions, replication factor and configs. Topics are created independently: a failure does
    not affect the others.
    """
    from ottla.client.wire.failure import raise_all

    results: list[dict[str, Any]] = []
    failures: list[KafkaError] = []
    with open_cluster(bootstrap_server) as cluster:
        for name in names:
            try:
                created = _create(cluster, name, partitions, replication_factor, config, if_not_exists)
            except KafkaError as error:
                failures.append(error)
                continue
            if as_json:
                info = cluster.topics.get(name)
                results.append({**_identity(info), "created": created})
            else:
                click.echo(f"Created topic {name}." if created else f"Topic {name} already exists.")
    if as_json:
        print_json(results)
    raise_all(failures)


def _create(
    cluster: Cluster,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    config: Mapping[str, str],
    if_not_exists: bool,
) -> bool:
    """Create a topic. Returns False if it already exists and `if_not_exists` is set. Raises KafkaError."""
    from ottla.client.wire.model import ResourceType

    try:
        with names_explained(ResourceType.TOPIC, config):
            cluster.topics.create(name, partitions or -1, replication_factor or -1, config)
    except KafkaError as error:
        if if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def _identity(info: TopicInfo) -> dict[str, Any]:
    from ottla.common.kafka.ids import uuid_to_string

    return {
        "name": info.name,
        "topic_id": uuid_to_string(info.topic_id),
        "partitions": len(info.partitions),
        "replication_factor": _replication_factor(info),
    }


@topic.command("list", examples=("ottla topic list", "ottla topic list --json | jq -r '.[].name'"))
@click.option("--internal", is_flag=True, help="Include internal topics.")
@json_option
@connection_options
def list_topics(internal: bool, as_json: bool, bootstrap_server: str) -> None:
    """List topics."""
    from ottla.common.kafka.ids import uuid_to_string

    with open_cluster(bootstrap_server) as cluster:
        topics = [info for info in cluster.topics.all().values() if internal or not info.is_internal]
    if as_json:
        print_json([{**_identity(info), "internal": info.is_internal} for info in topics])
        return
    print_table(
        ("topic", "partitions", "replicas", "topic id"),
        [
            (info.name, len(info.partitions), _replication_factor(info), uuid_to_string(info.topic_id))
            for info in topics
        ],
        right=("partitions", "replicas"),
    )


@topic.command(
    examples=(
        "ottla topic describe clicks",
        "ottla topic describe clicks --json",
        "ottla topic describe --under-replicated",
        "ottla topic describe --at-min-isr clicks users",
    )
)
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@click.option("--under-replicated", is_flag=True, help="List partitions with replicas that are not in sync.")
@click.option("--unavailable", is_flag=True, help="List partitions without a leader.")
@click.option("--at-min-isr", is_flag=True, help="List partitions with exactly min.insync.replicas in sync.")
@click.option("--under-min-isr", is_flag=True, help="List partitions with fewer than min.insync.replicas in sync.")
@json_option
@connection_options
def describe(names: tuple[str, ...], as_json: bool, bootstrap_server: str, **filters: bool) -> None:
    """Show the partitions and configs of topics.

    Leaders, replicas, offsets and sizes of the partitions, and the configs that differ from the broker's. The end is
    the high watermark: the next offset visible to consumers. A filter lists the matching partitions of the given
    topics, or of all.
    """
    from ottla.client.views.partition_states import filtered_partitions

    if any(filters.values()):
        with open_cluster(bootstrap_server) as cluster:
            found = filtered_partitions(cluster, names, **filters)
        rows = [each._asdict() for each in found]
        if as_json:
            print_json(rows)
        elif not rows:
            click.echo("No partition matches.")
        else:
            columns = ("topic", "partition", "leader", "replicas", "isr", "min isr")
            print_table(columns, [tuple(row.values()) for row in rows], right=("partition", "leader", "min isr"))
        return
    if not names:
        raise click.UsageError("give a topic, or a filter such as --under-replicated")
    with open_cluster(bootstrap_server) as cluster:
        described = [_describe(cluster, name) for name in names]
    if as_json:
        print_json(described[0] if len(described) == 1 else described)
        return
    for number, each in enumerate(described):
        if number:
            click.echo()
        _print_topic(each)


def _describe(cluster: Cluster, name: str) -> dict[str, Any]:
    """A topic as JSON."""
    from ottla.client.wire.model import ResourceType
    from ottla.common.kafka.ids import uuid_to_string

    info = cluster.topics.get(name)
    configs = cluster.configs.describe(ResourceType.TOPIC, name)
    starts, ends = _offset_ranges(cluster, info)
    sizes = _sizes(cluster, name)
    overrides = {entry.name: _config_value(entry) for entry in configs if entry.source == "topic"}
    partitions = [
        {
            "partition": partition.index,
            "leader": partition.leader if partition.is_led else None,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "start": starts.get((name, partition.index)),
            "end": ends.get((name, partition.index)),
            "bytes": sizes.get(partition.index),
        }
        for partition in info.partitions
    ]
    identity: dict[str, Any] = {"name": name, "topic_id": uuid_to_string(info.topic_id)}
    return {
        **identity,
        "internal": info.is_internal,
        "replication_factor": _replication_factor(info),
        "configs": overrides,
        "partitions": partitions,
    }


def _print_topic(described: Mapping[str, Any]) -> None:
    partitions = described["partitions"]
    click.echo(
        f"Topic {described['name']}, id {described['topic_id']}, {counted(len(partitions), 'partition')}, "
        f"replication factor {described['replication_factor']}"
    )
    for key, value in described["configs"].items():
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
@click.option(
    "--partitions", "-p", type=PARTITION_COUNT, default=None, help="New total number of partitions; it cannot decrease."
)
@settings_option("--config", "-c", help_text="Config to set; may be repeated.")
@click.option(
    "--delete-config", multiple=True, metavar="NAME", help="Config to reset to the broker's value; may be repeated."
)
@json_option
@connection_options
def alter(
    name: str,
    partitions: int | None,
    config: Mapping[str, str],
    delete_config: tuple[str, ...],
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Add partitions or change topic configs.

    Adding partitions changes the partition of keys that are assigned by hash.
    """
    from ottla.client.wire.model import ConfigOperation, ResourceType

    if partitions is None and not config and not delete_config:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    changes: list[tuple[str, ConfigOperation, str | None]] = [
        (key, ConfigOperation.SET, value) for key, value in config.items()
    ]
    changes += [(key, ConfigOperation.DELETE, None) for key in delete_config]
    with open_cluster(bootstrap_server) as cluster:
        cluster.topics.get(name)
        if changes:
            with names_explained(ResourceType.TOPIC, [key for key, _, _ in changes]):
                cluster.configs.alter(ResourceType.TOPIC, name, changes)
        if partitions is not None:
            cluster.topics.create_partitions(name, partitions)
        info = cluster.topics.get(name)
    if as_json:
        print_json({**_identity(info), "set": config, "deleted": delete_config})
    else:
        click.echo(f"Altered topic {name}.")


@topic.command(
    examples=(
        "ottla topic offsets clicks",
        "ottla topic offsets clicks:0,3 users --json",
        "ottla topic offsets clicks --time 2026-01-31T12:00:00Z",
        "ottla topic offsets clicks --time max-timestamp",
    )
)
@click.argument(
    "topics",
    metavar=f"{METAVAR}...",
    nargs=-1,
    required=True,
    callback=parse_selection,
    shell_complete=complete_topic,
)
@click.option(
    "--time",
    metavar="|".join(("MS", "ISO", *SPECIAL_TIMES)),
    help="Look up the first record at or after this time, instead of start and end.",
)
@json_option
@connection_options
def offsets(topics: Selection, time: str | None, as_json: bool, bootstrap_server: str) -> None:
    """Look up partition offsets.

    Shows the log start offset and the end of each partition, or with --time the offset of a time. The end is the high
    watermark: the next offset visible to consumers.
    """
    from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP

    columns: tuple[str, ...]
    rows: list[tuple[str, int, int | None, int | None]]
    with open_cluster(bootstrap_server) as cluster:
        positions = find_positions(cluster, topics)
        if time is None:
            starts = cluster.records.offsets_at(positions, EARLIEST_TIMESTAMP)
            ends = cluster.records.offsets_at(positions, LATEST_TIMESTAMP)
            columns = ("topic", "partition", "start", "end")
            rows = [(*key, starts[key], ends[key]) for key in positions]
        else:
            special = dict(zip(SPECIAL_TIMES, (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP), strict=True))
            timestamp = special[time] if time in special else parse_timestamp(time, "--time")
            found = cluster.records.list_offsets(dict.fromkeys(positions, timestamp))
            columns = ("topic", "partition", "offset", "timestamp")
            rows = [(*key, _known(found[key].offset), _known(found[key].timestamp)) for key in positions]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows, right=columns[1:])


def _known(value: int) -> int | None:
    return None if value < 0 else value


@topic.command(
    examples=(
        "ottla topic trim clicks:0 --before-offset 1200",
        "ottla topic trim clicks --before-time 2026-01-31T12:00:00Z --yes",
        "ottla topic trim clicks users --all",
    )
)
@click.argument(
    "topics",
    metavar=f"{METAVAR}...",
    nargs=-1,
    required=True,
    callback=parse_selection,
    shell_complete=complete_topic,
)
@click.option(
    "--before-offset", type=click.IntRange(0, MAX_LONG), metavar="OFFSET", help="Delete records below this offset."
)
@click.option("--before-time", metavar="MS|ISO", help="Delete records before the first one at or after this time.")
@click.option("--all", "everything", is_flag=True, help="Delete all current records.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connection_options
def trim(
    topics: Selection,
    before_offset: int | None,
    before_time: str | None,
    everything: bool,
    yes: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Delete the oldest records of topics.

    The records are deleted permanently; later records keep their offsets. Asks for confirmation on a terminal.
    """
    from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    if [before_offset is not None, before_time is not None, everything].count(True) != 1:
        raise click.UsageError("give exactly one of --before-offset, --before-time, --all")
    with open_cluster(bootstrap_server) as cluster:
        positions = find_positions(cluster, topics)
        starts = cluster.records.offsets_at(positions, EARLIEST_TIMESTAMP)
        ends = cluster.records.offsets_at(positions, LATEST_TIMESTAMP)
        wanted = ends if before_offset is None else dict.fromkeys(positions, before_offset)
        if before_time is not None:
            wanted = cluster.records.offsets_since(parse_timestamp(before_time, "--before-time"), ends)
        wanted = {key: offset for key, offset in wanted.items() if offset > starts[key]}
        count = sum(offset - starts[key] for key, offset in wanted.items())
        if wanted and not yes and sys.stdin.isatty():
            click.confirm(f"Permanently delete {count:,} offsets of {len(wanted)} partitions?", abort=True)
        begins = starts | (cluster.records.delete(wanted) if wanted else {})
    columns = ("topic", "partition", "was", "start", "end")
    rows = [(*key, starts[key], begins[key], ends[key]) for key in positions]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows, right=columns[1:])


@topic.command(examples=("ottla topic delete clicks", "ottla topic delete a b c --yes --if-exists"))
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic)
@click.option("--if-exists", is_flag=True, help="Succeed if a topic does not exist.")
@click.option("--internal", is_flag=True, help="Permit internal topics, such as __consumer_offsets.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connection_options
def delete(
    names: tuple[str, ...], if_exists: bool, internal: bool, yes: bool, as_json: bool, bootstrap_server: str
) -> None:
    """Delete topics.

    Deletes the topics with all their records. Asks for confirmation on a terminal.
    """
    from ottla.client.wire.failure import TopicNotFound

    with open_cluster(bootstrap_server) as cluster:
        existing = cluster.topics.all()
        doomed = [name for name in dict.fromkeys(names) if name in existing]
        for name in names:
            if name not in existing and not if_exists:
                raise TopicNotFound(name, known=existing)
            if name in existing and existing[name].is_internal and not internal:
                raise OperatorError(f"{name} is an internal topic: use --internal to delete it")
        if doomed and not yes and sys.stdin.isatty():
            click.confirm(f"Delete {', '.join(doomed)} with all records?", abort=True)
        if doomed:
            cluster.topics.delete(doomed)
    if as_json:
        print_json({"deleted": doomed})
        return
    for name in doomed:
        click.echo(f"Deleted topic {name}.")


def _replication_factor(info: TopicInfo) -> int:
    return len(info.partitions[0].replicas) if info.partitions else 0


def _offset_ranges(cluster: Cluster, info: TopicInfo) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Start and end of each partition that has an online leader."""
    from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    keys = [(info.name, partition.index) for partition in info.partitions if partition.is_led]
    return cluster.records.offsets_at(keys, EARLIEST_TIMESTAMP), cluster.records.offsets_at(keys, LATEST_TIMESTAMP)


def _sizes(cluster: Cluster, name: str) -> dict[int, int]:
    """Size of each partition in bytes; partitions are omitted if a broker cannot report sizes or denies it."""
    try:
        return cluster.log_directories.partition_sizes(name)
    except KafkaError:
        return {}


def _config_value(entry: ConfigEntry) -> str | None:
    return "(hidden)" if entry.is_sensitive else entry.value
