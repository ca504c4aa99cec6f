"""Replication settings from the broker's settings."""

from __future__ import annotations

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.replica.fetcher_context import FetcherSettings
from ottla.replica.manager import ReplicationSettings
from ottla.replica.read_replica import SELECTORS


def replication_settings(config: BrokerConfig) -> ReplicationSettings:
    """Raises OperatorError for an unknown selector, and for a fetch wait that would make every follower lag."""
    lag_ms, wait_ms = config.get_int("replica.lag.time.max.ms"), config.get_int("replica.fetch.wait.max.ms")
    if wait_ms > lag_ms:
        raise OperatorError(
            f"replica.fetch.wait.max.ms is {wait_ms}, above replica.lag.time.max.ms of {lag_ms}; followers would leave "
            "the ISR while they wait"
        )
    selector_name = config.get_str("replica.selector.class")
    if selector_name and selector_name not in SELECTORS:
        raise OperatorError(
            f"replica.selector.class {selector_name} is not known; use {', '.join(SELECTORS)}, or leave it out"
        )
    return ReplicationSettings(
        max_lag_s=lag_ms / 1000,
        listener_name=config.inter_broker_listener,
        fetcher=FetcherSettings(
            wait_ms=wait_ms,
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            partition_max_bytes=config.get_int("replica.fetch.max.bytes"),
            response_max_bytes=config.get_int("replica.fetch.response.max.bytes"),
            backoff_s=config.get_int("replica.fetch.backoff.ms") / 1000,
            timeout_s=config.get_int("replica.socket.timeout.ms") / 1000,
        ),
        selector=SELECTORS[selector_name] if selector_name else None,
    )
