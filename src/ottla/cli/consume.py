"""`ottla consume`: print the records of topics to standard output."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ottla.cli.command import (
    CLIENT_ID,
    Command,
    complete_group,
    complete_topic,
    connection_options,
    notify,
    open_cluster,
    partition_count,
    run_until_terminated,
    security,
    settings_option,
)
from ottla.cli.output_pipe import ended_by_reader
from ottla.cli.record_format import FIELDS, Formatter, make_batch_format, make_formatter
from ottla.cli.times import Seconds, parse_timestamp
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.librdkafka.consumer import ConsumedRecord
    from ottla.client.wire.model import CommittedOffset
    from ottla.common.platform.disk import Buffer


F = TypeVar("F", bound=Callable[..., Any])


def printing_options(function: F) -> F:
    """The options of commands that print records: how many, how long, and in which format."""
    for option in reversed(_PRINTING):
        function = option(function)
    return function


_PRINTING = (
    click.option("--max", "-n", "max_records", type=click.IntRange(min=1), help="Maximum number of records to print."),
    click.option("--timeout", type=Seconds(), help="Stop after this many seconds without a record."),
    click.option(
        "--format",
        "-f",
        "template",
        default="text",
        show_default=True,
        metavar="text|json|TEMPLATE",
        help=f"Output format. Fields of a template: {', '.join(FIELDS)}. A header with a null value is printed as its "
        "name without an equals sign.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Same as --format json."),
    click.option("--null", metavar="TEXT", default="null", show_default=True, help="Text for null keys and values."),
)


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
    "--include", metavar="REGEX", help="Existing topics to read, by a pattern of the full name; no internal topics."
)
@click.option(
    "--group", "-g", "group_id", shell_complete=complete_group, help="Consumer group to join; offsets are committed."
)
@click.option("--from-beginning", is_flag=True, help="Start at the earliest record.")
@click.option("--offset", "-o", type=int, help="Start offset; negative: relative to the end.")
@click.option(
    "--timestamp",
    "-t",
    metavar="MS|ISO",
    callback=_milliseconds,
    help="Start at the first record at or after this time.",
)
@click.option("--end-offset", type=click.IntRange(min=0), help="End offset, exclusive.")
@click.option(
    "--end-timestamp",
    metavar="MS|ISO",
    callback=_milliseconds,
    help="Stop before the first record at or after this time; if there is none, at the current end.",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Partition; may be repeated  [default: all]",
)
@click.option("--stop-at-end", "-e", is_flag=True, help="Stop at the current end of the partitions.")
@printing_options
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed skips aborted transactions and stops before open ones.",
)
@settings_option("--property", "-X", "properties", help_text="librdkafka property, for --group.")
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
    **options: Any,
) -> None:
    """Print the records of topics.

    Starts at the end of the partitions by default, and runs until Ctrl-C.

    With --group, partitions are shared with the other members of the group, and the offsets of printed records are
    committed. The command starts at the committed offsets of the group; partitions without one start at the end, or
    with --from-beginning at the earliest record. Without --group no offsets are committed.
    """
    from ottla.client.librdkafka.consumer import RecordConsumer

    span = Span(**options)
    _check(topics, include, group_id, partitions, properties, span)
    output_format = "json" if as_json else template
    on_terminal = sys.stdout.isatty()
    formatter = make_formatter(output_format, null, for_terminal=on_terminal)
    batch_format = make_batch_format(output_format, null, for_terminal=on_terminal)
    with open_cluster(bootstrap_server) as cluster:
        names = list(dict.fromkeys(topics)) if include is None else _matching(cluster, include)
        keys = [key for name in names for key in _positions(cluster, name, partitions)]
        starts, ends = _offset_range(cluster, keys, span, isolation, in_group=group_id is not None)
        if ends is None and sys.stderr.isatty():
            _notify_wait(cluster, names, starts, span, group_id)
    if ends is None and max_records is None and timeout is None:
        run_until_terminated()
    settings: dict[str, Any] = {"ends": ends, "client_id": CLIENT_ID, "isolation": isolation, "notify": notify}
    limits: dict[str, Any] = {"max_records": max_records, "idle_timeout_s": timeout}
    if group_id is None:
        with RecordConsumer(bootstrap_server, starts, security=security(), **settings) as consumer:
            if batch_format is None:
                print_texts(_formatted(consumer.batches(**limits), formatter))
            else:
                print_texts(consumer.rendered(batch_format.template_of, batch_format.null, **limits))
        return
    from ottla.client.librdkafka.group_consumer import GroupConsumer
    from ottla.client.librdkafka.message_text import make_renderer

    with GroupConsumer(
        bootstrap_server,
        group_id,
        names,
        from_beginning=span.from_beginning,
        properties={**security().library, **properties},
        **settings,
    ) as member:
        if batch_format is None:
            print_texts(_formatted(member.batches(**limits), formatter))
        else:
            print_texts(member.rendered(make_renderer(*batch_format), **limits))


def _formatted(batches: Iterable[list[ConsumedRecord]], formatter: Formatter) -> Iterator[bytes]:
    for records in batches:
        yield b"".join([formatter(record) for record in records])


def print_texts(texts: Iterable[Buffer]) -> None:
    """Write each text to standard output before the next one is requested: then its offsets may be committed."""
    output = sys.stdout.buffer
    with ended_by_reader():
        for text in texts:
            output.write(text)
            output.flush()


def _notify_wait(
    cluster: Cluster, names: list[str], ends: Mapping[TopicPartition, int], span: Span, group_id: str | None
) -> None:
    """Report that the command waits for new records, and from where; nothing if it has records to print."""
    if group_id is None:
        waits_from = _end_text(ends, span)
    else:
        waits_from = _group_end_text(cluster.groups.offsets(group_id), ends, span, group_id)
    if waits_from is not None:
        notify(f"waiting for new records of {', '.join(names)} {waits_from} (Ctrl-C ends)")


def _end_text(ends: Mapping[TopicPartition, int], span: Span) -> str | None:
    """The end at which the command starts, and how to read earlier records; None if it starts elsewhere."""
    if span.from_beginning or span.offset is not None or span.timestamp is not None:
        return None
    return f"from {_places(ends)}" + ("; --from-beginning prints earlier records, too" if any(ends.values()) else "")


def _group_end_text(
    offsets: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int], span: Span, group_id: str
) -> str | None:
    """The position of a group that has no records to read, and how to read earlier ones; None if it has some."""
    committed = {key: offsets[key].offset for key in ends if key in offsets}
    if any(offset < ends[key] for key, offset in committed.items()):
        return None
    if len(committed) < len(ends):
        hint = "" if committed else "; --from-beginning starts at the first record"
        return None if span.from_beginning else f"from {_places(ends)}{hint}"
    return (
        f"from {_places(committed)}, which group {group_id} has committed; `ottla group reset-offsets` "
        "lets it read records again"
    )


def _places(offsets: Mapping[TopicPartition, int]) -> str:
    return f"offset {next(iter(offsets.values()))}" if len(offsets) == 1 else f"the ends of {len(offsets)} partitions"


class Span(NamedTuple):
    """The selected range of each partition, from the options; times in milliseconds."""

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
    """Raises UsageError for options that exclude each other."""
    if bool(topics) == (include is not None):
        raise click.UsageError("give topics, or --include with a regular expression")
    if sum((span.from_beginning, span.offset is not None, span.timestamp is not None)) > 1:
        raise click.UsageError("give only one of --from-beginning, --offset and --timestamp")
    if group_id == "":
        raise click.UsageError("the group id is empty: give --group a name, or omit it")
    if group_id is not None and (partitions or span.offset is not None or span.timestamp is not None):
        raise click.UsageError(
            "--group assigns partitions and starts at committed offsets: "
            "omit --partition, --offset and --timestamp; see `ottla group reset-offsets`"
        )
    if properties and group_id is None:
        raise click.UsageError("--property requires --group: only group consumers use librdkafka")


def _matching(cluster: Cluster, pattern: str) -> list[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}", param_hint="--include") from None
    names = [name for name, info in cluster.topics.all().items() if not info.is_internal and compiled.fullmatch(name)]
    if not names:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic name matches {pattern!r}")
    return names


def _offset_range(
    cluster: Cluster, keys: list[TopicPartition], span: Span, isolation: str, *, in_group: bool
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int] | None]:
    """Start and end offsets of each partition; no end without an end option. A group uses its committed offsets
    instead."""
    from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    records = cluster.records
    now = records.offsets_at(keys, LATEST_TIMESTAMP, isolation=isolation)
    starts = now
    if span.timestamp is not None:
        starts = records.offsets_since(span.timestamp, now, isolation=isolation)
    elif span.offset is not None:
        starts = _starts_from_offset(cluster, keys, now, span.offset, isolation)
    elif span.from_beginning and not in_group:
        starts = records.offsets_at(keys, EARLIEST_TIMESTAMP, isolation=isolation)
    limits: list[Mapping[TopicPartition, int]] = [now] if span.stop_at_end else []
    if span.end_offset is not None:
        limits.append(dict.fromkeys(keys, span.end_offset))
    if span.end_timestamp is not None:
        limits.append(records.offsets_since(span.end_timestamp, now, isolation=isolation))
    return starts, {key: min(limit[key] for limit in limits) for key in keys} if limits else None


def _positions(cluster: Cluster, topic: str, partitions: tuple[int, ...]) -> list[TopicPartition]:
    count = partition_count(cluster, topic, partitions)
    return [(topic, partition) for partition in (dict.fromkeys(partitions) or range(count))]


def _starts_from_offset(
    cluster: Cluster, keys: list[TopicPartition], ends: Mapping[TopicPartition, int], offset: int, isolation: str
) -> dict[TopicPartition, int]:
    """Start offset of each partition. Raises KafkaError for an offset outside of a partition's log, unless it is
    relative to the end.
    """
    from ottla.client.wire.model import EARLIEST_TIMESTAMP

    firsts = cluster.records.offsets_at(keys, EARLIEST_TIMESTAMP, isolation=isolation)
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
    """The offset range of a partition as text; `end` is the next offset to be written."""
    if first == end:
        return f"is empty, and its next offset is {end}"
    return f"has offsets {first} to {end - 1}, and its next offset is {end}"
