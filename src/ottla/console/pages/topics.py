"""The list of topics: filtered, sorted and paged without a request for each topic.

Sizes and rates need requests to brokers, so the script asks for those of the visible rows after the page is there.
"""

from __future__ import annotations

from collections.abc import Sequence

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.client.wire.model import TopicInfo
from ottla.common.errors import KafkaError
from ottla.common.kafka.integers import MAX_INT
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console import formats, html
from ottla.console.context import Context, PageError, Parameters
from ottla.console.errors import FORBIDDEN, sentence
from ottla.console.flow import read_traffic, topic_traffic
from ottla.console.flow_meter import MAX_PARTITIONS, led_partitions
from ottla.console.html import Column
from ottla.console.paging import list_page

ROWS = 50
LIVE_FIELDS = ("size", "records", "bytes")
SORTS = ("name", "partitions", "replication", "health")
MAX_CONFIG_LINES = 100


def show(context: Context) -> Response:
    """The page."""
    query = context.query
    wanted = query.text("filter").lower()
    sort, is_descending = query.choice("sort", SORTS), query.is_set("descending")
    with_internal = query.is_set("internal")
    topics = [
        topic
        for name, topic in context.topics().items()
        if wanted in name.lower() and (with_internal or not topic.is_internal)
    ]
    topics = _sorted(topics, sort, is_descending=is_descending)
    page = list_page(topics, query.number("page", 1, most=MAX_INT), ROWS)
    names = [topic.name for topic in page.rows]
    kept = {"filter": query.text("filter"), "internal": query.text("internal")}
    order = {"sort": sort, "descending": query.text("descending")}
    return html.page(
        context,
        "Topics",
        html.heading(
            "Topics",
            actions=h.a(".button", href=context.url("/create-topic"))["Create topic"]
            if context.offers("topic new")
            else None,
        ),
        _filter(context, len(topics)),
        _table(context, page.rows, kept, sort, is_descending=is_descending),
        html.live_note(context.url("/topic-flows", name=names)) if names else None,
        html.list_pager(page, lambda number: context.url("/topics", **kept, **order, page=number)),
        active="topics",
    )


def _sorted(topics: list[TopicInfo], sort: str, *, is_descending: bool) -> list[TopicInfo]:
    keys = {
        "name": lambda topic: topic.name,
        "partitions": lambda topic: len(topic.partitions),
        "replication": replication_factor,
        "health": lambda topic: -len(_incomplete(topic)),
    }
    return sorted(topics, key=keys[sort], reverse=is_descending)


def replication_factor(topic: TopicInfo) -> int:
    """Replicas of the first partition."""
    return len(topic.partitions[0].replicas) if topic.partitions else 0


def _incomplete(topic: TopicInfo) -> list[int]:
    return [each.index for each in topic.partitions if not each.is_led or len(each.isr) < len(each.replicas)]


def health_badge(topic: TopicInfo) -> Node:
    """The worst state of the partitions."""
    leaderless = sum(not each.is_led for each in topic.partitions)
    if leaderless:
        return html.badge(f"{leaderless} without leader", "bad")
    incomplete = len(_incomplete(topic))
    return html.badge(f"{incomplete} under-replicated", "warning") if incomplete else html.badge("complete", "good")


def _filter(context: Context, count: int) -> Node:
    query = context.query
    return h.form(".filter", method="get", action=context.url("/topics"), role="search")[
        html.field("Name contains", h.input(name="filter", type="search", value=query.text("filter"))),
        h.label(".check")[
            h.input(type="checkbox", name="internal", value="1", checked=query.is_set("internal")), "Internal topics"
        ],
        h.button(type="submit")["Filter"],
        h.span(".count")[formats.counted(count, "topic")],
    ]


def _table(
    context: Context, shown: Sequence[TopicInfo], kept: dict[str, str], sort: str, *, is_descending: bool
) -> Node:
    def title(text: str, name: str) -> Node:
        is_chosen = sort == name
        arrow = (" ↓" if is_descending else " ↑") if is_chosen else ""
        reverse = "1" if is_chosen and not is_descending else None
        return h.a(href=context.url("/topics", **kept, sort=name, descending=reverse))[text + arrow]

    columns = (
        Column(title("Name", "name")),
        Column(title("Partitions", "partitions"), is_number=True),
        Column(title("Replicas", "replication"), is_number=True),
        Column("Size of leaders", is_number=True),
        Column("Records/s", is_number=True),
        Column("Bytes/s", is_number=True),
        Column(title("State", "health")),
        Column(""),
    )
    rows = [
        (
            h.a(href=context.topic_url(topic.name))[html.name(topic.name)],
            formats.number(len(topic.partitions)),
            formats.number(replication_factor(topic)),
            *(html.live(f"{number}-{field}") for field in LIVE_FIELDS),
            health_badge(topic),
            h.a(href=context.topic_url(topic.name, "/records"), aria_label=f"Records of {topic.name}")["Records"],
        )
        for number, topic in enumerate(shown)
    ]
    return html.table("Topics", columns, rows, empty="No topic matches.")


def flow(context: Context) -> Response:
    """Sizes and rates of some topics as JSON, for the visible rows in their order."""
    names = context.query.all("name")
    if len(names) > ROWS:
        raise PageError(400, f"At most {ROWS} topics at once.")
    topics = context.topics()
    found = [topics.get(name) for name in names]
    wanted: list[TopicPartition] = []
    left = 0
    for topic in found:
        keys = [] if topic is None else led_partitions(topic)
        is_fitting = len(wanted) + len(keys) <= MAX_PARTITIONS
        wanted += keys if is_fitting else []
        left += not is_fitting
    traffic = read_traffic(context, topics, wanted)
    cells: dict[str, str] = {}
    for number, topic in enumerate(found):
        if topic is not None:
            records, size, size_bytes = topic_traffic(topic, traffic)
            texts = (formats.size(size_bytes), formats.rate(records), formats.byte_rate(size))
            cells |= {f"{number}-{field}": text for field, text in zip(LIVE_FIELDS, texts, strict=True)}
    note = ""
    if left:
        note = f"{formats.counted(left, 'topic')} left out: a page reads {MAX_PARTITIONS:,} partitions at once. "
    return html.flow_response(cells, note=note + traffic.note())


def new(context: Context) -> Response:
    """The form for a new topic."""
    return _new_form(context, Parameters({}), None, 200)


def create(context: Context) -> Response:
    """Create a topic."""
    form = context.form
    name = context.audit["topic"] = form.required("name")
    partitions = form.number("partitions", -1, most=MAX_INT)
    factor = form.number("replication", -1, most=32_767)
    try:
        configs = _configs(form.text("configs"))
        context.cluster.topics.create(name, partitions, factor, configs)
    except (KafkaError, PageError) as error:
        if isinstance(error, KafkaError) and error.code in FORBIDDEN:
            raise
        context.audit["error"] = sentence(error)
        return _new_form(context, form, sentence(error), 400)
    return context.redirect(context.topic_url(name), f"Topic {name} was created.")


def _configs(text: str) -> dict[str, str]:
    configs: dict[str, str] = {}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > MAX_CONFIG_LINES:
        raise PageError(400, f"At most {MAX_CONFIG_LINES} settings.")
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise PageError(400, f"The line {line!r} is not of the form NAME=VALUE.")
        configs[name.strip()] = value.strip()
    return configs


def _new_form(context: Context, form: Parameters, problem: str | None, status: int) -> Response:
    content = html.form(
        context,
        "/create-topic",
        html.field(
            "Name",
            h.input(name="name", required=True, maxlength="249", autocomplete="off", value=form.text("name")),
            "Letters, digits, dots, dashes and underscores.",
        ),
        html.field(
            "Partitions",
            h.input(name="partitions", inputmode="numeric", value=form.text("partitions")),
            "Empty: the default of the cluster.",
        ),
        html.field(
            "Replicas of each partition",
            h.input(name="replication", inputmode="numeric", value=form.text("replication")),
            "Empty: the default of the cluster.",
        ),
        html.field(
            "Settings",
            h.textarea(name="configs", rows="4", spellcheck="false")[form.text("configs")],
            "One NAME=VALUE on each line, such as retention.ms=86400000.",
        ),
        h.button(".primary", type="submit")["Create topic"],
        classes="act",
    )
    return html.page(
        context,
        "Create topic",
        h.h1["Create topic"],
        None if problem is None else h.p(".error", role="alert")[formats.visible(problem)],
        content,
        active="topics",
        status=status,
    )
