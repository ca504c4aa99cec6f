"""`ottla produce`: send lines of standard input or a file to a topic, optionally in transactions.

A line is one record: a value, or a key and a value with `--key-separator`. Delivery, idempotence and fencing are in
`client.librdkafka`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import BufferedReader
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import click

from ottla.cli.command import (
    CLIENT_ID,
    Command,
    complete_topic,
    connection_options,
    counted,
    notify,
    open_cluster,
    partition_count,
    security,
    settings_option,
    size_text,
)
from ottla.cli.lines import LineReader
from ottla.cli.record_format import unescape
from ottla.cli.times import Seconds
from ottla.common.errors import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.librdkafka.producer import RecordProducer
    from ottla.client.librdkafka.transactional_producer import TransactionalProducer

UNASSIGNED = -1
"""Partition of a record for which no partition was chosen."""
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PROGRESS_INTERVAL_RECORDS = 1000
MIN_RATED_RECORDS = 1000
"""Least records for a rate in the summary: below, the time is dominated by the connection or by typing."""
INTERRUPTED_FLUSH_S = 5.0
"""Longest wait after Ctrl-C for records that were already read."""


class Progress(Protocol):
    """Callback for the number of bytes read so far."""

    def __call__(self, read_bytes: int) -> None: ...


def _parse_headers(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Headers in order, with repetitions. Raises UnicodeEncodeError for invalid UTF-8."""
    headers = []
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE", ctx, parameter)
        if "\0" in name:
            raise click.BadParameter(f"the name {name!r} contains a NUL character: remove it", ctx, parameter)
        name.encode()
        headers.append((name, text.encode()))
    return headers


@click.command(
    cls=Command,
    examples=(
        "ottla produce clicks                                    # type one record per line; end with Ctrl-D",
        "ottla produce clicks --file access.log --compression zstd",
        "ottla produce users --key-separator : --null NULL       # user1:NULL deletes user1 in a compacted topic",
        "ottla produce clicks --header source=web --partition 0 < lines.txt",
        "ottla produce clicks --transactional-id loader --file access.log             # all or nothing",
        "ottla produce clicks --transactional-id loader --batch 1000 --file access.log",
    ),
)
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--file",
    "-f",
    "path",
    type=click.Path(exists=True, dir_okay=False),
    help="Input file  [default: standard input]",
)
@click.option(
    "--key-separator", "-k", metavar="TEXT", help=r"Separator between key and value of a line (\t for a tab)."
)
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parse_headers,
    help="Header of every record; may be repeated, also with the same name.",
)
@click.option("--null", metavar="TEXT", help="Text of keys and values that are null.")
@click.option(
    "--compression", "-z", type=click.Choice(CODECS), default="none", show_default=True, help="Compression codec."
)
@click.option("--partition", "-p", type=click.IntRange(min=0), help="Partition of all records  [default: by key]")
@click.option(
    "--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True, help="Required acknowledgements."
)
@click.option(
    "--timeout", type=Seconds(), default=30.0, show_default=True, help="Delivery timeout of a record in seconds."
)
@click.option("--transactional-id", metavar="ID", help="Transactional id; the input is one transaction.")
@click.option(
    "--batch", type=click.IntRange(min=1), metavar="N", help="Number of records per transaction  [default: all]"
)
@settings_option("--property", "-X", "properties", help_text="librdkafka property, such as linger.ms=50.")
@click.option("--quiet", "-q", is_flag=True, help="Disable the progress bar and the summary.")
@connection_options
def produce(
    topic: str,
    path: str | None,
    key_separator: str | None,
    headers: list[tuple[str, bytes]],
    null: str | None,
    compression: str,
    partition: int | None,
    acks: str,
    timeout: float,
    transactional_id: str | None,
    batch: int | None,
    properties: Mapping[str, str],
    quiet: bool,
    bootstrap_server: str,
) -> None:
    r"""Produce lines as records.

    Each line is one record, without its terminator (\n or \r\n). A summary is printed to standard error. With acks=all
    (the default) the producer is idempotent: retries neither lose nor duplicate records.

    With --transactional-id, read_committed consumers see all of the input at its end, or nothing: an error or Ctrl-C
    aborts the transaction. With --batch, earlier transactions stay committed, and their number of records is reported.
    A transaction may be open for 60 s (-X transaction.timeout.ms=). Another producer with the same transactional id is
    fenced.
    """
    from ottla.client.librdkafka.producer import RecordProducer
    from ottla.client.librdkafka.transactional_producer import TransactionalProducer

    _check_transaction(transactional_id, batch, acks)
    separator = None if key_separator is None else unescape(key_separator).encode()
    if separator == b"":
        raise click.BadParameter("the separator is empty", param_hint="--key-separator")
    _require_partition(bootstrap_server, topic, partition)
    settings: dict[str, Any] = {
        "client_id": CLIENT_ID,
        "compression": compression,
        "delivery_timeout_s": timeout,
        "properties": {**security().library, **properties},
        "notify": notify,
    }
    producer: RecordProducer
    ending: AbstractContextManager[None]
    if transactional_id is None:
        producer = RecordProducer(bootstrap_server, acks=acks, **settings)
        ending, commit = _delivered(producer, bootstrap_server, acks), None
    else:
        producer = TransactionalProducer(bootstrap_server, transactional_id, **settings)
        ending, commit = _committed(producer), producer.commit
    details = {"headers": headers, "partition": partition}
    null_bytes = None if null is None else null.encode()
    started = time.monotonic()
    with ExitStack() as stack:
        stream = cast(BufferedReader, sys.stdin.buffer) if path is None else stack.enter_context(open(path, "rb"))
        lines = LineReader(stream, producer.poll)
        progress = stack.enter_context(_progress(path, quiet))
        stack.enter_context(ending)
        number = 0
        for part in _parts(lines.blocks(), batch):
            _send_lines(producer, number, part, topic, separator, null_bytes, details)
            before, number = number, number + len(part)
            if commit is not None and batch is not None and number % batch == 0:
                commit()
            if number // PROGRESS_INTERVAL_RECORDS > before // PROGRESS_INTERVAL_RECORDS:
                progress(lines.read_bytes)
                if producer.first_failure is not None:
                    raise producer.first_failure
        progress(lines.read_bytes)
    if not quiet:
        _print_summary(topic, producer, lines.read_bytes, time.monotonic() - started)


def _require_partition(bootstrap_server: str, topic: str, partition: int | None) -> None:
    """Check that a broker answers and that `partition` exists. Brokers may auto-create a missing topic."""
    from ottla.client.wire.failure import TopicNotFound

    with open_cluster(bootstrap_server) as cluster:
        cluster.describe()
        if partition is None:
            try:
                cluster.topics.get(topic)
            except TopicNotFound as error:
                if error.hint:
                    notify(error.message)
            except KafkaError:
                pass  # the producer reports it
        else:
            partition_count(cluster, topic, [partition])


def _check_transaction(transactional_id: str | None, batch: int | None, acks: str) -> None:
    """Raises UsageError for options that exclude or require each other."""
    if transactional_id is None:
        if batch is not None:
            raise click.UsageError("--batch requires --transactional-id")
    elif not transactional_id:
        raise click.UsageError("the transactional id is empty")
    elif acks != "all":
        raise click.UsageError("--transactional-id requires --acks all")


@contextmanager
def _delivered(producer: RecordProducer, bootstrap_server: str, acks: str) -> Iterator[None]:
    """Flush the producer after the block. Raises KafkaError if a record was not delivered.

    Failures are counted after the flush, because queued records may fail too. The message names the first line that is
    not stored, so that the rest of the input can be sent again.
    """
    complete = False
    try:
        yield
        producer.flush()
        complete = True
    except KeyboardInterrupt:
        producer.flush(INTERRUPTED_FLUSH_S)
        raise
    except KafkaError as error:
        producer.flush()
        if producer.first_failure is None:
            raise
        if error is not producer.first_failure:
            notify(error.message)
    if producer.first_failure is not None:
        raise _undelivered(producer, producer.first_failure, bootstrap_server, acks, complete=complete)


def _undelivered(
    producer: RecordProducer, failure: KafkaError, bootstrap_server: str, acks: str, *, complete: bool
) -> KafkaError:
    """The error for records that were not delivered; without `complete`, later lines were not sent."""
    failed, count = producer.first_failed, producer.failed_count
    text = f"{count:,} of {counted(producer.sent_count, 'record')} {'was' if count == 1 else 'were'} not delivered"
    text, first = f"{text}: {failure.message}", ""
    if failed is not None:
        first = f"; the first is line {failed.number + 1:,}"
        reason = _broker_reason(bootstrap_server, failed.topic, failed.partition, acks) if failed.timed_out else None
        text += f" ({reason})" if reason is not None else ""
    if not complete:
        first += f"; line {producer.sent_count + 1:,} and later were not sent"
    return KafkaError(failure.code, text + first)


def _broker_reason(bootstrap_server: str, topic: str, partition: int, acks: str) -> str | None:
    """The reason why brokers take no records of a partition (-1: any); None if there is none.

    librdkafka retries errors and reports the timeout only, so that the state of brokers is read here.
    """
    from ottla.client.wire.model import ResourceType

    try:
        with open_cluster(bootstrap_server) as cluster:
            partitions = cluster.topics.get(topic).partitions
            (entry,) = cluster.configs.describe(ResourceType.TOPIC, topic, ["min.insync.replicas"])
            full = _full_directories(cluster)
    except (OttlaError, ValueError):
        return None
    minimum = int(entry.value or 1)
    for each in partitions:
        if partition in (UNASSIGNED, each.index):
            if not each.is_led:
                return f"{topic}-{each.index} has no leader: see `ottla cluster describe --problems`"
            if acks == "all" and len(each.isr) < min(minimum, len(each.replicas)):
                return (
                    f"NOT_ENOUGH_REPLICAS: {topic}-{each.index} has {counted(len(each.isr), 'in-sync replica')}, and "
                    f"min.insync.replicas is {minimum}"
                )
            path = full.get((each.leader, topic, each.index))
            if path is not None:
                return (
                    f"KAFKA_STORAGE_ERROR: directory {path} of broker {each.leader}, the leader of "
                    f"{topic}-{each.index}, is full: free space there"
                )
    return None


def _full_directories(cluster: Cluster) -> dict[tuple[int, str, int], str]:
    """Paths of full directories by broker and the partitions in them; empty if DESCRIBE of the cluster is denied."""
    try:
        directories = cluster.log_directories.all()
    except OttlaError:
        return {}
    return {(each.node_id, *position): each.path for each in directories if each.is_full for position in each.sizes}


@contextmanager
def _committed(producer: TransactionalProducer) -> Iterator[None]:
    """Commit the open transaction after the block; on failure, abort it and report how many records are committed."""
    try:
        yield
        producer.commit()
    except KafkaError as error:
        producer.end(INTERRUPTED_FLUSH_S)
        raise KafkaError(error.code, f"{error.message}; {_standing(producer)}") from error
    except BaseException:
        producer.end(INTERRUPTED_FLUSH_S)
        notify(_standing(producer))
        raise


def _standing(producer: TransactionalProducer) -> str:
    """Committed and uncommitted records after the end, as text."""
    rest = ""
    if producer.open_count:
        if producer.committing:
            rest = f", the outcome of the last {producer.open_count:,} is unknown"
        else:
            rest = f", the last {producer.open_count:,} are not"
    count = producer.committed_count
    return f"{counted(count, 'record')} {'is' if count == 1 else 'are'} committed{rest}"


def _parts(blocks: Iterable[list[bytes]], batch: int | None) -> Iterator[list[bytes]]:
    """The blocks of lines, divided so that each transaction of `batch` lines ends with one."""
    left = batch
    for lines in blocks:
        while left is not None and len(lines) >= left:
            yield lines[:left]
            lines = lines[left:]
            left = batch
        if lines:
            yield lines
            left = None if left is None else left - len(lines)


class _Records(NamedTuple):
    """Keys and values of lines."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    is_keyless: bool
    """True if a line without a key follows."""


def _split(lines: Sequence[bytes], separator: bytes | None, null: bytes | None) -> _Records:
    """Keys and values of the lines before the first one without a key."""
    keys: list[bytes | None] | None = None
    values: list[bytes | None] = [*lines]
    is_keyless = False
    if separator is not None:
        parts = [line.partition(separator) for line in lines]
        count = next((number for number, part in enumerate(parts) if not part[1]), len(parts))
        is_keyless = count < len(parts)
        keys = [part[0] for part in parts[:count]]
        values = [part[2] for part in parts[:count]]
    if null is not None:
        keys = None if keys is None else [None if key == null else key for key in keys]
        values = [None if value == null else value for value in values]
    return _Records(values, keys, is_keyless)


def _send_lines(
    producer: RecordProducer,
    number: int,
    lines: Sequence[bytes],
    topic: str,
    separator: bytes | None,
    null: bytes | None,
    details: Mapping[str, Any],
) -> None:
    """Send lines, of which `number` others were sent before.

    Raises KafkaError with the number of a line that cannot be sent, INVALID_RECORD for one without a key.
    """
    from ottla.client.librdkafka.transactional_producer import ProducerFenced

    records = _split(lines, separator, null)
    sent_before = producer.sent_count
    try:
        producer.send_all(topic, records.values, records.keys, **details)
    except ProducerFenced:
        raise
    except KafkaError as error:
        way_out = "; see -X message.max.bytes=" if error.code == ErrorCode.MESSAGE_TOO_LARGE else ""
        refused = number + 1 + min(producer.sent_count - sent_before, len(records.values) - 1)
        raise KafkaError(error.code, f"line {refused} can't be sent: {error.message.lower()}{way_out}") from error
    if records.is_keyless and separator is not None:
        keyless = number + 1 + len(records.values)
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"line {keyless} has no key: {separator.decode()!r} not found; correct the line, or omit --key-separator",
        )


@contextmanager
def _progress(path: str | None, quiet: bool) -> Iterator[Progress]:
    """A progress bar on a terminal; nothing for interactive input, or if standard error is not a terminal."""
    if quiet or not sys.stderr.isatty() or (path is None and sys.stdin.isatty()):
        yield lambda read_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(file=sys.__stderr__), transient=True) as bar:
        task = bar.add_task("producing", total=None if path is None else os.path.getsize(path))
        yield lambda read_bytes: bar.update(task, completed=read_bytes)


def _print_summary(topic: str, producer: RecordProducer, read_bytes: int, elapsed_s: float) -> None:
    from ottla.client.librdkafka.transactional_producer import TransactionalProducer

    count = producer.sent_count
    text = f"Produced {counted(count, 'record')} ({size_text(read_bytes)}) to {topic} in {elapsed_s:.1f} s"
    if isinstance(producer, TransactionalProducer):
        text += f" and {counted(producer.transaction_count, 'transaction')}"
    if count >= MIN_RATED_RECORDS and elapsed_s > 0:
        text += f", {count / elapsed_s:,.0f} records/s"
    click.echo(f"{text}.", err=True)
