"""`ottla consume`: records of a topic on standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from ottla.cli.command import (
    CLIENT_ID,
    Command,
    bootstrap_option,
    complete_group,
    complete_topic,
    open_cluster,
    settings_option,
)
from ottla.cli.record_format import FIELDS, make_formatter
from ottla.cli.times import parse_timestamp
from ottla.client.cluster import Cluster
from ottla.client.consumer import RecordConsumer
from ottla.client.group_consumer import GroupConsumer
from ottla.client.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, Position
from ottla.common.errors import ErrorCode, KafkaError


@click.command(
    cls=Command,
    examples=(
        "ottla consume clicks --from-beginning --max 10",
        "ottla consume clicks --offset -5 --stop-at-end          # the last five of each partition",
        "ottla consume clicks --timestamp 2026-01-31T12:00:00Z --partition 0",
        r"ottla consume clicks --from-beginning --format '{partition}:{offset}\t{time}\t{key}\t{value}\t{headers}'",
        "ottla consume clicks --group billing --from-beginning",
        "ottla consume clicks --group billing -X group.protocol=consumer",
        "ottla consume clicks --json --stop-at-end --from-beginning | jq .value",
    ),
)
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--group", "-g", "group_id", shell_complete=complete_group, help="Read as a member of this group and commit."
)
@click.option("--from-beginning", is_flag=True, help="Start at the first record.")
@click.option("--offset", "-o", type=int, help="Start at this offset; negative: so many before the end.")
@click.option("--timestamp", "-t", metavar="MS|ISO", help="Start at the first record as young as this.")
@click.option("--partition", "-p", "partitions", type=click.IntRange(min=0), multiple=True, help="May be repeated.")
@click.option("--max", "-n", "max_records", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--stop-at-end", "-e", is_flag=True, help="Stop at what is the end now.")
@click.option("--timeout", type=click.FloatRange(min=0.001), help="Stop when nothing came for so many seconds.")
@click.option(
    "--format",
    "-f",
    "template",
    default="text",
    show_default=True,
    metavar="text|json|TEMPLATE",
    help=f"How to print a record. Fields of a template: {', '.join(FIELDS)}.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("--null", metavar="TEXT", default="null", show_default=True, help="How null is printed as text.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
)
@settings_option("--property", "-X", "properties", help_text="A property of librdkafka.")
@bootstrap_option
def consume(
    topic: str,
    group_id: str | None,
    from_beginning: bool,
    offset: int | None,
    timestamp: str | None,
    partitions: tuple[int, ...],
    max_records: int | None,
    stop_at_end: bool,
    timeout: float | None,
    template: str,
    as_json: bool,
    null: str,
    isolation: str,
    properties: Mapping[str, str],
    bootstrap_server: str,
) -> None:
    """Print records of a topic, from now on unless a start is given, until Ctrl-C.

    With --group the partitions are shared with the other members, the start is where the group stands
    (--from-beginning: the first record where it does not stand anywhere), and what was printed is committed.
    Otherwise no group takes part and nothing is committed.
    """
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("give only one of --from-beginning, --offset and --timestamp")
    if group_id is not None and (partitions or offset is not None or timestamp is not None):
        raise click.UsageError(
            "a group shares out its partitions and remembers where it stands: "
            "--group goes without --partition, --offset and --timestamp; see `ottla group reset-offsets`"
        )
    formatter = make_formatter("json" if as_json else template, null)
    timestamp_ms = None if timestamp is None else parse_timestamp(timestamp)
    with open_cluster(bootstrap_server) as cluster:
        keys = _positions(cluster, topic, partitions)
        ends = _offsets(cluster, keys, LATEST_TIMESTAMP, isolation)
        if group_id is not None or not (from_beginning or offset is not None or timestamp_ms is not None):
            starts = ends
        elif timestamp_ms is not None:
            found = _offsets(cluster, keys, timestamp_ms, isolation)
            starts = {key: ends[key] if found[key] == NO_OFFSET else found[key] for key in keys}
        elif offset is not None:
            starts = _starts_from_offset(cluster, keys, ends, offset, isolation)
        else:
            starts = _offsets(cluster, keys, EARLIEST_TIMESTAMP, isolation)
    settings: dict[str, Any] = {
        "ends": ends if stop_at_end else None,
        "client_id": CLIENT_ID,
        "isolation": isolation,
        "properties": properties,
    }
    consumer: RecordConsumer | GroupConsumer
    if group_id is None:
        consumer = RecordConsumer(bootstrap_server, starts, **settings)
    else:
        consumer = GroupConsumer(bootstrap_server, group_id, topic, from_beginning=from_beginning, **settings)
    output = sys.stdout.buffer
    with consumer:
        for records in consumer.batches(max_records=max_records, idle_timeout_s=timeout):
            output.write(b"".join([formatter(record) for record in records]))
            output.flush()


def _positions(cluster: Cluster, topic: str, partitions: tuple[int, ...]) -> list[Position]:
    count = len(cluster.topic(topic).partitions)
    for partition in partitions:
        if partition >= count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}",
            )
    return [(topic, partition) for partition in (dict.fromkeys(partitions) or range(count))]


def _offsets(cluster: Cluster, keys: list[Position], timestamp: int, isolation: str) -> dict[Position, int]:
    found = cluster.list_offsets(dict.fromkeys(keys, timestamp), isolation=isolation)
    return {key: info.offset for key, info in found.items()}


def _starts_from_offset(
    cluster: Cluster, keys: list[Position], ends: Mapping[Position, int], offset: int, isolation: str
) -> dict[Position, int]:
    """An offset of each partition; one that a partition does not have is an error, unless counted from the end."""
    firsts = _offsets(cluster, keys, EARLIEST_TIMESTAMP, isolation)
    if offset < 0:
        return {key: max(firsts[key], ends[key] + offset) for key in keys}
    for key in keys:
        if not firsts[key] <= offset <= ends[key]:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{key[0]}-{key[1]} has offsets {firsts[key]} to {ends[key]}, not {offset}",
            )
    return dict.fromkeys(keys, offset)
