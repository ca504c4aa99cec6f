"""Permissions of the user for figures that do not come from the cluster, as the cluster reports them (KIP-430)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import KafkaError
from ottla.common.kafka.acl import AclOperation
from ottla.console.context import Context


def may_describe_cluster(context: Context) -> bool:
    """True if the user has DESCRIBE on the cluster; at most `sessions.CACHE_S` old."""
    now_s = context.services.clock.monotonic()
    operations: frozenset[int] = context.session.cached("cluster operations", now_s, lambda: _operations(context))
    return AclOperation.DESCRIBE in operations


def _operations(context: Context) -> frozenset[int]:
    """Operations on the cluster; none if it is too old to report them (Kafka before 2.8)."""
    try:
        return context.cluster.brokers.cluster_operations()
    except KafkaError:
        return frozenset()


def readable_topics(context: Context, topics: Sequence[str]) -> set[str]:
    """Those topics whose records the user may read."""
    found = context.cluster.topics.operations(topics)
    return {topic for topic, operations in found.items() if AclOperation.READ in operations}
