"""Problems of a cluster that an operator can fix, each with the command or action that does it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.views.health import FencedBroker, LeaderlessPartition, cluster_health
from ottla.client.views.partition_states import PartitionState, partition_states
from ottla.common.certificate_expiry import WARNING_DAYS, date_text, days_left
from ottla.common.errors import KafkaError

MAX_NAMED = 5
"""Most partitions that one problem names."""


class ClusterProblem(NamedTuple):
    """A sentence, and what to do."""

    problem: str
    remedy: str


def cluster_problems(cluster: Cluster) -> list[ClusterProblem]:
    """All problems that the brokers' answers show, the worst first."""
    health, leaderless, gone = cluster_health(cluster)
    states = partition_states(cluster, cluster.topics.all().values())
    fenced = health.fenced_brokers
    return [
        *_leaderless(leaderless),
        *_below_min_isr(states),
        *_fenced(gone),
        *_directories(cluster),
        *_voters(cluster),
        *_under_replicated(states, fenced),
        *_certificates(cluster),
        *_leaders(health.not_preferred_leader),
    ]


def _leaderless(partitions: list[LeaderlessPartition]) -> Iterator[ClusterProblem]:
    for each in partitions[:MAX_NAMED]:
        yield ClusterProblem(f"{each.topic}-{each.partition} has no leader", each.cause)
    if len(partitions) > MAX_NAMED:
        more = len(partitions) - MAX_NAMED
        yield ClusterProblem(
            f"{more} more partitions have no leader", "list them with `ottla topic describe --unavailable`"
        )


def _below_min_isr(states: list[PartitionState]) -> Iterator[ClusterProblem]:
    found = [each for each in states if each.leader is not None and len(each.isr) < each.min_isr]
    if found:
        yield ClusterProblem(
            f"writes with acks=all fail: {_names(found)} below min.insync.replicas",
            "start the missing brokers: `ottla topic describe --under-min-isr` lists replicas and ISR",
        )


def _fenced(brokers: list[FencedBroker]) -> Iterator[ClusterProblem]:
    for each in brokers:
        yield ClusterProblem(
            f"broker {each.node_id} does not serve (fenced), {each.text}",
            f"start it; if it is gone for good: `ottla cluster decommission {each.node_id} --execute`, then "
            f"`ottla cluster decommission {each.node_id} --unregister`",
        )


def _directories(cluster: Cluster) -> Iterator[ClusterProblem]:
    for each in cluster.log_directories.all():
        if each.error is not None:
            yield ClusterProblem(
                f"directory {each.path} of broker {each.node_id} is offline ({each.error})",
                "repair or replace its disk and restart the broker",
            )
        elif each.is_full:
            yield ClusterProblem(
                f"directory {each.path} of broker {each.node_id} is full, and writes to it fail",
                "free space there or enlarge its file system; to free space in Ottla, lower retention.ms or "
                "retention.bytes of the topics that `ottla log dirs --replicas` shows; writes resume without a restart",
            )


def _voters(cluster: Cluster) -> Iterator[ClusterProblem]:
    try:
        info = cluster.quorum.describe()
    except KafkaError:  # a cluster with ZooKeeper metadata has no quorum
        return
    for voter in info.voters:
        if info.is_gone(voter):
            yield ClusterProblem(
                f"voter {voter.node_id} of the metadata quorum is gone",
                f"start it; if its disk is lost, rebuild it and run `ottla cluster voters replace {voter.node_id}`",
            )


def _under_replicated(states: list[PartitionState], fenced: list[int]) -> Iterator[ClusterProblem]:
    found = [each for each in states if len(each.isr) < len(each.replicas)]
    if not found:
        return
    missing = sorted({broker for each in found for broker in each.replicas if broker not in each.isr})
    live = [broker for broker in missing if broker not in fenced]
    action = f"start broker {', '.join(map(str, fenced))}" if fenced else "wait until the replicas have caught up"
    if live:
        action += f"; if broker {', '.join(map(str, live))} does not catch up, read its log"
    yield ClusterProblem(
        f"{_names(found)} under-replicated", f"{action}; `ottla topic describe --under-replicated` lists them"
    )


def _certificates(cluster: Cluster) -> Iterator[ClusterProblem]:
    now_s = time.time()
    for broker_id, expiry_s in sorted(cluster.brokers.certificate_expiries().items()):
        if days_left(expiry_s, now_s) <= WARNING_DAYS:
            yield ClusterProblem(
                f"the certificate of broker {broker_id} expires on {date_text(expiry_s)}",
                "replace it, for example with `ottla security renew`",
            )


def _leaders(count: int) -> Iterator[ClusterProblem]:
    if count:
        yield ClusterProblem(
            f"{count} partition{' has' if count == 1 else 's have'} a leader that is not the preferred one",
            "`ottla cluster elect` elects the preferred leaders",
        )


def _names(states: list[PartitionState]) -> str:
    named = ", ".join(f"{each.topic}-{each.partition}" for each in states[:MAX_NAMED])
    more = f" and {len(states) - MAX_NAMED} more" if len(states) > MAX_NAMED else ""
    return f"{named}{more} {'is' if len(states) == 1 else 'are'}"
