"""Records of a topic: lists, search, one record with its neighbours, and downloads."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import htpy as h
from htpy import Node
from starlette.responses import Response, StreamingResponse

from ottla.cli.search_results import json_line
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.common.errors import OttlaError
from ottla.console import formats, html
from ottla.console.context import ClientGone, Context, PageError
from ottla.console.errors import sentence
from ottla.console.html import Column
from ottla.console.listing import (
    DECODER_CHOICES,
    EXPORT_BUDGET,
    FETCH_BYTES,
    NEWEST,
    OLDEST,
    Listing,
    RecordPage,
    fields_of,
    read_page,
    start_listing,
    start_search,
)
from ottla.console.record_parts import cell, headers_cell, text_of, whole
from ottla.console.sessions import CURSORS, MAX_CURSORS
from ottla.console.topic_parts import topic_heading
from ottla.search.engine import Budget, Search
from ottla.search.plan import OffsetRange, Plan
from ottla.search.report import END, LIMIT, Report
from ottla.search.scan import Hit
from ottla.search.scopes import ISOLATIONS
from ottla.search.source import ClusterTopic
from ottla.search.subject import Decoders

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Starts of a cell that a spreadsheet would run as a formula."""
EXPORT_CHUNK_CHARS = 64 * 1024


def show(context: Context) -> Response:
    """A page of a listing; without a cursor, the first page of a new one."""
    topic, query = context.path["topic"], context.query
    fields = fields_of(query)
    context.audit.update(fields)
    name = query.text("cursor")
    number = query.number("page", 1, most=1_000_000)
    listing: Listing | None = context.session.kept(CURSORS).get(name) if name else None
    problem: str | None = None
    notice: str | None = None
    page: RecordPage | None = None
    try:
        if listing is None or listing.topic != topic:
            if name and number > 1:
                notice = "The listing had ended, so this is a new one from its start."
            listing, number = start_listing(context, topic, context.cluster), 1
            name = context.services.sessions.random_name()
        page = read_page(listing, number, context.cluster, context.services.clock.monotonic, context.check_alive)
        context.session.keep(CURSORS, name, listing, MAX_CURSORS)
    except PageError as error:
        problem = sentence(error)
    links = fields | {"cursor": name}
    return html.page(
        context,
        f"Records of {topic}",
        topic_heading(context, topic, "records"),
        _form(context, topic),
        None if problem is None else h.p(".error", role="alert")[formats.visible(problem)],
        None if notice is None else h.p(".hint")[notice],
        None if page is None else _result(context, topic, page, number, links),
        active="topics",
        status=200 if problem is None else 400,
    )


def _form(context: Context, topic: str) -> Node:
    query = context.query
    decoders = [(each, each) for each in DECODER_CHOICES]
    return h.form(".filter", method="get", action=context.topic_url(topic, "/records"), role="search")[
        h.div(".wide")[
            html.field(
                "Search",
                h.input(
                    name="q",
                    type="search",
                    value=query.text("q"),
                    spellcheck="false",
                    placeholder='timeout, or value.user.id == 42 && headers["env"] == "prod"',
                ),
            )
        ],
        html.field(
            "Order",
            html.select("order", [(NEWEST, "Newest first"), (OLDEST, "Oldest first")], query.text("order")),
        ),
        html.field(
            "From", h.input(name="from", value=query.text("from"), placeholder="-2h, time or offset", size="16")
        ),
        html.field("Until", h.input(name="until", value=query.text("until"), placeholder="time or offset", size="16")),
        html.field("Partitions", h.input(name="partition", value=query.text("partition"), placeholder="all", size="8")),
        h.details(open=any(query.text(each) for each in ("isolation", "key_decoder", "value_decoder")))[
            h.summary["More"],
            h.div(".filter")[
                html.field(
                    "Transactions",
                    html.select(
                        "isolation",
                        [("uncommitted", "All records"), (ISOLATIONS[0], "Committed only")],
                        query.text("isolation"),
                    ),
                ),
                html.field("Decode keys as", html.select("key_decoder", decoders, query.text("key_decoder"))),
                html.field("Decode values as", html.select("value_decoder", decoders, query.text("value_decoder"))),
            ],
        ],
        h.button(".primary", type="submit")["Show"],
        h.label(".check", hidden=True)[h.input("#local-times", type="checkbox"), "Local time"],
    ]


def _result(context: Context, topic: str, page: RecordPage, number: int, links: dict[str, str]) -> Node:
    fields = {name: value for name, value in links.items() if name != "cursor"}
    next_title = "Next" if page.report.reason == LIMIT else "Continue the search"
    return [
        h.p(".hint", role="status")[formats.visible(_summary(page.report))],
        _table(context, topic, page.hits, fields),
        html.pager(
            context,
            [
                ("Previous", context.topic_url(topic, "/records", **links, page=number - 1) if number > 1 else None),
                (next_title, context.topic_url(topic, "/records", **links, page=number + 1) if page.has_next else None),
            ],
            f"Page {number}",
        ),
        h.p[
            "Download all that match: ",
            h.a(href=context.topic_url(topic, "/export", **fields, format="jsonl"))["JSON lines"],
            " or ",
            h.a(href=context.topic_url(topic, "/export", **fields, format="csv"))["CSV"],
            f", at most {EXPORT_BUDGET.matches:,} records.",
        ],
    ]


def _summary(report: Report) -> str:
    text = report.sentence()
    return text[:1].upper() + text[1:] + "."


def _table(context: Context, topic: str, hits: list[Hit], fields: dict[str, str]) -> Node:
    columns = (
        Column("Partition", is_number=True),
        Column("Offset", is_number=True),
        Column("Time"),
        Column("Key"),
        Column("Value"),
        Column("Headers"),
    )
    decoders = {name: fields[name] for name in ("key_decoder", "value_decoder") if name in fields}
    rows = [
        (
            str(hit.partition),
            h.a(href=context.topic_url(topic, f"/records/{hit.partition}/{hit.offset}", **decoders))[str(hit.offset)],
            html.time(hit.timestamp),
            cell(hit.key, hit.decoded_key),
            cell(hit.value, hit.decoded_value),
            headers_cell(hit),
        )
        for hit in hits
    ]
    return h.div(".records")[html.table("Records", columns, rows, empty="No records here.")]


def show_one(context: Context) -> Response:
    """One record with everything that is known of it."""
    topic, partition, offset = _place(context)
    hit = _read(context, topic, partition, offset)
    keys = [(topic, partition)]
    first = context.cluster.records.offsets_at(keys, EARLIEST_TIMESTAMP)[topic, partition]
    end = context.cluster.records.offsets_at(keys, LATEST_TIMESTAMP)[topic, partition]
    decoders = {name: context.query.text(name) for name in ("key_decoder", "value_decoder")}

    def beside(number: int) -> str | None:
        if not first <= number < end:
            return None
        return context.topic_url(topic, f"/records/{partition}/{number}", **decoders)

    content: Node
    if hit is None:
        content = h.p[
            f"Partition {partition} has no record at offset {offset}: it is not between {first} and {end}, was "
            "removed by compaction, or is a transaction marker."
        ]
    else:
        content = _one(context, topic, hit)
    return html.page(
        context,
        f"Record {partition}:{offset} of {topic}",
        topic_heading(context, topic, "records"),
        h.h2[f"Record at offset {offset} of partition {partition}"],
        html.pager(context, [("Previous offset", beside(offset - 1)), ("Next offset", beside(offset + 1))], ""),
        content,
        active="topics",
        status=200 if hit is not None else 404,
    )


def _one(context: Context, topic: str, hit: Hit) -> Node:
    place = f"/records/{hit.partition}/{hit.offset}"
    key_text = text_of(hit.key, hit.decoded_key)
    same_key = (
        context.topic_url(topic, "/records", partition=hit.partition, q=f"key == {_quoted(key_text)}")
        if key_text is not None and hit.decoded_key.failure is None and len(key_text) < 500
        else None
    )
    rows = [(html.name(name), cell(value, hit.decoded_key._replace(decoder="text", failure=None)))
            for name, value in hit.headers]  # fmt: skip
    return [
        h.p[h.label(".check", hidden=True)[h.input("#local-times", type="checkbox"), "Local time"]],
        html.facts(
            ("Time", html.time(hit.timestamp)),
            ("Time set by", "the broker" if hit.is_append_time else "the producer"),
            ("Key", formats.size(len(hit.key)) if hit.key is not None else "null"),
            ("Value", formats.size(len(hit.value)) if hit.value is not None else "null"),
            ("Decoded as", f"{hit.decoded_key.decoder}, {hit.decoded_value.decoder}"),
        ),
        h.h3["Key"],
        whole(hit.key, hit.decoded_key),
        h.p[h.a(href=same_key)["Other records with this key"]] if same_key is not None else None,
        h.h3["Value"],
        whole(hit.value, hit.decoded_value),
        h.h3["Headers"],
        html.table("Headers", (Column("Name"), Column("Value")), rows),
        h.p[
            "Download: ",
            h.a(href=context.topic_url(topic, place + "/value"))["value"] if hit.value is not None else None,
            " " if hit.value is not None and hit.key is not None else None,
            h.a(href=context.topic_url(topic, place + "/value", part="key"))["key"] if hit.key is not None else None,
        ],
        h.p[h.a(href=context.topic_url(topic, "/produce", partition=hit.partition, offset=hit.offset))["Produce again"]]
        if context.offers("produce")
        else None,
    ]


def _quoted(text: str) -> str:
    """A string of the query language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _place(context: Context) -> tuple[str, int, int]:
    topic, partition, offset = (context.path[name] for name in ("topic", "partition", "offset"))
    if not (_is_number(partition, 10) and _is_number(offset, 19)):
        raise PageError(404, "A record has a partition and an offset.")
    context.audit.update(partition=partition, offset=offset)
    return topic, int(partition), int(offset)


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits


def _read(context: Context, topic: str, partition: int, offset: int) -> Hit | None:
    """The record at an offset, None if there is none. Raises KafkaError, PageError."""
    hit = read_record(
        context,
        topic,
        partition,
        offset,
        Decoders(*(context.query.choice(f"{part}_decoder", DECODER_CHOICES) for part in ("key", "value"))),
    )
    return hit if hit is not None and hit.offset == offset else None


def read_record(context: Context, topic: str, partition: int, offset: int, decoders: Decoders) -> Hit | None:
    """The first record at or after an offset."""
    source = ClusterTopic(context.cluster, topic, "uncommitted")
    if partition not in source.partitions():
        raise PageError(404, f"Topic {topic} has no partition {partition}.")
    start, end = source.start_offsets([partition])[partition], source.end_offsets([partition])[partition]
    if not start <= offset < end:
        return None
    plan = Plan(topic, "", {partition: OffsetRange(offset, offset + 1)}, decoders=decoders)
    search = Search(source, plan, None, Budget(matches=1), context.services.clock.monotonic, fetch_bytes=FETCH_BYTES)
    return next(iter(search.run()), None)


def download_one(context: Context) -> Response:
    """The raw value or key of a record, as an attachment that no browser shows."""
    topic, partition, offset = _place(context)
    hit = _read(context, topic, partition, offset)
    part = context.query.choice("part", ("value", "key"))
    data = None if hit is None else (hit.value if part == "value" else hit.key)
    if data is None:
        raise PageError(404, f"This record does not exist, or its {part} is null.")
    name = f"{topic}-{partition}-{offset}.{part}"
    return Response(data, media_type="application/octet-stream", headers=_attachment(name))


def _attachment(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{_UNSAFE.sub("_", name)[:200]}"'}


def export(context: Context) -> Response:
    """All records of a listing as a file. Its last line says so if the listing was cut."""
    topic = context.path["topic"]
    kind = context.query.choice("format", ("jsonl", "csv"))
    context.audit.update(fields_of(context.query), format=kind)
    listing = start_listing(context, topic, context.cluster)
    limit = listing.parsed.scopes.limit
    budget = EXPORT_BUDGET
    if limit is not None:
        budget = Budget(min(limit, budget.matches or limit), None, budget.bytes, budget.seconds)
    security = context.session.security
    if security is None:
        raise PageError(403, "Sign in first.")

    def lines() -> Iterator[str]:
        with context.services.open_cluster(security) as cluster:
            search = start_search(
                listing, listing.starts[0], cluster, context.services.clock.monotonic, context.check_alive, budget
            )
            if kind == "csv":
                yield _csv_line(("partition", "offset", "timestamp", "key", "value", "headers"))
            try:
                for hit in search.run():
                    yield json_line(topic, hit) + "\n" if kind == "jsonl" else _csv_record(hit)
                is_cut = search.reason not in (END, LIMIT) or (search.reason == LIMIT and limit is None)
                ending = search.report(search.reason).sentence() if is_cut else None
            except ClientGone:
                return
            except OttlaError as error:
                ending = sentence(error)
            if ending is not None:
                yield (
                    f'{{"incomplete": "{_UNQUOTED.sub(" ", ending)}"}}\n'
                    if kind == "jsonl"
                    else _csv_line((f"incomplete: {ending}", "", "", "", "", ""))
                )

    media = "application/x-ndjson" if kind == "jsonl" else "text/csv; charset=utf-8"
    return StreamingResponse(_chunks(lines()), media_type=media, headers=_attachment(f"{topic}.{kind}"))


_UNQUOTED = re.compile(r'["\\\x00-\x1f]')


def _chunks(lines: Iterator[str]) -> Iterator[bytes]:
    """Lines in pieces that are worth a message each."""
    pieces: list[str] = []
    count = 0
    for line in lines:
        pieces.append(line)
        count += len(line)
        if count >= EXPORT_CHUNK_CHARS:
            yield "".join(pieces).encode(errors="backslashreplace")
            pieces, count = [], 0
    yield "".join(pieces).encode(errors="backslashreplace")


def _csv_record(hit: Hit) -> str:
    headers = "; ".join(f"{name}={text_of(value, None) or ''}" for name, value in hit.headers)
    texts = (text_of(hit.key, hit.decoded_key), text_of(hit.value, hit.decoded_value), headers)
    safe = (
        ("'" + text if text.startswith(_FORMULA) else text) for text in ("" if each is None else each for each in texts)
    )
    return _csv_line((str(hit.partition), str(hit.offset), formats.moment(hit.timestamp), *safe))


def _csv_line(cells: tuple[str, ...]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue()
