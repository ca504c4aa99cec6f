"""quixstreams under `processing_guarantee="exactly-once"`: counts by key, through kills of the application."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker

HERE = Path(__file__).parent
KILLS = int(os.environ.get("OTTLA_EXACTLY_ONCE_KILLS", "2"))
RECORDS = 1_500
KEYS = ("a", "b", "c", "d", "e", "f", "g")
PARTITIONS = 3
WAIT_S = 120.0

pytestmark = pytest.mark.timeout(400 + 60 * KILLS)


def counts(broker: Broker, topic: str) -> dict[str, list[int]]:
    """Returns the committed counts of each key, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    found: dict[str, list[int]] = {key: [] for key in KEYS}
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} was not read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found[message.key().decode()].append(int(message.value()))
    consumer.close()
    return found


def test_counts_through_kills(quixstreams: Path, group_broker: Broker, tmp_path: Path) -> None:
    name = f"quix-{time.time_ns() // 1_000_000}"
    source, target = f"{name}-in", f"{name}-out"
    servers = group_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (source, target)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": servers})
    sent = [random.choice(KEYS) for _ in range(RECORDS)]
    for key in sent:
        producer.produce(source, b"x", key)
    assert producer.flush(30) == 0
    log = tmp_path / "app.log"
    command = [str(quixstreams), str(HERE / "count.py"), servers, source, target, name, str(tmp_path / "state")]

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def wait_for(total: int, app: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + WAIT_S
        while True:
            now = sum(len(each) for each in counts(group_broker, target).values())
            if now >= total:
                return now
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            assert app.poll() is None, log.read_text()[-3000:]

    app = start()
    try:
        for _ in range(KILLS):
            wait_for(1, app)
            app.kill()
            app.wait()
            before = sum(len(each) for each in counts(group_broker, target).values())
            for key in random.choices(KEYS, k=200):
                producer.produce(source, b"x", key)
                sent.append(key)
            assert producer.flush(30) == 0
            app = start()
            wait_for(before + 1, app)
        wait_for(len(sent), app)
    finally:
        app.kill()
        app.wait()
    wanted = Counter(sent)
    assert counts(group_broker, target) == {key: list(range(1, wanted[key] + 1)) for key in KEYS}
