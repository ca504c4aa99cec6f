"""The heading of the pages of a topic, with links between them."""

from __future__ import annotations

import htpy as h
from htpy import Node

from ottla.console import html
from ottla.console.context import Context

TABS = (
    ("Records", "/records", "records"),
    ("Live", "/live", "live"),
    ("Partitions", "", "topic"),
    ("Settings", "/settings", "topic settings"),
    ("Groups", "/groups", "topic groups"),
    ("Produce", "/produce", "produce"),
    ("Manage", "/manage", "topic manage"),
)
"""Text, path below the topic, and name of the row."""


def topic_heading(context: Context, topic: str, active: str) -> Node:
    """Name and tabs; tabs of pages that do not exist are left out."""
    links = [
        h.li[h.a(href=context.topic_url(topic, path), aria_current="page" if name == active else None)[text]]
        for text, path, name in TABS
        if context.offers(name)
    ]
    return [html.heading(html.name(topic)), h.nav(".tabs", aria_label="Pages of the topic")[h.ul[links]]]
