"""Apache Kafka's kafka-transactions and kafka-features with open transactions, and kafka-dump-log on the files."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from differential_pair import wait_for
from differential_records import batch
from differential_wire import Connection, decode, encode
from tools import COMPLAINTS, JavaTools

from ottla.testing import Broker

CONFIGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "log.segment.bytes": 1_048_576,
}
WAIT_S = 90.0
ENDED = {"open": "Ongoing", "committed": "CompleteCommit", "aborted": "CompleteAbort"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transactions") / "data"


@pytest.fixture(scope="module")
def broker(home: Path) -> Iterator[Broker]:
    with Broker(data_dir=home, configs=CONFIGS) as running:
        yield running


def producer(broker: Broker, transactional_id: str) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
        }
    )
    made.init_transactions(WAIT_S)
    return made


@pytest.fixture(scope="module")
def transactions(broker: Broker) -> Iterator[dict[str, Producer]]:
    """One transaction in each state; the committed and the aborted one also have offsets."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("told", 2, 1)])["told"].result(WAIT_S)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "group"})
    metadata = consumer.consumer_group_metadata()
    made = {name: producer(broker, name) for name in ENDED}
    for name, each in made.items():
        for number in range(3):
            each.begin_transaction()
            for value in range(5):
                each.produce("told", f"{name} {number} {value}", partition=value % 2)
            each.flush(WAIT_S)
            each.send_offsets_to_transaction([TopicPartition("told", 0, number + 1)], metadata, WAIT_S)
            if name == "committed":
                each.commit_transaction(WAIT_S)
            elif name == "aborted":
                each.abort_transaction(WAIT_S)
            else:
                break
    consumer.close()
    yield made
    made["open"].abort_transaction(WAIT_S)


def rows(output: str) -> list[list[str]]:
    """Returns the rows without the header."""
    return [line.split() for line in output.splitlines()[1:]]


def test_list_and_describe(tools: JavaTools, broker: Broker, transactions: dict[str, Producer]) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]

    def listed() -> dict[str, str]:
        found = {row[0]: row[3] for row in rows(tools.run("kafka-transactions", *at, "list"))}
        return {name: found[name] for name in transactions}

    wait_for(lambda: listed() == ENDED, "markers are written")
    old = tools.run("kafka-transactions", *at, "list", "--duration-filter", "3600000")
    assert "open" not in {row[0] for row in rows(old)}
    matching = tools.run("kafka-transactions", *at, "list", "--transactional-id-pattern", "o.*n")
    assert [row[0] for row in rows(matching)] == ["open"]
    for name, state in ENDED.items():
        [row] = rows(tools.run("kafka-transactions", *at, "describe", "--transactional-id", name))
        assert (row[0], row[1], row[4], row[5]) == ("1", name, state, "600000")
        assert ("told-0,told-1" in row[-1].replace("__consumer_offsets-0,", "")) == (name == "open"), row


def test_describe_producers_and_find_hanging(
    tools: JavaTools, broker: Broker, transactions: dict[str, Producer]
) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    described = rows(tools.run("kafka-transactions", *at, "describe-producers", "--topic", "told", "--partition", "1"))
    assert len(described) == 3
    assert [row[-1] != "None" for row in sorted(described, key=lambda row: int(row[0]))] == [True, False, False]
    assert rows(tools.run("kafka-transactions", *at, "find-hanging", "--broker-id", "1")) == []


def test_hanging_transaction_is_found_and_aborted(tools: JavaTools, broker: Broker) -> None:
    """Records of a transaction that no coordinator knows, as a broker without verification accepts them."""
    at = ["--bootstrap-server", broker.bootstrap_servers]
    tools.run("kafka-topics", *at, "--create", "--topic", "hung", "--partitions", "1")
    broker_1 = ["--entity-type", "brokers", "--entity-name", "1", "--alter"]
    tools.run("kafka-configs", *at, *broker_1, "--add-config", "transaction.partition.verification.enable=false")
    connection = Connection(broker.port)
    records = batch(attributes=0x10, producer=(77_000, 3, 0))
    body = {
        "acks": -1,
        "timeout": 5_000,
        "transactional_id": "nobody",
        "topic_data": [{"name": "hung", "partition_data": [{"index": 0, "records": records}]}],
    }
    connection.send(encode("produce", 11, body))
    answer = connection.receive()
    assert answer is not None
    result = decode("produce", 11, answer)["responses"][0]["partition_responses"][0]
    connection.close()
    tools.run("kafka-configs", *at, *broker_1, "--delete-config", "transaction.partition.verification.enable")
    assert result["error_code"] == "none", result
    [found] = rows(tools.run("kafka-transactions", *at, "find-hanging", "--broker-id", "1"))
    assert found[:3] == ["hung", "0", "77000"]
    place = ["--topic", "hung", "--partition", "0"]
    tools.run("kafka-transactions", *at, "abort", *place, "--start-offset", "0")
    [described] = rows(tools.run("kafka-transactions", *at, "describe-producers", *place))
    assert described[-1] == "None"
    assert rows(tools.run("kafka-transactions", *at, "find-hanging", "--broker-id", "1")) == []


def test_transaction_is_terminated(tools: JavaTools, broker: Broker, transactions: dict[str, Producer]) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    forced = producer(broker, "forced")
    forced.begin_transaction()
    forced.produce("told", "forced", partition=0)
    forced.flush(WAIT_S)
    tools.run("kafka-transactions", *at, "forceTerminateTransaction", "--transactionalId", "forced")
    describe = ["describe", "--transactional-id", "forced"]
    deadline = time.monotonic() + WAIT_S
    while rows(tools.run("kafka-transactions", *at, *describe))[0][4] not in ("CompleteAbort", "Empty"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_transaction_version_is_lowered_and_raised(
    tools: JavaTools, broker: Broker, transactions: dict[str, Producer]
) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    changing = producer(broker, "changing")
    for level, how in (("1", "downgrade"), ("2", "upgrade"), ("0", "downgrade"), ("2", "upgrade")):
        changing.begin_transaction()
        changing.produce("told", level, partition=0)
        changing.flush(WAIT_S)
        tools.run("kafka-features", *at, how, "--feature", f"transaction.version={level}")
        changing.produce("told", level, partition=1)
        changing.commit_transaction(WAIT_S)
    described = tools.run("kafka-features", *at, "describe")
    assert re.search(r"transaction\.version\s.*FinalizedVersionLevel: 2", described), described


def test_dump_log_reads_the_files(
    tools: JavaTools, broker: Broker, home: Path, transactions: dict[str, Producer]
) -> None:
    """The last test here, because it stops the broker, with a transaction open."""
    assert broker.stop() == 0
    try:
        log = "".join(
            tools.run("kafka-dump-log", "--transaction-log-decoder", "--deep-iteration", "--files", str(path))
            for path in sorted((home / "__transaction_state-0").glob("*.log"))
        )
        assert not COMPLAINTS.search(log), log[-3000:]
        for name in ENDED:
            assert f'"transactionalId":"{name}"' in log
        offsets = "".join(
            tools.run("kafka-dump-log", "--offsets-decoder", "--deep-iteration", "--files", str(path))
            for path in sorted((home / "__consumer_offsets-0").glob("*.log"))
        )
        assert not COMPLAINTS.search(offsets), offsets[-3000:]
        assert '"group":"group"' in offsets
        assert "isTransactional: true" in offsets
        assert "endTxnMarker: COMMIT" in offsets
        assert "endTxnMarker: ABORT" in offsets
        for partition in ("told-0", "told-1", "hung-0", "__transaction_state-0", "__consumer_offsets-0"):
            check_files(tools, home / partition)
        aborted = sorted((home / "told-0").glob("*.txnindex"))
        assert aborted
        shown = tools.run("kafka-dump-log", "--files", ",".join(map(str, aborted)))
        assert shown.count("firstOffset:") >= 3, shown
        assert not COMPLAINTS.search(shown), shown
        snapshots = sorted((home / "told-0").glob("*.snapshot"))
        shown = tools.run("kafka-dump-log", "--files", str(snapshots[-1]))
        assert "currentTxnFirstOffset: OptionalLong[" in shown, shown
        assert not COMPLAINTS.search(shown), shown
    finally:
        broker.start()


def check_files(tools: JavaTools, partition: Path) -> None:
    """Check segments and indexes as Apache Kafka loads them."""
    files = [path for path in sorted(partition.iterdir()) if path.suffix in (".log", ".index", ".timeindex")]
    shown = tools.run("kafka-dump-log", "--files", ",".join(map(str, files)), "--deep-iteration")
    assert not COMPLAINTS.search(shown), shown[-2000:]
