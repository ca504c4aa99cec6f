"""Groups: the list with lag, one group with members and positions, reset and deletion of offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import htpy as h
from htpy import Node
from starlette.responses import JSONResponse, Response

from ottla.cli.offset_reset import OffsetReset, Target
from ottla.client.wire.model import EARLIEST_TIMESTAMP, CommittedOffset, GroupDescription, GroupMember
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.endpoint import format_address
from ottla.console import formats, html
from ottla.console.context import Context, PageError, version_of
from ottla.console.html import Column
from ottla.console.lags import log_ends, total_lag, total_lags
from ottla.search.scopes import parse_time

ROWS = 50
WITHOUT_MEMBERS = ("Empty", "Dead")
TARGETS = (
    ("to_earliest", "To the first record"),
    ("to_latest", "To the end"),
    ("to_datetime", "To a time"),
    ("to_offset", "To an offset"),
    ("shift_by", "By a number of records, such as -100"),
)
MAX_SHIFT_DIGITS = 18


def show(context: Context) -> Response:
    """The list; the script fills in the lag of the visible groups."""
    query = context.query
    wanted = query.text("filter").lower()
    found = [each for each in context.cluster.groups.find() if wanted in each.group_id.lower()]
    number = query.number("page", 1, most=1_000_000)
    pages = max(1, -(-len(found) // ROWS))
    number = max(1, min(number, pages))
    rows = [
        (
            h.a(href=context.url("/group", id=each.group_id))[html.name(each.group_id)],
            _state(each.state),
            each.group_type or "-",
            each.protocol_type or "-",
            h.span(data_size_of=each.group_id)["-"],
        )
        for each in found[(number - 1) * ROWS : number * ROWS]
    ]
    columns = (
        Column("Group"),
        Column("State"),
        Column("Type"),
        Column("Protocol"),
        Column("Lag in records", is_number=True),
    )
    kept = query.text("filter")
    return html.page(
        context,
        "Groups",
        html.heading("Groups"),
        h.form(".filter", method="get", action=context.url("/groups"), role="search")[
            html.field("Name contains", h.input(name="filter", type="search", value=kept)),
            h.button(type="submit")["Filter"],
            h.span(".count")[formats.counted(len(found), "group")],
        ],
        html.table("Groups", columns, rows, empty="No group matches.", data_sizes=context.url("/group-lags")),
        html.pager(
            context,
            [
                ("Previous", context.url("/groups", filter=kept, page=number - 1) if number > 1 else None),
                ("Next", context.url("/groups", filter=kept, page=number + 1) if number < pages else None),
            ],
            f"Page {number} of {pages}",
        ),
        active="groups",
    )


def _state(state: str | None) -> Node:
    kind = {"Stable": "good", "Empty": "", "Dead": "bad"}.get(state or "", "warning")
    return html.badge(state, kind) if state else "-"


def lags(context: Context) -> Response:
    """Lags of some groups as JSON, for the visible rows."""
    names = context.query.all("name")
    if len(names) > ROWS:
        raise PageError(400, f"At most {ROWS} groups at once.")
    return JSONResponse({name: formats.number(lag) for name, lag in total_lags(context, names).items()})


class _Position(NamedTuple):
    """A partition with a committed offset or an owner."""

    key: TopicPartition
    committed: CommittedOffset | None
    start: int | None
    end: int | None
    owner: GroupMember | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed.offset)

    @property
    def room(self) -> int | None:
        """Records between the log start, which retention moves, and the committed offset; negative if some are lost."""
        return None if self.committed is None or self.start is None else self.committed.offset - self.start


def _positions(context: Context, group: GroupDescription) -> list[_Position]:
    committed = context.cluster.groups.offsets(group.group_id)
    owners = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    keys = sorted({*committed, *owners})
    ends = log_ends(context, keys)
    starts = context.cluster.records.offsets_at(ends, EARLIEST_TIMESTAMP) if ends else {}
    return [_Position(key, committed.get(key), starts.get(key), ends.get(key), owners.get(key)) for key in keys]


def show_one(context: Context) -> Response:
    """One group."""
    group_id = context.query.required("id")
    group = context.cluster.groups.describe(group_id)
    positions = _positions(context, group)
    known = [each.lag for each in positions if each.lag is not None]
    lost = sum(1 for each in positions if each.room is not None and each.room < 0)
    return html.page(
        context,
        f"Group {group_id}",
        html.heading(html.name(group_id)),
        h.p(".health.bad", role="status")[
            f"{formats.counted(lost, 'partition')} lost records that the group had not read: retention removed them. "
            "What to do: raise retention.ms or retention.bytes, or make the group faster."
        ]
        if lost
        else None,
        html.facts(
            ("State", _state(group.state)),
            ("Type", group.group_type),
            ("Members", formats.number(len(group.members))),
            ("Lag in records", formats.number(sum(known) if known else None)),
            ("Assignor", html.name(group.assignor or "-")),
            ("Coordinator", f"{group.coordinator.node_id} ({format_address(*group.coordinator[1:3])})"),
        ),
        _chart(context, group_id) if known else None,
        h.h2["Partitions"],
        _position_table(context, positions),
        h.h2["Members"],
        _member_table(group),
        _changes(context, group, positions),
        active="groups",
    )


def _chart(context: Context, group_id: str) -> Node:
    return [
        h.h2["Lag while this page is open"],
        h.svg(
            ".chart",
            viewBox="0 0 100 50",
            preserveAspectRatio="none",
            role="img",
            aria_label="Lag of the group over time; the table below has its numbers",
            data_chart=context.url("/group-lag", id=group_id),
        )[h.line(x1="0", x2="100", y1="48", y2="48"), h.polyline(points="")],
        html.table(
            "Lag",
            (Column("Now"), Column("Least"), Column("Most")),
            [tuple(h.span(id=f"chart-{each}")["-"] for each in ("now", "least", "most"))],
        ),
    ]


def lag(context: Context) -> Response:
    """The lag of one group as JSON, for its chart."""
    group_id = context.query.required("id")
    committed = {key: each.offset for key, each in context.cluster.groups.offsets(group_id).items()}
    found = total_lag(committed, log_ends(context, committed)) or 0
    return JSONResponse({"value": found, "text": formats.number(found)})


def _position_table(context: Context, positions: list[_Position]) -> Node:
    most = max((each.lag or 0 for each in positions), default=0)
    columns = (
        Column("Topic"),
        Column("Partition", is_number=True),
        Column("Committed", is_number=True),
        Column("End", is_number=True),
        Column("Lag", is_number=True),
        Column(""),
        Column("Before retention", is_number=True),
        Column("Member"),
    )
    rows = [
        (
            h.a(href=context.topic_url(each.key[0]))[html.name(each.key[0])],
            str(each.key[1]),
            formats.number(each.committed.offset if each.committed is not None else None),
            formats.number(each.end),
            formats.number(each.lag),
            html.bar(each.lag or 0, most, f"Lag of {each.key[0]}-{each.key[1]}"),
            formats.number(each.room),
            html.name(each.owner.client_id) if each.owner is not None else "-",
        )
        for each in positions
    ]
    return html.table("Positions", columns, rows, empty="No offset is committed, and no partition is assigned.")


def _member_table(group: GroupDescription) -> Node:
    columns = (
        Column("Client"),
        Column("Host"),
        Column("Member"),
        Column("Partitions", is_number=True),
        Column("Assignment"),
    )
    rows = [
        (
            html.name(each.client_id),
            html.name(each.host),
            html.name(each.instance_id or each.member_id),
            formats.number(sum(map(len, each.assignment.values()))),
            html.name(" ".join(f"{topic}:{formats.ids(found)}" for topic, found in each.assignment.items())[:2_000]),
        )
        for each in group.members
    ]
    return html.table("Members", columns, rows, empty="No members.")


def _changes(context: Context, group: GroupDescription, positions: list[_Position]) -> Node:
    if not context.offers("group reset"):
        return None
    if group.state not in WITHOUT_MEMBERS:
        return h.p(".hint")["Offsets can be reset, and the group deleted, while it has no members."]
    topics = sorted({each.key[0] for each in positions})
    return [
        h.form(".act", method="get", action=context.url("/group/reset"))[
            h.h2["Reset offsets"],
            h.input(type="hidden", name="id", value=group.group_id),
            html.field("Topic", html.select("topic", [("", "All topics"), *((each, each) for each in topics)])),
            html.field("Reset", html.select("target", TARGETS)),
            html.field(
                "Time, offset or number", h.input(name="value", autocomplete="off", placeholder="2026-11-28T10:00:00Z")
            ),
            h.button(type="submit")["Preview"],
        ],
        html.confirmed(
            context,
            "/group/delete",
            group.group_id,
            "Delete group",
            h.h2["Delete the group"],
            h.p["Its committed offsets are lost."],
            h.input(type="hidden", name="id", value=group.group_id),
            version=_version(group, {each.key: each.committed for each in positions if each.committed is not None}),
        ),
    ]


def _version(group: GroupDescription, committed: Mapping[TopicPartition, CommittedOffset]) -> str:
    return version_of(group.group_id, group.state, sorted((key, each.offset) for key, each in committed.items()))


class _Plan(NamedTuple):
    """A reset: committed and new offsets, and the version of the former."""

    committed: Mapping[TopicPartition, int]
    planned: Mapping[TopicPartition, int]
    version: str


def _plan(context: Context, group_id: str, topic: str, kind: str, value: str) -> _Plan:
    group = context.cluster.groups.describe(group_id)
    if group.state not in WITHOUT_MEMBERS:
        raise PageError(409, f"Group {group_id} has members: stop them first.")
    offsets = context.cluster.groups.offsets(group_id)
    committed = {key: each.offset for key, each in offsets.items()}
    keys = sorted(key for key in committed if topic in ("", key[0]))
    keys = sorted(log_ends(context, keys))
    if not keys:
        raise PageError(400, "The group has no offset of an existing partition there.")
    planned = OffsetReset(context.cluster, committed).plan(keys, _target(kind, value.strip()))
    return _Plan(committed, planned, version_of(_version(group, offsets), topic, kind, value))


def _target(kind: str, text: str) -> Target:
    if kind in ("to_earliest", "to_latest"):
        return Target(kind, 1)
    if kind == "to_datetime":
        timestamp_ms = parse_time(text)
        if timestamp_ms is None:
            raise PageError(400, f"{text!r} is not a time such as 2026-11-28T10:00:00Z.")
        return Target(kind, timestamp_ms)
    digits = text.removeprefix("-") if kind == "shift_by" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_SHIFT_DIGITS):
        raise PageError(400, f"{text!r} is not a number.")
    return Target(kind, int(text))


def preview_reset(context: Context) -> Response:
    """Committed and new offsets of every partition."""
    query = context.query
    group_id, topic, value = query.required("id"), query.text("topic"), query.text("value")
    kind = query.choice("target", [name for name, _ in TARGETS])
    plan = _plan(context, group_id, topic, kind, value)
    rows = [
        (
            html.name(key[0]),
            str(key[1]),
            formats.number(plan.committed[key]),
            formats.number(offset),
            f"{offset - plan.committed[key]:+,}",
        )
        for key, offset in plan.planned.items()
    ]
    columns = (
        Column("Topic"),
        Column("Partition", is_number=True),
        Column("Committed now", is_number=True),
        Column("Committed then", is_number=True),
        Column("Change", is_number=True),
    )
    fields = {"id": group_id, "topic": topic, "target": kind, "value": value}
    return html.page(
        context,
        f"Reset offsets of {group_id}",
        html.heading("Reset offsets of ", html.name(group_id)),
        html.table("New offsets", columns, rows),
        html.confirmed(
            context,
            "/group/reset",
            group_id,
            "Reset offsets",
            [h.input(type="hidden", name=name, value=text) for name, text in fields.items()],
            h.input(type="hidden", name="offsets", value=_offsets_text(plan.planned)),
            version=plan.version,
        ),
        active="groups",
    )


def _offsets_text(planned: Mapping[TopicPartition, int]) -> str:
    return version_of(sorted(planned.items()))


def reset(context: Context) -> Response:
    """Commit the offsets of the preview; refused if they would differ from it."""
    form = context.form
    group_id, topic, value = form.required("id"), form.text("topic"), form.text("value")
    kind = form.choice("target", [name for name, _ in TARGETS])
    context.audit.update(group=group_id, topic=topic or None, target=kind, value=value or None)
    context.require_typed_name(group_id)
    plan = _plan(context, group_id, topic, kind, value)
    context.require_version(plan.version)
    if kind != "to_latest" and form.text("offsets") != _offsets_text(plan.planned):
        raise PageError(409, "Nothing was changed: the logs have changed since the preview. Look again.")
    context.cluster.groups.commit_offsets(group_id, plan.planned)
    return context.redirect(context.url("/group", id=group_id), f"Offsets of {group_id} were reset.")


def delete(context: Context) -> Response:
    """Delete the group with its offsets."""
    group_id = context.audit["group"] = context.form.required("id")
    context.require_typed_name(group_id)
    group = context.cluster.groups.describe(group_id)
    context.require_version(_version(group, context.cluster.groups.offsets(group_id)))
    context.cluster.groups.delete(group_id)
    return context.redirect(context.url("/groups"), f"Group {group_id} was deleted.")
