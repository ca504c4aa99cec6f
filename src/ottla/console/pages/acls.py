"""ACLs: the permissions of a user, and changes of single ACLs."""

from __future__ import annotations

from enum import IntEnum

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.client.admin.acls import AclFilter
from ottla.common.kafka.acl import ANY_USER, WILDCARD, Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.console import formats, html
from ottla.console.context import Context, PageError, version_of
from ottla.console.html import Column

MAX_ROWS = 500
MAX_NAME_CHARS = 1_000
OPERATIONS = [each for each in AclOperation if each is not AclOperation.ANY]
RESOURCES = [each for each in ResourceType if each is not ResourceType.ANY]
_NAMES = {
    "type": ResourceType,
    "pattern": PatternType,
    "operation": AclOperation,
    "permission": Permission,
}


def show(context: Context) -> Response:
    """The list; for a principal, with the ACLs of all users, which apply to it too."""
    query = context.query
    principal, resource = query.text("principal").strip(), query.text("resource").strip()
    acls = context.cluster.acls.find(AclFilter())
    found = [
        each
        for each in acls
        if (not principal or each.principal in (principal, ANY_USER)) and resource in each.resource_name
    ]
    return html.page(
        context,
        "ACLs",
        html.heading("ACLs"),
        h.form(".filter", method="get", action=context.url("/acls"), role="search")[
            html.field(
                "ACLs that apply to the user", h.input(name="principal", value=principal, placeholder="User:alice")
            ),
            html.field("Resource contains", h.input(name="resource", value=resource)),
            h.button(type="submit")["Filter"],
            h.span(".count")[formats.counted(len(found), "ACL")],
        ],
        h.p(".hint")[
            f"ACLs of {formats.visible(principal)} and of all users. A denial overrides a permission. Without "
            "any, only super users are permitted, unless allow.everyone.if.no.acl.found is set."
        ]
        if principal
        else None,
        _table(context, found[:MAX_ROWS]),
        h.p(".hint")[f"Only the first {MAX_ROWS} are shown: filter."] if len(found) > MAX_ROWS else None,
        _form(context, principal) if context.offers("acl create") else None,
        active="acls",
    )


def _name(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name.lower().replace("_", " ")
    except ValueError:
        return str(number)


def _table(context: Context, acls: list[Acl]) -> Node:
    columns = (
        Column("Principal"),
        Column("Effect"),
        Column("Operation"),
        Column("Resource"),
        Column("Name"),
        Column("Host"),
        Column(""),
    )
    rows = [
        (
            html.name(each.principal),
            html.badge(_name(Permission, each.permission), "bad" if each.permission == Permission.DENY else "good"),
            _name(AclOperation, each.operation),
            _name(ResourceType, each.resource_type),
            [html.name(each.resource_name), " (prefix)" if each.pattern_type == PatternType.PREFIXED else ""],
            html.name(each.host),
            h.a(href=context.url("/acl/remove", **_fields(each)))["Remove"] if context.offers("acl remove") else "",
        )
        for each in acls
    ]
    return html.table("ACLs", columns, rows, empty="No ACL matches.")


def _fields(acl: Acl) -> dict[str, str]:
    return {
        "type": _name(ResourceType, acl.resource_type),
        "name": acl.resource_name,
        "pattern": _name(PatternType, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _name(AclOperation, acl.operation),
        "permission": _name(Permission, acl.permission),
    }


def _options(kinds: list[IntEnum]) -> list[tuple[str, str]]:
    return [(text, text) for text in (each.name.lower().replace("_", " ") for each in kinds)]


def _form(context: Context, principal: str) -> Node:
    return html.form(
        context,
        "/acls",
        h.h2["Add an ACL"],
        html.field("Principal", h.input(name="principal", required=True, value=principal or "User:")),
        html.field("Effect", html.select("permission", [("allow", "allow"), ("deny", "deny")])),
        html.field("Operation", html.select("operation", _options(list(OPERATIONS)), "read")),
        html.field("Resource", html.select("type", _options(list(RESOURCES)))),
        html.field("Name", h.input(name="name", required=True), "* for all; kafka-cluster for the resource cluster."),
        html.field("Name is", html.select("pattern", [("literal", "the whole name"), ("prefixed", "a prefix")])),
        html.field("Host", h.input(name="host", required=True, value=WILDCARD)),
        h.button(".primary", type="submit")["Add"],
        classes="act",
    )


def _parse(values: dict[str, str]) -> Acl:
    """The ACL of the fields of `_fields`. Raises PageError."""
    numbers: dict[str, int] = {}
    for name, kind in _NAMES.items():
        found = kind.__members__.get(values[name].upper().replace(" ", "_"))
        if found is None or found.name in ("ANY", "MATCH"):
            raise PageError(400, f"The field {name} has an unknown value.")
        numbers[name] = int(found)
    texts = [values[name] for name in ("name", "principal", "host")]
    if not all(0 < len(each) <= MAX_NAME_CHARS for each in texts) or ":" not in values["principal"]:
        raise PageError(400, "An ACL needs a principal such as User:alice, a name and a host.")
    return Acl(
        numbers["type"],
        values["name"],
        numbers["pattern"],
        values["principal"],
        values["host"],
        numbers["operation"],
        numbers["permission"],
    )


_FIELDS = ("type", "name", "pattern", "principal", "host", "operation", "permission")


def create(context: Context) -> Response:
    """Add an ACL."""
    acl = _parse({name: context.form.text(name).strip() for name in _FIELDS})
    context.audit.update({f"acl_{name}": value for name, value in _fields(acl).items()})
    context.cluster.acls.create([acl])
    return context.redirect(context.url("/acls", principal=acl.principal), "The ACL was added.")


def confirm_removal(context: Context) -> Response:
    """The form to remove an ACL."""
    acl = _parse({name: context.query.text(name) for name in _FIELDS})
    content = html.confirmed(
        context,
        "/acl/remove",
        acl.principal,
        "Remove ACL",
        html.facts(*((name.capitalize(), html.name(value)) for name, value in _fields(acl).items())),
        [h.input(type="hidden", name=name, value=value) for name, value in _fields(acl).items()],
        version=version_of(acl),
    )
    return html.page(context, "Remove ACL", html.heading("Remove this ACL"), content, active="acls")


def remove(context: Context) -> Response:
    """Remove one ACL."""
    acl = _parse({name: context.form.text(name) for name in _FIELDS})
    context.audit.update({f"acl_{name}": value for name, value in _fields(acl).items()})
    context.require_typed_name(acl.principal)
    context.require_version(version_of(acl))
    if not context.cluster.acls.delete([AclFilter(*acl)]):
        raise PageError(404, "The cluster has no such ACL.")
    return context.redirect(context.url("/acls"), "The ACL was removed.")
