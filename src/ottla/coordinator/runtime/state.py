"""States of a shard, and the error codes of operations outside ACTIVE."""

from __future__ import annotations

from enum import Enum

from ottla.common.errors import ErrorCode


class CoordinatorState(Enum):
    """States with the names of Apache Kafka's metrics."""

    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"
    FAILED = "failed"


TRANSITIONS = {
    CoordinatorState.INITIAL: frozenset({CoordinatorState.LOADING, CoordinatorState.CLOSED}),
    CoordinatorState.LOADING: frozenset({CoordinatorState.ACTIVE, CoordinatorState.FAILED, CoordinatorState.CLOSED}),
    CoordinatorState.ACTIVE: frozenset({CoordinatorState.FAILED, CoordinatorState.CLOSED}),
    CoordinatorState.FAILED: frozenset({CoordinatorState.LOADING, CoordinatorState.CLOSED}),
    CoordinatorState.CLOSED: frozenset(),
}

REFUSALS = {
    CoordinatorState.INITIAL: ErrorCode.NOT_COORDINATOR,
    CoordinatorState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    CoordinatorState.CLOSED: ErrorCode.NOT_COORDINATOR,
    CoordinatorState.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""FAILED differs from Apache Kafka (NOT_COORDINATOR): the load is retried here, so this broker remains the coordinator.
"""
