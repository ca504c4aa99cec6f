"""Three brokers on one machine, replication factor 3, acks=all: broker CPU, latency, and the start of all three.

`cluster/produce` and `cluster/latency` are cells of one broker (`throughput`, `latency`) where every replica in sync,
which is all three, has a record before it is acknowledged. The figures are of the three processes together; a GB is
one that was produced. `cluster/start` is the time from the start of three formatted nodes until a new topic
acknowledged its first record with acks=all; `cluster/start/supervised` the same with Ottla's one command, which formats
them too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Producer
from harness.cells import Axis, Cell, Figure, Profile, memory_figures
from harness.load import create_topic
from harness.peers import Ottla, Server

from ottla.app.ports import free_ports
from workloads import latency, throughput

BROKERS = 3
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 30_000,
    "broker.session.timeout.ms": 9000,
    "broker.heartbeat.interval.ms": 2000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "controller.quorum.election.timeout.ms": 1000,
}
"""The times are the defaults of both peers, set explicitly so that they are the same."""
PRODUCED = ((1024, "none"), (1024, "lz4"), (100, "none"))
LATENCIES = ((1000, 0), (20_000, 1))
"""Records a second, linger in milliseconds."""
PARTITIONS = 16
FIRST_TOPIC = "first"
USABLE_TIMEOUT_S = 120.0


def create_first_topic(server: Server) -> None:
    """Create a topic as soon as there are enough brokers for its replicas."""
    deadline = time.perf_counter() + USABLE_TIMEOUT_S
    while True:
        try:
            return create_topic(server, FIRST_TOPIC, 1)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR or time.perf_counter() > deadline:
                raise
            time.sleep(0.02)


def first_record(server: Server) -> None:
    """Create a topic and produce one record with acks=all."""
    create_first_topic(server)
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "acks": "all", "linger.ms": 0})
    producer.produce(FIRST_TOPIC, b"record", on_delivery=lambda error, _: failed.append(error) if error else None)
    if producer.flush(USABLE_TIMEOUT_S) or failed:
        raise RuntimeError(f"the first record was not taken: {failed}")


def start(server: Server, profile: Profile) -> Sequence[Figure]:
    server.prepare()
    began = time.perf_counter()
    all_serve_s = server.start()
    first_record(server)
    usable_s = time.perf_counter() - began
    used = server.usage()
    return [
        Figure("start of three to a usable topic", usable_s, "s", yardstick=True),
        Figure("start until all three serve", all_serve_s, "s"),
        Figure("broker CPU of the start", used.cpu_s, "s", yardstick=True),
        *memory_figures(server),
    ]


def start_supervised(server: Server, profile: Profile) -> Sequence[Figure]:
    """Measure the start by one command, on consecutive ports above a free one."""
    supervised = cast(Ottla, server)
    supervised.supervised = BROKERS
    (supervised.port,) = free_ports(1)
    return start(supervised, profile)


def cells() -> list[Cell]:
    found = []
    for size, codec in PRODUCED:
        name = f"cluster/produce/{size}/{codec}/acks=all"
        run = partial(throughput.produce, size, codec, "all")
        axis = Axis("cluster produce", codec, size, "bytes of a record") if codec == "none" else None
        shape = f"{throughput.SHAPES.get(size, '')}, replication factor 3"
        found.append(Cell(name, run, settings=SETTINGS, brokers=BROKERS, axis=axis, shape=shape))
    for rate, linger_ms in LATENCIES:
        name = f"cluster/latency/{rate}"
        run = partial(latency.run, rate, PARTITIONS, linger_ms, acks="all")
        axis = Axis("cluster latency", "acks=all", rate, "records a second")
        found.append(Cell(name, run, settings=SETTINGS, brokers=BROKERS, axis=axis))
    name = "cluster/start"
    found.append(Cell(name, start, settings=SETTINGS, brokers=BROKERS, started=False))
    found.append(Cell(f"{name}/supervised", start_supervised, peers=("ottla",), settings=SETTINGS, started=False))
    return found
