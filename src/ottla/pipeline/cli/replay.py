"""`ottla pipeline replay`: a range of a topic or a table once more, into a new topic."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.command import (
    Command,
    bootstrap_option,
    complete_topic,
    json_option,
    open_cluster,
    settings_option,
)
from ottla.cli.positions import METAVAR, Selection, find_positions, parse_selection
from ottla.cli.times import parse_timestamp
from ottla.pipeline.cli.options import GivenPath
from ottla.pipeline.cli.push import files_of, print_summary, progress_bar
from ottla.pipeline.session import require_extra

if TYPE_CHECKING:
    from ottla.pipeline.replay import Bound
    from ottla.pipeline.sources.rows import RowSource

BOUND_HELP = "earliest, latest, an offset, or an ISO 8601 time"


@click.command(
    cls=Command,
    examples=(
        "ottla pipeline replay --topic clicks --from 2026-11-22 --to 2026-11-23 --to-topic clicks-of-sunday",
        "ottla pipeline replay --topic clicks:0 --from 1000 --to 2000 --to-topic thousand --keep-timestamps",
        "ottla pipeline replay --table lake/clicks --from 2026-11-22 --to-topic clicks-restored",
    ),
)
@click.option(
    "--topic",
    "selection",
    multiple=True,
    callback=parse_selection,
    metavar=METAVAR,
    shell_complete=complete_topic,
    help="What is replayed: a topic, or some of its partitions.",
)
@click.option(
    "--table",
    type=GivenPath(exists=True, file_okay=False),
    help="What is replayed: a table that `load` made, to a topic.",
)
@click.option("--from", "start", default="earliest", show_default=True, metavar="WHERE", help=f"{BOUND_HELP}.")
@click.option(
    "--to", "end", default="latest", show_default=True, metavar="WHERE", help=f"{BOUND_HELP}; left out itself."
)
@click.option("--to-topic", required=True, metavar="NAME", help="A new topic; it gets as many partitions as the topic.")
@click.option("--replay-id", help="Whose progress counts.  [default: one made of what, where from and where to]")
@click.option("--keep-timestamps", is_flag=True, help="Records in a topic get the times that they had, not of now.")
@settings_option("--property", "-X", "properties", help_text="A property of librdkafka, such as compression.type=zstd.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar and no summary.")
@json_option
@bootstrap_option
def replay(
    selection: Selection,
    table: Path | None,
    start: str,
    end: str,
    to_topic: str,
    replay_id: str | None,
    keep_timestamps: bool,
    properties: Mapping[str, str],
    quiet: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Replay a range of offsets or of time, each record exactly once, into a topic that is new.

    A replay that was killed is gone on with by the same command. Nothing is rewound in place: a target with records of
    others is refused. Records and rows are chosen by their own times. Those of a topic keep their partition, and only
    committed ones go.

    Old times in a new topic meet its retention: see retention.ms before --keep-timestamps.
    """
    require_extra()
    from ottla.pipeline.push import group_name, push
    from ottla.pipeline.replay import require_order, require_own_topic, row_bounds, topic_ranges
    from ottla.pipeline.sinks.topic import TopicTarget
    from ottla.pipeline.sources.rows import FileRows, Shape, TopicRows

    if bool(selection) == (table is not None) or len(selection) > 1:
        raise click.UsageError("name one --topic or a --table to replay")
    bounds = parse_bound(start, "--from"), parse_bound(end, "--to")
    require_order(*bounds)
    name = replay_id or default_replay_id(selection, table and table.absolute(), start, end, to_topic, keep_timestamps)
    group_name(name)
    with open_cluster(bootstrap_server) as cluster:
        partitions = -1
        rows: RowSource
        if table is not None:
            files, kind = files_of((table,))
            shape = Shape(keep_timestamps=keep_timestamps, bounds=row_bounds(*bounds, offsets=True))
            rows = FileRows(files, kind, shape, (to_topic, 0))
        else:
            ranges = topic_ranges(cluster, find_positions(cluster, selection), *bounds)
            chosen = row_bounds(*bounds, offsets=False)
            rows = TopicRows(cluster, ranges, (start, end), chosen, keep_timestamps=keep_timestamps)
            partitions = max(len(cluster.topic(each).partitions) for each in selection)
        require_own_topic(cluster, to_topic, name, partitions)
        with progress_bar(rows, silent=quiet or as_json) as observe:
            summary = push(TopicTarget(bootstrap_server, to_topic, properties), rows, name, observe)
    print_summary(summary, as_json=as_json, quiet=quiet)


def parse_bound(text: str, option: str) -> Bound:
    """Digits are an offset. Raises click.BadParameter."""
    from ottla.pipeline.replay import Bound

    if text in ("earliest", "latest"):
        return Bound("earliest" if text == "earliest" else "latest")
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Bound("offset", int(text))
    return Bound("time", parse_timestamp(text, option))


def default_replay_id(*parts: object) -> str:
    """The same for the same command."""
    return "replay-" + hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
