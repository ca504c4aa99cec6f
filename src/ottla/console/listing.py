"""Listings of records: a search with fixed ends, read one page at a time, in either order.

The ends are fixed when a listing starts, so its pages neither repeat nor omit a record while others are produced. Page
N starts where page N-1 ended, and is read again when the user returns to it. Both a listing without a filter and a
search use the engine of `ottla search`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.console.context import Context, PageError, Parameters
from ottla.console.searching import masking_of
from ottla.search.decoder_names import AVRO, DECODERS, PROTOBUF, REGISTRY
from ottla.search.decoders import decoder_for
from ottla.search.engine import Budget, Search
from ottla.search.parser import parse_query
from ottla.search.plan import Plan, fix_ranges, read_token
from ottla.search.report import END, Report
from ottla.search.scan import Hit
from ottla.search.scopes import BOUND_FORMS, ISOLATIONS, PARTITION_FORMS, parse_bound, parse_partitions
from ottla.search.source import ClusterTopic, TopicSource
from ottla.search.subject import Decoders
from ottla.search.syntax import Bound, Node, Query, QueryError, Scopes

ROWS = 50
PAGE_BUDGET = Budget(matches=ROWS, bytes=64 * 1024 * 1024, seconds=5.0)
"""Bound of one page of a search; the next page continues it."""
EXPORT_BUDGET = Budget(matches=100_000, bytes=4 * 1024 * 1024 * 1024, seconds=600.0)
NEWEST, OLDEST = "newest", "oldest"
DECODER_CHOICES = tuple(name for name in DECODERS if name not in (AVRO, PROTOBUF, REGISTRY))
"""Decoders that need no schema; the first one is the default."""
FIELDS = ("q", "order", "from", "until", "partition", "isolation", "key_decoder", "value_decoder")
"""Parameters of a listing in addresses."""
MAX_PAGES = 500
MAX_QUERY_CHARS = 8_000


OpenSearch = Callable[[TopicSource, Plan, Node | None, Budget], Search]
"""Starts a search with the decoders and the mask of a user: `searching.open_search` of a request."""


class Listing(NamedTuple):
    """A listing that can be paged: `starts[N - 1]` has the ranges that page N starts with."""

    topic: str
    parsed: Query
    starts: list[Plan]


class RecordPage(NamedTuple):
    """One page of a listing."""

    hits: list[Hit]
    report: Report
    has_next: bool


def decoder_choices(context: Context) -> tuple[str, ...]:
    """Names of the decoders that the user may choose; `registry` only with a schema registry."""
    return DECODER_CHOICES if context.services.registry is None else (*DECODER_CHOICES, REGISTRY)


def fields_of(query: Parameters) -> dict[str, str]:
    """The parameters of a listing, for links to it."""
    return {name: query.text(name) for name in FIELDS if query.text(name)}


def start_listing(context: Context, topic: str, cluster: Cluster) -> Listing:
    """A new listing, whose ends are the present ones. Raises PageError, KafkaError."""
    query = context.query
    text = query.text("q").strip()
    if len(text) > MAX_QUERY_CHARS:
        raise PageError(400, f"A query has at most {MAX_QUERY_CHARS:,} characters.")
    masking_of(context, topic)  # in the audit log before a response starts
    now_ms = context.services.clock.time_ms()
    try:
        parsed = parse_query(text, now_ms)
    except QueryError as error:
        raise PageError(400, f"The query does not parse: {error}") from error
    scopes = _with_fields(parsed.scopes, query, now_ms)
    isolation = scopes.isolation or query.choice("isolation", ("uncommitted", *ISOLATIONS))
    source = ClusterTopic(cluster, topic, isolation)
    decoders = (query.choice(f"{part}_decoder", decoder_choices(context)) for part in ("key", "value"))
    plan = Plan(
        topic,
        text,
        fix_ranges(source, scopes),
        query.choice("order", (NEWEST, OLDEST)) == NEWEST,
        isolation,
        Decoders(*(decoder_for(topic, each) for each in decoders)),
        source.topic_id,
    )
    return Listing(topic, parsed, [plan])


def _with_fields(scopes: Scopes, query: Parameters, now_ms: int) -> Scopes:
    """The scopes of the query; the other fields apply where the query has no scope."""
    if scopes.start is None:
        scopes = replace(scopes, start=_bound(query.text("from"), now_ms))
    if scopes.until is None:
        scopes = replace(scopes, until=_bound(query.text("until"), now_ms))
    text = query.text("partition").strip()
    if text and scopes.partitions is None:
        partitions = parse_partitions(text)
        if partitions is None:
            raise PageError(400, f"{text!r} is not a list of {PARTITION_FORMS}.")
        scopes = replace(scopes, partitions=partitions)
    return scopes


def _bound(text: str, now_ms: int) -> Bound | None:
    bound = parse_bound(text.strip(), now_ms) if text.strip() else None
    if bound is None and text.strip():
        raise PageError(400, f"{text!r} is not {BOUND_FORMS}.")
    return bound


def read_page(
    listing: Listing,
    number: int,
    cluster: Cluster,
    open_search: OpenSearch,
    budget: Budget = PAGE_BUDGET,
) -> RecordPage:
    """Read page `number` (from 1), which starts where the page before it ended. Raises PageError, KafkaError."""
    if not 1 <= number <= min(len(listing.starts), MAX_PAGES):
        raise PageError(404, "This listing has no such page: list the records again.")
    plan = listing.starts[number - 1]
    limit = listing.parsed.scopes.limit
    left = None if limit is None else limit - (number - 1) * ROWS
    if left is not None and budget.matches is not None:
        budget = replace(budget, matches=max(1, min(left, budget.matches)))
    search = start_search(listing, plan, cluster, open_search, budget)
    hits = list(search.run())
    report = search.report(search.reason)
    # Later pages may overlap with this one if reading stopped at another place than last time.
    del listing.starts[number:]
    if report.resume is not None:
        listing.starts.append(read_token(report.resume))
    is_last = report.resume is None or search.reason == END or (left is not None and left <= len(hits))
    return RecordPage(hits, report, not is_last)


def start_search(listing: Listing, plan: Plan, cluster: Cluster, open_search: OpenSearch, budget: Budget) -> Search:
    """The search of a plan. Raises PageError if the topic was created again since the listing started."""
    source = ClusterTopic(cluster, plan.topic, plan.isolation)
    if source.topic_id != plan.topic_id:
        raise PageError(409, f"Topic {plan.topic} was deleted and created again: list its records again.")
    return open_search(source, plan, listing.parsed.filter, budget)
