"""SCRAM users: the list, passwords, and removal."""

from __future__ import annotations

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.client.admin.users import ITERATIONS, ScramUser
from ottla.console import formats, html
from ottla.console.context import Context, PageError, version_of
from ottla.console.html import Column
from ottla.security.sasl.credentials import BY_NAME

MIN_PASSWORD_CHARS = 8
MAX_CHARS = 1_000


def show(context: Context) -> Response:
    """The list and the forms."""
    users = context.cluster.users.all()
    removable = context.offers("user remove")
    rows = [
        (
            html.name(each.name),
            each.mechanism,
            formats.number(each.iterations),
            h.a(href=context.url("/acls", principal=f"User:{each.name}"))["ACLs"],
            h.a(href=context.url("/user/remove", name=each.name, mechanism=each.mechanism))["Remove"]
            if removable
            else "",
        )
        for each in users
    ]
    columns = (Column("User"), Column("Mechanism"), Column("Iterations", is_number=True), Column(""), Column(""))
    return html.page(
        context,
        "Users",
        html.heading("Users"),
        h.p["SCRAM credentials of the cluster. Users of SASL/PLAIN, certificates and Kerberos are not stored there."],
        html.table("Users", columns, rows, empty="The cluster has no SCRAM user."),
        _form(context) if context.offers("user put") else None,
        active="users",
    )


def _form(context: Context) -> Node:
    return html.form(
        context,
        "/users",
        h.h2["Add a user, or change a password"],
        html.field("Name", h.input(name="name", required=True, autocomplete="off", spellcheck="false")),
        html.field("Mechanism", html.select("mechanism", [(each, each) for each in sorted(BY_NAME, reverse=True)])),
        html.field(
            "Password",
            h.input(name="password", type="password", required=True, autocomplete="new-password"),
            f"At least {MIN_PASSWORD_CHARS} characters. The cluster receives only its salted hash.",
        ),
        h.button(".primary", type="submit")["Save"],
        classes="act",
    )


def put(context: Context) -> Response:
    """Add a user or change a password."""
    form = context.form
    name, password = form.required("name"), form.required("password")
    mechanism = form.choice("mechanism", sorted(BY_NAME, reverse=True))
    context.audit.update(name=name, mechanism=mechanism)
    if not MIN_PASSWORD_CHARS <= len(password) <= MAX_CHARS or len(name) > MAX_CHARS:
        raise PageError(400, f"A password has {MIN_PASSWORD_CHARS} to {MAX_CHARS} characters.")
    context.cluster.users.put(name, mechanism, password, ITERATIONS[0])
    return context.redirect(context.url("/users"), f"The {mechanism} password of {name} was set.")


def _find(context: Context, name: str, mechanism: str) -> ScramUser:
    for each in context.cluster.users.all():
        if (each.name, each.mechanism) == (name, mechanism):
            return each
    raise PageError(404, f"User {name} has no {mechanism} credential.")


def confirm_removal(context: Context) -> Response:
    """The form to remove a credential."""
    user = _find(context, context.query.required("name"), context.query.required("mechanism"))
    content = html.confirmed(
        context,
        "/user/remove",
        user.name,
        "Remove credential",
        h.p[f"New connections of this user with {user.mechanism} will be rejected."],
        h.input(type="hidden", name="name", value=user.name),
        h.input(type="hidden", name="mechanism", value=user.mechanism),
        version=version_of(user),
    )
    return html.page(context, "Remove user", html.heading("Remove ", html.name(user.name)), content, active="users")


def remove(context: Context) -> Response:
    """Remove a credential."""
    name, mechanism = context.form.required("name"), context.form.required("mechanism")
    context.audit.update(name=name, mechanism=mechanism)
    context.require_typed_name(name)
    context.require_version(version_of(_find(context, name, mechanism)))
    context.cluster.users.remove(name, mechanism)
    return context.redirect(context.url("/users"), f"The {mechanism} credential of {name} was removed.")
