"""Three brokers of ours on three servers of ZooKeeper: each of those is killed under load, the controller with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from test_zookeeper_brokers import IDS, PARTITIONS, WITHIN_S, Cluster, Load, stored
from zookeeper_tree import Ensemble


@pytest.fixture
def ensemble(kafka_of: Callable[[str], str]) -> Iterator[Ensemble]:
    with Ensemble(kafka_of("3.9")) as servers:
        yield servers


def test_nothing_acknowledged_is_lost_with_any_one_server(ensemble: Ensemble) -> None:
    with ExitStack() as stack:
        cluster = Cluster(ensemble.address, stack)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(WITHIN_S)
        loads = [Load(cluster), Load(cluster, "x")]
        for load in loads:
            load.start()
        for number in range(3):
            ensemble.kill(number)
            for load in loads:
                load.goes_on(cluster)
            if number == 1:
                victim = cluster.rules()
                cluster.brokers[victim].kill()
                cluster.until(lambda victim=victim: all(cluster.state(n).leader != victim for n in range(PARTITIONS)))
                for load in loads:
                    load.goes_on(cluster)
                cluster.brokers[victim].start()
            name = f"made-without-{number}"
            admin.create_topics([NewTopic(name, 1, 3)])[name].result(WITHIN_S)
            ensemble.begin(number)
            cluster.until(lambda number=number: ensemble.serves(number))
            cluster.until(cluster.whole)
        acknowledged = [value for load in loads for value in load.end()]
        found = stored(cluster)
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found)), "a record was written twice"
        assert set(cluster.reigns.values()) <= set(IDS)
