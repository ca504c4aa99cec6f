"""The commands `reset-offsets` of groups: options, offset planning within the logs, and the dry run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ottla.cli.command import complete_topic, print_json, print_table
from ottla.cli.positions import METAVAR, Selection, find_positions, parse_selection
from ottla.cli.times import parse_duration, parse_timestamp
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster

F = TypeVar("F", bound=Callable[..., Any])


class Target(NamedTuple):
    """The target of a reset: the option name without dashes, and its number (1 for a flag)."""

    kind: str
    value: int


class OffsetReset:
    """Plans offsets; `committed` are the committed offsets of the group."""

    def __init__(self, cluster: Cluster, committed: Mapping[TopicPartition, int]) -> None:
        self._records = cluster.records
        self._committed = committed

    def plan(self, positions: Sequence[TopicPartition], target: Target) -> dict[TopicPartition, int]:
        """The new offset of each position, within its log. Raises KafkaError for a shift without a committed offset."""
        from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

        firsts = self._records.offsets_at(positions, EARLIEST_TIMESTAMP)
        ends = self._records.offsets_at(positions, LATEST_TIMESTAMP)
        aims = self._aims(positions, target, firsts, ends)
        return {key: max(firsts[key], min(ends[key], aims[key])) for key in positions}

    def _aims(
        self,
        positions: Sequence[TopicPartition],
        target: Target,
        firsts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, int]:
        match target.kind:
            case "to_earliest":
                return firsts
            case "to_latest":
                return ends
            case "to_current":
                return {key: self._committed.get(key, ends[key]) for key in positions}
            case "to_offset":
                return dict.fromkeys(positions, target.value)
            case "to_datetime":
                return self._records.offsets_since(target.value, ends)
            case "by_duration":
                return self._records.offsets_since(max(0, int(time.time() * 1000) - target.value), ends)
            case _:
                return {key: self._current(key) + target.value for key in positions}

    def _current(self, key: TopicPartition) -> int:
        if key not in self._committed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"--shift-by needs a committed offset, and {key[0]}-{key[1]} has none"
            )
        return self._committed[key]


def reset_options(described: str) -> Callable[[F], F]:
    """Topics or `--all-topics`, the options of a target, and `--execute`; all topics are those with `described`."""

    def add(function: F) -> F:
        for option in reversed(_OPTIONS):
            function = option(function)
        function = click.option("--all-topics", is_flag=True, help=f"All partitions with {described}.")(function)
        return click.argument(
            "topics", metavar=f"[{METAVAR}]...", nargs=-1, callback=parse_selection, shell_complete=complete_topic
        )(function)

    return add


_OPTIONS = (
    click.option("--to-earliest", is_flag=True, help="Reset to the log start offset."),
    click.option("--to-latest", is_flag=True, help="Reset to the log end."),
    click.option("--to-current", is_flag=True, help="Keep committed offsets; the log end where there is none."),
    click.option("--to-offset", type=click.IntRange(min=0), help="Reset to this offset."),
    click.option(
        "--to-datetime", metavar="MS|ISO", help="Reset to the first record at or after this time; UTC without a zone."
    ),
    click.option(
        "--by-duration",
        metavar="DURATION",
        help="Reset to the first record of this age or younger: 90s, 1d12h, PT30M.",
    ),
    click.option("--shift-by", type=int, help="Number of offsets to move forward, or back if negative."),
    click.option("--execute", is_flag=True, help="Apply the change; the default is a dry run."),
)


def parse_target(targets: Mapping[str, Any], topics: Selection, *, all_topics: bool) -> Target:
    """The target from the options, of which one must be given. Raises click.UsageError, also without topics."""
    if bool(topics) == all_topics:
        raise click.UsageError("give topics, or --all-topics")
    given = [(name, value) for name, value in targets.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join("--" + name.replace("_", "-") for name in targets)
        raise click.UsageError(f"give exactly one of {names}")
    [(name, value)] = given
    if name == "to_datetime":
        value = parse_timestamp(value, "--to-datetime")
    elif name == "by_duration":
        value = parse_duration(value)
    return Target(name, int(value))


class PlannedReset(NamedTuple):
    """The offsets of a reset before and after it."""

    committed: Mapping[TopicPartition, int]
    planned: Mapping[TopicPartition, int]

    def print(self, *, executed: bool, as_json: bool) -> None:
        """Print the offsets as a table or as JSON, and that a dry run changed nothing."""
        columns = ("topic", "partition", "from", "to")
        rows = [(*key, self.committed.get(key), offset) for key, offset in self.planned.items()]
        if as_json:
            print_json({"executed": executed, "offsets": [dict(zip(columns, row, strict=True)) for row in rows]})
            return
        print_table(columns, rows, right=columns[1:])
        if not executed:
            click.echo("Dry run: use --execute to apply the change.", err=True)


def plan_reset(
    cluster: Cluster, committed: Mapping[TopicPartition, int], topics: Selection, target: Target
) -> PlannedReset:
    """Plan a reset of the selected partitions; without topics, of those with a committed offset. Raises KafkaError."""
    positions = find_positions(cluster, topics) if topics else sorted(committed)
    planned = OffsetReset(cluster, committed).plan(positions, target)
    return PlannedReset(committed, {key: planned[key] for key in positions})
