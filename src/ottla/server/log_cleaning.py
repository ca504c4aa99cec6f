"""The log cleaner of a broker: from its settings to what the cleaner needs of them, and when it looks for work."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.broker_configs import BrokerConfig
from ottla.common.machine import Machine
from ottla.server.background import PeriodicSteps
from ottla.server.in_flight import CountedPool, InFlight
from ottla.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from ottla.storage.cleaner.worker import Worker
from ottla.storage.log_manager import LogManager

LEAST_BUFFER_BYTES = 1024 * 1024
"""For the keys of one process, as in Apache Kafka."""

LEAST_BYTES_PER_SECOND = 1024.0

_STEP = "log cleaner"


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """What is too little to clean anything is raised to the least: a setting may change while the broker runs."""
    threads = config.get_int("log.cleaner.threads")
    return CleanerSettings(
        threads=threads,
        dedupe_buffer_bytes=max(config.get_int("log.cleaner.dedupe.buffer.size"), threads * LEAST_BUFFER_BYTES),
        load_factor=config.get_float("log.cleaner.io.buffer.load.factor"),
        io_buffer_bytes=config.get_int("log.cleaner.io.buffer.size"),
        max_bytes_per_second=max(config.get_float("log.cleaner.io.max.bytes.per.second"), LEAST_BYTES_PER_SECOND),
    )


class LogCleaning:
    """Owner of the cleaner, which follows the settings."""

    __slots__ = ("_backoff_ms", "_steps", "cleaner")

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        machine: Machine,
        make_worker: Callable[[], Worker],
        *,
        in_flight: InFlight,
        steps: PeriodicSteps,
    ) -> None:
        """`in_flight` counts what is in the pool. The first `use_config` begins to look for work."""
        self._steps = steps
        self._backoff_ms = -1
        self.cleaner = LogCleaner(
            logs,
            cleaner_settings(config),
            make_worker,
            pool=CountedPool(machine.pool, in_flight),
            clock=machine.clock,
            rng=machine.rng,
        )

    def use_config(self, config: BrokerConfig) -> None:
        """Go on with these settings."""
        self.cleaner.settings = cleaner_settings(config)
        backoff_ms = config.get_int("log.cleaner.backoff.ms")
        if backoff_ms != self._backoff_ms:
            self._backoff_ms = backoff_ms
            self._steps.add(_STEP, backoff_ms, self.cleaner.run_due)
