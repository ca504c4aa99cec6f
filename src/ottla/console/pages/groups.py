"""Groups: the list with lag, one group with members and positions, reset and deletion of offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.cli.offset_reset import OffsetReset, Target
from ottla.client.views.rates import GroupRates
from ottla.client.wire.model import CommittedOffset, GroupDescription
from ottla.common.kafka.integers import MAX_INT
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.endpoint import format_address
from ottla.console import formats, html
from ottla.console.context import Context, PageError, version_of
from ottla.console.flow import read_groups
from ottla.console.html import Column
from ottla.console.lags import existing_partitions, topics_of
from ottla.console.paging import list_page
from ottla.console.positions import Position, Positions, read_positions
from ottla.console.unread import Age, group_ages
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
MAX_WARNINGS = 5
"""Partitions that a warning names."""
LAG_COLUMNS = (
    Column("Lag in records", is_number=True),
    Column("Lag in time", is_number=True),
    Column("Consumed/s", is_number=True),
    Column("Catches up in", is_number=True),
)
LAG_FIELDS = ("lag", "age", "consumed", "wait")


def show(context: Context) -> Response:
    """The list; the script fills in lag and rates of the visible groups."""
    query = context.query
    wanted = query.text("filter").lower()
    found = [each for each in context.cluster.groups.find() if wanted in each.group_id.lower()]
    page = list_page(found, query.number("page", 1, most=MAX_INT), ROWS)
    rows = [
        (
            h.a(href=context.url("/group", id=each.group_id))[html.name(each.group_id)],
            _state(each.state),
            each.group_type or "-",
            each.protocol_type or "-",
            *(html.live(f"{index}-{field}") for field in LAG_FIELDS),
        )
        for index, each in enumerate(page.rows)
    ]
    columns = (Column("Group"), Column("State"), Column("Type"), Column("Protocol"), *LAG_COLUMNS)
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
        html.table("Groups", columns, rows, empty="No group matches."),
        html.live_note(context.url("/group-flows", name=[each.group_id for each in page.rows])) if page.rows else None,
        html.list_pager(page, lambda number: context.url("/groups", filter=kept, page=number)),
        active="groups",
    )


def _state(state: str | None) -> Node:
    kind = {"Stable": "good", "Empty": "", "Dead": "bad"}.get(state or "", "warning")
    return html.badge(state, kind) if state else "-"


def flows(context: Context) -> Response:
    """Lags and rates of some groups as JSON, for the visible rows in their order."""
    names = context.query.all("name")
    if len(names) > ROWS:
        raise PageError(400, f"At most {ROWS} groups at once.")
    found = read_groups(context, names)
    ages, note = group_ages(context, found.offsets, found.traffic.ends)
    cells: dict[str, str] = {}
    for number, name in enumerate(names):
        if name in found.rates:
            texts = _lag_texts(found.rates[name], ages[name])
            cells |= {f"{number}-{field}": text for field, text in zip(LAG_FIELDS, texts, strict=True)}
    return html.flow_response(cells, note=f"{found.traffic.note()} {note}".strip())


def _lag_texts(rates: GroupRates, age: Age) -> tuple[str, ...]:
    """Texts of LAG_FIELDS."""
    return (
        formats.number(rates.lag),
        age.text(),
        formats.rate(rates.consumed_per_s),
        formats.wait(rates.catch_up_s),
    )


def show_one(context: Context) -> Response:
    """One group."""
    group_id = context.query.required("id")
    group = context.cluster.groups.describe(group_id)
    positions = read_positions(context, group, context.query.number("page", 1, most=1_000_000))
    lag, age, consumed, wait = (
        html.live(field, text)
        for field, text in zip(LAG_FIELDS, _lag_texts(positions.rates, positions.age), strict=True)
    )
    return html.page(
        context,
        f"Group {group_id}",
        html.heading(html.name(group_id)),
        _warnings(positions),
        html.facts(
            ("State", _state(group.state)),
            ("Type", group.group_type),
            ("Members", formats.number(len(group.members))),
            ("Lag in records", lag),
            ("Lag in time", age),
            ("Consumed/s", consumed),
            ("Written/s", html.live("written", formats.rate(positions.rates.produced_per_s))),
            ("Catches up in", wait),
            ("Assignor", html.name(group.assignor or "-")),
            ("Coordinator", f"{group.coordinator.node_id} ({format_address(*group.coordinator[1:3])})"),
        ),
        html.live_note(context.url("/group-flow", id=group_id, page=positions.page.number), positions.note),
        html.live_chart("Lag while this page is open", "records") if positions.rates.lag is not None else None,
        _topic_table(context, positions),
        h.h2["Partitions"],
        _position_table(context, positions),
        _position_pager(context, group_id, positions),
        h.h2["Members"],
        _member_table(group),
        _changes(context, group, positions.all),
        active="groups",
    )


def _warnings(positions: Positions) -> list[Node]:
    lost = sum(1 for each in positions.all if each.room is not None and each.room < 0)
    soon = sorted(
        (each for each in positions.all if each.distance is not None and each.distance.is_short),
        key=lambda each: -1.0 if each.distance is None or each.distance.seconds is None else each.distance.seconds,
    )
    named = ", ".join(f"{each.name} ({_left_text(each)})" for each in soon[:MAX_WARNINGS])
    more = f" and {len(soon) - MAX_WARNINGS:,} more" if len(soon) > MAX_WARNINGS else ""
    remedy = "What to do: raise retention.ms or retention.bytes, or make the group faster."
    return [
        h.p(".health.bad", role="status")[
            f"{formats.counted(lost, 'partition')} lost records that the group had not read: retention removed them. "
            f"{remedy}"
        ]
        if lost
        else None,
        h.p(".health.warning", role="status")[
            f"Retention may delete the next unread record of {formats.counted(len(soon), 'partition')} soon: "
            f"{named}{more}. {remedy}"
        ]
        if soon
        else None,
    ]


def _left_text(position: Position) -> str:
    """Time until the oldest unread record may be deleted."""
    found = position.distance
    if found is None or (found.seconds is None and not found.is_short):
        return "-"
    if found.used >= 1:
        return "now"
    return "soon" if found.seconds is None else formats.duration(found.seconds)


def flow(context: Context) -> Response:
    """Lag and rates of one group as JSON."""
    group = context.cluster.groups.describe(context.query.required("id"))
    positions = read_positions(context, group, context.query.number("page", 1, most=1_000_000))
    rates = positions.rates
    cells = dict(zip(LAG_FIELDS, _lag_texts(rates, positions.age), strict=True))
    cells["written"] = formats.rate(rates.produced_per_s)
    for each in positions.page.rows:
        cells |= {f"{field}-{each.name}": text for field, text in _position_texts(each).items()}
    return html.flow_response(cells, note=positions.note, chart=(rates.lag, formats.number(rates.lag)))


def _position_texts(position: Position) -> dict[str, str]:
    """The live texts of a row."""
    return {
        "committed": formats.number(None if position.committed is None else position.committed.offset),
        "end": formats.number(position.end),
        "lag": formats.number(position.lag),
        "age": formats.wait(position.age_s),
        "consumed": formats.rate(position.consumed_per_s),
        "room": formats.number(position.room),
        "left": _left_text(position),
    }


def _topic_table(context: Context, positions: Positions) -> Node:
    """Lag by topic, for groups that read several."""
    topics = sorted({each.key[0] for each in positions.all})
    if len(topics) < 2:
        return None
    columns = (Column("Topic"), Column("Partitions", is_number=True), *LAG_COLUMNS[:2])
    rows = []
    for topic in topics[:ROWS]:
        found = [each for each in positions.all if each.key[0] == topic]
        known = [each.lag for each in found if each.lag is not None]
        rows.append(
            (
                h.a(href=context.topic_url(topic))[html.name(topic)],
                formats.number(len(found)),
                formats.number(sum(known) if known else None),
                positions.topic_age(topic).text(),
            )
        )
    left = len(topics) - ROWS
    return [
        h.h2["Topics"],
        html.table("Lag by topic", columns, rows),
        h.p(".hint")[f"{formats.counted(left, 'topic')} more."] if left > 0 else None,
    ]


def _position_table(context: Context, positions: Positions) -> Node:
    most = max((each.lag or 0 for each in positions.page.rows), default=0)
    columns = (
        Column("Topic"),
        Column("Partition", is_number=True),
        Column("Committed", is_number=True),
        Column("End", is_number=True),
        *LAG_COLUMNS[:2],
        Column(""),
        Column("Consumed/s", is_number=True),
        Column("Before retention", is_number=True),
        Column("Deleted in", is_number=True),
        Column("Member"),
    )
    rows = []
    for each in positions.page.rows:
        texts = {field: html.live(f"{field}-{each.name}", text) for field, text in _position_texts(each).items()}
        is_short = each.distance is not None and each.distance.is_short
        rows.append(
            (
                h.a(href=context.topic_url(each.key[0]))[html.name(each.key[0])],
                str(each.key[1]),
                *(texts[field] for field in ("committed", "end", "lag", "age")),
                html.bar(each.lag or 0, most, f"Lag of {each.name}"),
                *(texts[field] for field in ("consumed", "room")),
                h.span(".badge.warning")[texts["left"]] if is_short else texts["left"],
                html.name(each.owner.client_id) if each.owner is not None else "-",
            )
        )
    return html.table("Positions", columns, rows, empty="No offset is committed, and no partition is assigned.")


def _position_pager(context: Context, group_id: str, positions: Positions) -> Node:
    if positions.page.pages == 1:
        return None
    return html.list_pager(positions.page, lambda number: context.url("/group", id=group_id, page=number))


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


def _changes(context: Context, group: GroupDescription, positions: Sequence[Position]) -> Node:
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
    keys = sorted(existing_partitions(topics_of(context, keys), keys))
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
    rows = [_reset_row(key, plan) for key in _scope(context, plan, topic)]
    changes = [offset - plan.committed[key] for key, offset in plan.planned.items()]
    again, skipped = -sum(each for each in changes if each < 0), sum(each for each in changes if each > 0)
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
        h.p[f"The group would read {formats.counted(again, 'offset')} again, and skip {formats.number(skipped)}."],
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


def _scope(context: Context, plan: _Plan, topic: str) -> list[TopicPartition]:
    """The committed partitions of the reset, and the others of their topics, which it does not change."""
    committed = [key for key in plan.committed if topic in ("", key[0])]
    topics = context.topics()
    others = [
        (name, each.index)
        for name in dict.fromkeys(name for name, _ in committed)
        if name in topics
        for each in topics[name].partitions
    ]
    return sorted({*committed, *others})


def _reset_row(key: TopicPartition, plan: _Plan) -> tuple[Node, ...]:
    name, partition = html.name(key[0]), str(key[1])
    if key not in plan.committed:
        return (name, partition, "none", "unchanged", "no offset to reset")
    committed = plan.committed[key]
    if key not in plan.planned:
        return (name, partition, formats.number(committed), "unchanged", "no leader, or deleted")
    offset = plan.planned[key]
    return (name, partition, formats.number(committed), formats.number(offset), f"{offset - committed:+,}")


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
