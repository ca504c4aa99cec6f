"""Clients that push metrics (KIP-714): the list, the figures of one client, and the subscriptions that ask for them.

The figures come from the Prometheus endpoints of `--metrics-url`, which the console reads with its own token. So they
need the permission that a scrape needs of a user: DESCRIBE on the cluster. Subscriptions are read and changed with the
credentials of the user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.client.views.pushed_metrics import PushedSeries
from ottla.common.errors import OperatorError
from ottla.common.kafka.integers import MAX_INT, MAX_LONG
from ottla.console import formats, html
from ottla.console.client_scrapes import ClientList, PushingClient
from ottla.console.context import Context, PageError
from ottla.console.html import Column
from ottla.console.pages.overview import permitted
from ottla.console.paging import list_page
from ottla.console.rights import may_describe_cluster

ROWS = 50
MAX_SERIES = 1_000
"""Series on the page of a client; the filter finds the others."""
NO_SOURCE = "Start the console with --metrics-url, once for each broker, to show the metrics of clients here."
NO_RIGHT = "Metrics of clients are shown to users with DESCRIBE on the cluster."
_INSTANCE = re.compile(r"[0-9A-Za-z_-]{1,40}")


def show(context: Context) -> Response:
    """Both lists."""
    return html.page(
        context,
        "Clients",
        html.heading("Clients"),
        _clients(context),
        _subscriptions(context),
        active="clients",
    )


def _clients(context: Context) -> Node:
    if not context.services.scrapes.sources:
        return h.p(".hint")[NO_SOURCE]
    if not may_describe_cluster(context):
        return h.p(".hint")[NO_RIGHT]
    listed = context.services.scrapes.clients()
    kept = context.query.text("filter")
    found = [each for each in listed.clients if kept.lower() in each.client_id.lower()]
    page = list_page(found, context.query.number("page", 1, most=MAX_INT), ROWS)
    return [
        _problems(listed),
        h.form(".filter", method="get", action=context.url("/clients"), role="search")[
            html.field("Client id contains", h.input(name="filter", type="search", value=kept)),
            h.button(type="submit")["Filter"],
            h.span(".count")[formats.counted(len(found), "client")],
        ],
        _client_table(context, page.rows),
        html.list_pager(page, lambda number: context.url("/clients", filter=kept, page=number)),
    ]


def _problems(listed: ClientList) -> Node:
    return [h.p(".error", role="alert")[formats.visible(f"Not shown: {each}.")] for each in listed.problems]


def _client_table(context: Context, clients: Sequence[PushingClient]) -> Node:
    columns = ("Client id", "Software", "Version", "Address", "Group", "Instance")
    names = ("client_software_name", "client_software_version", "client_source_address", "group_id")
    rows = [
        (
            html.name(each.client_id),
            *(html.name(each.labels.get(name, "-")) for name in names),
            h.a(href=context.url("/client", instance=each.instance_id), aria_label=f"Metrics of {each.client_id}")[
                html.name(each.instance_id)
            ],
        )
        for each in clients
    ]
    return html.table(
        "Clients that push metrics",
        [Column(title) for title in columns],
        rows,
        empty="No client. Clients push once a subscription asks them to, and at its interval.",
    )


def show_one(context: Context) -> Response:
    """The last values that one client pushed."""
    if not may_describe_cluster(context):
        raise PageError(403, NO_RIGHT)
    instance_id = context.query.required("instance")
    if _INSTANCE.fullmatch(instance_id) is None:
        raise PageError(400, "The field instance is not the id of a client instance.")
    listed = context.services.scrapes.clients()
    client = next((each for each in listed.clients if each.instance_id == instance_id), None)
    if client is None:
        raise PageError(404, "No broker knows this client: it has stopped, or does not push any more.")
    try:
        series = context.services.scrapes.series(client)
    except OperatorError as error:
        raise PageError(502, str(error)) from error
    kept = context.query.text("filter")
    found = [each for each in series if kept.lower() in each.name.lower()]
    return html.page(
        context,
        f"Client {client.client_id}",
        html.heading(html.name(client.client_id or instance_id)),
        html.facts(
            ("Instance", html.name(instance_id)),
            *((_title(name), html.name(value)) for name, value in sorted(client.labels.items())),
            ("Read from", html.name(client.source.url)),
        ),
        h.form(".filter", method="get", action=context.url("/client"), role="search")[
            h.input(type="hidden", name="instance", value=instance_id),
            html.field("Metric contains", h.input(name="filter", type="search", value=kept)),
            h.button(type="submit")["Filter"],
            h.span(".count")[formats.counted(len(found), "value")],
        ],
        _series_table(found),
        active="clients",
    )


def _title(label: str) -> str:
    return formats.visible(label.removeprefix("client_").replace("_", " ").capitalize())


def _series_table(series: Sequence[PushedSeries]) -> Node:
    columns = (Column("Metric"), Column("Labels"), Column("Value", is_number=True))
    rows = [
        (
            html.name(each.name),
            html.name(", ".join(f"{name}={value}" for name, value in each.labels.items()) or "-"),
            _value(each.value),
        )
        for each in series[:MAX_SERIES]
    ]
    more = len(series) - MAX_SERIES
    return [
        html.table("Last values", columns, rows, empty="This client has pushed no value that matches."),
        h.p[f"And {more:,} more: filter by a part of their names."] if more > 0 else None,
    ]


def _value(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return formats.visible(text)
    return f"{int(value):,}" if value.is_integer() and abs(value) < MAX_LONG else f"{value:,.6g}"


def _subscriptions(context: Context) -> Node:
    found, reason = permitted(context.cluster.client_metrics.all)
    if found is None:
        return [h.h2["Subscriptions"], h.p(".hint")[f"Not shown: {reason}"]]
    may_change = context.offers("subscription form")
    rows = [
        (
            h.a(href=context.url("/subscription", name=each.name))[html.name(each.name)]
            if may_change
            else html.name(each.name),
            f"{formats.number(each.interval_ms)} ms",
            html.name(each.metrics or "none"),
            html.name(each.match or "all clients"),
        )
        for each in found
    ]
    columns = (Column("Name"), Column("Interval", is_number=True), Column("Metrics"), Column("Clients"))
    return [
        h.h2["Subscriptions"],
        _without_receiver(context) if found else None,
        html.table("Subscriptions", columns, rows, empty="No subscription: clients push nothing."),
        h.p[h.a(".button", href=context.url("/subscription"))["New subscription"]] if may_change else None,
    ]


def _without_receiver(context: Context) -> Node:
    deaf = [each.broker_id for each in context.cluster.client_metrics.receivers() if not each.receives]
    if not deaf:
        return None
    return h.p(".health.warning", role="status")[
        f"These brokers receive no metrics of clients: {formats.ids(deaf)}. Start them with --metrics-port, and "
        "install ottla[telemetry] there."
    ]
