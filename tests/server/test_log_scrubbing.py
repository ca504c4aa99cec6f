"""The scrubber of a broker: its settings, its step, and its metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.runtime import NodeRuntime
from ottla.metrics.exposition import render
from ottla.metrics.registry import MetricsRegistry
from ottla.server.lifecycle.background import PeriodicSteps
from ottla.server.lifecycle.log_scrubbing import LogScrubbing
from ottla.server.requests.failures import Failures
from ottla.server.requests.in_flight import InFlight
from ottla.storage.repair.log_scrubber import STEP_MS, Finding


class Clock:
    def time_ms(self) -> int:
        return 5000

    def monotonic(self) -> float:
        return 5.0


def test_scrubber_follows_its_settings_and_reports_damage():
    timers: list[tuple[float, Any]] = []
    scheduler: Any = SimpleNamespace(call_later=lambda delay, callback: timers.append((delay, callback)))
    nothing: Any = None
    registry = MetricsRegistry()
    scrubbing = LogScrubbing(
        cast("Any", SimpleNamespace(logs=lambda: iter(()))),
        NodeRuntime(nothing, Clock(), nothing, scheduler, nothing),
        lambda damage: None,
        in_flight=InFlight(),
        steps=PeriodicSteps(scheduler, Failures(Clock())),
        registry=registry,
    )
    scrubber = scrubbing.scrubber
    assert scrubber.max_bytes_per_second == 0
    assert [delay for delay, _ in timers] == [STEP_MS / 1000]
    for value in ("1048576", "0"):
        config, warnings = BrokerConfig.parse({"log.scrub.io.max.bytes.per.second": value})
        assert not warnings
        scrubbing.use_config(config)
        assert scrubber.max_bytes_per_second == int(value)
    scrubber.damaged["t", 0] = {0: Finding([], "wrong")}
    text = b"".join(render(registry)).decode()
    assert "ottla_log_damaged_partitions 1\n" in text
    assert "ottla_log_scrubbed_bytes_total 0\n" in text
