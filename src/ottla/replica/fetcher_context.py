"""Settings of fetchers, and the services of the broker that they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.common.platform.clock import Scheduler
from ottla.metrics.registry import Counter
from ottla.replica.membership import Membership
from ottla.replica.partition import Partition
from ottla.replica.throttle import ReplicationQuota

Key = tuple[bytes, int]
"""Topic id and number of a partition."""


class FetcherSettings(NamedTuple):
    """Broker settings `replica.fetch.*` and `replica.socket.timeout.ms`, with Kafka's defaults."""

    wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_s: float = 1.0
    timeout_s: float = 30.0


class FetcherContext(NamedTuple):
    """Broker services that fetchers need."""

    membership: Membership
    scheduler: Scheduler
    monotonic: Callable[[], float]
    quota: ReplicationQuota
    throttled: Callable[[Partition], bool]
    settings: FetcherSettings
    committed_truncations: Counter
