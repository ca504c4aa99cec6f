"""Changes of a topic: settings, partitions, deletion of records and of the topic.

Each change is shown before it is applied, and refused if the topic differs from the one that the user saw.
"""

from __future__ import annotations

import re

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.client.wire.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ConfigEntry,
    ConfigOperation,
    PartitionInfo,
    ResourceType,
    TopicInfo,
)
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.integers import MAX_INT
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console import formats, html
from ottla.console.context import Context, PageError, version_of
from ottla.console.flow_meter import led_partitions
from ottla.console.html import Column
from ottla.console.pages.topic import setting_named, setting_value
from ottla.console.topic_parts import topic_heading
from ottla.search.scopes import BOUND_FORMS, parse_bound
from ottla.search.syntax import OffsetBound

SET, RESET = "set", "reset"
_TARGETS = re.compile(r"\d{1,10}:\d{1,18}(,\d{1,10}:\d{1,18})*", re.ASCII)


def edit_setting(context: Context) -> Response:
    """The form of one setting; it leads to the preview."""
    topic = context.path["topic"]
    entry = setting_named(context, topic, context.query.required("name"))
    content = h.form(".act", method="get", action=context.topic_url(topic, "/settings/preview"))[
        h.h2[h.code[entry.name]],
        h.p[entry.documentation] if entry.documentation else None,
        html.facts(("Now", setting_value(entry)), ("Source", entry.source)),
        h.input(type="hidden", name="name", value=entry.name),
        html.field("New value", h.input(name="value", value=entry.value or "", autocomplete="off", spellcheck="false")),
        html.field(
            "Change",
            html.select("operation", [(SET, "Set this value"), (RESET, "Return to the default of the cluster")]),
        ),
        h.button(".primary", type="submit")["Preview"],
    ]
    return html.page(
        context, f"Change {entry.name}", topic_heading(context, topic, "topic settings"), content, active="topics"
    )


def _setting_version(entry: ConfigEntry) -> str:
    return version_of(entry.name, entry.value, entry.source)


def preview_setting(context: Context) -> Response:
    """The difference, checked by the cluster but not applied."""
    topic, query = context.path["topic"], context.query
    entry = setting_named(context, topic, query.required("name"))
    operation, value = query.choice("operation", (SET, RESET)), query.text("value")
    context.cluster.configs.alter(
        ResourceType.TOPIC, topic, [_change(entry.name, operation, value)], validate_only=True
    )
    after: Node = h.ins[formats.visible(value) or "empty"] if operation == SET else h.ins["the default of the cluster"]
    content = html.form(
        context,
        context.topic_url(topic, "/settings/apply"),
        h.h2["Difference"],
        h.p[h.code[entry.name], ": ", h.del_[setting_value(entry)], " → ", after],
        h.p["The cluster accepts this change. It takes effect at once, without a restart."],
        *(
            h.input(type="hidden", name=name, value=text)
            for name, text in (("name", entry.name), ("operation", operation), ("value", value))
        ),
        h.button(".primary", type="submit")["Apply"],
        classes="act",
        version=_setting_version(entry),
    )
    return html.page(
        context, f"Change {entry.name}", topic_heading(context, topic, "topic settings"), content, active="topics"
    )


def _change(name: str, operation: str, value: str) -> tuple[str, ConfigOperation, str | None]:
    return (name, ConfigOperation.SET, value) if operation == SET else (name, ConfigOperation.DELETE, None)


def apply_setting(context: Context) -> Response:
    """Apply the change."""
    topic, form = context.path["topic"], context.form
    name, operation, value = form.required("name"), form.choice("operation", (SET, RESET)), form.text("value")
    context.audit.update(setting=name, change=operation)
    context.require_version(_setting_version(setting_named(context, topic, name)))
    context.cluster.configs.alter(ResourceType.TOPIC, topic, [_change(name, operation, value)])
    return context.redirect(context.topic_url(topic, "/settings"), f"The setting {name} was changed.")


def manage(context: Context) -> Response:
    """Forms for partitions, records and the topic itself."""
    topic = context.cluster.topics.get(context.path["topic"])
    version = topic_version(topic)
    count = len(topic.partitions)
    return html.page(
        context,
        f"Manage {topic.name}",
        topic_heading(context, topic.name, "topic manage"),
        html.form(
            context,
            context.topic_url(topic.name, "/partitions"),
            h.h2["Add partitions"],
            h.p["Keys of later records are spread over all partitions, so a key may move. This cannot be undone."],
            html.field(
                f"Total number of partitions, now {count}",
                h.input(name="total", inputmode="numeric", required=True, value=str(count + 1)),
            ),
            h.button(type="submit")["Add partitions"],
            classes="act",
            version=version,
        ),
        h.form(".act", method="get", action=context.topic_url(topic.name, "/clone"))[
            h.h2["Clone the topic without its records"],
            html.field(
                "Name of the new topic",
                h.input(
                    name="name", required=True, maxlength="249", autocomplete="off", value=f"{topic.name[:244]}-copy"
                ),
                "The new topic is empty and has the same partitions and settings. The next page shows them.",
            ),
            h.button(type="submit")["Preview"],
        ],
        h.form(".act", method="get", action=context.topic_url(topic.name, "/trim"))[
            h.h2["Delete old records"],
            html.field(
                "Before",
                h.input(name="before", required=True, placeholder="-7d, 2026-11-28 or an offset"),
                "A time, a duration before now, or an offset. The next page shows the records to delete.",
            ),
            h.button(type="submit")["Preview"],
        ],
        html.confirmed(
            context,
            context.topic_url(topic.name, "/delete"),
            topic.name,
            "Delete topic",
            h.h2["Delete the topic"],
            h.p["All records are lost."],
            version=version,
        ),
        active="topics",
    )


def topic_version(topic: TopicInfo) -> str:
    """A fingerprint of the topic that a page shows."""
    return version_of(topic.name, uuid_to_string(topic.topic_id), len(topic.partitions))


def add_partitions(context: Context) -> Response:
    """Increase the number of partitions."""
    topic = context.cluster.topics.get(context.path["topic"])
    context.require_version(topic_version(topic))
    total = context.audit["total"] = context.form.number("total", most=MAX_INT)
    context.cluster.topics.create_partitions(topic.name, total)
    return context.redirect(context.topic_url(topic.name), f"Topic {topic.name} has {total:,} partitions now.")


def delete(context: Context) -> Response:
    """Delete the topic."""
    topic = context.cluster.topics.get(context.path["topic"])
    context.require_typed_name(topic.name)
    context.require_version(topic_version(topic))
    context.cluster.topics.delete([topic.name])
    return context.redirect(context.url("/topics"), f"Topic {topic.name} was deleted.")


class _Trim:
    """New log start offsets of the partitions of a topic that have a leader, and the present ones."""

    def __init__(self, context: Context, topic: TopicInfo, before: str) -> None:
        self._topic = topic.name
        bound = parse_bound(before.strip(), context.services.clock.time_ms())
        if bound is None:
            raise PageError(400, f"{before!r} is not {BOUND_FORMS}.")
        records = context.cluster.records
        keys = led_partitions(topic)
        self.starts = trim_starts(context, topic)
        ends = records.offsets_at(keys, LATEST_TIMESTAMP)
        if isinstance(bound, OffsetBound):
            aims = dict.fromkeys(keys, bound.offset)
        else:
            aims = records.offsets_since(bound.timestamp_ms, ends)
        self.targets = {key: max(self.starts[key], min(ends[key], aims[key])) for key in keys}

    def offsets(self, partition: PartitionInfo) -> tuple[int, int] | None:
        """The first offset now and then; None without a leader."""
        key = (self._topic, partition.index)
        return (self.starts[key], self.targets[key]) if key in self.targets else None

    @property
    def deleted(self) -> dict[int, tuple[int, int]]:
        """The offsets that would be deleted by partition, end exclusive."""
        return {key[1]: (self.starts[key], target) for key, target in self.targets.items() if target > self.starts[key]}


def trim_starts(context: Context, topic: TopicInfo) -> dict[TopicPartition, int]:
    """First offsets of the partitions that have a leader."""
    return context.cluster.records.offsets_at(led_partitions(topic), EARLIEST_TIMESTAMP)


def preview_trim(context: Context) -> Response:
    """The offsets that would be deleted in each partition."""
    topic = context.cluster.topics.get(context.path["topic"])
    before = context.query.required("before")
    trim = _Trim(context, topic, before)
    rows = [_trim_row(each.index, trim.offsets(each)) for each in topic.partitions]
    count = sum(end - start for start, end in trim.deleted.values())
    columns = (
        Column("Partition", is_number=True),
        Column("First offset now", is_number=True),
        Column("First offset then", is_number=True),
        Column("Offsets deleted", is_number=True),
    )
    targets = ",".join(f"{partition}:{end}" for partition, (_, end) in trim.deleted.items())
    return html.page(
        context,
        f"Delete records of {topic.name}",
        topic_heading(context, topic.name, "topic manage"),
        h.p[
            f"{formats.counted(count, 'offset')} in {formats.counted(len(trim.deleted), 'partition')} would be deleted."
            if count
            else "No record is that old: nothing would be deleted."
        ],
        html.table("Records to delete", columns, rows),
        html.confirmed(
            context,
            context.topic_url(topic.name, "/trim"),
            topic.name,
            "Delete these records",
            h.input(type="hidden", name="targets", value=targets),
            version=version_of(topic_version(topic), trim.starts, targets),
        )
        if count
        else None,
        active="topics",
    )


def _trim_row(partition: int, offsets: tuple[int, int] | None) -> tuple[str, ...]:
    if offsets is None:
        return (str(partition), "no leader", "unchanged", "0")
    start, end = offsets
    return (str(partition), formats.number(start), formats.number(end), formats.number(end - start))


def trim(context: Context) -> Response:
    """Delete the records of the preview: exactly those offsets, however long ago it was shown."""
    topic = context.cluster.topics.get(context.path["topic"])
    context.require_typed_name(topic.name)
    text = context.audit["targets"] = context.form.required("targets")
    context.require_version(version_of(topic_version(topic), trim_starts(context, topic), text))
    if _TARGETS.fullmatch(text) is None:
        raise PageError(400, "The field targets is malformed: preview again.")
    pairs = [pair.split(":") for pair in text.split(",")]
    context.cluster.records.delete({(topic.name, int(partition)): int(offset) for partition, offset in pairs})
    return context.redirect(context.topic_url(topic.name), f"Old records of {topic.name} were deleted.")
