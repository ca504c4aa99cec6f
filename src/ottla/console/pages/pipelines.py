"""Tables of the pipeline: the list with freshness and lag, and one table with its loads and dead letters.

A user sees a table if the user may DESCRIBE all of its topics, or DESCRIBE the cluster: that permission shows the names
and sizes of all topics anyway. Tables that cannot be read, or whose topics are of another cluster, need the latter.
Reasons of dead letters may quote records, so they need READ on the topic.

The list opens only tables of visible rows. For a user without DESCRIBE on the cluster, it first reads the topics of all
tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import htpy as h
from htpy import Node
from starlette.responses import JSONResponse, Response

from ottla.client.wire.connection import BrokerUnreachable
from ottla.common.errors import OttlaError
from ottla.common.kafka.integers import MAX_INT
from ottla.console import formats, html
from ottla.console.context import Context, PageError
from ottla.console.errors import sentence
from ottla.console.html import Column
from ottla.console.paging import list_page
from ottla.console.rights import may_describe_cluster, readable_topics
from ottla.console.tables import TableIndex, TopicOwners, owners_of

if TYPE_CHECKING:
    from ottla.pipeline.operations.status import PartitionStatus

ROWS = 50
ROWS_AT_ONCE = 5
"""Rows that one request of the script fills in."""
MAX_PARTITIONS = 500
MAX_LETTERS = 20
MAX_REASON_CHARS = 400
EXAMINE_S = 3.0
"""Time in which one request reads the topics of tables; the next one continues."""


class VisibleTables(NamedTuple):
    """Names of the tables that the user may see, sorted; `unknown` counts those whose topics were not read yet."""

    names: Sequence[str]
    unknown: int


def _index(context: Context) -> TableIndex:
    if context.services.tables is None:
        raise PageError(404, "This console has no directory of tables: start it with --tables.")
    return context.services.tables


def visible_tables(context: Context) -> VisibleTables:
    """See the module."""
    index = _index(context)
    names = index.tables().places
    if may_describe_cluster(context):
        return VisibleTables(list(names), 0)
    end_s = context.services.clock.monotonic() + EXAMINE_S
    visible, unknown = [], 0
    for name in names:
        context.check_alive()
        found = _may_see(context, name, may_read=context.services.clock.monotonic() < end_s)
        unknown += found is None
        if found:
            visible.append(name)
    return VisibleTables(visible, unknown)


def _may_see(context: Context, name: str, *, may_read: bool = True) -> bool | None:
    """Whether a user without DESCRIBE on the cluster sees a table; None if its topics may not be read now."""
    owners = _index(context).owners(name, may_read=may_read)
    return None if owners is None else bool(owners) and _own_topics(context, owners) == set(owners)


def _own_topics(context: Context, owners: TopicOwners) -> set[str]:
    """Those topics of a table that are in this cluster, and that the user may describe."""
    topics, ids = context.topics(), ("", _cluster_id(context))
    return {topic for topic, owner in owners.items() if topic in topics and owner in ids}


def _cluster_id(context: Context) -> str:
    now_s = context.services.clock.monotonic()
    found: str = context.session.cached("cluster id", now_s, lambda: context.cluster.describe().cluster_id or "")
    return found


def show(context: Context) -> Response:
    """The list; the script fills in the figures of the visible rows."""
    listed, visible = _index(context).tables(), visible_tables(context)
    kept = context.query.text("filter")
    found = [name for name in visible.names if kept.lower() in name.lower()]
    page = list_page(found, context.query.number("page", 1, most=MAX_INT), ROWS)
    return html.page(
        context,
        "Pipelines",
        html.heading("Tables of the pipeline"),
        None if listed.error is None or not may_describe_cluster(context) else _error(listed.error),
        h.form(".filter", method="get", action=context.url("/pipelines"), role="search")[
            html.field("Name contains", h.input(name="filter", type="search", value=kept)),
            h.button(type="submit")["Filter"],
            h.span(".count")[formats.counted(len(found), "table")],
        ],
        h.p(".hint", data_reload="1")[
            f"{formats.counted(visible.unknown, 'table')} not examined yet: this page loads again by itself."
        ]
        if visible.unknown
        else None,
        h.p(".hint")[f"{formats.counted(listed.left_out, 'more table')} not listed."] if listed.left_out else None,
        _table(context, page.rows),
        html.list_pager(page, lambda number: context.url("/pipelines", filter=kept, page=number)),
        active="pipelines",
    )


def _error(text: str) -> Node:
    return h.p(".error", role="alert")[formats.visible(text)]


def _table(context: Context, names: Sequence[str]) -> Node:
    columns = (
        Column("Table"),
        Column("Last load"),
        Column("Lag in offsets", is_number=True),
        Column("Rows of last load", is_number=True),
        Column("Rows", is_number=True),
        Column("Files", is_number=True),
        Column("Dead letters", is_number=True),
        Column("State"),
    )
    parts = ("loaded", "lag", "last", "rows", "files", "letters", "state")
    rows = [
        (
            h.a(href=context.url("/pipeline", name=name))[html.name(name)],
            *(h.span(data_size_of=name, data_part=part)["-"] for part in parts),
        )
        for name in names
    ]
    return html.table(
        "Tables",
        columns,
        rows,
        empty="No table that you may see.",
        data_sizes=context.url("/pipeline-states"),
        data_at_once=str(ROWS_AT_ONCE),
    )


def states(context: Context) -> Response:
    """Figures of some tables as JSON, for the visible rows; a table that cannot be read has its reason."""
    names = context.query.all("name")
    if len(names) > ROWS:
        raise PageError(400, f"At most {ROWS} tables at once.")
    return JSONResponse({name: _figures(context, name) for name in names if _is_visible(context, name)})


def _is_visible(context: Context, name: str) -> bool:
    if name not in _index(context).tables().places:
        return False
    return may_describe_cluster(context) or bool(_may_see(context, name))


def _figures(context: Context, name: str) -> dict[str, str]:
    context.check_alive()
    index = _index(context)
    try:
        summary = index.summary(name)
        status = index.status(name, context.cluster, context.topics(), _cluster_id(context), with_ages=False)
    except BrokerUnreachable:
        raise
    except OttlaError as error:
        return {"state": formats.visible(sentence(error))}
    last = summary.loads[0] if summary.loads else None
    lags = [part.lag for part in status.partitions if part.lag is not None]
    notes = sorted({_note(context, part.note) for part in status.partitions if part.note})
    if summary.failed_loads:
        notes.append(f"{formats.counted(summary.failed_loads, 'load')} ended unexpectedly")
    return {
        "loaded": "-" if last is None else _age(context, last.time_ms),
        "lag": formats.number(sum(lags) if lags else None),
        "last": formats.number(None if last is None else last.rows),
        "rows": formats.number(summary.rows),
        "files": formats.number(summary.files),
        "letters": formats.number(summary.dead_letters),
        "state": formats.visible(status.error or "; ".join(notes) or ("no load" if last is None else "readable")),
    }


def _note(context: Context, note: str) -> str:
    """The note of a partition; a topic that the cluster does not show may exist."""
    return "deleted, or not visible to you" if note == "deleted" and context.session.user is not None else note


def _age(context: Context, time_ms: int) -> str:
    seconds = (context.services.clock.time_ms() - time_ms) / 1000
    return f"{formats.duration(seconds)} ago"


def show_one(context: Context) -> Response:
    """One table: size, lag of each partition, loads, and the latest dead letters."""
    name = context.audit["table"] = context.query.required("name")
    if not _is_visible(context, name):
        raise PageError(404, "This table does not exist, or you may not see it.")
    try:
        content = _contents(context, name)
    except BrokerUnreachable:
        raise
    except OttlaError as error:
        content = [_error(sentence(error))]
    return html.page(context, name, html.heading(html.name(name)), content, active="pipelines")


def _contents(context: Context, name: str) -> list[Node]:
    index = _index(context)
    summary = index.summary(name)
    status = index.status(name, context.cluster, context.topics(), _cluster_id(context), with_ages=True)
    last = summary.loads[0] if summary.loads else None
    loads = [
        (html.time(load.time_ms), html.name(load.pipeline_id), formats.number(load.rows), formats.number(load.files))
        for load in summary.loads
    ]
    return [
        None if status.error is None else _error(status.error),
        html.facts(
            ("Format", summary.format),
            ("Version", formats.number(summary.version)),
            ("Last load", "-" if last is None else [html.time(last.time_ms), f", {_age(context, last.time_ms)}"]),
            ("Rows", formats.number(summary.rows)),
            ("Files", f"{formats.number(summary.files)}, {formats.size(summary.size_bytes)}"),
            ("Dead letters", formats.number(summary.dead_letters)),
            ("Running loads", formats.number(summary.running_loads)),
            ("Loads that ended unexpectedly", formats.number(summary.failed_loads)),
        ),
        h.p(".hint")["A vacuum removes the files of loads that ended unexpectedly: ottla pipeline vacuum."]
        if summary.failed_loads
        else None,
        _partition_table(context, status.partitions),
        html.table(
            "Last loads",
            (Column("Time"), Column("Pipeline"), Column("Rows", is_number=True), Column("Files", is_number=True)),
            loads,
            empty="No load that the table remembers.",
        ),
        _letters(context, name, owners_of(summary.topics)) if summary.dead_letters else None,
    ]


def _partition_table(context: Context, partitions: Sequence[PartitionStatus]) -> Node:
    numbers = ("Partition", "Next offset", "End", "Lag", "Behind")
    columns = (
        Column("Pipeline"),
        Column("Topic"),
        *(Column(title, is_number=True) for title in numbers),
        Column("Note"),
    )
    rows = [
        (
            html.name(part.pipeline_id),
            _topic(context, part.topic),
            str(part.partition),
            *(formats.number(number) for number in (part.committed, part.end, part.lag)),
            "-" if part.lag_s is None else formats.duration(part.lag_s),
            _note(context, part.note),
        )
        for part in partitions[:MAX_PARTITIONS]
    ]
    more = len(partitions) - MAX_PARTITIONS
    return [
        html.table("Lag behind the topics", columns, rows, empty="No partition was loaded."),
        h.p[f"And {more:,} more."] if more > 0 else None,
    ]


def _topic(context: Context, topic: str) -> Node:
    if topic not in context.topics():
        return html.name(topic)
    return h.a(href=context.topic_url(topic))[html.name(topic)]


def _letters(context: Context, name: str, owners: TopicOwners) -> Node:
    """The latest dead letters of topics that the user may read."""
    readable = readable_topics(context, sorted(_own_topics(context, owners)))
    found = _index(context).dead_letters(name, MAX_LETTERS)
    rows = [
        (
            h.a(href=context.topic_url(each.topic, f"/records/{each.partition}/{each.offset}"))[
                html.name(f"{each.topic}-{each.partition}")
            ],
            formats.number(each.offset),
            html.time(each.timestamp_ms),
            h.div(".data")[formats.visible(formats.cut(each.reason, MAX_REASON_CHARS)[0])],
        )
        for each in found
        if each.topic in readable
    ]
    columns = (Column("Partition"), Column("Offset", is_number=True), Column("Time of the record"), Column("Reason"))
    return [
        html.table("Latest dead letters", columns, rows, empty="None that you may read."),
        h.p(".hint")["Not shown: reasons of topics that you may not read, or that were deleted."]
        if owners.keys() - readable
        else None,
    ]
