"""`ottla txn`: list, describe, find and end transactions, as KIP-664 has it.

A transaction hangs in a partition when its coordinator will never end it there: nobody has the transactional id any
more, or its open transaction does not know of the partition. Until it is aborted, readers of committed records stop
before it. Commands that change something ask first on a terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from ottla.cli.command import (
    BROKER_ID,
    Group,
    complete_from,
    complete_topic,
    connection_options,
    counted,
    json_option,
    open_cluster,
    print_json,
    print_table,
    tell,
)
from ottla.cli.positions import METAVAR, Selection, find_positions, parse_selection
from ottla.cli.record_format import format_time
from ottla.cli.times import duration_text, parse_duration
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import (
    Position,
    ProducerState,
    TransactionDescription,
    TransactionFilters,
)
from ottla.common.config.config_def import MAX_INT, MAX_LONG, MAX_SHORT
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.topic_partition import by_topic

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
DEFAULT_MAX_TIMEOUT = "15m"
"""The default of the brokers' `transaction.max.timeout.ms`, and of Apache Kafka's tool."""
FIRST_COORDINATOR_EPOCH = 0
"""Of a marker in a partition that has not seen one of the producer yet."""


@click.group(cls=Group)
def txn() -> None:
    """List, describe and abort transactions, and find those that hang."""


def complete_transactional_id(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Transactional ids for the shell; nothing when no broker answers at once."""
    return complete_from(
        ctx, incomplete, lambda cluster: [listing.transactional_id for listing in cluster.transactions()]
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
@click.option("--state", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only these.")
@click.option("--producer-id", "producer_ids", type=click.IntRange(0, MAX_LONG), multiple=True, help="Only these.")
@click.option(
    "--duration",
    "min_duration_ms",
    metavar="DURATION",
    callback=_milliseconds,
    help="Only transactions that have been open for longer: 90s, 1d12h, PT30M.",
)
@click.option("--id-pattern", metavar="REGEX", help="Only transactional ids that match as a whole.")
@json_option
@connection_options
def list_transactions(as_json: bool, bootstrap_server: str, **filters: Any) -> None:
    """List the transactional ids of the cluster, with their state and the broker that coordinates each."""
    with open_cluster(bootstrap_server) as cluster:
        try:
            listings = cluster.transactions(TransactionFilters(**filters))
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise
            raise click.BadParameter(
                f"{filters['id_pattern']!r} is no regular expression", param_hint="--id-pattern"
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
    """Show state, producer, timeout and age of transactional ids, and the partitions of their open transactions."""
    with open_cluster(bootstrap_server) as cluster:
        found = [cluster.describe_transaction(each) for each in dict.fromkeys(transactional_ids)]
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
    """A value of the JSON as a person reads it."""
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
@click.option("--broker", "-B", "broker_id", type=BROKER_ID, help="What this replica knows; not the leader.")
@json_option
@connection_options
def producers(topics: Selection, broker_id: int | None, as_json: bool, bootstrap_server: str) -> None:
    """Show the producers that partitions know: idempotent and transactional ones that wrote lately.

    One with a start offset has a transaction open there.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.producers(find_positions(cluster, topics), broker_id)
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


class Hanging(NamedTuple):
    """An open transaction in one partition that nobody will end."""

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
        "ottla txn hanging --topic clicks --max-transaction-timeout 1h",
        "ottla txn hanging --broker 2 --json",
    )
)
@click.option("--broker", "-B", "broker_id", type=BROKER_ID, help="Only partitions with a replica there.")
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    metavar=METAVAR,
    shell_complete=complete_topic,
    callback=parse_selection,
    help="Only this topic, or some of its partitions; may be repeated.",
)
@click.option(
    "--max-transaction-timeout",
    "max_timeout_ms",
    metavar="DURATION",
    default=DEFAULT_MAX_TIMEOUT,
    show_default=True,
    callback=_milliseconds,
    help="The brokers' transaction.max.timeout.ms: what wrote later than that may still end by itself.",
)
@json_option
@connection_options
def hanging(
    broker_id: int | None, topics: Selection, max_timeout_ms: int, as_json: bool, bootstrap_server: str
) -> None:
    """Find transactions that hang: open in a partition, for too long, and no coordinator is going to end them there.

    Each holds back the readers of committed records in its partition until `ottla txn abort` ends it.
    """
    with open_cluster(bootstrap_server) as cluster:
        positions = _searched(cluster, topics, broker_id)
        candidates = _open_for_long(cluster.producers(positions, broker_id), max_timeout_ms, _now_ms())
        found = _unknown_to_coordinators(cluster, candidates)
    _print_rows(Hanging._fields, found, as_json, right=Hanging._fields[1:])
    if found and not as_json:
        first = found[0]
        tell(f"to end one: ottla txn abort {first.topic}:{first.partition} --start-offset {first.start_offset}")


def _searched(cluster: Cluster, topics: Selection, broker_id: int | None) -> list[Position]:
    """The partitions that are asked for; those without a leader have nobody to ask.

    Raises OperatorError for a broker that is not there: nothing that hangs on it would be a good answer.
    """
    if broker_id is not None and broker_id not in (each.node_id for each in cluster.describe().brokers):
        raise OperatorError(f"broker {broker_id} is not there: `ottla cluster brokers` lists those that are")
    infos = cluster.topics()
    wanted = set(find_positions(cluster, topics)) if topics else None
    return [
        (name, partition.index)
        for name, info in infos.items()
        for partition in info.partitions
        if (wanted is None or (name, partition.index) in wanted)
        and (partition.is_led if broker_id is None else broker_id in partition.replicas)
    ]


def _open_for_long(
    found: Mapping[Position, Sequence[ProducerState]], max_timeout_ms: int, now_ms: int
) -> list[Hanging]:
    """Transactions whose producer has not written for longer than any transaction may take."""
    return [
        Hanging(
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


def _unknown_to_coordinators(cluster: Cluster, candidates: Sequence[Hanging]) -> list[Hanging]:
    """Those whose producer id no transactional id has, or that the transaction of its transactional id leaves out."""
    if not candidates:
        return []
    producer_ids = tuple(sorted({each.producer_id for each in candidates}))
    known: dict[int, set[Position]] = {}
    for listing in cluster.transactions(TransactionFilters(producer_ids=producer_ids)):
        try:
            described = cluster.describe_transaction(listing.transactional_id)
        except KafkaError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue  # it expired meanwhile
        known.setdefault(listing.producer_id, set()).update(described.partitions)
    return [each for each in candidates if (each.topic, each.partition) not in known.get(each.producer_id, ())]


def _one_position(ctx: click.Context, parameter: click.Parameter, value: str) -> Position:
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
@click.option("--start-offset", type=click.IntRange(0, MAX_LONG), help="Where the transaction begins in the partition.")
@click.option("--producer-id", type=click.IntRange(0, MAX_LONG), help="Instead of a start offset, with both epochs.")
@click.option("--producer-epoch", type=click.IntRange(0, MAX_SHORT))
@click.option("--coordinator-epoch", type=click.IntRange(0, MAX_INT))
@click.option("--yes", "-y", is_flag=True, help="Don't ask on a terminal.")
@json_option
@connection_options
def abort(
    position: Position,
    start_offset: int | None,
    yes: bool,
    as_json: bool,
    bootstrap_server: str,
    **ids: int | None,
) -> None:
    """Abort a transaction that hangs in one partition, by a marker that goes past its coordinator.

    Only for what `ottla txn hanging` finds: an abort of a transaction that lives would tear it apart.
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
        cluster.abort_transaction(position, **marker)
    if as_json:
        print_json({"topic": position[0], "partition": position[1], "start_offset": start_offset, **marker})
        return
    click.echo(f"Aborted the transaction of producer {marker['producer_id']} in {where}.")


def _marker_of(cluster: Cluster, position: Position, start_offset: int) -> dict[str, int]:
    """Ids and epochs of the abort marker for the transaction that begins there."""
    for each in cluster.producers([position])[position]:
        if each.transaction_start_offset == start_offset:
            epoch = FIRST_COORDINATOR_EPOCH if each.coordinator_epoch is None else each.coordinator_epoch
            return {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "coordinator_epoch": epoch,
            }
    raise OperatorError(
        f"no transaction that is open in {position[0]}-{position[1]} begins at offset {start_offset}; "
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
@click.option("--yes", "-y", is_flag=True, help="Don't ask on a terminal.")
@json_option
@connection_options
def terminate(transactional_ids: tuple[str, ...], yes: bool, as_json: bool, bootstrap_server: str) -> None:
    """Abort what transactional ids have open, by their coordinator, and fence the producers that use them.

    A producer that lives ends with an error at its next call.
    """
    wanted = list(dict.fromkeys(transactional_ids))
    if not yes and sys.stdin.isatty():
        click.confirm(f"Fence every producer of {', '.join(wanted)}?", abort=True)
    rows = []
    with open_cluster(bootstrap_server) as cluster:
        described = [cluster.describe_transaction(each) for each in wanted]  # or a wrong name would come into being
        for before in described:
            cluster.terminate_transaction(before.transactional_id, before.timeout_ms)
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
    """Rows as JSON by the columns' names, or as a table with times and spans as a person reads them."""
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
