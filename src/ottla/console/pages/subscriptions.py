"""Client metrics subscriptions (KIP-714): form, preview, change and deletion, with the credentials of the user."""

from __future__ import annotations

from collections.abc import Mapping

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.common.config.client_metrics_configs import CLIENT_METRICS_CONFIGS, INTERVAL, MATCH, METRICS
from ottla.console import formats, html
from ottla.console.context import Context, PageError, Parameters, version_of

SETTINGS = (METRICS, INTERVAL, MATCH)
LABELS = {METRICS: "Metrics", INTERVAL: "Interval in milliseconds", MATCH: "Clients"}
MAX_SETTING_CHARS = 10_000
MAX_NAME_CHARS = 249
Values = Mapping[str, str]
"""Settings of a subscription that are not defaults; a subscription exists while it has one."""


def _stored(context: Context, name: str) -> Values:
    entries = context.cluster.configs.describe(ResourceType.CLIENT_METRICS, name)
    return {entry.name: entry.value or "" for entry in entries if not entry.is_default}


def _entered(fields: Parameters) -> Values:
    """The settings of a form; an empty one is its default. Raises PageError."""
    found = {name: fields.text(name).strip() for name in SETTINGS}
    if any(len(value) > MAX_SETTING_CHARS for value in found.values()):
        raise PageError(400, f"A setting has at most {MAX_SETTING_CHARS:,} characters.")
    return {name: value for name, value in found.items() if value}


def _name(fields: Parameters) -> str:
    name = fields.required("name")
    if len(name) > MAX_NAME_CHARS:
        raise PageError(400, f"A name has at most {MAX_NAME_CHARS} characters.")
    return name


def _changes(before: Values, after: Values) -> list[tuple[str, ConfigOperation, str | None]]:
    changes: list[tuple[str, ConfigOperation, str | None]] = [
        (name, ConfigOperation.SET, value) for name, value in after.items() if before.get(name) != value
    ]
    return changes + [(name, ConfigOperation.DELETE, None) for name in before if name not in after]


def _version(name: str, values: Values) -> str:
    return version_of(name, sorted(values.items()))


def show_form(context: Context) -> Response:
    """The form of a subscription, or of a new one; it leads to the preview."""
    is_new = not context.query.is_set("name")
    name = "" if is_new else _name(context.query)
    values = {} if is_new else _stored(context, name)
    title = "New subscription" if is_new else "Subscription"
    hints = {key: CLIENT_METRICS_CONFIGS[key].doc for key in SETTINGS}
    return html.page(
        context,
        title,
        html.heading(title if is_new else html.name(name)),
        h.form(".act", method="get", action=context.url("/subscription/preview"))[
            html.field(
                "Name",
                h.input(
                    name="name",
                    value=name,
                    required=True,
                    readonly=not is_new,
                    autocomplete="off",
                    spellcheck="false",
                    maxlength=str(MAX_NAME_CHARS),
                ),
            ),
            [
                html.field(
                    LABELS[key],
                    h.input(name=key, value=values.get(key, ""), autocomplete="off", spellcheck="false"),
                    hints[key],
                )
                for key in SETTINGS
            ],
            h.button(".primary", type="submit")["Preview"],
        ],
        _deletion(context, name, values) if values else None,
        active="clients",
    )


def _deletion(context: Context, name: str, values: Values) -> Node:
    return html.confirmed(
        context,
        "/subscription/delete",
        name,
        "Delete subscription",
        h.h2["Delete the subscription"],
        h.p["Clients stop pushing its metrics at their next request."],
        h.input(type="hidden", name="name", value=name),
        version=_version(name, values),
    )


def preview(context: Context) -> Response:
    """The difference, checked by the cluster but not applied."""
    name, after = _name(context.query), _entered(context.query)
    before = _stored(context, name)
    changes = _changes(before, after)
    if not after or not changes:
        raise PageError(400, "Nothing to change." if after else "Give at least one setting, such as the metrics.")
    context.cluster.configs.alter(ResourceType.CLIENT_METRICS, name, changes, validate_only=True)
    return html.page(
        context,
        f"Subscription {name}",
        html.heading(html.name(name)),
        html.form(
            context,
            "/subscription",
            h.h2["Difference"],
            [_difference(key, before, after) for key, _, _ in changes],
            h.p["The cluster accepts this change. Clients notice it at their next request."],
            h.input(type="hidden", name="name", value=name),
            [h.input(type="hidden", name=key, value=value) for key, value in after.items()],
            h.button(".primary", type="submit")["Apply"],
            classes="act",
            version=_version(name, before),
        ),
        active="clients",
    )


def _difference(key: str, before: Values, after: Values) -> Node:
    def shown(values: Values) -> str:
        return formats.visible(values[key]) if key in values else "the default"

    return h.p[h.code[key], ": ", h.del_[shown(before)], " → ", h.ins[shown(after)]]


def apply(context: Context) -> Response:
    """Create or change the subscription."""
    name, after = _name(context.form), _entered(context.form)
    context.audit.update(subscription=name, settings=str(dict(after)))
    before = _stored(context, name)
    context.require_version(_version(name, before))
    changes = _changes(before, after)
    if not after or not changes:
        raise PageError(400, "Nothing to change.")
    context.cluster.configs.alter(ResourceType.CLIENT_METRICS, name, changes)
    return context.redirect(context.url("/clients"), f"The subscription {name} was saved.")


def delete(context: Context) -> Response:
    """Delete the subscription."""
    name = context.audit["subscription"] = _name(context.form)
    context.require_typed_name(name)
    context.require_version(_version(name, _stored(context, name)))
    context.cluster.client_metrics.delete(name)
    return context.redirect(context.url("/clients"), f"The subscription {name} was deleted.")
