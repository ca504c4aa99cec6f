"""Cost of a killed broker in a cluster of three: a leader's partition, and the controller of 10,000 partitions.

`cluster/failover`: one librdkafka producer sends 1,000 records a second with acks=all to one partition; its leader,
which is not the active controller, is killed with -9, and the producer measures the time without an acknowledgement.
Then the broker is restarted, joins the ISR and gets its leaderships back, and the next round begins.

`cluster/controller_failover/PARTITIONS`: the active controller is killed, and a client sends a change (a config of a
topic) to another broker, with retries, until it is acknowledged.

Detection depends on two settings that are the same for both peers: the controller fences a broker after
`broker.session.timeout.ms` without a heartbeat, the voters give up their leader after
`controller.quorum.fetch.timeout.ms` without a response. The last heartbeat, or response, came at most one interval
before the kill. The time after detection is counted from the earliest possible end of the timeout, and so is an upper
bound.
"""

from __future__ import annotations

import math
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

from harness.cells import Cell, Figure, Profile
from harness.cluster import Cluster, connect
from harness.load import create_topic, load, program
from harness.peers import Server

from ottla.client.admin.cluster import Cluster as Client
from ottla.client.admin.configs import alter_configs
from ottla.client.wire import metadata_requests
from ottla.client.wire.connection import BrokerUnreachable, Connection
from ottla.client.wire.model import ConfigOperation, PartitionInfo, ResourceType
from ottla.common.errors import KafkaError
from workloads.cluster import BROKERS, SETTINGS

SESSION_TIMEOUT_S = 2.0
HEARTBEAT_S = 0.1
QUORUM_TIMEOUT_S = 2.0
QUORUM_FETCH_WAIT_S = 0.5
"""Maximum time of a fetch at the quorum leader, in both peers."""
FAST_SETTINGS = {
    **SETTINGS,
    "broker.session.timeout.ms": int(SESSION_TIMEOUT_S * 1000),
    "broker.heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
    "controller.quorum.fetch.timeout.ms": int(QUORUM_TIMEOUT_S * 1000),
    "auto.leader.rebalance.enable": "false",
}
TOPIC = "load"
RATE = 1000
GAP_S = 0.5
PRODUCER = {
    "producer.acks": "all",
    "producer.linger.ms": 0,
    "producer.retry.backoff.ms": 10,
    "producer.retry.backoff.max.ms": 50,
    "producer.reconnect.backoff.ms": 10,
    "producer.reconnect.backoff.max.ms": 50,
    "producer.topic.metadata.refresh.interval.ms": 50,
    "producer.log_level": 0,
}
"""A client that looks for the leader often: librdkafka's default of once a second would affect the figure."""
WARM_UP_RATE = 20_000
STEADY_S = 1.0
LIMIT_S = 300.0
TOPIC_PARTITIONS = 1000
"""Partitions per topic: one request creates at most as many as fit into one batch of the controllers."""
REPETITIONS_A_SECOND = 2
CONTROLLERS_A_SECOND = 0.3
"""Repetitions per second of the profile's window."""


def wait_for(reached: Callable[[], bool], what: str, pause_s: float = 0.05) -> None:
    """Poll until the condition holds."""
    deadline = time.perf_counter() + LIMIT_S
    while True:
        try:
            if reached():
                return
        except (KafkaError, BrokerUnreachable):
            pass
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not within {LIMIT_S:.0f} s: {what}")
        time.sleep(pause_s)


def spread_figures(name: str, seconds: Sequence[float]) -> list[Figure]:
    """Returns median and p99 (nearest rank: the maximum, of fewer than a hundred)."""
    ordered = sorted(seconds)
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    return [
        Figure(f"{name} p50", statistics.median(ordered), "s", yardstick=True),
        Figure(f"{name} p99", p99, "s", yardstick=True),
    ]


# A leader ------------------------------------------------------------------------------------------------------------


@contextmanager
def producing(server: Server, partition: int) -> Iterator[Callable[[float], tuple[float, float]]]:
    """Produces to one partition; yields a function that returns the ends of the gap at a given perf_counter time."""
    pairs = {"brokers": server.bootstrap_servers, "topic": TOPIC, "partition": partition, "rate": RATE, "gap_s": GAP_S}
    options = [f"{name}={value}" for name, value in {**pairs, **PRODUCER}.items()]
    command = [str(program()), "gaps", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = process.stdout

        def gap_around(moment: float) -> tuple[float, float]:
            for line in lines:
                begin, end = map(float, line.split()[1:])
                if end > moment:
                    return begin, end
            raise RuntimeError("the load ended")

        try:
            if lines.readline().strip() != "begin":
                raise RuntimeError("the load did not begin")
            yield gap_around
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def partition_seen_by(connection: Connection, index: int) -> PartitionInfo:
    (topic,) = metadata_requests.metadata(connection, [TOPIC]).topics
    return topic.partitions[index]


def leader_killed(cluster: Cluster, client: Client) -> tuple[float, float, float]:
    """Returns seconds: without an acknowledgement, from the kill to its end, and until another broker knew a leader."""
    controller = client.quorum.describe().leader_id
    found = next(each for each in client.topics.get(TOPIC).partitions if each.leader not in (controller, -1))
    survivor = connect(cluster.survivor(found.leader).port)
    with producing(cluster, found.index) as gap_around:
        time.sleep(STEADY_S)
        killed = time.perf_counter()
        cluster.node(found.leader).end(signal.SIGKILL)
        wait_for(lambda: partition_seen_by(survivor, found.index).leader not in (found.leader, -1), "a leader", 0.005)
        elected = time.perf_counter()
        begin, end = gap_around(killed)
    survivor.close()
    cluster.node(found.leader).stop(signal.SIGKILL)
    return end - begin, end - killed, elected - killed


def whole_again(cluster: Cluster, client: Client, node_id: int) -> None:
    """Restart a killed node; returns when it is in sync everywhere and has its leaderships back."""
    cluster.node(node_id).start()
    wait_for(
        lambda: all(len(each.isr) == BROKERS for each in client.topics.get(TOPIC).partitions),
        "all replicas are in sync",
    )

    def balanced() -> bool:
        client.reassignments.elect_leaders(None)
        return all(each.leader == each.replicas[0] for each in client.topics.get(TOPIC).partitions)

    wait_for(balanced, "every partition has its preferred leader", 0.2)


def failover(server: Server, profile: Profile) -> Sequence[Figure]:
    cluster = cast(Cluster, server)
    create_topic(cluster, TOPIC, BROKERS)
    warm = {**PRODUCER, "producer.linger.ms": 1}
    load("produce", cluster, warm, topic=TOPIC, rate=WARM_UP_RATE, partitions=BROKERS, seconds=profile.warm_up_s)
    without, answered, elected = [], [], []
    with Client(cluster.bootstrap_servers) as client:
        for _ in range(max(2, round(REPETITIONS_A_SECOND * profile.seconds))):
            gap_s, answered_s, elected_s = leader_killed(cluster, client)
            without.append(gap_s)
            answered.append(answered_s - (SESSION_TIMEOUT_S - HEARTBEAT_S))
            elected.append(elected_s - (SESSION_TIMEOUT_S - HEARTBEAT_S))
            for node_id, node in enumerate(cluster.nodes, start=1):
                if node.process is None:
                    whole_again(cluster, client, node_id)
    return [
        *spread_figures("without acknowledgement", without),
        *spread_figures("acknowledgement after detection, at most", answered),
        *spread_figures("leader after detection, at most", elected),
        Figure("kills", len(without), "", better="neither"),
    ]


# The controller ------------------------------------------------------------------------------------------------------


def make_partitions(client: Client, partitions: int) -> list[str]:
    """Create topics with that many partitions in total, and wait until all have leaders."""
    names = [f"many-{number}" for number in range(partitions // TOPIC_PARTITIONS)]
    for name in names:
        client.topics.create(name, TOPIC_PARTITIONS)
    return names


def change_by(port: int, topic: str, value: int) -> None:
    """Change one config of a topic through the broker on this port, with retries while it is refused."""
    changes = [("retention.ms", ConfigOperation.SET, str(value))]

    def changed() -> bool:
        connection = connect(port, timeout_s=LIMIT_S)
        try:
            alter_configs(connection, ResourceType.TOPIC, topic, changes, validate_only=False)
        finally:
            connection.close()
        return True

    wait_for(changed, "a change of a setting", 0.01)


def in_sync(client: Client, names: Sequence[str]) -> bool:
    topics = client.topics.all()
    return all(len(each.isr) == BROKERS for name in names for each in topics[name].partitions)


def controller_failover(partitions: int, server: Server, profile: Profile) -> Sequence[Figure]:
    cluster = cast(Cluster, server)
    answered = []
    with Client(cluster.bootstrap_servers, timeout_s=LIMIT_S) as client:
        names = make_partitions(client, partitions)
        for number in range(max(1, round(CONTROLLERS_A_SECOND * profile.seconds))):
            wait_for(lambda: in_sync(client, names), "all replicas are in sync", 1.0)
            controller = client.quorum.describe().leader_id
            survivor = cluster.survivor(controller)
            change_by(survivor.port, names[0], 1_000_000 + number)
            killed = time.perf_counter()
            cluster.node(controller).end(signal.SIGKILL)
            change_by(survivor.port, names[0], 2_000_000 + number)
            answered.append(time.perf_counter() - killed)
            cluster.node(controller).stop(signal.SIGKILL)
            cluster.node(controller).start()
        memory_mb = cluster.memory_mb()
    detected_s = QUORUM_TIMEOUT_S - QUORUM_FETCH_WAIT_S
    return [
        *spread_figures("change answered after the kill", answered),
        *spread_figures("change answered after detection, at most", [each - detected_s for each in answered]),
        Figure("kills", len(answered), "", better="neither"),
        Figure("memory", memory_mb, "MiB", yardstick=True),
    ]


def cells() -> list[Cell]:
    found = [Cell("cluster/failover", failover, settings=FAST_SETTINGS, brokers=BROKERS)]
    for partitions in (1000, 10_000):
        name = f"cluster/controller_failover/{partitions}"
        run = partial(controller_failover, partitions)
        found.append(Cell(name, run, settings=FAST_SETTINGS, brokers=BROKERS))
    return found
