"""The busiest topics and groups of the overview: all of a small cluster, those that are known of a large one.

A reading covers the busiest topics and groups that are known, and some of the others in turn. So a large cluster
becomes known over several readings. Each part is read twice, since a rate needs two readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.views.rates import GroupRates, sum_known
from ottla.client.wire.connection import BrokerUnreachable
from ottla.common.errors import KafkaError
from ottla.console import formats
from ottla.console.context import Context
from ottla.console.errors import sentence
from ottla.console.flow import read_groups, read_traffic
from ottla.console.flow_meter import COMMIT_LIMITS, LIMITS, Turn

ROWS = 10
MAX_GROUPS = 20
"""Groups whose offsets one reading asks for."""
MAX_KNOWN_GROUPS = 500
"""Groups whose latest rates a session keeps."""
KNOWN, TURN = "known groups", "turn of groups"


class Busiest(NamedTuple):
    """Rows of a table, each with its address first; the number of known ones, and a note about missing ones."""

    rows: Sequence[Sequence[str]]
    coverage: str
    note: str
    records_per_s: float | None = None
    """The sum of all that are known."""


def busiest_topics(context: Context) -> Busiest:
    """Topics by their rate. Raises KafkaError, BrokerUnreachable if the cluster does not respond."""
    topics, meter, clock = context.topics(), context.services.flow, context.services.clock
    before = _sorted_rates({name: meter.known_rates(topic, clock.monotonic()) for name, topic in topics.items()})
    chosen = meter.choose(topics, [name for name, _ in before[:ROWS]], clock.monotonic())
    traffic = read_traffic(context, topics, chosen)
    now_s = clock.monotonic()
    known = _sorted_rates({name: meter.known_rates(topic, now_s) for name, topic in topics.items()})
    rows = [
        (context.topic_url(name), formats.visible(name), formats.rate(records), formats.byte_rate(size))
        for name, (records, size) in known[:ROWS]
    ]
    total = sum_known(records for _, (records, _) in known)
    return Busiest(rows, _coverage(len(known), len(topics), "topic"), traffic.note(), total)


def _sorted_rates(
    rates: dict[str, tuple[float | None, float | None]],
) -> list[tuple[str, tuple[float | None, float | None]]]:
    known = [each for each in rates.items() if each[1][0] is not None]
    return sorted(known, key=lambda each: (-(each[1][0] or 0), each[0]))


def _coverage(known: int, count: int, noun: str) -> str:
    if known == count:
        return ""
    return f"Rates of {known:,} of {formats.counted(count, noun)} are known so far."


def busiest_groups(context: Context) -> Busiest:
    """Groups by the rate at which they consume, then by lag."""
    try:
        names = [each.group_id for each in context.groups()]
        unread = _read_turn(context, names)
    except (KafkaError, BrokerUnreachable) as error:
        return Busiest([], "", sentence(error))
    known = _known_groups(context, set(names))
    rows = [
        (
            context.url("/group", id=name),
            formats.visible(name),
            formats.number(rates.lag),
            formats.rate(rates.consumed_per_s),
            formats.wait(rates.catch_up_s),
        )
        for name, rates in known[:ROWS]
    ]
    return Busiest(rows, _coverage(len(known), len(names), "group"), unread)


def _read_turn(context: Context, names: Sequence[str]) -> str:
    """Read the busiest groups and the next ones; returns a note about missing values."""
    session = context.session
    chosen = [name for name, _ in _known_groups(context, set(names))[: MAX_GROUPS // 2]]
    turn: Turn = session.kept(TURN).get(TURN) or Turn(COMMIT_LIMITS.min_interval_s)
    session.keep(TURN, TURN, turn, 1)
    others = [name for name in turn.order(names) if name not in chosen][: MAX_GROUPS - len(chosen)]
    found = read_groups(context, [*chosen, *others])
    now_s = context.services.clock.monotonic()
    if others:
        turn.end(others[-1], now_s)
    for name, rates in found.rates.items():
        session.keep(KNOWN, name, (now_s, rates), MAX_KNOWN_GROUPS)
    if not found.unread:
        return found.traffic.note()
    return f"{formats.counted(len(found.unread), 'group')} could not be read. {found.traffic.note()}"


def _known_groups(context: Context, names: set[str]) -> list[tuple[str, GroupRates]]:
    since_s = context.services.clock.monotonic() - LIMITS.max_interval_s
    known: list[tuple[str, GroupRates]] = [
        (name, rates)
        for name, (read_s, rates) in context.session.kept(KNOWN).items()
        if name in names and read_s >= since_s
    ]
    return sorted(known, key=lambda each: (-(each[1].consumed_per_s or 0), -(each[1].lag or 0), each[0]))
