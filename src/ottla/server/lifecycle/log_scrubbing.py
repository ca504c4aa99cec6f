"""Log scrubber of a broker: its rate, its schedule and its metrics."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.runtime import NodeRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.server.lifecycle.background import PeriodicSteps
from ottla.server.requests.in_flight import InFlight, TrackedPool
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.damage import Damage
from ottla.storage.repair.log_scrubber import STEP_MS, LogScrubber


class LogScrubbing:
    """Owner of the scrubber; applies its settings."""

    __slots__ = ("scrubber",)

    def __init__(
        self,
        logs: LogManager,
        runtime: NodeRuntime,
        on_damage: Callable[[Damage], object],
        *,
        in_flight: InFlight,
        steps: PeriodicSteps,
        registry: MetricsRegistry,
    ) -> None:
        """`in_flight` counts the work in the pool. Reading starts with the first `use_config`."""
        self.scrubber = scrubber = LogScrubber(
            logs,
            on_damage,
            pool=TrackedPool(runtime.pool, in_flight),
            clock=runtime.clock,
            bytes_read=registry.counter(
                "ottla_log_scrubbed_bytes_total", "Bytes of complete segments that were read and checked."
            ),
        )
        registry.gauge(
            "ottla_log_damaged_partitions",
            "Partitions with a segment or index that was damaged at its last check.",
            read=lambda: len(scrubber.damaged),
        )
        steps.add("log scrubber", STEP_MS, scrubber.run_due)

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.scrubber.max_bytes_per_second = config.get_int("log.scrub.io.max.bytes.per.second")
