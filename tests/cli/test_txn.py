"""`ottla txn`, `ottla produce --transactional-id` and `ottla consume --isolation` on a real broker.

OTTLA_TEST_BOOTSTRAP=host:port runs them against that broker instead: Apache Kafka judges these tests. It needs
transaction.partition.verification.enable=false, which a transaction that hangs comes from.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import ottla
from ottla.cli.consume import consume
from ottla.cli.produce import produce
from ottla.cli.topic import topic
from ottla.cli.txn import txn
from ottla.client.wire.connection import Connection, parse_bootstrap_servers
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch

NUMBERS = itertools.count(int(time.time()) % 100_000 * 100)
CONFIGS = {"transaction.partition.verification.enable": False}
WAIT_S = 90.0
LAST_PRODUCE_BY_NAME = 11
"""Before the version that adds partitions to transactions implicitly."""


@pytest.fixture
def name(run) -> str:
    """A topic of two partitions, and a transactional id of the same name."""
    name = f"cli-txn-{next(NUMBERS)}"
    run(topic, "create", name, "-p", "2")
    return name


@pytest.fixture
def producing(servers):
    """Start `ottla produce` in its own process; killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def producing(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ottla", "produce", *arguments, "-b", servers]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield producing
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stderr):
            if stream is not None:
                stream.close()


def lines(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


def feed(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdin is not None
    process.stdin.write(lines(count))
    process.stdin.flush()


def listed(run, *arguments: str) -> dict[str, dict[str, Any]]:
    return {entry["transactional_id"]: entry for entry in json.loads(run(txn, "list", "--json", *arguments).stdout)}


def described(run, transactional_id: str) -> dict[str, Any]:
    [found] = json.loads(run(txn, "describe", transactional_id, "--json").stdout)
    return found


def open_ones(run, *topics: str) -> list[dict[str, Any]]:
    """Producers with an open transaction."""
    found = json.loads(run(txn, "producers", *topics, "--json").stdout)
    return [each for each in found if each["start_offset"] is not None]


def wait_until(reached) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.05)


def read(run, name: str, isolation: str, *arguments: str) -> list[str]:
    at = ("--from-beginning", "--stop-at-end", "--isolation", isolation)
    return run(consume, name, *at, *arguments).stdout.split()


def test_the_whole_input_is_one_transaction(run, name):
    result = run(produce, name, "--transactional-id", name, stdin=lines(2500))
    assert "2,500 records" in result.stderr
    assert "1 transaction" in result.stderr
    wait_until(lambda: described(run, name)["state"] == "CompleteCommit")
    assert listed(run)[name]["state"] == "CompleteCommit"
    assert sorted(map(int, read(run, name, "read_committed"))) == list(range(2500))


def test_a_transaction_for_each_batch(run, name):
    result = run(produce, name, "--transactional-id", name, "--batch", "1000", stdin=lines(2500))
    assert "3 transactions" in result.stderr
    wait_until(lambda: len(read(run, name, "read_committed")) == 2500)


def test_an_empty_input_commits_nothing(run, name):
    result = run(produce, name, "--transactional-id", name, stdin="")
    assert "0 records (0 bytes)" in result.stderr
    assert "0 transactions" in result.stderr
    assert described(run, name)["state"] == "Empty"


def test_error_aborts_transaction_and_reports_committed_count(run, name):
    keyed = "".join(f"k:{number}\n" for number in range(2300)) + "no key\n"
    arguments = (name, "-k", ":", "--transactional-id", name)
    result = run(produce, *arguments, "--batch", "1000", stdin=keyed, exit_code=1)
    assert result.stderr == (
        "ottla: line 2301 has no key: ':' not found; correct the line, or omit --key-separator; "
        "2,000 records are committed, the last 300 are not\n"
    )
    wait_until(lambda: len(read(run, name, "read_committed")) == 2000)
    result = run(produce, *arguments, stdin=keyed, exit_code=1)
    assert "; 0 records are committed, the last 2,300 are not\n" in result.stderr
    assert len(read(run, name, "read_committed")) == 2000


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_producer_aborts(run, name, producing, number, exit_code):
    process = producing(name, "-p", "0", "--transactional-id", name, "--batch", "1000")
    feed(process, 2300)
    wait_until(lambda: any(each["start_offset"] and each["start_offset"] >= 2000 for each in open_ones(run, name)))
    assert len(read(run, name, "read_committed")) == 2000
    assert len(read(run, name, "read_uncommitted")) > 2000
    assert len(read(run, name, "read_committed", "--group", name)) == 2000
    process.send_signal(number)
    assert process.wait(WAIT_S) == exit_code
    assert process.stderr is not None
    assert process.stderr.read() == "ottla: 2,000 records are committed, the last 300 are not\n"
    wait_until(lambda: not open_ones(run, name))
    assert len(read(run, name, "read_committed")) == 2000
    assert 2000 < len(read(run, name, "read_uncommitted")) <= 2300
    run(produce, name, "-p", "0", stdin="after\n")
    assert read(run, name, "read_committed")[-1] == "after"
    assert read(run, name, "read_committed", "--group", name) == ["after"]


def test_a_fenced_producer_says_so_in_one_sentence(run, name, producing):
    process = producing(name, "--transactional-id", name, "--batch", "1000")
    feed(process, 1300)
    wait_until(lambda: len(read(run, name, "read_committed")) == 1000 and open_ones(run, name))
    run(produce, name, "--transactional-id", name, stdin="newer\n")
    feed(process, 3000)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(WAIT_S) == 1
    assert process.stderr is not None
    [said] = process.stderr.read().splitlines()
    assert said.startswith(f"ottla: the producer of transactional id '{name}' was fenced: another producer uses the id")
    assert "1,000 records are committed, the last " in said
    wait_until(lambda: len(read(run, name, "read_committed")) == 1001)


def test_options_that_do_not_go_together(run, name):
    for arguments, words in (
        (("--batch", "5"), "--batch requires --transactional-id"),
        (("--transactional-id", ""), "transactional id is empty"),
        (("--transactional-id", "x", "--acks", "1"), "requires --acks all"),
    ):
        assert words in run(produce, name, *arguments, stdin="", exit_code=2).stderr


@pytest.fixture
def open_transaction(run, name, producing):
    """An open transaction of two partitions."""
    process = producing(name, "-k", ":", "--transactional-id", name, "-X", "transaction.timeout.ms=600000")
    assert process.stdin is not None
    process.stdin.write("".join(f"key{number}:{number}\n" for number in range(1000)))
    process.stdin.flush()
    wait_until(lambda: len(open_ones(run, name)) == 2)
    return process


def test_an_open_transaction_is_listed_and_described(run, name, open_transaction):
    [first, second] = open_ones(run, name)
    assert (first["partition"], second["partition"]) == (0, 1)
    assert first["start_offset"] == second["start_offset"] == 0
    found = listed(run, "--state", "ongoing")[name]
    assert found["producer_id"] == first["producer_id"]
    assert found["state"] == "Ongoing"
    assert name in listed(run, "--producer-id", str(found["producer_id"]), "--id-pattern", f"{name}.*")
    assert name in listed(run, "--duration", "0s")
    assert name not in listed(run, "--duration", "1d")
    assert name not in listed(run, "--state", "CompleteCommit")
    assert listed(run, "--id-pattern", "no-such-.*") == {}
    assert name in run(txn, "list").stdout
    details = described(run, name)
    assert (details["state"], details["timeout_ms"]) == ("Ongoing", 600_000)
    assert details["partitions"] == {name: [0, 1]}
    assert 0 <= details["duration_ms"] < 60_000
    assert details["coordinator"] == found["coordinator"]
    text = run(txn, "describe", name).stdout
    assert "10m" in text
    assert f"{name}:0,1" in text
    assert name in run(txn, "producers", f"{name}:1").stdout
    broker = str(found["coordinator"])
    assert len(json.loads(run(txn, "producers", name, "--broker", broker, "--json").stdout)) == 2
    hanging = ("hanging", name, "--max-transaction-timeout", "0s", "--json")
    assert json.loads(run(txn, *hanging).stdout) == []


def test_terminate_aborts_and_fences(run, name, open_transaction):
    assert "it was Ongoing" in run(txn, "terminate", name).stdout
    assert described(run, name)["state"] in ("Empty", "CompleteAbort")
    wait_until(lambda: not open_ones(run, name))
    assert read(run, name, "read_committed") == []
    assert open_transaction.stdin is not None
    open_transaction.stdin.close()
    assert open_transaction.wait(WAIT_S) == 1
    assert open_transaction.stderr is not None
    assert "was fenced" in open_transaction.stderr.read()
    again = json.loads(run(txn, "terminate", name, "--json").stdout)
    assert again[0]["transactional_id"] == name


def hang(servers: str, name: str, partition: int = 0) -> int:
    """Write a transactional batch with a producer id without a transactional id; returns the producer id."""
    [(host, port)] = parse_bootstrap_servers(servers)
    connection = Connection(host, port, client_id="test", timeout_s=WAIT_S, software_version=ottla.__version__)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    found = connection.request(ApiKey.INIT_PRODUCER_ID, request)
    batch = build_batch(
        [RecordData(int(time.time() * 1000) - 3_600_000, None, b"hangs")],
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))])
    response = connection.request(
        ApiKey.PRODUCE,
        ProduceRequest(transactional_id="hangs", acks=-1, timeout_ms=10_000, topic_data=[data]),
        max_version=LAST_PRODUCE_BY_NAME,
    )
    connection.close()
    assert response.responses[0].partition_responses[0].error_code == 0
    return int(found.producer_id)


def test_unknown_broker_is_rejected(run):
    result = run(txn, "hanging", "--broker", "99", "--json", exit_code=2)
    assert "broker 99 is not registered" in result.stderr
    assert json.loads(run(txn, "hanging", "--broker", "1", "--json").stdout) == []


def test_a_hanging_transaction_is_found_and_aborted(run, servers, name):
    run(produce, name, "-p", "0", stdin="before\n")
    producer_id = hang(servers, name)
    run(produce, name, "-p", "0", stdin="behind\n")
    assert read(run, name, "read_committed") == ["before"]
    [found] = json.loads(run(txn, "hanging", name, "--max-transaction-timeout", "0s", "--json").stdout)
    assert (found["topic"], found["partition"], found["producer_id"]) == (name, 0, producer_id)
    assert found["start_offset"] == 1
    assert json.loads(run(txn, "hanging", name, "--max-transaction-timeout", "30d", "--json").stdout) == []
    message = run(txn, "hanging", "--max-transaction-timeout", "0s")
    assert name in message.stdout
    assert "ottla txn abort" in message.stderr

    result = run(txn, "abort", f"{name}:0", "--start-offset", "9", exit_code=2)
    assert f"no open transaction of {name}-0 starts at offset 9" in result.stderr
    assert "Aborted" in run(txn, "abort", f"{name}:0", "--start-offset", "1").stdout
    wait_until(lambda: not open_ones(run, name))
    assert read(run, name, "read_committed") == ["before", "behind"]
    assert read(run, name, "read_uncommitted") == ["before", "hangs", "behind"]


def test_a_hanging_transaction_is_aborted_by_ids_and_epochs(run, servers, name):
    run(produce, name, "-p", "1", stdin="before\n")
    producer_id = hang(servers, name, 1)
    ids = ("--producer-id", str(producer_id), "--producer-epoch", "0", "--coordinator-epoch", "0")
    assert json.loads(run(txn, "abort", f"{name}:1", *ids, "--json").stdout)["producer_id"] == producer_id
    wait_until(lambda: not open_ones(run, name))


def test_completion_of_transactional_ids(run, servers, name):
    run(produce, name, "--transactional-id", name, stdin="1\n")
    asked = {
        **os.environ,
        "OTTLA_BOOTSTRAP_SERVER": servers,
        "_OTTLA_COMPLETE": "bash_complete",
        "COMP_WORDS": f"ottla txn describe {name}",
        "COMP_CWORD": "3",
    }
    program = "import sys; sys.argv[0] = 'ottla'; from ottla.app.main import main; main()"
    result = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, check=False)
    assert f"plain,{name}" in result.stdout.splitlines()


def test_mistakes_print_one_line(run, name):
    for arguments, exit_code, words in (
        (("describe", f"{name}-none"), 1, "does not exist"),
        (("terminate", f"{name}-none"), 1, "does not exist"),
        (("producers", f"{name}:7"), 1, "has no partition 7"),
        (("producers", name, "--broker", "4711"), 1, "broker '4711' does not exist"),
        (("producers", f"{name}:x"), 2, "is not of the form"),
        (("abort", name, "--start-offset", "0"), 2, "is not of the form TOPIC:PARTITION"),
        (("abort", f"{name}:0"), 2, "give --start-offset, or --producer-id"),
        (("abort", f"{name}:0", "--producer-id", "1"), 2, "give --start-offset, or --producer-id"),
        (("list", "--id-pattern", "("), 2, "is not a regular expression"),
        (("list", "--duration", "soon"), 2, "is not a duration"),
        (("list", "--state", "Happy"), 2, "Happy"),
    ):
        result = run(txn, *arguments, exit_code=exit_code)
        assert words in result.stderr, arguments
        assert "Traceback" not in result.output
