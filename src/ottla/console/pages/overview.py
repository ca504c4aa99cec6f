"""Overview: the health of the cluster in one sentence, with the remedy, and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import htpy as h
from htpy import Node
from starlette.responses import Response

from ottla.client.views.health import fenced_brokers, leaderless_partitions
from ottla.client.wire.model import ClusterBroker, ClusterInfo, QuorumInfo, TopicInfo
from ottla.common.errors import KafkaError
from ottla.console import formats, html
from ottla.console.busiest import busiest_groups, busiest_topics
from ottla.console.context import Context
from ottla.console.errors import sentence
from ottla.console.html import Column

T = TypeVar("T")
MAX_PROBLEMS = 20
"""Problems in the table; the others are counted."""


class Problem(NamedTuple):
    """Something wrong, and what to do."""

    text: str
    remedy: str
    is_severe: bool = False


def show(context: Context) -> Response:
    """The page."""
    cluster = context.cluster
    info = cluster.describe()
    topics = context.topics()
    brokers, no_brokers = permitted(cluster.brokers.all)
    quorum, no_quorum = permitted(cluster.quorum.describe)
    problems = find_problems(topics, brokers or (), quorum)
    partitions = sum(len(topic.partitions) for topic in topics.values())
    unknown = [each for each in (no_brokers, no_quorum) if each is not None]
    return html.page(
        context,
        "Overview",
        html.heading("Overview"),
        _health(problems, len(brokers or info.brokers), partitions),
        html.facts(
            ("Cluster", html.name(info.cluster_id or "-")),
            ("Brokers", _brokers(info, brokers)),
            ("Controller", "-" if quorum is None else f"node {quorum.leader_id}"),
            ("Topics", h.a(href=context.url("/topics"))[formats.number(len(topics))]),
            ("Partitions", formats.number(partitions)),
        ),
        [h.p(".hint")[f"Not shown: {each}"] for each in unknown],
        _problem_table(problems) if problems else None,
        _flow(context),
        active="overview",
    )


def _flow(context: Context) -> Node:
    topics = (Column("Topic"), Column("Records/s", is_number=True), Column("Bytes/s", is_number=True))
    groups = (
        Column("Group"),
        Column("Lag in records", is_number=True),
        Column("Consumed/s", is_number=True),
        Column("Catches up in", is_number=True),
    )
    return [
        html.live_note(context.url("/flow")),
        html.live_chart("Records written while this page is open", "records/s"),
        h.h2["Busiest topics"],
        h.p(".hint")[html.live("topics", "")],
        html.live_table("Busiest topics", "topics", topics),
        h.h2["Busiest groups"],
        h.p(".hint")[html.live("groups", "")],
        html.live_table("Busiest groups", "groups", groups),
    ]


def flow(context: Context) -> Response:
    """Rates of the cluster as JSON: their sum, and the busiest topics and groups that are known."""
    topics = busiest_topics(context)
    groups = busiest_groups(context)
    return html.flow_response(
        {"topics": topics.coverage, "groups": groups.coverage},
        note=" ".join(each for each in (topics.note, groups.note) if each),
        chart=(topics.records_per_s, formats.rate(topics.records_per_s)),
        rows={"topics": topics.rows, "groups": groups.rows},
    )


def permitted(read: Callable[[], T]) -> tuple[T | None, str | None]:
    """The result, or the reason why the cluster does not show it to this user."""
    try:
        return read(), None
    except KafkaError as error:
        return None, sentence(error)


def find_problems(
    topics: Mapping[str, TopicInfo], brokers: Sequence[ClusterBroker], quorum: QuorumInfo | None
) -> list[Problem]:
    """Everything that needs an operator, the most severe first."""
    live = {each.node_id for each in brokers if not each.fenced}
    hosts = {each.node_id: each.host for each in brokers}
    problems = [
        Problem(
            f"{each.topic}-{each.partition} has no leader: it can be neither read nor written.",
            each.cause,
            is_severe=True,
        )
        for each in leaderless_partitions(topics.values(), live)
    ]
    problems += [
        Problem(
            f"Broker {each.node_id} ({hosts[each.node_id]}) is not live, {each.text}.",
            f"start it, or run 'ottla cluster decommission {each.node_id} --unregister' if it will not return",
            is_severe=True,
        )
        for each in fenced_brokers([each.node_id for each in brokers if each.fenced], quorum)
    ]
    problems += _quorum_problems(quorum)
    problems += _replication_problems(topics)
    return problems


def _quorum_problems(quorum: QuorumInfo | None) -> list[Problem]:
    if quorum is None:
        return []
    newest = max((each.last_caught_up_ms for each in quorum.voters), default=-1)
    return [
        Problem(
            f"Controller {each.node_id} is {formats.counted(quorum.high_watermark - each.log_end_offset, 'record')} "
            "behind in the metadata log.",
            "check that it runs, and its network",
        )
        for each in quorum.voters
        if each.log_end_offset >= 0 and newest - each.last_caught_up_ms > 30_000 and each.last_caught_up_ms >= 0
    ]


def _replication_problems(topics: Mapping[str, TopicInfo]) -> list[Problem]:
    lagging: dict[int, int] = {}
    count = moved = 0
    for topic in topics.values():
        for partition in topic.partitions:
            missing = set(partition.replicas) - set(partition.isr)
            count += bool(missing)
            for node_id in missing:
                lagging[node_id] = lagging.get(node_id, 0) + 1
            moved += partition.is_led and partition.leader != partition.replicas[0]
    problems = []
    if count:
        named = ", ".join(f"broker {node_id} ({lags:,})" for node_id, lags in sorted(lagging.items())[:MAX_PROBLEMS])
        problems.append(
            Problem(
                f"{formats.counted(count, 'partition')} lack replicas in the ISR.",
                f"check that these brokers run and keep up: {named}",
                is_severe=True,
            )
        )
    if moved:
        problems.append(
            Problem(
                f"{formats.counted(moved, 'partition')} are not led by the preferred replica.",
                "run 'ottla cluster elect', unless auto.leader.rebalance.enable does it soon",
            )
        )
    return problems


def _health(problems: Sequence[Problem], brokers: int, partitions: int) -> Node:
    if not problems:
        text = (
            f"Healthy: {formats.counted(brokers, 'broker')} and {formats.counted(partitions, 'partition')}, "
            "all with leaders and complete replicas."
        )
        return h.p(".health.good", role="status")[text]
    first = problems[0]
    more = f" {formats.counted(len(problems) - 1, 'more problem')} below." if len(problems) > 1 else ""
    kind = "bad" if first.is_severe else "warning"
    return h.p({"class": f"health {kind}"}, role="status")[
        h.strong[formats.visible(first.text)], f" What to do: {formats.visible(first.remedy)}.{more}"
    ]


def _brokers(info: ClusterInfo, brokers: Sequence[ClusterBroker] | None) -> str:
    if brokers is None:
        return formats.number(len(info.brokers))
    live = sum(not each.fenced for each in brokers)
    return f"{live} of {len(brokers)} live"


def _problem_table(problems: Sequence[Problem]) -> Node:
    rows = [
        (
            html.badge("severe", "bad") if each.is_severe else html.badge("minor", "warning"),
            formats.visible(each.text),
            formats.visible(each.remedy),
        )
        for each in problems[:MAX_PROBLEMS]
    ]
    more = len(problems) - MAX_PROBLEMS
    return [
        html.table("Problems", (Column("Severity"), Column("Problem"), Column("What to do")), rows),
        h.p[f"And {more:,} more."] if more > 0 else None,
    ]
