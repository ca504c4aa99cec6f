"""`ottla consume`: records of topics on standard output."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from ottla.cli.command import (
    CLIENT_ID,
    Command,
    complete_group,
    complete_topic,
    connection_options,
    open_cluster,
    security,
    settings_option,
    tell,
)
from ottla.cli.record_format import FIELDS, make_formatter
from ottla.cli.times import Seconds, parse_timestamp
from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.consumer import RecordConsumer
from ottla.client.librdkafka.group_consumer import GroupConsumer
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, Position
from ottla.common.errors import ErrorCode, KafkaError


def _milliseconds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else parse_timestamp(value, parameter.opts[0])


@click.command(
    cls=Command,
    examples=(
        "ottla consume clicks --from-beginning --max 10",
        "ottla consume clicks --offset -5 --stop-at-end          # the last five of each partition",
        "ottla consume clicks --timestamp 2026-01-31T12:00:00Z --partition 0",
        "ottla consume clicks orders --timestamp 2026-01-31 --end-timestamp 2026-02-01",
        "ottla consume --include 'clicks-.*' --from-beginning --format '{topic}\\t{value}'",
        r"ottla consume clicks --from-beginning --format '{partition}:{offset}\t{time}\t{key}\t{value}\t{headers}'",
        "ottla consume clicks --group billing --from-beginning",
        "ottla consume clicks --from-beginning --isolation read_committed",
        "ottla consume clicks --group billing -X group.protocol=consumer",
        "ottla consume clicks --json --stop-at-end --from-beginning | jq .value",
    ),
)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@click.option(
    "--include", metavar="REGEX", help="Topics whose whole name matches, of those that exist now; no internal ones."
)
@click.option(
    "--group", "-g", "group_id", shell_complete=complete_group, help="Read as a member of this group and commit."
)
@click.option("--from-beginning", is_flag=True, help="Start at the first record.")
@click.option("--offset", "-o", type=int, help="Start at this offset; negative: so many before the end.")
@click.option(
    "--timestamp", "-t", metavar="MS|ISO", callback=_milliseconds, help="Start at the first record as young as this."
)
@click.option("--end-offset", type=click.IntRange(min=0), help="Stop before this offset.")
@click.option(
    "--end-timestamp",
    metavar="MS|ISO",
    callback=_milliseconds,
    help="Stop before the first record as young as this, or at what is the end now where there is none.",
)
@click.option("--partition", "-p", "partitions", type=click.IntRange(min=0), multiple=True, help="May be repeated.")
@click.option("--max", "-n", "max_records", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--stop-at-end", "-e", is_flag=True, help="Stop at what is the end now.")
@click.option("--timeout", type=Seconds(), help="Stop when nothing came for so many seconds.")
@click.option(
    "--format",
    "-f",
    "template",
    default="text",
    show_default=True,
    metavar="text|json|TEMPLATE",
    help=f"How to print a record. Fields of a template: {', '.join(FIELDS)}. A header whose value is null is its name "
    "without an equals sign.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("--null", metavar="TEXT", default="null", show_default=True, help="How null is printed as text.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="With read_committed nothing of a transaction that was aborted or is open, and nothing behind an open one.",
)
@settings_option("--property", "-X", "properties", help_text="A property of librdkafka, for --group.")
@connection_options
def consume(
    topics: tuple[str, ...],
    include: str | None,
    group_id: str | None,
    partitions: tuple[int, ...],
    max_records: int | None,
    timeout: float | None,
    template: str,
    as_json: bool,
    null: str,
    isolation: str,
    properties: Mapping[str, str],
    bootstrap_server: str,
    **limits: Any,
) -> None:
    """Print records of topics, from now on unless a start is given, until Ctrl-C.

    With --group the partitions are shared with the other members, the start is where the group stands
    (--from-beginning: the first record where it does not stand anywhere), and what was printed is committed.
    Otherwise no group takes part and nothing is committed.
    """
    span = Span(**limits)
    _check(topics, include, group_id, partitions, properties, span)
    formatter = make_formatter("json" if as_json else template, null, for_terminal=sys.stdout.isatty())
    with open_cluster(bootstrap_server) as cluster:
        names = list(dict.fromkeys(topics)) if include is None else _matching(cluster, include)
        keys = [key for name in names for key in _positions(cluster, name, partitions)]
        starts, ends = _offset_range(cluster, keys, span, isolation, in_group=group_id is not None)
    settings: dict[str, Any] = {"ends": ends, "client_id": CLIENT_ID, "isolation": isolation, "tell": tell}
    consumer: RecordConsumer | GroupConsumer
    if group_id is None:
        consumer = RecordConsumer(bootstrap_server, starts, security=security(), **settings)
    else:
        consumer = GroupConsumer(
            bootstrap_server,
            group_id,
            names,
            from_beginning=span.from_beginning,
            properties={**security().library, **properties},
            **settings,
        )
    output = sys.stdout.buffer
    with consumer:
        for records in consumer.batches(max_records=max_records, idle_timeout_s=timeout):
            output.write(b"".join([formatter(record) for record in records]))
            output.flush()


@dataclass(frozen=True, slots=True)
class Span:
    """Which records of each partition: where they begin and end, as the options say it; times in milliseconds."""

    from_beginning: bool
    offset: int | None
    timestamp: int | None
    stop_at_end: bool
    end_offset: int | None
    end_timestamp: int | None


def _check(
    topics: tuple[str, ...],
    include: str | None,
    group_id: str | None,
    partitions: tuple[int, ...],
    properties: Mapping[str, str],
    span: Span,
) -> None:
    """Raises UsageError for options that don't go together."""
    if bool(topics) == (include is not None):
        raise click.UsageError("name one topic or several, or give --include with a regular expression")
    if sum((span.from_beginning, span.offset is not None, span.timestamp is not None)) > 1:
        raise click.UsageError("give only one of --from-beginning, --offset and --timestamp")
    if group_id == "":
        raise click.UsageError("the id of a group can't be empty: give --group a name, or leave it away")
    if group_id is not None and (partitions or span.offset is not None or span.timestamp is not None):
        raise click.UsageError(
            "a group shares out its partitions and remembers where it stands: "
            "--group goes without --partition, --offset and --timestamp; see `ottla group reset-offsets`"
        )
    if properties and group_id is None:
        raise click.UsageError("--property goes with --group: without one no librdkafka takes part")


def _matching(cluster: Cluster, pattern: str) -> list[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is no regular expression: {error}", param_hint="--include") from None
    names = [name for name, info in cluster.topics().items() if not info.is_internal and compiled.fullmatch(name)]
    if not names:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic has a name that matches {pattern!r}")
    return names


def _offset_range(
    cluster: Cluster, keys: list[Position], span: Span, isolation: str, *, in_group: bool
) -> tuple[Mapping[Position, int], Mapping[Position, int] | None]:
    """Where each partition begins, and where it ends unless it is followed. A group knows its beginning itself."""
    now = _offsets(cluster, keys, LATEST_TIMESTAMP, isolation)
    starts = now
    if span.timestamp is not None:
        starts = _from_time(cluster, keys, now, span.timestamp, isolation)
    elif span.offset is not None:
        starts = _starts_from_offset(cluster, keys, now, span.offset, isolation)
    elif span.from_beginning and not in_group:
        starts = _offsets(cluster, keys, EARLIEST_TIMESTAMP, isolation)
    limits: list[Mapping[Position, int]] = [now] if span.stop_at_end else []
    if span.end_offset is not None:
        limits.append(dict.fromkeys(keys, span.end_offset))
    if span.end_timestamp is not None:
        limits.append(_from_time(cluster, keys, now, span.end_timestamp, isolation))
    return starts, {key: min(limit[key] for limit in limits) for key in keys} if limits else None


def _from_time(
    cluster: Cluster, keys: list[Position], now: Mapping[Position, int], timestamp_ms: int, isolation: str
) -> dict[Position, int]:
    """The first offset as young as that; the end where there is none yet."""
    found = _offsets(cluster, keys, timestamp_ms, isolation)
    return {key: now[key] if found[key] == NO_OFFSET else found[key] for key in keys}


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
                f"partition {key[0]}-{key[1]} {_held(firsts[key], ends[key])}, not {offset}",
            )
    return dict.fromkeys(keys, offset)


def _held(first: int, end: int) -> str:
    """The offsets of a partition in words; `end` is the one that the next record will have."""
    if first == end:
        return f"is empty, its next offset is {end}"
    return f"has the offsets {first} to {end - 1} and goes on with {end}"
