"""Three Ottla brokers on three ZooKeeper servers: each server is killed under load, one with the controller."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from test_zookeeper_brokers import IDS, PARTITIONS, WITHIN_S, Cluster, Load, stored
from tests.cluster.ensemble import Ensemble

from ottla.protocol.znodes import paths


@pytest.fixture
def ensemble(zookeeper_classpath: str, tmp_path: Path) -> Iterator[Ensemble]:
    with Ensemble(zookeeper_classpath, tmp_path) as servers:
        yield servers


@pytest.mark.promise("Z1")
def test_nothing_acknowledged_is_lost_with_any_one_server(ensemble: Ensemble) -> None:
    with ExitStack() as stack:
        cluster = Cluster(ensemble.address, stack)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(WITHIN_S)
        loads = [Load(cluster), Load(cluster, "x")]
        for load in loads:
            load.start()
        for number, server in enumerate(ensemble.servers):
            server.kill()
            for load in loads:
                load.make_progress(cluster)
            if number == 1:
                victim = cluster.rules()
                cluster.brokers[victim].kill()
                cluster.until(lambda victim=victim: all(cluster.state(n).leader != victim for n in range(PARTITIONS)))
                for load in loads:
                    load.make_progress(cluster)
                cluster.brokers[victim].start()
            name = f"made-without-{number}"
            admin.create_topics([NewTopic(name, 1, 3)])[name].result(WITHIN_S)
            server.start(wait=True)
            cluster.until(cluster.whole)
        acknowledged = [value for load in loads for value in load.end()]
        found = stored(cluster)
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found)), "a record was written twice"
        assert set(cluster.reigns.values()) <= set(IDS)


def test_nothing_acknowledged_is_lost_under_random_faults(ensemble: Ensemble) -> None:
    """Brokers are killed and paused beyond their sessions, servers killed, claims removed (`OTTLA_CHAOS_SECONDS`)."""
    rng = random.Random(time.time_ns())
    with ExitStack() as stack:
        cluster = Cluster(ensemble.address, stack)
        tool = KazooClient(ensemble.address)
        tool.start(WITHIN_S)
        stack.callback(tool.close)
        stack.callback(tool.stop)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(WITHIN_S)
        loads = [Load(cluster), Load(cluster, "x")]
        for load in loads:
            load.start()
        until = time.monotonic() + float(os.environ.get("OTTLA_CHAOS_SECONDS", "60"))
        while time.monotonic() < until:
            broker = cluster.brokers[rng.choice(IDS)]
            kind = rng.randrange(4)
            if kind == 0:
                broker.kill()
                time.sleep(rng.uniform(0, 12))
                broker.start()
            elif kind == 1:
                os.kill(broker.ready["pid"], signal.SIGSTOP)
                time.sleep(rng.uniform(1, 16))
                os.kill(broker.ready["pid"], signal.SIGCONT)
            elif kind == 2:
                server = rng.choice(ensemble.servers)
                server.kill()
                time.sleep(rng.uniform(0, 6))
                server.start(wait=True)
            else:
                with suppress(NoNodeError):
                    tool.retry(tool.delete, paths.CONTROLLER)
            for load in loads:
                load.make_progress(cluster)
        cluster.until(cluster.whole)
        acknowledged = [value for load in loads for value in load.end()]
        found = stored(cluster)
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found)), "a record was written twice"
