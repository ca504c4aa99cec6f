"""Produce a record, also one that was copied from another."""

from __future__ import annotations

import base64

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.common.errors import KafkaError
from ottla.console import formats, html
from ottla.console.context import MAX_PARTITION, Context, PageError, Parameters
from ottla.console.errors import FORBIDDEN, sentence
from ottla.console.producing import ENCODINGS, choose_partition, encode_field, parse_headers, produce_record
from ottla.console.searching import masking_of, read_record
from ottla.console.topic_parts import topic_heading
from ottla.record.builder import RecordData
from ottla.search.subject import Decoders

MAX_COPIED_BYTES = 512 * 1024
"""Largest key and value that a form is filled with."""


def show(context: Context) -> Response:
    """The form, empty or with the fields of a record."""
    topic, query = context.path["topic"], context.query
    context.cluster.topics.get(topic)
    if not query.is_set("offset"):
        return _page(context, topic, Parameters({}), None, 200)
    partition = query.number("partition", most=MAX_PARTITION)
    hit = read_record(context, topic, partition, query.number("offset"), Decoders())
    if hit is None:
        raise PageError(404, "This record does not exist.")
    if masking_of(context, topic).mask is not None:
        raise PageError(403, "Parts of this record are masked for you, so you cannot produce it again.")
    if hit.size_bytes > MAX_COPIED_BYTES:
        raise PageError(400, f"The record has {formats.size(hit.size_bytes)}, too much for a form.")
    values: dict[str, list[str]] = {}
    for name, data in (("key", hit.key), ("value", hit.value)):
        values |= _copied(name, data)
    values["headers"] = [
        "\n".join(f"{name}: {(value or b'').decode(errors='backslashreplace')}" for name, value in hit.headers)
    ]
    return _page(context, topic, Parameters(values), None, 200)


def _value(form: Parameters) -> bytes | None:
    value = encode_field(form.text("value"), form.choice("value_encoding", ENCODINGS))
    if not form.is_set("value_null"):
        return value
    if value:
        raise PageError(400, "The value cannot be null and have a content: empty the field, or clear the box.")
    return None


def _copied(name: str, data: bytes | None) -> dict[str, list[str]]:
    if data is None:
        return {f"{name}_null": ["1"]} if name == "value" else {}
    try:
        text = data.decode()
        is_text = text.replace("\n", "").isprintable()
    except UnicodeDecodeError:
        is_text = False
    if is_text:
        return {name: [text], f"{name}_encoding": ["text"]}
    return {name: [base64.b64encode(data).decode()], f"{name}_encoding": ["base64"]}


def produce(context: Context) -> Response:
    """Write the record, and show where it is stored."""
    topic, form = context.path["topic"], context.form
    try:
        key = encode_field(form.text("key"), form.choice("key_encoding", ENCODINGS)) or None
        value = _value(form)
        headers = parse_headers(form.text("headers"))
        count = len(context.cluster.topics.get(topic).partitions)
        clock = context.services.clock
        chosen = choose_partition(key, count, clock.time_ms())
        partition = form.number("partition", chosen, most=count - 1)
        context.audit["partition"] = partition
        record = RecordData(clock.time_ms(), key, value, headers)
        offset = context.audit["offset"] = produce_record(context.cluster, topic, partition, record)
    except (KafkaError, PageError) as error:
        if isinstance(error, KafkaError) and error.code in FORBIDDEN:
            raise
        context.audit["error"] = sentence(error)
        return _page(context, topic, form, sentence(error), 400)
    return context.redirect(
        context.topic_url(topic, f"/records/{partition}/{offset}"),
        f"The record was stored at offset {offset} of partition {partition}.",
    )


def _page(context: Context, topic: str, form: Parameters, problem: str | None, status: int) -> Response:
    content = html.form(
        context,
        context.topic_url(topic, "/produce"),
        _part(form, "key", "Key", 2, h.small["Empty: no key."]),
        _part(
            form,
            "value",
            "Value",
            8,
            h.label(".check")[
                h.input(type="checkbox", name="value_null", value="1", checked=form.is_set("value_null")),
                "Null, which deletes the key in a compacted topic",
            ],
        ),
        html.field(
            "Headers",
            h.textarea(name="headers", rows="3", spellcheck="false")[form.text("headers")],
            "One NAME: VALUE on each line; names may repeat.",
        ),
        html.field(
            "Partition",
            h.input(name="partition", inputmode="numeric", size="8", value=form.text("partition")),
            "Empty: by the hash of the key, or any without a key.",
        ),
        h.button(".primary", type="submit")["Produce"],
        classes="act",
    )
    return html.page(
        context,
        f"Produce to {topic}",
        topic_heading(context, topic, "produce"),
        None if problem is None else h.p(".error", role="alert")[formats.visible(problem)],
        content,
        active="topics",
        status=status,
    )


def _part(form: Parameters, name: str, title: str, rows: int, beside: Node) -> Node:
    return [
        html.field(title, h.textarea(name=name, rows=str(rows), spellcheck="false")["\n" + form.text(name)]),
        h.div(".filter")[
            html.field(
                f"{title} is given as",
                html.select(f"{name}_encoding", [(each, each) for each in ENCODINGS], form.text(f"{name}_encoding")),
            ),
            beside,
        ],
    ]
