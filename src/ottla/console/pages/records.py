"""Records of a topic: lists, search, one record with its neighbours, and downloads."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from functools import partial

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
    EXPORT_BUDGET,
    NEWEST,
    OLDEST,
    Listing,
    RecordPage,
    decoder_choices,
    fields_of,
    read_page,
    start_listing,
    start_search,
)
from ottla.console.record_parts import (
    AS_TEXT,
    cell,
    decoder_of,
    headers_cell,
    masking_note,
    raw_bytes,
    size_of,
    text_of,
    whole,
)
from ottla.console.searching import masking_of, open_search, read_record
from ottla.console.sessions import CURSORS, MAX_CURSORS
from ottla.console.topic_parts import topic_heading
from ottla.search.engine import Budget
from ottla.search.report import END, LIMIT, Report
from ottla.search.scan import Hit
from ottla.search.scopes import ISOLATIONS
from ottla.search.subject import Decoders
from ottla.search.syntax import KEY

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
        page = read_page(listing, number, context.cluster, partial(open_search, context))
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
        masking_note(masking_of(context, topic)),
        None if page is None else _result(context, topic, page, number, links),
        active="topics",
        status=200 if problem is None else 400,
    )


def _form(context: Context, topic: str) -> Node:
    query = context.query
    decoders = [(each, each) for each in decoder_choices(context)]
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

    def row(hit: Hit) -> tuple[Node, ...]:
        place = f"/records/{hit.partition}/{hit.offset}"
        return (
            str(hit.partition),
            h.a(href=context.topic_url(topic, place, **decoders))[str(hit.offset)],
            html.time(hit.timestamp),
            cell(hit.key, hit.decoded_key, context.topic_url(topic, place + "/value", part="key")),
            cell(hit.value, hit.decoded_value, context.topic_url(topic, place + "/value")),
            headers_cell(hit),
        )

    rows = [row(hit) for hit in hits]
    return h.div(".records")[html.table("Records", columns, rows, empty="No records here.")]


def show_one(context: Context) -> Response:
    """One record with everything that is known of it."""
    topic, partition, offset = place_of(context)
    hit = read_record(context, topic, partition, offset, chosen_decoders(context))
    keys = [(topic, partition)]
    first = context.cluster.records.offsets_at(keys, EARLIEST_TIMESTAMP)[topic, partition]
    end = context.cluster.records.offsets_at(keys, LATEST_TIMESTAMP)[topic, partition]
    decoders = decoder_fields(context)

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
        html.pager([("Previous offset", beside(offset - 1)), ("Next offset", beside(offset + 1))], ""),
        masking_note(masking_of(context, topic)),
        content,
        active="topics",
        status=200 if hit is not None else 404,
    )


def _one(context: Context, topic: str, hit: Hit) -> Node:
    place = f"/records/{hit.partition}/{hit.offset}"
    key_text = text_of(hit.key, hit.decoded_key)
    mask = masking_of(context, topic).mask
    same_key = (
        context.topic_url(topic, "/records", partition=hit.partition, q=f"key == {_quoted(key_text)}")
        if key_text is not None
        and hit.decoded_key.failure is None
        and len(key_text) < 500
        and (mask is None or mask.keeps_equality(KEY))
        else None
    )
    rows = [(html.name(name), cell(value, AS_TEXT)) for name, value in hit.headers]
    return [
        h.p[h.label(".check", hidden=True)[h.input("#local-times", type="checkbox"), "Local time"]],
        html.facts(
            ("Time", html.time(hit.timestamp)),
            ("Time set by", "the broker" if hit.is_append_time else "the producer"),
            ("Key", size_of(hit.key, hit.decoded_key)),
            ("Value", size_of(hit.value, hit.decoded_value)),
            ("Key decoded as", decoder_of(hit.decoded_key)),
            ("Value decoded as", decoder_of(hit.decoded_value)),
        ),
        h.h3["Key"],
        whole(hit.key, hit.decoded_key),
        raw_bytes(hit.key),
        h.p[h.a(href=same_key)["Other records with this key"]] if same_key is not None else None,
        _versions(context, topic, hit, is_comparable=mask is None or mask.keeps_equality(KEY)),
        h.h3["Value"],
        whole(hit.value, hit.decoded_value),
        raw_bytes(hit.value),
        h.h3["Headers"],
        html.table("Headers", (Column("Name"), Column("Value")), rows),
        h.p[
            "Download: ",
            h.a(href=context.topic_url(topic, place + "/value"))["value"] if hit.value is not None else None,
            " " if hit.value is not None and hit.key is not None else None,
            h.a(href=context.topic_url(topic, place + "/value", part="key"))["key"] if hit.key is not None else None,
        ],
        h.p[h.a(href=context.topic_url(topic, "/produce", partition=hit.partition, offset=hit.offset))["Produce again"]]
        if context.offers("produce") and mask is None
        else None,
    ]


def _versions(context: Context, topic: str, hit: Hit, *, is_comparable: bool) -> Node:
    if hit.key is None or not is_comparable:
        return None
    place = f"/records/{hit.partition}/{hit.offset}/versions"
    links = [
        h.a(href=context.topic_url(topic, place, compare=each, **decoder_fields(context)))[f"{each} version"]
        for each in ("previous", "next")
    ]
    return h.p["Compare with the ", links[0], " or the ", links[1], " of this key."]


def _quoted(text: str) -> str:
    """A string of the query language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def place_of(context: Context) -> tuple[str, int, int]:
    """Topic, partition and offset of the address, which go to the audit log. Raises PageError."""
    topic, partition, offset = (context.path[name] for name in ("topic", "partition", "offset"))
    if not (_is_number(partition, 10) and _is_number(offset, 19)):
        raise PageError(404, "A record has a partition and an offset.")
    context.audit.update(partition=partition, offset=offset)
    return topic, int(partition), int(offset)


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits


def decoder_fields(context: Context) -> dict[str, str]:
    """The decoders of the address, for links."""
    return {name: context.query.text(name) for name in ("key_decoder", "value_decoder")}


def chosen_decoders(context: Context) -> Decoders:
    """The decoders of the address. Raises PageError."""
    return Decoders(*(context.query.choice(f"{part}_decoder", decoder_choices(context)) for part in ("key", "value")))


def download_one(context: Context) -> Response:
    """The raw value or key of a record, as an attachment that no browser shows."""
    topic, partition, offset = place_of(context)
    hit = read_record(context, topic, partition, offset, chosen_decoders(context))
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
            search = start_search(listing, listing.starts[0], cluster, partial(open_search, context), budget)
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
