"""The route table: every request that the console serves, and the operation that it needs.

A change of the cluster is a POST. `application` checks each row in the same way, so a page cannot forget it.
"""

from __future__ import annotations

from ottla.console.pages import overview, sign_in, static, topics
from ottla.console.route import Operation, Route

PUBLIC, READ, WRITE = Operation.PUBLIC, Operation.READ, Operation.WRITE

ROUTES = (
    Route("GET", "/static/{name}", "static", static.show, PUBLIC),
    Route("GET", "/sign-in", "sign-in form", sign_in.show, PUBLIC),
    Route("POST", "/sign-in", "sign in", sign_in.sign_in, PUBLIC),
    Route("POST", "/sign-out", "sign out", sign_in.sign_out, PUBLIC),
    Route("GET", "/", "overview", overview.show, READ),
    Route("GET", "/topics", "topics", topics.show, READ),
    Route("GET", "/topics/sizes", "topic sizes", topics.sizes, READ),
    Route("GET", "/topics/new", "topic form", topics.new, READ),
    Route("POST", "/topics/new", "topic new", topics.create, WRITE),
)
"""Rows of a path with a variable come after those of the same shape without one."""
