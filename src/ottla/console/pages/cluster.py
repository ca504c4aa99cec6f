"""The cluster: brokers, the quorum of the metadata log, data directories, and reassignments.

Sizes of replicas need a row for each partition, so the script asks for them after the page is there.
"""

from __future__ import annotations

from collections.abc import Sequence

import htpy as h
from htpy import Node
from starlette.responses import JSONResponse, Response

from ottla.client.wire.model import ClusterBroker, LogDirectory, QuorumInfo
from ottla.common.platform.endpoint import format_address
from ottla.console import formats, html
from ottla.console.context import Context
from ottla.console.html import Column
from ottla.console.pages.overview import permitted

MAX_ROWS = 500
NEARLY_FULL = 0.9


def show(context: Context) -> Response:
    """The page; parts that the user may not see are named."""
    cluster = context.cluster
    brokers, no_brokers = permitted(cluster.brokers.all)
    quorum, no_quorum = permitted(cluster.quorum.describe)
    directories, no_directories = permitted(cluster.log_directories.without_replicas)
    reassignments, no_reassignments = permitted(cluster.reassignments.all)
    return html.page(
        context,
        "Cluster",
        html.heading("Cluster"),
        h.h2["Brokers"],
        _missing(no_brokers) if brokers is None else _broker_table(context, brokers),
        h.h2["Quorum of the metadata log"],
        _missing(no_quorum) if quorum is None else _quorum_table(quorum),
        h.h2["Data directories"],
        _missing(no_directories) if directories is None else _directory_table(context, directories),
        h.h2["Reassignments"],
        _missing(no_reassignments)
        if reassignments is None
        else html.table(
            "Reassignments",
            (
                Column("Topic"),
                Column("Partition", is_number=True),
                Column("Replicas"),
                Column("Added"),
                Column("Removed"),
            ),
            [
                (
                    html.name(key[0]),
                    str(key[1]),
                    formats.ids(each.replicas),
                    formats.ids(each.adding),
                    formats.ids(each.removing),
                )
                for key, each in sorted(reassignments.items())[:MAX_ROWS]
            ],
            empty="No partition is being moved.",
        ),
        active="cluster",
    )


def _missing(reason: str | None) -> Node:
    return h.p(".hint")[f"Not shown: {reason}"]


def _broker_table(context: Context, brokers: Sequence[ClusterBroker]) -> Node:
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    in_sync: dict[int, int] = {}
    for topic in context.topics().values():
        for partition in topic.partitions:
            leads[partition.leader] = leads.get(partition.leader, 0) + 1
            for node_id in partition.replicas:
                replicas[node_id] = replicas.get(node_id, 0) + 1
            for node_id in partition.isr:
                in_sync[node_id] = in_sync.get(node_id, 0) + 1
    most = max(leads.values(), default=0)
    columns = (
        Column("Broker", is_number=True),
        Column("State"),
        Column("Address"),
        Column("Rack"),
        Column("Leads", is_number=True),
        Column(""),
        Column("Replicas", is_number=True),
        Column("In sync", is_number=True),
    )
    rows = [
        (
            str(each.node_id),
            html.badge("not live", "bad") if each.fenced else html.badge("live", "good"),
            html.name(format_address(each.host, each.port)),
            html.name(each.rack or "-"),
            formats.number(leads.get(each.node_id, 0)),
            html.bar(leads.get(each.node_id, 0), most, f"Partitions led by broker {each.node_id}"),
            formats.number(replicas.get(each.node_id, 0)),
            formats.number(in_sync.get(each.node_id, 0)),
        )
        for each in brokers
    ]
    return html.table("Brokers", columns, rows)


def _quorum_table(quorum: QuorumInfo) -> Node:
    columns = (
        Column("Node", is_number=True),
        Column("Role"),
        Column("End of its log", is_number=True),
        Column("Behind", is_number=True),
        Column("Caught up"),
    )
    rows = [
        (
            str(each.node_id),
            html.badge("leader", "good") if each.node_id == quorum.leader_id else role,
            formats.number(each.log_end_offset),
            formats.number(max(0, quorum.high_watermark - each.log_end_offset)),
            html.time(each.last_caught_up_ms),
        )
        for role, nodes in (("voter", quorum.voters), ("observer", quorum.observers))
        for each in nodes
    ]
    return html.table("Quorum", columns, rows)


def directory_sizes(context: Context) -> Response:
    """Replicas and their sizes in each data directory, as JSON: `{"1 /data": "3 replicas, 1.5 MB"}`."""
    return JSONResponse(
        {
            _key(each): f"{formats.counted(len(each.sizes), 'replica')}, {formats.size(sum(each.sizes.values()))}"
            for each in context.cluster.log_directories.all()
        }
    )


def _key(directory: LogDirectory) -> str:
    return f"{directory.node_id} {directory.path}"


def _directory_table(context: Context, directories: Sequence[LogDirectory]) -> Node:
    columns = (
        Column("Broker", is_number=True),
        Column("Directory"),
        Column("State"),
        Column("Replicas", is_number=True),
        Column("File system", is_number=True),
        Column("Free", is_number=True),
        Column(""),
    )
    rows = [
        (
            str(each.node_id),
            html.name(each.path),
            _directory_state(each),
            h.span(data_size_of=_key(each))["-"],
            formats.size(each.total_bytes),
            formats.size(each.usable_bytes),
            html.bar(_used(each), 1, f"Used space of {each.path} on broker {each.node_id}"),
        )
        for each in directories
    ]
    return html.table("Data directories", columns, rows, data_sizes=context.url("/directory-sizes"))


def _used(directory: LogDirectory) -> float:
    if not directory.total_bytes or directory.usable_bytes is None:
        return 0.0
    return 1 - directory.usable_bytes / directory.total_bytes


def _directory_state(directory: LogDirectory) -> Node:
    if directory.error is not None:
        return html.badge(directory.error, "bad")
    if directory.is_full:
        return html.badge("full", "bad")
    return html.badge("nearly full", "warning") if _used(directory) > NEARLY_FULL else html.badge("online", "good")
