"""Two versions of a key: a record beside the previous or the next one with the same key in its partition."""

from __future__ import annotations

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.console import formats, html
from ottla.console.context import Context, PageError
from ottla.console.diffs import LAYOUTS, MAX_LINES, SIDE_BY_SIDE, UNIFIED, Comparison, compare, difference
from ottla.console.pages.records import chosen_decoders, decoder_fields, place_of
from ottla.console.record_parts import Readable, decoder_of, masking_note, readable, size_of
from ottla.console.searching import VERSION_BUDGET, find_version, masking_of, read_record, require_versions
from ottla.console.topic_parts import topic_heading
from ottla.search.neighbours import Neighbour
from ottla.search.scan import Hit

PREVIOUS, NEXT = "previous", "next"
_NULL = Readable("null", 0)


def show(context: Context) -> Response:
    """The differences, or the offsets that were searched without a result."""
    topic, partition, offset = place_of(context)
    query, decoders = context.query, chosen_decoders(context)
    direction = query.choice("compare", (PREVIOUS, NEXT))
    hit = read_record(context, topic, partition, offset, decoders)
    if hit is None:
        raise PageError(404, f"Partition {partition} has no record at offset {offset}.")
    if query.is_set("other"):
        other = read_record(context, topic, partition, query.number("other"), decoders)
        if other is None or other.key != require_versions(context, topic, hit):
            raise PageError(404, "The other offset has no version of this key.")
        content = _compared(context, topic, hit, other)
    else:
        is_before = direction == PREVIOUS
        edge = query.number("edge", offset if is_before else offset + 1)
        edge = min(edge, offset) if is_before else max(edge, offset + 1)
        found = find_version(context, topic, hit, edge, decoders, is_before=is_before)
        if found.hit is None:
            content = _missing(context, topic, hit, found, direction)
        else:
            content = _compared(context, topic, hit, found.hit)
    return html.page(
        context,
        f"Versions of the key at {partition}:{offset} of {topic}",
        topic_heading(context, topic, "records"),
        h.h2["Versions of a key"],
        masking_note(masking_of(context, topic)),
        content,
        active="topics",
    )


def _url(context: Context, topic: str, hit: Hit, **fields: object) -> str:
    place = f"/records/{hit.partition}/{hit.offset}/versions"
    return context.topic_url(topic, place, **fields, **decoder_fields(context))


def _record_url(context: Context, topic: str, hit: Hit, below: str = "") -> str:
    return context.topic_url(topic, f"/records/{hit.partition}/{hit.offset}{below}", **decoder_fields(context))


def _missing(context: Context, topic: str, hit: Hit, found: Neighbour, direction: str) -> Node:
    problems = [
        f"Offsets {each.start} to {each.end - 1} could not be read: {each.reason}." for each in found.unreadable[:3]
    ]
    if found.lost:
        problems.append(f"{formats.counted(found.lost, 'offset')} disappeared from the log meanwhile.")
    searched = f"Partition {hit.partition} has no {direction} version of this key"
    left = found.left
    record = h.p[h.a(href=_record_url(context, topic, hit))[f"Record at offset {hit.offset}"]]
    if left.start >= left.end:
        text = f"{searched}. Compaction or retention may have removed one."
        return [h.p(role="status")[text], h.p(".error")[" ".join(problems)] if problems else None, record]
    edge = left.end if direction == PREVIOUS else left.start
    where = f"from offset {left.end} on" if direction == PREVIOUS else f"before offset {left.start}"
    return [
        h.p(role="status")[
            f"{searched} {where}. The search stopped after {formats.size(VERSION_BUDGET.bytes)} or "
            f"{VERSION_BUDGET.seconds:.0f} seconds: offsets {left.start} to {left.end - 1} are left."
        ],
        h.p(".error")[" ".join(problems)] if problems else None,
        h.p[h.a(href=_url(context, topic, hit, compare=direction, edge=edge))["Continue the search"]],
        record,
    ]


def _compared(context: Context, topic: str, hit: Hit, other: Hit) -> Node:
    older, newer = sorted((hit, other), key=lambda each: each.offset)
    layout = context.query.choice("layout", LAYOUTS)
    texts = [readable(each.value, each.decoded_value) or _NULL for each in (older, newer)]
    found = compare(texts[0].shown, texts[1].shown)
    return [
        html.facts(("Older version", _fact(context, topic, older)), ("Newer version", _fact(context, topic, newer))),
        html.pager(
            [
                ("Previous version", _url(context, topic, older, compare=PREVIOUS)),
                ("Next version", _url(context, topic, newer, compare=NEXT)),
            ],
            "",
        ),
        [_failure(name, each) for name, each in (("older", older), ("newer", newer))],
        _layouts(context, topic, hit, other, layout),
        _equal(older, newer) if found.is_equal else difference(found, layout),
        _cut(found, texts, (older, newer)),
        h.p[
            "Download: ",
            [
                [h.a(href=_record_url(context, topic, each, "/value"))[f"{name} value"], " "]
                for name, each in (("older", older), ("newer", newer))
                if each.value is not None
            ],
        ],
    ]


def _fact(context: Context, topic: str, hit: Hit) -> Node:
    return [
        h.a(href=_record_url(context, topic, hit))[f"offset {hit.offset}"],
        h.br,
        html.time(hit.timestamp),
        h.br,
        f"{size_of(hit.value, hit.decoded_value)}, {decoder_of(hit.decoded_value)}",
    ]


def _failure(name: str, hit: Hit) -> Node:
    decoded = hit.decoded_value
    if decoded.failure is None:
        return None
    return h.p(".error")[f"The {name} value is not {decoded.decoder}: {formats.visible(decoded.failure)}"]


def _layouts(context: Context, topic: str, hit: Hit, other: Hit, layout: str) -> Node:
    links = [
        h.li[
            h.a(
                href=_url(context, topic, hit, other=other.offset, layout=each),
                aria_current="true" if each == layout else None,
            )[title]
        ]
        for each, title in ((UNIFIED, "One column"), (SIDE_BY_SIDE, "Side by side"))
    ]
    return h.nav(".tabs", aria_label="Layout of the differences")[h.ul[links]]


def _equal(older: Hit, newer: Hit) -> Node:
    is_same = older.value == newer.value
    return h.p(role="status")["Both values are the same." if is_same else "The compared lines are the same."]


def _cut(found: Comparison, texts: list[Readable], hits: tuple[Hit, Hit]) -> Node:
    sentences = []
    for name, lines, text, hit in zip(("older", "newer"), found.left, texts, hits, strict=True):
        if lines or text.left:
            sentences.append(
                f"The {name} value has {size_of(hit.value, hit.decoded_value)}; only its first {MAX_LINES} lines and "
                f"{formats.MAX_SHOWN_CHARS:,} characters are compared."
            )
    return h.p(".hint")[" ".join(sentences)] if sentences else None
