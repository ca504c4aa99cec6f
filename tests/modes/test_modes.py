"""The broker without its compiled module and without uvloop, as it runs where they could not be installed.

Nothing in Ottla switches them off: the processes of these tests can't import them. By hand, for any test or command:

    OTTLA_TEST_WITHOUT=uvloop,ottla.record._batch PYTHONPATH=tests/modes/without pytest tests/server
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

ROOT = Path(__file__).resolve().parents[2]
COMPILED = "ottla.record._batch"
MODES = {
    "compiled, uvloop": ((), "compiled", "uvloop"),
    "pure, uvloop": ((COMPILED,), "pure", "uvloop"),
    "compiled, asyncio": (("uvloop",), "compiled", "asyncio"),
    "pure, asyncio": ((COMPILED, "uvloop"), "pure", "asyncio"),
}
SMOKE = (
    "tests/clients/test_cross_read.py::test_clients_append_to_one_partition_in_turns",
    "tests/clients/test_restart.py::test_an_idempotent_producer_over_restarts[SIGKILL]",
    "tests/server/test_fetch.py",
    "tests/server/test_off_loop.py",
    "tests/server/test_produce.py",
    "tests/storage/test_append.py",
)
SMOKE_TIMEOUT_S = 900


def environment(without: tuple[str, ...]) -> dict[str, str]:
    """The environment of a process without those modules."""
    return {"OTTLA_TEST_WITHOUT": ",".join(without), "PYTHONPATH": str(Path(__file__).parent / "without")}


def produce(broker: Broker, topic: str, batches: list[bytes]) -> None:
    connection = Connection("127.0.0.1", broker.port, client_id="modes", timeout_s=20, software_version="1")
    for batch in batches:
        row = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[row])
        answer = connection.request(ApiKey.PRODUCE, request, max_version=12)
        assert answer.responses[0].partition_responses[0].error_code == 0
    connection.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_broker_in_each_mode_takes_gives_and_refuses(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without, record_module, loop = MODES[mode]
    for name, value in environment(without).items():
        monkeypatch.setenv(name, value)
    with Broker() as broker:
        assert broker.ready["record_module"] == record_module
        assert f"record module {record_module}, {loop}" in broker.logs()
        sent = [RecordData(1_700_000_000_000 + i, b"k%d" % i, b"v" * i, (("h", b"x"),)) for i in range(50)]
        batches = [bytes(build_batch(sent, compression=codec)) for codec in ("none", "gzip", "snappy", "lz4", "zstd")]
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create("t", partitions=1)
            cluster.topics.create("compacted", partitions=1, configs={"cleanup.policy": "compact"})
            for topic in ("t", "compacted"):
                produce(broker, topic, batches)
        broker.restart(crash=True)
        with Cluster(broker.bootstrap_servers) as cluster:
            for topic in ("t", "compacted"):
                stored = list(iter_batches(cluster.records.fetch(topic, 0, 0).records))
                assert [record.value for batch in stored for record in batch.records()] == [r.value for r in sent] * 5


@pytest.mark.timeout(SMOKE_TIMEOUT_S + 60)
def test_the_smoke_tests_pass_without_compiled_module_and_uvloop() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *SMOKE],
        cwd=ROOT,
        env={**os.environ, **environment((COMPILED, "uvloop"))},
        capture_output=True,
        text=True,
        timeout=SMOKE_TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:]
