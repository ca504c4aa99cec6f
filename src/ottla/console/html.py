"""Parts of all pages: layout, navigation, tables, forms and messages.

Text of the cluster is only ever a text node or an attribute, both escaped by htpy. Scripts and styles are never inline:
the content security policy forbids that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import htpy as h
from htpy import Node
from starlette.responses import HTMLResponse, JSONResponse, Response

from ottla.console import formats
from ottla.console.context import Context
from ottla.console.paging import ListPage

THEMES = ("light", "dark")
NAVIGATION = (
    ("Overview", "/", "overview"),
    ("Topics", "/topics", "topics"),
    ("Groups", "/groups", "groups"),
    ("Pipelines", "/pipelines", "pipelines"),
    ("Clients", "/clients", "clients"),
    ("Cluster", "/cluster", "cluster"),
    ("Transactions", "/transactions", "transactions"),
    ("Users", "/users", "users"),
    ("ACLs", "/acls", "acls"),
    ("Quotas", "/quotas", "quotas"),
)
"""Text, path and name of the page; one that does not exist is left out."""


class Column(NamedTuple):
    """A column of a table; numbers are aligned right."""

    title: Node
    is_number: bool = False


def page(context: Context, title: str, *content: Node, active: str = "", status: int = 200) -> Response:
    """A whole page."""
    theme = context.headers.get("cookie", "")
    chosen = next((each for each in THEMES if f"ottla_theme={each}" in theme), None)
    document = h.html(lang="en", data_theme=chosen)[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.title[f"{title} - Ottla console"],
            h.link(rel="stylesheet", href=context.url("/static/console.css")),
            h.link(rel="icon", href=context.url("/static/icon.svg"), type="image/svg+xml"),
            h.script(src=context.url("/static/console.js"), type="module"),
        ],
        h.body[
            h.a(".skip", href="#content")["Skip to content"],
            _header(context, active),
            h.main("#content", tabindex="-1")[
                [h.p(".notice", role="status")[formats.visible(each)] for each in context.session.take_notices()],
                content,
            ],
        ],
    ]
    return HTMLResponse(str(document), status_code=status)


def _header(context: Context, active: str) -> Node:
    session = context.session
    is_signed_in = session.security is not None
    links = [
        h.li[h.a(href=context.url(path), aria_current="page" if name == active else None)[text]]
        for text, path, name in NAVIGATION
        if context.offers(name)
    ]
    mode = h.span(".badge")["read-only"] if context.settings.is_read_only else None
    return h.header(".top")[
        h.a(".brand", href=context.url("/"))["Ottla"],
        h.nav(aria_label="Pages")[h.ul[links]] if is_signed_in else None,
        h.div(".session")[
            mode,
            h.button("#theme.quiet", type="button", hidden=True)["Theme"],
            None
            if session.user is None
            else form(
                context,
                "/sign-out",
                h.span(".user")[h.bdi[formats.visible(session.user)]],
                h.button(".quiet", type="submit")["Sign out"],
                classes="inline",
            ),
        ],
    ]


def heading(*title: Node, actions: Node = None) -> Node:
    """The heading of a page, with links beside it."""
    return h.div(".heading")[h.h1[title], h.div(".actions")[actions] if actions is not None else None]


def name(text: str) -> Node:
    """A name of the cluster: isolated, so that its text direction does not affect other text."""
    return h.bdi(".name")[formats.visible(text)]


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Node]], *, empty: str = "None.", **attributes: str
) -> Node:
    """A table that scrolls by itself on a narrow screen; `empty` is shown without rows."""
    body = [
        h.tr[[h.td(".number" if column.is_number else "")[cell] for cell, column in zip(row, columns, strict=True)]]
        for row in rows
    ]
    if not body:
        return h.section(".empty", aria_label=caption)[h.p[empty]]
    return h.div(".scroll", role="region", aria_label=caption, tabindex="0")[
        h.table(**attributes)[
            h.caption[caption],
            _head(columns),
            h.tbody[body],
        ]
    ]


def _head(columns: Sequence[Column]) -> Node:
    return h.thead[h.tr[[h.th(".number" if each.is_number else "", scope="col")[each.title] for each in columns]]]


def facts(*pairs: tuple[str, Node]) -> Node:
    """Names and values."""
    return h.dl(".facts")[[h.div[h.dt[title], h.dd[value]] for title, value in pairs]]


def form(context: Context, action: str, *content: Node, classes: str = "", version: str | None = None) -> Node:
    """A form that changes something: with the token of the session, and the version that the user saw."""
    url = action if action.startswith(context.settings.base_path + "/topics/") else context.url(action)
    return h.form({"class": classes or None}, method="post", action=url)[
        h.input(type="hidden", name="token", value=context.session.token),
        None if version is None else h.input(type="hidden", name="version", value=version),
        content,
    ]


def field(label: str, control: Node, hint: Node = None) -> Node:
    """A control inside of its label."""
    return h.label(".field")[h.span[label], control, None if hint is None else h.small[hint]]


def select(name: str, choices: Iterable[tuple[str, str]], chosen: str = "") -> Node:
    """A list of (value, text) to choose from."""
    return h.select(name=name)[[h.option(value=value, selected=value == chosen)[text] for value, text in choices]]


def confirmed(context: Context, action: str, typed: str, button: str, *content: Node, version: str) -> Node:
    """A form of a destructive act, in which the user types the name of the resource."""
    return form(
        context,
        action,
        content,
        field(
            f"Type {formats.visible(typed)} to confirm",
            h.input(name="confirm", autocomplete="off", required=True, spellcheck="false"),
        ),
        h.button(".danger", type="submit")[button],
        classes="act",
        version=version,
    )


def badge(text: str, kind: str = "") -> Node:
    """A short state; `kind` is good, warning or bad."""
    return h.span({"class": f"badge {kind}".strip()})[text]


def time(timestamp_ms: int) -> Node:
    """A time in UTC, which the script can show in local time."""
    if timestamp_ms < 0:
        return "-"
    text = formats.moment(timestamp_ms)
    return h.time(datetime=text.replace(" ", "T") + "Z", data_ms=str(timestamp_ms))[f"{text} UTC"]


def bar(value: float, most: float, label: str) -> Node:
    """A horizontal bar beside its number; the number is in the table too."""
    width = 0.0 if most <= 0 else max(0.0, min(1.0, value / most)) * 100
    return h.svg(".bar", viewBox="0 0 100 8", preserveAspectRatio="none", role="img", aria_label=label)[
        h.rect(".back", width="100", height="8"), h.rect(".part", width=f"{width:.1f}", height="8")
    ]


def live(key: str, text: str = "-") -> Node:
    """A text that the script replaces by the cell `key` of the values of the page."""
    return h.span(data_cell=key)[text]


def live_note(url: str, text: str = "") -> Node:
    """Makes the script ask for the values of the page again and again; it shows what prevents them here."""
    return h.p("#flow-note.hint", role="status", data_flow=url)[text]


def live_chart(title: str, unit: str) -> Node:
    """A chart of the value `chart` since the page was loaded, and a table with its numbers."""
    return [
        h.h2[title],
        h.svg(
            "#chart.chart",
            viewBox="0 0 100 50",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{title}; the table below has its numbers",
        )[h.line(x1="0", x2="100", y1="48", y2="48"), h.polyline(points="")],
        table(
            title,
            tuple(Column(f"{text} ({unit})") for text in ("Now", "Least", "Most")),
            [tuple(h.span(id=f"chart-{each}")["-"] for each in ("now", "least", "most"))],
        ),
    ]


def live_table(caption: str, name: str, columns: Sequence[Column]) -> Node:
    """A table whose rows are the list `name` of the values of the page; the first cell of each is a link."""
    return h.div(".scroll", role="region", aria_label=caption, tabindex="0")[
        h.table[
            h.caption[caption],
            _head(columns),
            h.tbody(data_rows_of=name)[h.tr[h.td(colspan=str(len(columns)))["Not known yet. Rates need JavaScript."]]],
        ]
    ]


def flow_response(
    cells: Mapping[str, str],
    *,
    note: str = "",
    chart: tuple[float | None, str] | None = None,
    rows: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> Response:
    """The values of a page as JSON: texts of cells, a value of the chart with its text, and rows of tables.

    A row of a table has its address, then its texts.
    """
    content: dict[str, object] = {"cells": dict(cells), "note": note, "rows": dict(rows or {})}
    if chart is not None:
        content["chart"], content["text"] = chart
    return JSONResponse(content)


def pager(links: Sequence[tuple[str, str | None]], text: str) -> Node:
    """Links between pages; one without an address is shown as not available."""
    return h.nav(".pager", aria_label="Pages of the list")[
        [
            h.a(href=url)[title] if url is not None else h.span(".off", aria_disabled="true")[title]
            for title, url in links
        ],
        h.span[text],
    ]


def list_pager(page: ListPage[Any], url: Callable[[int], str]) -> Node:
    """Links to the pages before and after; `url` is the address of a page by its number."""
    links = (
        ("Previous", url(page.number - 1) if page.number > 1 else None),
        ("Next", url(page.number + 1) if page.number < page.pages else None),
    )
    return pager(links, f"Page {page.number} of {page.pages}")
