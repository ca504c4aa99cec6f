"""Reading of records: the only module of the console that starts a search, so no page can omit the masks of its user.

A record is decoded with the schemas of the console, and masked for the signed-in user before the filter sees it. A page
that shows more to a user with the permission has `unmasked` in its entry of the audit log.
"""

from __future__ import annotations

from ottla.console.context import Context, PageError
from ottla.console.mask_policy import Masking
from ottla.schemas.settings import SchemaSettings
from ottla.search.engine import Budget, Search
from ottla.search.neighbours import Neighbour, find_neighbour
from ottla.search.plan import OffsetRange, Plan
from ottla.search.scan import Hit
from ottla.search.source import ClusterTopic, TopicSource
from ottla.search.subject import Decoders, OpenDecoders, open_decoders
from ottla.search.syntax import KEY, Node

FETCH_BYTES = 1024 * 1024
VERSION_BUDGET = Budget(bytes=64 * 1024 * 1024, seconds=5.0)
"""Bound of the search for another version of a key; the next page continues it."""
ANONYMOUS = "User:ANONYMOUS"


def masking_of(context: Context, topic: str) -> Masking:
    """The mask of a topic for the user of this request; a use of the permission goes to the audit log."""
    user = context.session.user
    found = context.services.masks.masking(topic, ANONYMOUS if user is None else f"User:{user}")
    if found.unmasked:
        context.audit["unmasked"] = ", ".join(found.unmasked)
    return found


def decoders_of(context: Context, topic: str, names: Decoders) -> OpenDecoders:
    """Decoders by name, with the schemas of the console and the mask of the user."""
    registry = context.services.registry
    settings = None if registry is None else SchemaSettings(registry)
    return open_decoders(names, settings, masking_of(context, topic).mask)


def open_search(context: Context, source: TopicSource, plan: Plan, condition: Node | None, budget: Budget) -> Search:
    """A search of a plan; `condition` is the filter of its query. It ends when the browser closes the connection."""
    return Search(
        source,
        plan,
        condition,
        budget,
        context.services.clock.monotonic,
        lambda report: context.check_alive(),
        FETCH_BYTES,
        decoders_of(context, plan.topic, plan.decoders),
    )


def read_record(context: Context, topic: str, partition: int, offset: int, decoders: Decoders) -> Hit | None:
    """The record at an offset, None if there is none. Raises KafkaError, PageError."""
    source = ClusterTopic(context.cluster, topic, "uncommitted")
    if partition not in source.partitions():
        raise PageError(404, f"Topic {topic} has no partition {partition}.")
    start, end = source.start_offsets([partition])[partition], source.end_offsets([partition])[partition]
    if not start <= offset < end:
        return None
    plan = Plan(topic, "", {partition: OffsetRange(offset, offset + 1)}, decoders=decoders)
    return next(iter(open_search(context, source, plan, None, Budget(matches=1)).run()), None)


def require_versions(context: Context, topic: str, hit: Hit) -> bytes:
    """The key of a record whose versions the user may compare. Raises PageError."""
    mask = masking_of(context, topic).mask
    if hit.key is None:
        raise PageError(404, "This record has no key, so it has no versions.")
    if mask is not None and not mask.keeps_equality(KEY):
        raise PageError(403, "Keys of this topic are masked for you, so versions of a key cannot be found.")
    return hit.key


def find_version(
    context: Context, topic: str, hit: Hit, edge: int, decoders: Decoders, *, is_before: bool
) -> Neighbour:
    """The nearest record with the key of `hit` before the offset `edge`, or from `edge` on.

    Raises KafkaError, PageError.
    """
    key = require_versions(context, topic, hit)
    source = ClusterTopic(context.cluster, topic, "uncommitted")
    partition = hit.partition
    start, end = source.start_offsets([partition])[partition], source.end_offsets([partition])[partition]
    return find_neighbour(
        source,
        partition,
        OffsetRange(start, max(start, min(edge, end))) if is_before else OffsetRange(max(start, min(edge, end)), end),
        key,
        decoders_of(context, topic, decoders),
        VERSION_BUDGET,
        context.services.clock.monotonic,
        context.check_alive,
        FETCH_BYTES,
        is_before=is_before,
    )
