"""Clone of a topic: a new topic with the same partitions, replication factor and overridden settings, without records.

The preview shows everything that will be created, checked by the cluster. It is refused if the topic has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import htpy as h
from starlette.responses import Response

from ottla.client.wire.model import ResourceType
from ottla.console import formats, html
from ottla.console.context import Context, PageError, version_of
from ottla.console.html import Column
from ottla.console.pages.topic_changes import topic_version
from ottla.console.pages.topics import replication_factor
from ottla.console.topic_parts import topic_heading


class ClonePlan(NamedTuple):
    """The topic to create; `hidden` are overridden settings whose values the cluster does not show."""

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]
    hidden: tuple[str, ...]
    version: str


def _plan(context: Context, name: str) -> ClonePlan:
    topic = context.cluster.topics.get(context.path["topic"])
    if name == topic.name:
        raise PageError(400, "The new topic needs another name.")
    entries = context.cluster.configs.describe(ResourceType.TOPIC, topic.name)
    changed = [each for each in entries if each.source == "topic"]
    settings = {each.name: each.value for each in changed if each.value is not None}
    hidden = tuple(each.name for each in changed if each.value is None)
    factor = replication_factor(topic)
    version = version_of(topic_version(topic), factor, sorted(settings.items()), hidden, name)
    return ClonePlan(name, len(topic.partitions), factor, settings, hidden, version)


def preview(context: Context) -> Response:
    """The topic that would be created; the cluster checks it."""
    source = context.path["topic"]
    plan = _plan(context, context.query.required("name"))
    context.cluster.topics.create(
        plan.name, plan.partitions, plan.replication_factor, plan.settings, validate_only=True
    )
    rows = [(h.code[name], h.span(".data")[formats.visible(value)]) for name, value in plan.settings.items()]
    return html.page(
        context,
        f"Clone {source}",
        topic_heading(context, source, "topic manage"),
        html.form(
            context,
            context.topic_url(source, "/clone"),
            h.h2["New topic"],
            html.facts(
                ("Name", html.name(plan.name)),
                ("Partitions", formats.number(plan.partitions)),
                ("Replicas", formats.number(plan.replication_factor)),
                ("Records", "none"),
            ),
            html.table(
                "Settings", (Column("Setting"), Column("Value")), rows, empty="No setting differs from the defaults."
            ),
            h.p(".hint")[f"Not copied, since the cluster hides their values: {', '.join(plan.hidden)}."]
            if plan.hidden
            else None,
            h.p[
                "No record is copied: the new topic is empty. Neither ACLs nor offsets of groups are copied. The "
                "cluster chooses the brokers of the replicas."
            ],
            h.input(type="hidden", name="name", value=plan.name),
            h.button(".primary", type="submit")["Create this empty topic"],
            classes="act",
            version=plan.version,
        ),
        active="topics",
    )


def clone(context: Context) -> Response:
    """Create the topic of the preview."""
    name = context.audit["name"] = context.form.required("name")
    plan = _plan(context, name)
    context.require_version(plan.version)
    context.cluster.topics.create(plan.name, plan.partitions, plan.replication_factor, plan.settings)
    return context.redirect(context.topic_url(name), f"Topic {name} was created, without records.")
