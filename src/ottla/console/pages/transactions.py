"""Transactions: the list, one transactional id, and the end of its open transaction."""

from __future__ import annotations

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.cli.txn import STATES
from ottla.client.wire.model import TransactionDescription, TransactionFilters
from ottla.common.kafka.integers import MAX_INT
from ottla.console import formats, html
from ottla.console.context import Context, PageError, version_of
from ottla.console.html import Column
from ottla.console.paging import list_page

ROWS = 100
OPEN = "Ongoing"


def show(context: Context) -> Response:
    """The list, by state and name."""
    query = context.query
    state, wanted = query.choice("state", ("", *STATES)), query.text("filter").lower()
    found = context.cluster.transactions.find(TransactionFilters(states=(state,) if state else ()))
    matching = [each for each in found if wanted in each.transactional_id.lower()]
    page = list_page(matching, query.number("page", 1, most=MAX_INT), ROWS)
    rows = [
        (
            h.a(href=context.url("/transaction", id=each.transactional_id))[html.name(each.transactional_id)],
            html.badge(each.state, "warning" if each.state == OPEN else ""),
            str(each.producer_id),
            str(each.coordinator_id),
        )
        for each in page.rows
    ]
    columns = (
        Column("Transactional id"),
        Column("State"),
        Column("Producer id", is_number=True),
        Column("Coordinator", is_number=True),
    )
    kept = {"state": state, "filter": query.text("filter")}
    return html.page(
        context,
        "Transactions",
        html.heading("Transactions"),
        h.form(".filter", method="get", action=context.url("/transactions"), role="search")[
            html.field("Name contains", h.input(name="filter", type="search", value=query.text("filter"))),
            html.field("State", html.select("state", [("", "All"), *((each, each) for each in STATES)], state)),
            h.button(type="submit")["Filter"],
            h.span(".count")[formats.counted(len(matching), "transactional id")],
        ],
        html.table("Transactions", columns, rows, empty="No transactional id matches."),
        html.list_pager(page, lambda number: context.url("/transactions", **kept, page=number)),
        h.p(".hint")[
            "A transaction that stays open holds back readers with read_committed. 'ottla txn hanging' finds those "
            "that no coordinator will end."
        ],
        active="transactions",
    )


def show_one(context: Context) -> Response:
    """One transactional id and its latest transaction."""
    found = context.cluster.transactions.describe(context.query.required("id"))
    rows = [(html.name(topic), str(partition)) for topic, partition in found.partitions]
    return html.page(
        context,
        f"Transactional id {found.transactional_id}",
        html.heading(html.name(found.transactional_id)),
        html.facts(
            ("State", html.badge(found.state, "warning" if found.state == OPEN else "")),
            ("Producer", f"{found.producer_id}, epoch {found.producer_epoch}"),
            ("Coordinator", f"broker {found.coordinator_id}"),
            ("Timeout", formats.duration(found.timeout_ms / 1000)),
            ("Started", html.time(found.start_ms) if found.start_ms is not None else "-"),
        ),
        h.h2["Partitions"],
        html.table("Partitions", (Column("Topic"), Column("Partition", is_number=True)), rows),
        _termination(context, found),
        active="transactions",
    )


def _termination(context: Context, found: TransactionDescription) -> Node:
    if not context.offers("transaction end") or found.state != OPEN:
        return None
    return html.confirmed(
        context,
        "/transaction/end",
        found.transactional_id,
        "Abort the transaction",
        h.h2["Abort the transaction"],
        h.p[
            "Its producer is fenced: it cannot continue. Records of the transaction become invisible to read_committed."
        ],
        h.input(type="hidden", name="id", value=found.transactional_id),
        version=_version(found),
    )


def _version(found: TransactionDescription) -> str:
    return version_of(found.transactional_id, found.state, found.producer_id, found.producer_epoch, found.start_ms)


def end(context: Context) -> Response:
    """Abort the open transaction of a transactional id and fence its producer."""
    name = context.audit["transactional_id"] = context.form.required("id")
    context.require_typed_name(name)
    found = context.cluster.transactions.describe(name)
    if found.state != OPEN:
        raise PageError(409, f"The transaction of {name} is not open.")
    context.require_version(_version(found))
    context.cluster.transactions.terminate(name, found.timeout_ms)
    return context.redirect(context.url("/transaction", id=name), f"The transaction of {name} was aborted.")
