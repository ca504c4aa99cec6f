"""Client quotas: the list, and the quotas of one entity."""

from __future__ import annotations

import math

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.cli.quota import KINDS, LIMITS
from ottla.client.wire.model import ClientQuota
from ottla.console import formats, html
from ottla.console.context import Context, PageError
from ottla.console.html import Column

QUOTAS = {name.replace("-", "_"): text for name, text in LIMITS.items()}
"""Kafka's names of quotas, with descriptions."""
DEFAULT = "default"
NAMED = "named"
NONE = "none"
MAX_NAME_CHARS = 1_000
MAX_NUMBER_CHARS = 30


def show(context: Context) -> Response:
    """The list and the form."""
    quotas = context.cluster.quotas.all()
    rows = [([_entity(each), *(_limit(each, name) for name in QUOTAS)]) for each in quotas]
    columns = (Column("Entity"), *(Column(name, is_number=True) for name in QUOTAS))
    return html.page(
        context,
        "Quotas",
        html.heading("Quotas"),
        html.table("Quotas", columns, rows, empty="No client has a quota."),
        _form(context) if context.offers("quota set") else None,
        active="quotas",
    )


def _entity(quota: ClientQuota) -> Node:
    parts: list[Node] = []
    for kind, name in quota.entity.items():
        parts += [", " if parts else "", f"{kind} ", html.name(name) if name is not None else h.em["default"]]
    return parts


def _limit(quota: ClientQuota, name: str) -> str:
    value = quota.limits.get(name)
    return "-" if value is None else f"{value:,.10g}"


def _form(context: Context) -> Node:
    kinds = [
        h.div(".filter")[
            html.field(
                kind,
                html.select(
                    f"{kind} choice", [(NONE, "not part of it"), (NAMED, "this name"), (DEFAULT, "default of all")]
                ),
            ),
            html.field(f"Name of {kind}", h.input(name=kind, autocomplete="off", spellcheck="false")),
        ]
        for kind in KINDS
    ]
    limits = [
        html.field(name, h.input(name=name, inputmode="decimal", autocomplete="off"), text)
        for name, text in QUOTAS.items()
    ]
    return html.form(
        context,
        "/quotas",
        h.h2["Set quotas"],
        kinds,
        limits,
        h.p(".hint")["An empty limit is left as it is; a dash removes it."],
        h.button(".primary", type="submit")["Save"],
        classes="act",
    )


def put(context: Context) -> Response:
    """Set and remove limits of one entity."""
    form = context.form
    entity: list[tuple[str, str | None]] = []
    for kind in KINDS:
        choice = form.choice(f"{kind} choice", (NONE, NAMED, DEFAULT))
        if choice == NAMED:
            name = form.required(kind)
            if len(name) > MAX_NAME_CHARS:
                raise PageError(400, f"A name has at most {MAX_NAME_CHARS} characters.")
            entity.append((kind, name))
        elif choice == DEFAULT:
            entity.append((kind, None))
    if not entity:
        raise PageError(400, "Choose a user, a client id or an address.")
    changes: dict[str, float | None] = {}
    for name in QUOTAS:
        text = form.text(name).strip()
        if text:
            changes[name] = None if text == "-" else _number(name, text)
    if not changes:
        raise PageError(400, "Give at least one limit.")
    context.audit.update(entity=str(entity), changes=str(changes))
    context.cluster.quotas.alter(entity, changes)
    return context.redirect(context.url("/quotas"), f"{formats.counted(len(changes), 'quota')} changed.")


def _number(name: str, text: str) -> float:
    try:
        value = float(text.replace(",", "")) if len(text) <= MAX_NUMBER_CHARS else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise PageError(400, f"The limit {name} must be a number above 0.")
    return value
