"""The collectors of a node's scrapes, and the series that only its process knows.

Imported when a node serves metrics; other nodes have none of this. The event loop does the work of Kafka's network and
request handler threads, so both idle ratios are the share of time without CPU use of the loop's thread. Time in which
it waits for the disk counts as idle. Dashboards read the idle time of the request handlers in three ways, so it is also
exported as a second ratio and as a counter of nanoseconds, whose names `ottla.metrics.spellings` replaces.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.common.config.broker_configs import BrokerConfig
from ottla.metrics.registry import MetricsRegistry
from ottla.metrics.series import Collector, FamilyStart, Rate, Step, label_text
from ottla.net.connection_set import ConnectionSet
from ottla.server.broker import Broker
from ottla.server.wiring.group_series import GroupSeries
from ottla.server.wiring.node_series import FetchRates, NodeLabels, RaftSeries, alias_series, registration_series
from ottla.server.wiring.partition_series import PartitionSeries
from ottla.server.wiring.request_series import RequestSeries

IDLE_S = 10.0
"""Shortest time that an idle ratio covers."""
CONNECTION_RATE_S = 5.0
"""Shortest time that the rates of connections cover."""
RUNNING, CONTROLLED_SHUTDOWN = 3, 6
"""Kafka's numbers of the broker states in which a node serves metrics."""

_IO = "/proc/self/io"
_IDLE = (
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "ottla_loop_idle_ratio",
)
_SOCKETS = "kafka_server_socket_server_metrics_"
MAX_CLIENT_SOFTWARE = 200
"""Series of `connections`; the connections of further clients have the name `OTHER_SOFTWARE`."""
UNKNOWN_SOFTWARE = ("unknown", "unknown")
"""Of clients that don't name it, as in Apache Kafka."""
OTHER_SOFTWARE = ("other", "other")


class ScrapedProcess(NamedTuple):
    """Parts of a process that scrapes read."""

    config: BrokerConfig
    registry: MetricsRegistry
    broker: Broker
    connections: Sequence[ConnectionSet]
    listeners: Sequence[str]
    """Names of all listeners."""
    is_stopping: Callable[[], bool]


def collectors(process: ScrapedProcess) -> list[Collector]:
    """The collectors of one node; to be created on its event loop."""
    broker, parts = process.broker, process.broker.parts
    clock = parts.node_runtime.clock
    parts.statistics.measure_phases()
    broker.contexts.admin.keeps_software = True
    process.registry.gauge(
        "kafka_server_replicafetchermanager_minfetchrate",
        "Lowest rate of Fetch requests from this broker to one leader, per second.",
        {"clientId": "Replica"},
        read=FetchRates(parts.replicas.fetchers, clock).minimum,
    )
    found: list[Collector] = [
        _process_series(process.is_stopping),
        connection_series(process.connections, process.listeners, process.registry),
        registration_series(
            NodeLabels(process.config.node_id, process.config.rack, broker.cluster_id),
            broker.advertised_listeners,
            parts.control.controller,
            parts.publisher,
        ),
        RequestSeries(parts.statistics, clock),
        PartitionSeries(parts.replicas, lambda: parts.publisher.image, process.config.node_id),
        GroupSeries(parts.groups.runtime, parts.replicas, process.config.node_id),
        broker.contexts.share_partitions.collect,
        alias_series(process.registry),
    ]
    if broker.contexts.telemetry is not None:
        found.append(broker.contexts.telemetry.collect)
    if parts.control.metadata.quorum is not None:
        found.append(RaftSeries(parts.control.metadata.quorum, clock))
    return found


def _process_series(is_stopping: Callable[[], bool]) -> Collector:
    started_s, used_s = time.monotonic(), time.thread_time()
    cpu = Rate(IDLE_S, started_s, used_s)
    idle_ns = 0

    def collect() -> Iterator[Step]:
        nonlocal idle_ns
        yield FamilyStart("kafka_server_kafkaserver_brokerstate", "3: running. 6: controlled shutdown.")
        yield "", CONTROLLED_SHUTDOWN if is_stopping() else RUNNING
        now_s, cpu_s = time.monotonic(), time.thread_time()
        busy = cpu.measure(now_s, cpu_s)
        for name in _IDLE:
            yield FamilyStart(name, "Share of time, 0 to 1, in which the event loop's thread used no CPU.")
            yield "", round(max(0.0, 1 - busy), 4)
        idle_ns = max(idle_ns, int((now_s - started_s - cpu_s + used_s) * 1e9))
        yield FamilyStart("ottla_loop_idle_ns_total", "Time in which the event loop's thread used no CPU.", "counter")
        yield "", idle_ns
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != resource.RLIM_INFINITY:
            yield FamilyStart("process_max_fds", "Limit of open descriptors.")
            yield "", limit
        for kind, count in disk_bytes(_read_io()):
            yield FamilyStart(
                f"kafka_server_kafkaserver_linux_disk_{kind}_bytes", "Bytes from or to disks, as the kernel counts."
            )
            yield "", count

    return collect


def _read_io() -> str:
    """The kernel's counters of this process; empty where they can't be read."""
    try:
        with open(_IO, "rb", buffering=0) as file:
            return file.read(1024).decode()
    except OSError:
        return ""


def disk_bytes(counters: str) -> Iterable[tuple[str, int]]:
    """The counters `read` and `write` in the text of `/proc/self/io`; empty if it has none."""
    for line in counters.splitlines():
        name, _, value = line.partition(": ")
        if name in ("read_bytes", "write_bytes"):
            yield name.removesuffix("_bytes"), int(value)


def connection_series(sets: Sequence[ConnectionSet], listeners: Sequence[str], registry: MetricsRegistry) -> Collector:
    """Collector of the open connections, by listener and by the client's software."""
    accepted = registry.counter(f"{_SOCKETS}connection_creation_total", "Connections accepted")
    creation = Rate(CONNECTION_RATE_S, time.monotonic(), accepted.value)
    closing = Rate(CONNECTION_RATE_S, time.monotonic(), 0)

    def collect() -> Iterator[Step]:
        counts = dict.fromkeys(listeners, 0)
        software: dict[tuple[str, str, str], int] = {}
        for each in sets:
            for connection in list(each.connections.values()):
                name = connection.listener.name
                counts[name] = counts.get(name, 0) + 1
                key = (name, *(connection.client_software or UNKNOWN_SOFTWARE))
                if key not in software and len(software) >= MAX_CLIENT_SOFTWARE:
                    key = (name, *OTHER_SOFTWARE)
                software[key] = software.get(key, 0) + 1
                yield None
        yield FamilyStart(f"{_SOCKETS}connection_count", "Open connections of a listener.")
        for name, count in counts.items():
            yield label_text((("listener", name), ("networkProcessor", "0"))), count
        yield FamilyStart(f"{_SOCKETS}connections", "Open connections by the client's software (KIP-511).")
        for (listener, software_name, version), count in software.items():
            labels = (("client_software_name", software_name), ("client_software_version", version))
            yield label_text((*labels, ("listener", listener), ("networkProcessor", "0"))), count
        now_s = time.monotonic()
        yield FamilyStart(f"{_SOCKETS}connection_creation_rate", "Connections accepted by all listeners, per second.")
        yield "", creation.measure(now_s, accepted.value)
        yield FamilyStart(f"{_SOCKETS}connection_close_rate", "Connections closed on all listeners, per second.")
        yield "", closing.measure(now_s, accepted.value - sum(counts.values()))

    return collect
