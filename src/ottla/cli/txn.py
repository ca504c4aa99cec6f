"""`ottla txn`: list, describe, find and terminate transactions (KIP-664).

A transaction hangs in a partition if its coordinator will never complete it there: the transactional id has expired, or
its open transaction does not include the partition. A hanging transaction blocks read_committed consumers until it is
aborted. Commands that change something ask for confirmation on a terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.command import (
    BROKER_ID,
    Group,
    complete_from,
    complete_topic,
    connection_options,
    counted,
    json_option,
    notify,
    open_cluster,
    print_json,
    print_table,
)
from ottla.cli.positions import METAVAR, Selection, find_positions, parse_selection
from ottla.cli.record_format import format_time
from ottla.cli.times import parse_duration
from ottla.common.durations import duration_text
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.integers import MAX_INT, MAX_LONG, MAX_SHORT
from ottla.common.kafka.topic_partition import TopicPartition, by_topic

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ottla.client.admin.cluster import Cluster
    from ottla.client.wire.model import ProducerState, TransactionDescription

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
DEFAULT_MAX_TIMEOUT = "15m"
"""Default of `transaction.max.timeout.ms`, and of Kafka's tool."""
FIRST_COORDINATOR_EPOCH = 0
"""Coordinator epoch for a partition without an earlier marker of the producer."""


@click.group(cls=Group)
def txn() -> None:
    """Manage transactions."""


def complete_transactional_id(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Transactional ids for shell completion; empty when no broker answers in time."""
    return complete_from(
        ctx, incomplete, lambda cluster: [listing.transactional_id for listing in cluster.transactions.find()]
    )


def _milliseconds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else parse_duration(value, parameter.opts[0])


@txn.command(
    "list",
    examples=(
        "ottla txn list",
        "ottla txn list --state Ongoing --duration 10m",
        "ottla txn list --id-pattern 'billing-.*' --json",
    ),
)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="State of the transaction; may be repeated.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(0, MAX_LONG),
    multiple=True,
    help="Producer id; may be repeated.",
)
@click.option(
    "--duration",
    "min_duration_ms",
    metavar="DURATION",
    callback=_milliseconds,
    help="Minimum age of an open transaction: 90s, 1d12h, PT30M.",
)
@click.option("--id-pattern", metavar="REGEX", help="Regular expression that matches full transactional ids.")
@json_option
@connection_options
def list_transactions(as_json: bool, bootstrap_server: str, **filters: Any) -> None:
    """List transactional ids.

    For each id: producer id, state and coordinator.
    """
    from ottla.client.wire.model import TransactionFilters

    with open_cluster(bootstrap_server) as cluster:
        try:
            listings = cluster.transactions.find(TransactionFilters(**filters))
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise
            raise click.BadParameter(
                f"{filters['id_pattern']!r} is not a regular expression", param_hint="--id-pattern"
            ) from None
    columns = ("transactional_id", "coordinator", "producer_id", "state")
    rows = [(each.transactional_id, each.coordinator_id, each.producer_id, each.state) for each in listings]
    _print_rows(columns, rows, as_json, right=("coordinator", "producer_id"))


@txn.command(examples=("ottla txn describe billing-1", "ottla txn describe billing-1 billing-2 --json"))
@click.argument(
    "transactional_ids",
    metavar="TRANSACTIONAL_ID...",
    nargs=-1,
    required=True,
    shell_complete=complete_transactional_id,
)
@json_option
@connection_options
def describe(transactional_ids: tuple[str, ...], as_json: bool, bootstrap_server: str) -> None:
    """Show transactions.

    For each transactional id: state, producer, timeout and age, and the partitions of its open transaction.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = [cluster.transactions.describe(each) for each in dict.fromkeys(transactional_ids)]
    now_ms = _now_ms()
    described = [_description_json(each, now_ms) for each in found]
    if as_json:
        print_json(described)
        return
    for number, values in enumerate(described):
        if number:
            click.echo()
        print_table(("name", "value"), [(_heading(name), _text(name, values[name])) for name in values])


def _description_json(found: TransactionDescription, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_time_ms": found.start_ms,
        "duration_ms": None if found.start_ms is None else max(0, now_ms - found.start_ms),
        "partitions": by_topic(found.partitions),
    }


def _text(name: str, value: Any) -> object:
    """A JSON value as text for tables."""
    if value is None:
        return None
    if name.endswith("time_ms"):
        return format_time(value)
    if name in ("timeout_ms", "duration_ms"):
        return duration_text(value)
    if name == "partitions":
        return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in value.items()) or None
    return value


@txn.command(
    examples=("ottla txn producers clicks", "ottla txn producers clicks:0,3 --json", "ottla txn producers clicks -B 2")
)
@click.argument(
    "topics", metavar=f"{METAVAR}...", nargs=-1, required=True, shell_complete=complete_topic, callback=parse_selection
)
@click.option(
    "--broker", "-B", "broker_id", type=BROKER_ID, help="Broker id of the replica to query  [default: the leader]"
)
@json_option
@connection_options
def producers(topics: Selection, broker_id: int | None, as_json: bool, bootstrap_server: str) -> None:
    """Show the active producers of partitions.

    Idempotent and transactional producers with recent writes. A producer with a start offset has an open transaction.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.transactions.producers(find_positions(cluster, topics), broker_id)
    columns = (
        "topic",
        "partition",
        "producer_id",
        "producer_epoch",
        "coordinator_epoch",
        "last_sequence",
        "last_time_ms",
        "start_offset",
    )
    rows = [
        (
            *position,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            each.transaction_start_offset,
        )
        for position, states in found.items()
        for each in states
    ]
    _print_rows(columns, rows, as_json, right=columns[1:])


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition and that no coordinator will complete."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int | None
    last_time_ms: int
    duration_ms: int


@txn.command(
    examples=(
        "ottla txn hanging",
        "ottla txn hanging clicks --max-transaction-timeout 1h",
        "ottla txn hanging --broker 2 --json",
    )
)
@click.argument("topics", metavar=f"[{METAVAR}]...", nargs=-1, callback=parse_selection, shell_complete=complete_topic)
@click.option(
    "--broker", "-B", "broker_id", type=BROKER_ID, help="Search only partitions with a replica on this broker."
)
@click.option(
    "--max-transaction-timeout",
    "max_timeout_ms",
    metavar="DURATION",
    default=DEFAULT_MAX_TIMEOUT,
    show_default=True,
    callback=_milliseconds,
    help="transaction.max.timeout.ms of the brokers: transactions with later writes are not listed.",
)
@json_option
@connection_options
def hanging(
    broker_id: int | None, topics: Selection, max_timeout_ms: int, as_json: bool, bootstrap_server: str
) -> None:
    """List hanging transactions.

    Transactions that are open past the timeout with no coordinator left to complete them. Each one blocks
    read_committed consumers of its partition until `ottla txn abort` ends it. Searches the given topics, or all.
    """
    with open_cluster(bootstrap_server) as cluster:
        positions = _searched(cluster, topics, broker_id)
        candidates = _open_for_long(cluster.transactions.producers(positions, broker_id), max_timeout_ms, _now_ms())
        found = _unknown_to_coordinators(cluster, candidates)
    _print_rows(HangingTransaction._fields, found, as_json, right=HangingTransaction._fields[1:])
    if found and not as_json:
        first = found[0]
        notify(f"to abort one: ottla txn abort {first.topic}:{first.partition} --start-offset {first.start_offset}")


def _searched(cluster: Cluster, topics: Selection, broker_id: int | None) -> list[TopicPartition]:
    """The partitions to search; those without a leader are omitted.

    Raises OperatorError for an unknown broker: an empty result would be misleading.
    """
    if broker_id is not None and broker_id not in (each.node_id for each in cluster.describe().brokers):
        raise OperatorError(f"broker {broker_id} is not registered: `ottla cluster brokers` lists the brokers")
    infos = cluster.topics.all()
    wanted = set(find_positions(cluster, topics)) if topics else None
    return [
        (name, partition.index)
        for name, info in infos.items()
        for partition in info.partitions
        if (wanted is None or (name, partition.index) in wanted)
        and (partition.is_led if broker_id is None else broker_id in partition.replicas)
    ]


def _open_for_long(
    found: Mapping[TopicPartition, Sequence[ProducerState]], max_timeout_ms: int, now_ms: int
) -> list[HangingTransaction]:
    """Transactions with a producer that last wrote before the maximum transaction timeout."""
    return [
        HangingTransaction(
            *position,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_start_offset,
            each.last_timestamp_ms,
            now_ms - each.last_timestamp_ms,
        )
        for position, states in found.items()
        for each in states
        if each.transaction_start_offset is not None and now_ms - each.last_timestamp_ms > max_timeout_ms
    ]


def _unknown_to_coordinators(cluster: Cluster, candidates: Sequence[HangingTransaction]) -> list[HangingTransaction]:
    """Candidates with an unknown producer id, or in a partition that the transaction of their id does not include."""
    from ottla.client.wire.model import TransactionFilters

    if not candidates:
        return []
    producer_ids = tuple(sorted({each.producer_id for each in candidates}))
    known: dict[int, set[TopicPartition]] = {}
    for listing in cluster.transactions.find(TransactionFilters(producer_ids=producer_ids)):
        try:
            described = cluster.transactions.describe(listing.transactional_id)
        except KafkaError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue  # the id expired in the meantime
        known.setdefault(listing.producer_id, set()).update(described.partitions)
    return [each for each in candidates if (each.topic, each.partition) not in known.get(each.producer_id, ())]


def _one_position(ctx: click.Context, parameter: click.Parameter, value: str) -> TopicPartition:
    [(topic, partitions)] = parse_selection(ctx, parameter, [value]).items()
    if partitions is None or len(partitions) != 1:
        raise click.BadParameter(f"{value!r} is not of the form TOPIC:PARTITION", ctx, parameter)
    return topic, partitions[0]


@txn.command(
    examples=(
        "ottla txn abort clicks:0 --start-offset 1200",
        "ottla txn abort clicks:0 --producer-id 7 --producer-epoch 3 --coordinator-epoch 12",
    )
)
@click.argument("position", metavar="TOPIC:PARTITION", shell_complete=complete_topic, callback=_one_position)
@click.option(
    "--start-offset", type=click.IntRange(0, MAX_LONG), help="Start offset of the transaction in the partition."
)
@click.option(
    "--producer-id", type=click.IntRange(0, MAX_LONG), help="Producer id, instead of --start-offset; needs both epochs."
)
@click.option("--producer-epoch", type=click.IntRange(0, MAX_SHORT), help="Epoch of the producer.")
@click.option("--coordinator-epoch", type=click.IntRange(0, MAX_INT), help="Epoch of the transaction coordinator.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connection_options
def abort(
    position: TopicPartition,
    start_offset: int | None,
    yes: bool,
    as_json: bool,
    bootstrap_server: str,
    **ids: int | None,
) -> None:
    """Abort a hanging transaction.

    Writes an abort marker to one partition, bypassing the coordinator. Use it only for transactions that
    `ottla txn hanging` lists: aborting an active transaction this way breaks its atomicity.
    """
    given = [value for value in ids.values() if value is not None]
    if (start_offset is None) == (not given) or (given and len(given) < len(ids)):
        raise click.UsageError("give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    where = f"{position[0]}-{position[1]}"
    with open_cluster(bootstrap_server) as cluster:
        marker = {name: value for name, value in ids.items() if value is not None}
        if start_offset is not None:
            marker = _marker_of(cluster, position, start_offset)
        if not yes and sys.stdin.isatty():
            click.confirm(f"Abort the transaction of producer {marker['producer_id']} in {where}?", abort=True)
        cluster.transactions.abort(position, **marker)
    if as_json:
        print_json({"topic": position[0], "partition": position[1], "start_offset": start_offset, **marker})
        return
    click.echo(f"Aborted the transaction of producer {marker['producer_id']} in {where}.")


def _marker_of(cluster: Cluster, position: TopicPartition, start_offset: int) -> dict[str, int]:
    """Ids and epochs of the abort marker for the transaction that starts at `start_offset`. Raises OperatorError."""
    for each in cluster.transactions.producers([position])[position]:
        if each.transaction_start_offset == start_offset:
            epoch = FIRST_COORDINATOR_EPOCH if each.coordinator_epoch is None else each.coordinator_epoch
            return {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "coordinator_epoch": epoch,
            }
    raise OperatorError(
        f"no open transaction of {position[0]}-{position[1]} starts at offset {start_offset}; "
        f"see `ottla txn producers {position[0]}:{position[1]}`"
    )


@txn.command(examples=("ottla txn terminate billing-1", "ottla txn terminate billing-1 billing-2 --yes"))
@click.argument(
    "transactional_ids",
    metavar="TRANSACTIONAL_ID...",
    nargs=-1,
    required=True,
    shell_complete=complete_transactional_id,
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connection_options
def terminate(transactional_ids: tuple[str, ...], yes: bool, as_json: bool, bootstrap_server: str) -> None:
    """Terminate transactions and fence producers.

    The coordinator aborts the open transaction of each transactional id and fences its producers. An active producer
    fails at its next request.
    """
    wanted = list(dict.fromkeys(transactional_ids))
    if not yes and sys.stdin.isatty():
        click.confirm(f"Fence every producer of {', '.join(wanted)}?", abort=True)
    rows = []
    with open_cluster(bootstrap_server) as cluster:
        described = [
            cluster.transactions.describe(each) for each in wanted
        ]  # first: terminating an unknown id would create it
        for before in described:
            cluster.transactions.terminate(before.transactional_id, before.timeout_ms)
            rows.append({"transactional_id": before.transactional_id, "state_before": before.state})
            if not as_json:
                was_open = f" and aborted {counted(len(before.partitions), 'partition')}" if before.partitions else ""
                click.echo(f"Fenced the producers of {before.transactional_id}{was_open}; it was {before.state}.")
    if as_json:
        print_json(rows)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _heading(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], as_json: bool, *, right: Sequence[str]) -> None:
    """Print rows as JSON with the column names, or as a table with readable times and durations."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    headings = {column: _heading(column) for column in columns}
    readable = {
        "last_time_ms": lambda value: None if value < 0 else format_time(value),
        "duration_ms": duration_text,
    }
    print_table(
        tuple(headings.values()),
        [
            tuple(
                readable[name](value) if name in readable else value for name, value in zip(columns, row, strict=True)
            )
            for row in rows
        ],
        right=tuple(headings[column] for column in right),
    )
