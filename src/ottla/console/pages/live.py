"""Live tail: new records of a topic as server-sent events, at a bounded rate, with the number of those left out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple

import anyio
import anyio.to_thread
import htpy as h
from starlette.responses import Response, StreamingResponse

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OttlaError
from ottla.console import formats, html
from ottla.console.context import Context, PageError
from ottla.console.errors import sentence, status_of
from ottla.console.html import Column
from ottla.console.listing import fields_of, start_listing
from ottla.console.record_parts import cut_part, masking_note
from ottla.console.searching import masking_of, open_search
from ottla.console.topic_parts import topic_heading
from ottla.search.engine import Budget
from ottla.search.parser import parse_query
from ottla.search.plan import OffsetRange, Plan
from ottla.search.scan import Hit
from ottla.search.source import ClusterTopic

TICK_S = 1.0
TICK_BUDGET = Budget(matches=50, bytes=4 * 1024 * 1024, seconds=2.0)
"""Bound of each second."""
MAX_OFFSETS = 20_000
"""Offsets of all partitions that a tail reads in a second; it skips older ones."""
MAX_TAILS = 5
"""Tails of a session."""
MAX_TAIL_S = 3600.0
ROWS_ON_PAGE = 200


def show(context: Context) -> Response:
    """The page, which opens the stream."""
    topic = context.path["topic"]
    fields = fields_of(context.query)
    columns = (
        Column("Partition", is_number=True),
        Column("Offset", is_number=True),
        Column("Time"),
        Column("Key"),
        Column("Value"),
    )
    return html.page(
        context,
        f"Live records of {topic}",
        topic_heading(context, topic, "live"),
        h.form(".filter", method="get", action=context.topic_url(topic, "/live"))[
            h.div(".wide")[
                html.field("Show only", h.input(name="q", type="search", value=fields.get("q"), spellcheck="false"))
            ],
            html.field("Partitions", h.input(name="partition", value=fields.get("partition"), placeholder="all")),
            h.button(type="submit")["Restart"],
            h.button("#tail-stop", type="button", hidden=True)["Stop"],
        ],
        masking_note(masking_of(context, topic)),
        h.p("#tail-state.hint", role="status")["Waiting for records. Live records need JavaScript."],
        h.div(
            ".scroll.records",
            role="region",
            aria_label="Live records",
            tabindex="0",
            data_tail=context.topic_url(topic, "/tail", **fields),
            data_rows=str(ROWS_ON_PAGE),
        )[
            h.table[
                h.caption["Live records, newest first"],
                h.thead[h.tr[[h.th(".number" if each.is_number else "", scope="col")[each.title] for each in columns]]],
                h.tbody,
            ]
        ],
        active="topics",
    )


class Tick(NamedTuple):
    """Records of a second, and the number of offsets and records that were left out."""

    hits: list[Hit]
    skipped: int
    is_cut: bool


class Tail:
    """The position of a live tail in each partition."""

    def __init__(self, context: Context, cluster: Cluster, plan: Plan) -> None:
        self._context = context
        self._cluster = cluster
        self._plan = plan
        self._filter = parse_query(plan.query, context.services.clock.time_ms()).filter
        self._next = {partition: each.end for partition, each in plan.ranges.items()}

    def tick(self) -> Tick:
        """The new records up to the present ends. Raises KafkaError, BrokerUnreachable."""
        source = ClusterTopic(self._cluster, self._plan.topic, self._plan.isolation)
        if source.topic_id != self._plan.topic_id:
            raise PageError(409, "The topic was deleted and created again.")
        ends = source.end_offsets(self._next)
        most = max(1, MAX_OFFSETS // max(1, sum(ends[each] > self._next[each] for each in ends)))
        ranges, skipped, reached = {}, 0, {}
        for partition, end in ends.items():
            start = max(self._next[partition], end - most)
            skipped += start - self._next[partition]
            if start < end:
                ranges[partition] = OffsetRange(start, end)
            reached[partition] = max(end, self._next[partition])
        if not ranges:
            return Tick([], skipped, is_cut=False)
        plan = replace(self._plan, ranges=ranges, newest_first=False)
        search = open_search(self._context, source, plan, self._filter, TICK_BUDGET)
        hits = list(search.run())
        self._next = reached  # not earlier: a tick that fails is repeated
        return Tick(hits, skipped, search.report(search.reason).resume is not None)


def stream(context: Context) -> Response:
    """The stream of events: `records`, `state` and `end`."""
    session = context.session
    if session.tails >= MAX_TAILS:
        raise PageError(429, f"At most {MAX_TAILS} live tails at once: close one.")
    topic, fields = context.path["topic"], fields_of(context.query)
    listing = start_listing(context, topic, context.cluster)
    context.audit.update(fields)
    security = session.security
    if security is None:
        raise PageError(403, "Sign in first.")
    cluster = context.services.open_cluster(security)
    tail = Tail(context, cluster, listing.starts[0])

    def url_of(hit: Hit) -> str:
        decoders = {name: fields[name] for name in ("key_decoder", "value_decoder") if name in fields}
        return context.topic_url(topic, f"/records/{hit.partition}/{hit.offset}", **decoders)

    async def events() -> AsyncIterator[bytes]:
        session.tails += 1
        started_s = context.services.clock.monotonic()
        skipped = shown = 0
        try:
            yield _event("state", "Waiting for records.")
            while context.services.clock.monotonic() - started_s < MAX_TAIL_S:
                if session.security is None:
                    yield _event("end", "The session has ended: sign in, and load the page again.")
                    return
                try:
                    found = await anyio.to_thread.run_sync(tail.tick)
                except OttlaError as error:
                    if status_of(error) != 503:
                        yield _event("end", f"The tail ended: {sentence(error)}")
                        return
                    yield _event("state", f"{sentence(error)} The tail continues when the cluster responds.")
                    await anyio.sleep(TICK_S)
                    continue
                shown += len(found.hits)
                skipped += found.skipped
                if found.hits:
                    yield _event("records", [_fields(hit, url_of(hit)) for hit in found.hits])
                yield _event("state", _state(shown, skipped, is_cut=found.is_cut))
                await anyio.sleep(TICK_S)
            yield _event("end", "The tail ended after an hour: load the page again.")
        finally:
            session.tails -= 1
            cluster.close()

    return StreamingResponse(events(), media_type="text/event-stream")


def _state(shown: int, skipped: int, *, is_cut: bool) -> str:
    text = f"{formats.counted(shown, 'record')} shown"
    if is_cut:
        text += f"; this second had more than {TICK_BUDGET.matches}, and the others are left out"
    if skipped:
        text += f"; {formats.counted(skipped, 'offset')} skipped, since records arrive faster than they can be shown"
    return text + "."


def _event(name: str, content: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(content)}\n\n".encode()


def _fields(hit: Hit, url: str) -> dict[str, object]:
    """A record for the script; `url` is its page, which offers the download."""
    key, value = cut_part(hit.key, hit.decoded_key), cut_part(hit.value, hit.decoded_value)
    return {
        "partition": str(hit.partition),
        "offset": str(hit.offset),
        "url": url,
        "time": formats.moment(hit.timestamp) + " UTC",
        "key": key.text,
        "key_remarks": [each for each in (key.size, key.decoder) if each is not None],
        "value": value.text,
        "value_remarks": [each for each in (value.size, value.decoder) if each is not None],
    }
