"""Attackers against a broker with authentication, while a client works: it must not wait for long.

OTTLA_SIEGE_SECONDS=60 OTTLA_SIEGE_HANDSHAKES=10000 is the long form, as `make siege` runs it, which prints its figures.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import BrokerUnreachable, Connection
from ottla.client.wire.security import read_security
from ottla.common.errors import KafkaError
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

from ..cluster.nodes import eventually
from .besiegers import PASSWORD

SECONDS = float(os.environ.get("OTTLA_SIEGE_SECONDS", "1.0"))
HANDSHAKES = int(os.environ.get("OTTLA_SIEGE_HANDSHAKES", "1100"))
"""More than the broker has at a time."""
CROWD = {"half-open": HANDSHAKES, "slow": 300, "plain": 100, "scram": 100}
REQUEST_S, LOGIN_S = 2.0, 30.0
"""Maximum wait of the client, on a machine that also runs the attackers: for a response, for a new connection with
login."""
MEMORY_BYTES = 160 << 20
LOG_BYTES_PER_S = 1500
JAAS = "listener.name.asking.plain.sasl.jaas.config"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://localhost:0,ASKING://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,ASKING:SASL_PLAINTEXT",
        "security.inter.broker.protocol": "PLAINTEXT",
        "listener.name.asking.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        JAAS: f'{module} required user_ann="the right one";',
    }
    with Broker(security="sasl_ssl", configs=configs) as broker:
        with Cluster(broker.bootstrap_servers, client_id="admin", timeout_s=30) as cluster:
            cluster.topics.create("t", 1)
            cluster.users.put("bob", "SCRAM-SHA-256", "the right one")
        yield broker


def port_of(broker: Broker, listener: str) -> int:
    return int(broker.ready["listeners"][listener].rpartition(":")[2])


class Honest:
    """A client that works on, on a connection that it has and on new ones."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._security = read_security(str(broker.client_properties))
        self._connection = self._connect()
        batch = bytes(build_batch([RecordData(1_700_000_000_000, None, b"value")]))
        row = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        self._request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[row])
        self.answers_s: list[float] = []
        self.logins_s: list[float] = []
        self.turned_away = 0

    def _connect(self) -> Connection:
        tls, login = self._security.tls, self._security.login
        to = "localhost", port_of(self._broker, "SASL_SSL")
        return Connection(*to, client_id="honest", timeout_s=30, software_version="0", tls=tls, login=login)

    def work(self) -> None:
        begin = time.monotonic()
        response = self._connection.request(ApiKey.PRODUCE, self._request, max_version=12)
        self.answers_s.append(time.monotonic() - begin)
        assert response.responses[0].partition_responses[0].error_code == 0

    def reconnect(self) -> None:
        """Connect with retries, as clients do."""
        begin = time.monotonic()
        while True:
            try:
                self._connect().close()
                break
            except (BrokerUnreachable, KafkaError):
                self.turned_away += 1
                assert time.monotonic() - begin < LOGIN_S
        self.logins_s.append(time.monotonic() - begin)

    def close(self) -> None:
        self._connection.close()


class State(NamedTuple):
    """Resources of the broker."""

    memory: int
    descriptors: int
    log: int

    @classmethod
    def of(cls, broker: Broker) -> State:
        process = Path(f"/proc/{broker.pid}")
        memory = int((process / "statm").read_text().split()[1]) * resource.getpagesize()
        return cls(memory, len(list((process / "fd").iterdir())), len(broker.logs()))


@pytest.mark.promise("S8")
@pytest.mark.timeout(120 + 2 * SECONDS)
@pytest.mark.parametrize("kind", CROWD)
def test_existing_clients_progress_during_connection_flood(broker: Broker, kind: str) -> None:
    port = port_of(broker, "SASL_SSL" if kind in ("half-open", "slow") else "ASKING")
    before = State.of(broker)
    command = [sys.executable, "-m", "tests.faults.besiegers", kind, "localhost", str(port)]
    command += ["--crowd", str(CROWD[kind]), "--seconds", str(SECONDS)]
    with closing(Honest(broker)) as honest:
        begin, most = time.monotonic(), before
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as besiegers:
            while besiegers.poll() is None:
                honest.work()
                if len(honest.answers_s) % 20 == 0:
                    honest.reconnect()
                    most = State(*map(max, most, State.of(broker)))
                time.sleep(0.005)
            assert besiegers.stdout is not None
            done = json.loads(besiegers.stdout.read())
    took_s = time.monotonic() - begin
    answers_ms, logins_ms = ([each * 1000 for each in sorted(times)] for times in (honest.answers_s, honest.logins_s))
    print(
        f"\n{kind}: {done} in {took_s:.1f} s; {len(answers_ms)} answers in {quantiles(answers_ms)} ms, "
        f"{len(logins_ms)} logins in {quantiles(logins_ms)} ms, {honest.turned_away} turned away; "
        f"memory {most.memory >> 20} MiB (before {before.memory >> 20}), "
        f"{most.descriptors} descriptors, {most.log - before.log} bytes of log"
    )
    assert done["connections"] >= done["crowd"]
    if kind in ("plain", "scram"):
        assert done["refused"] > 0
    assert answers_ms[-1] <= REQUEST_S * 1000
    assert most.memory - before.memory < MEMORY_BYTES
    assert most.log - before.log < LOG_BYTES_PER_S * (took_s + 10)
    log = broker.logs()
    assert "Traceback" not in log
    assert PASSWORD not in log
    eventually(lambda: State.of(broker).descriptors <= before.descriptors + 10, "it has let go of all of them")


def quantiles(sorted_values: list[float]) -> str:
    """Median, 99th percentile and maximum."""
    if not sorted_values:
        return "none"
    chosen = (sorted_values[int(len(sorted_values) * part)] for part in (0.5, 0.99))
    return "/".join(f"{value:.1f}" for value in (*chosen, sorted_values[-1]))
