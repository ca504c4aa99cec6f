"""One topic: partitions, settings, and the groups that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.client.admin.groups import GROUPS_AT_ONCE
from ottla.client.wire.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ConfigEntry,
    PartitionInfo,
    ResourceType,
)
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.integers import MAX_INT
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console import formats, html
from ottla.console.context import Context, PageError
from ottla.console.flow import read_traffic, topic_traffic
from ottla.console.flow_meter import led_partitions
from ottla.console.html import Column
from ottla.console.pages.overview import permitted
from ottla.console.pages.topics import health_badge, replication_factor
from ottla.console.paging import list_page
from ottla.console.topic_parts import topic_heading
from ottla.console.unread import group_ages, lags_of

ROWS = 200
"""Partitions on a page."""
MAX_OFFSETS = 3_000
"""Partitions of all groups in one response."""
GROUPS_BUDGET_S = 3.0
"""Bound of the look for groups that read a topic."""


def show(context: Context) -> Response:
    """Partitions with leaders, ISR, offsets and bytes."""
    topic = context.cluster.topics.get(context.path["topic"])
    page = list_page(topic.partitions, context.query.number("page", 1, most=MAX_INT), ROWS)
    keys = [(topic.name, each.index) for each in page.rows if each.is_led]
    starts, no_offsets = permitted(lambda: context.cluster.records.offsets_at(keys, EARLIEST_TIMESTAMP))
    ends = {} if starts is None else context.cluster.records.offsets_at(keys, LATEST_TIMESTAMP)
    sizes, no_sizes = permitted(lambda: context.cluster.log_directories.partition_sizes(topic.name))
    return html.page(
        context,
        topic.name,
        topic_heading(context, topic.name, "topic"),
        html.facts(
            ("State", health_badge(topic)),
            ("Partitions", formats.number(len(topic.partitions))),
            ("Replicas", formats.number(replication_factor(topic))),
            ("Size of leaders", formats.size(None if sizes is None else sum(sizes.values()))),
            ("Records/s", html.live("records")),
            ("Bytes/s", html.live("bytes")),
            ("Offsets in use", formats.number(sum(ends[each] - (starts or {})[each] for each in ends))),
            ("Topic id", html.name(uuid_to_string(topic.topic_id))),
        ),
        [h.p(".hint")[f"Not shown: {each}"] for each in (no_offsets, no_sizes) if each is not None],
        html.live_note(context.topic_url(topic.name, "/flow")),
        html.live_chart("Records written while this page is open", "records/s"),
        h.h2["Partitions"],
        _partitions(page.rows, starts or {}, ends, sizes, topic.name),
        html.list_pager(page, lambda number: context.topic_url(topic.name, page=number)) if page.pages > 1 else None,
        active="topics",
    )


def flow(context: Context) -> Response:
    """Rates of the topic and of its partitions as JSON."""
    topic = context.cluster.topics.get(context.path["topic"])
    traffic = read_traffic(context, {topic.name: topic}, led_partitions(topic))
    sums = topic_traffic(topic, traffic)
    cells = {"records": formats.rate(sums.records_per_s), "bytes": formats.byte_rate(sums.bytes_per_s)}
    cells |= {f"rate-{index}": formats.rate(rate) for (_, index), rate in traffic.records_per_s.items()}
    cells |= {f"end-{index}": formats.number(end) for (_, index), end in traffic.ends.items()}
    return html.flow_response(cells, note=traffic.note(), chart=(sums.records_per_s, formats.rate(sums.records_per_s)))


def _partitions(
    shown: Sequence[PartitionInfo],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    sizes: Mapping[int, int] | None,
    topic: str,
) -> Node:
    most = max((sizes or {}).values(), default=0)
    columns = (
        Column("Partition", is_number=True),
        Column("State"),
        Column("Leader", is_number=True),
        Column("Replicas"),
        Column("ISR"),
        Column("First offset", is_number=True),
        Column("End offset", is_number=True),
        Column("Records/s", is_number=True),
        Column("Size", is_number=True),
        Column(""),
    )
    rows = [
        (
            str(each.index),
            _state(each),
            str(each.leader) if each.leader >= 0 else "none",
            formats.ids(each.replicas),
            formats.ids(each.isr),
            formats.number(starts.get((topic, each.index))),
            html.live(f"end-{each.index}", formats.number(ends.get((topic, each.index)))),
            html.live(f"rate-{each.index}"),
            formats.size(None if sizes is None else sizes.get(each.index)),
            html.bar((sizes or {}).get(each.index, 0), most, f"Size of partition {each.index}"),
        )
        for each in shown
    ]
    return html.table("Partitions", columns, rows)


def _state(partition: PartitionInfo) -> Node:
    if not partition.is_led:
        return html.badge("no leader", "bad")
    missing = sorted(set(partition.replicas) - set(partition.isr))
    if missing:
        return html.badge(f"lacks {formats.ids(missing)}", "warning")
    return html.badge("complete", "good")


def settings(context: Context) -> Response:
    """All settings with their sources and documentation."""
    topic = context.path["topic"]
    entries = context.cluster.configs.describe(ResourceType.TOPIC, topic)
    columns = (Column("Setting"), Column("Value"), Column("Source"), Column("Documentation"), Column(""))
    changed = [each for each in entries if each.source == "topic"]
    rows = [_setting(context, topic, each) for each in (*changed, *(each for each in entries if each not in changed))]
    return html.page(
        context,
        f"Settings of {topic}",
        topic_heading(context, topic, "topic settings"),
        h.p[f"{formats.counted(len(changed), 'setting')} of this topic; the others are defaults."],
        html.table("Settings", columns, rows),
        active="topics",
    )


def _setting(context: Context, topic: str, entry: ConfigEntry) -> tuple[Node, ...]:
    kind = "good" if entry.source == "topic" else ""
    edit = (
        h.a(href=context.topic_url(topic, "/settings/edit", name=entry.name), aria_label=f"Change {entry.name}")[
            "Change"
        ]
        if context.offers("settings apply") and not entry.read_only
        else ""
    )
    return (
        h.code[entry.name],
        setting_value(entry),
        html.badge(entry.source, kind),
        h.details[h.summary["Description"], entry.documentation] if entry.documentation else "",
        edit,
    )


def setting_value(entry: ConfigEntry | None) -> Node:
    """A value, or why there is none."""
    if entry is None:
        return h.span(".null")["not set"]
    if entry.is_sensitive:
        return h.span(".null")["secret"]
    if not entry.value:
        return h.span(".null")["empty"]
    return h.span(".data")[formats.visible(entry.value)]


def groups(context: Context) -> Response:
    """Groups with committed offsets of this topic, and their lag."""
    name = context.path["topic"]
    topic = context.cluster.topics.get(name)
    started_s = context.services.clock.monotonic()
    listings = context.cluster.groups.find()
    ends = context.cluster.records.offsets_at(led_partitions(topic), LATEST_TIMESTAMP)
    found: dict[str, dict[TopicPartition, int]] = {}
    looked_at = 0
    partitions = {name: [each.index for each in topic.partitions]}
    step = max(1, min(GROUPS_AT_ONCE, MAX_OFFSETS // max(1, len(topic.partitions))))
    while looked_at < len(listings) and context.services.clock.monotonic() - started_s < GROUPS_BUDGET_S:
        context.check_alive()
        some = [each.group_id for each in listings[looked_at : looked_at + step]]
        looked_at += len(some)
        for group_id, offsets in context.cluster.groups.offsets_of(some, partitions).items():
            if offsets:
                found[group_id] = {key: each.offset for key, each in offsets.items()}
    states = {each.group_id: each.state for each in listings}
    ages, note = group_ages(context, found, ends)
    rows = [
        (
            h.a(href=context.url("/group", id=group_id))[html.name(group_id)],
            states[group_id] or "-",
            formats.number(len(offsets)),
            formats.number(sum(lags_of(offsets, ends).values())),
            ages[group_id].text(),
        )
        for group_id, offsets in found.items()
    ]
    columns = (
        Column("Group"),
        Column("State"),
        Column("Partitions", is_number=True),
        Column("Lag in records", is_number=True),
        Column("Lag in time", is_number=True),
    )
    left = len(listings) - looked_at
    return html.page(
        context,
        f"Groups of {name}",
        topic_heading(context, name, "topic groups"),
        h.p(".hint")[f"{formats.counted(left, 'group')} of the cluster were not looked at, to keep this page fast."]
        if left
        else None,
        h.p(".hint")[note] if note else None,
        html.table("Groups that read this topic", columns, rows, empty="No group has offsets of this topic."),
        active="topics",
    )


def setting_named(context: Context, topic: str, name: str) -> ConfigEntry:
    """One setting. Raises PageError."""
    for entry in context.cluster.configs.describe(ResourceType.TOPIC, topic, [name]):
        if entry.name == name:
            return entry
    raise PageError(404, f"Topic {topic} has no setting {name}.")
