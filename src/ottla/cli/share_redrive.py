"""`ottla share redrive`: produce the records of dead letters again, each of them once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ottla.cli.command import (
    CLIENT_ID,
    complete_topic,
    connection_options,
    counted,
    json_option,
    notify,
    open_cluster,
    print_json,
    print_table,
    security,
)
from ottla.cli.progress import count_progress
from ottla.common.errors import KafkaError

if TYPE_CHECKING:
    from ottla.client.librdkafka.redrive import RedriveCounts
    from ottla.client.librdkafka.transactional_producer import TransactionalProducer

SOURCE = "source"
INTERRUPTED_ABORT_S = 5.0
COLUMNS = ("group", "topic", "reason", "redrivable", "not_redrivable")


@click.option(
    "--dlq", "topic", metavar="TOPIC", required=True, shell_complete=complete_topic, help="Dead-letter topic."
)
@click.option("--group", "-g", "group", help="Dead letters of this share group only.")
@click.option(
    "--to",
    "target",
    metavar="source|TOPIC",
    default=SOURCE,
    show_default=True,
    shell_complete=complete_topic,
    help="Topic to produce to; source is the topic and partition of each failed record.",
)
@click.option("--rate", type=click.IntRange(min=1), help="Maximum of dead letters per second.")
@click.option("--dry-run", is_flag=True, help="Count the dead letters and produce nothing.")
@json_option
@connection_options
def redrive(
    topic: str, group: str | None, target: str, rate: int | None, dry_run: bool, as_json: bool, bootstrap_server: str
) -> None:
    """Produce the records of dead letters again.

    The record is read from its topic, or is the copy in the dead letter if it was deleted. A dead letter without copy
    is counted as not redrivable. All dead letters stay in their topic.

    Each dead letter is redriven once: read_committed consumers see no record twice, also if the command is interrupted
    and repeated. The position is stored as offsets of the group ottla-redrive-TOPIC. It is forgotten like all offsets
    after offsets.retention.minutes.
    """
    from ottla.client.librdkafka.consumer import RecordConsumer
    from ottla.client.librdkafka.redrive import Redrive, RedriveOffsets, redrive_id
    from ottla.client.librdkafka.transactional_producer import TransactionalProducer

    other = None if target == SOURCE else target
    if other == topic:
        raise click.BadParameter("the records would become dead letters again", param_hint="--to")
    with open_cluster(bootstrap_server) as cluster:
        for name in (topic,) if other is None else (topic, other):
            cluster.topics.get(name)
        producer = None
        if not dry_run:  # before the offsets are read: it ends the transaction of an interrupted redrive
            producer = TransactionalProducer(
                bootstrap_server,
                redrive_id(topic),
                client_id=CLIENT_ID,
                properties=security().library,
                notify=notify,
            )
        offsets = RedriveOffsets(cluster, topic, group)
        running = Redrive(cluster, topic, offsets, group=group, target=other, producer=producer)
        with (
            RecordConsumer(
                bootstrap_server,
                offsets.starts,
                ends=offsets.ends,
                client_id=CLIENT_ID,
                notify=notify,
                security=security(),
            ) as consumer,
            count_progress("redriving", "records", offsets.record_count) as progress,
            _aborted(producer, running.counts),
        ):
            running.run(consumer.batches(), rate, progress)
    _print(running.counts, executed=not dry_run, as_json=as_json)


@contextmanager
def _aborted(producer: TransactionalProducer | None, counts: RedriveCounts) -> Iterator[None]:
    """After an error or Ctrl-C, abort the open transaction and report how many dead letters are redriven."""
    try:
        yield
    except BaseException as error:
        if producer is None:
            raise
        producer.end(INTERRUPTED_ABORT_S)
        redriven = f"{counted(counts.redriven, 'dead letter')} redriven; repeat the command to continue"
        if isinstance(error, KafkaError):
            raise KafkaError(error.code, f"{error.message}; {redriven}") from error
        notify(redriven)
        raise


def _print(counts: RedriveCounts, *, executed: bool, as_json: bool) -> None:
    rows = [(*key, each.redrivable, each.not_redrivable) for key, each in sorted(counts.letters.items())]
    if as_json:
        letters = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        print_json({"executed": executed, "dead_letters": letters, "other_records": counts.other_records})
        return
    if rows:
        print_table(tuple(name.replace("_", " ") for name in COLUMNS), rows, right=("redrivable", "not redrivable"))
    if counts.other_records:
        notify(f"{counted(counts.other_records, 'record')} in the topic without the headers of dead letters")
    if executed:
        click.echo(f"Redrove {counted(counts.redriven, 'dead letter')}.", err=True)
    else:
        click.echo("Dry run: without --dry-run the redrivable records are produced.", err=True)
