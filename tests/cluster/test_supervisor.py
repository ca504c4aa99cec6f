"""`ottla start --brokers N`: stopped brokers are restarted, and missing directories are reported."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.app.ports import HOST
from ottla.app.supervisor import FIRST_PAUSE_S
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import LATEST_TIMESTAMP

from .nodes import eventually

TIMEOUT_S = 60.0


class Supervised:
    """A supervisor, and its output."""

    def __init__(self, folder: Path, *arguments: str, brokers: int = 1) -> None:
        self._folder, self._log = folder, folder / "log"
        self.data_dir = folder / "data"
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ottla", "start", "--brokers", str(brokers), "--port", "0", *arguments]
        command += ["--data-dir", str(self.data_dir), "--ready-file", str(ready)]
        environment = os.environ | {"TMPDIR": str(folder)}
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, env=environment
            )
        try:
            eventually(lambda: ready.exists() or self.process.poll() is not None, "all are ready", TIMEOUT_S)
        except BaseException:
            self.process.kill()
            raise
        assert self.process.poll() is None, self.log()
        content = json.loads(ready.read_text())
        self.bootstrap_servers = content["bootstrap_servers"]
        self.port = int(content["brokers"][0]["bootstrap_servers"].rpartition(":")[2])

    def log(self) -> str:
        return self._log.read_text()

    def ready_pid(self, node_id: int = 1) -> int | None:
        """Return the current process id of a broker, once it serves."""
        for path in self._folder.glob(f"ottla-cluster-*/{node_id}.json"):
            with contextlib.suppress(OSError, ValueError):
                return int(json.loads(path.read_text())["pid"])
        return None

    def kill_and_wait(self) -> None:
        """kill -9 of the broker; waits until its successor serves."""
        pid = self.ready_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.ready_pid() not in (None, pid), "it is back", TIMEOUT_S)

    def stop(self) -> None:
        """Stop it by SIGTERM."""
        try:
            if self.process.poll() is None:
                self.process.terminate()
                assert self.process.wait(TIMEOUT_S) == 0, self.log()
        finally:
            self.process.kill()
            self.process.wait()

    def pauses(self) -> list[float]:
        """Return the seconds before each restart."""
        return [float(pause) for pause in re.findall(r"restarting in ([0-9.]+) s", self.log())]


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    started = Supervised(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Starts supervisors on one directory, one after the other."""
    made: list[Supervised] = []

    def begin(*arguments: str, brokers: int) -> Supervised:
        made.append(Supervised(tmp_path, *arguments, brokers=brokers))
        return made[-1]

    yield begin
    for each in made:
        each.stop()


def ottla(*arguments: str, code: int = 0) -> str:
    """The output of a command that ends with `code`."""
    command = [sys.executable, "-m", "ottla", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def produce(servers: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def stored(servers: str, topic: str) -> list[str]:
    with Cluster(servers) as cluster:
        end = cluster.records.list_offsets({(topic, 0): LATEST_TIMESTAMP})[topic, 0].offset
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        records = consumer.consume(end, TIMEOUT_S)
        return [(record.value() or b"").decode() for record in records]
    finally:
        consumer.close()


def quorum_ids(cluster: Cluster) -> list[int]:
    """Return the node ids of the running voters."""
    info = cluster.quorum.describe()
    return [voter.node_id for voter in info.voters if not info.is_gone(voter)]


def in_sync(servers: str, topic: str) -> int:
    with Cluster(servers) as cluster:
        return min(len(partition.isr) for partition in cluster.topics.get(topic).partitions)


def test_served_broker_restarts_after_a_short_pause(supervised: Supervised) -> None:
    for _ in range(4):
        supervised.kill_and_wait()
    assert supervised.pauses() == [FIRST_PAUSE_S] * 4


def test_restart_pause_grows_until_the_broker_served(supervised: Supervised) -> None:
    pid = supervised.ready_pid()
    assert pid is not None
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        supervised.process.send_signal(signal.SIGSTOP)  # until the port is taken
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: takes(taken, supervised.port), "the port is free")
        supervised.process.send_signal(signal.SIGCONT)
        eventually(lambda: supervised.log().count("exit code 2") > 1, "it failed twice to come back", TIMEOUT_S)
    eventually(lambda: supervised.ready_pid() not in (None, pid), "it is back", TIMEOUT_S)
    growing = supervised.pauses()
    assert growing == [FIRST_PAUSE_S * 2**number for number in range(len(growing))]
    supervised.kill_and_wait()
    assert supervised.pauses() == [*growing, FIRST_PAUSE_S]


def test_logs_renamed_by_a_single_broker_start_are_restored(supervise: Callable[..., Supervised]) -> None:
    first = supervise(brokers=3)
    ottla("topic", "create", "t", "-b", first.bootstrap_servers, "--replication-factor", "3")
    produce(first.bootstrap_servers, "t", "a", "b")
    first.stop()
    data = first.data_dir
    assert "--brokers 3" in ottla("start", "--port", "0", "--data-dir", str(data), code=2)
    for number in (1, 2, 3):  # as an earlier release did, which mistook them for partitions of a topic
        (data / f"broker-{number}").rename(data / f"broker-{number}.{'a' * 32}-stray")
    assert f"ottla log restore {data}" in ottla("start", "--brokers", "3", "--data-dir", str(data), code=2)
    ottla("log", "restore", str(data), "--execute")
    again = supervise(brokers=3)
    assert again.bootstrap_servers == first.bootstrap_servers
    assert stored(again.bootstrap_servers, "t") == ["a", "b"]


def test_replaced_disk_rejoins_under_a_new_id(supervise: Callable[..., Supervised]) -> None:
    first = supervise(brokers=3)
    data = first.data_dir
    survives_a_loss = ("--config", "min.insync.replicas=2")
    ottla("topic", "create", "t", "-b", first.bootstrap_servers, "--replication-factor", "3", *survives_a_loss)
    produce(first.bootstrap_servers, "t", "a", "b")
    with Cluster(first.bootstrap_servers) as cluster:
        lost = next(number for number in (1, 2, 3) if number != cluster.topics.get("t").partitions[0].leader)
    first.stop()
    (data / f"broker-{lost}").rename(data.parent / "lost")
    assert f"--replace-node {lost}" in ottla("start", "--brokers", "3", "--data-dir", str(data), code=2)
    second = supervise("--replace-node", str(lost), brokers=3)
    servers = second.bootstrap_servers
    copy = data / f"broker-{lost}" / "t-0" / "00000000000000000000.log"
    eventually(lambda: copy.exists() and copy.stat().st_size > 0, "the lost one has the records again", TIMEOUT_S)
    eventually(lambda: in_sync(servers, "t") == 3, "the lost one is in sync", TIMEOUT_S)
    assert stored(servers, "t") == ["a", "b"]
    with Cluster(servers) as cluster:
        eventually(lambda: sorted(quorum_ids(cluster)) == [1, 2, 3], "it is a voter again", TIMEOUT_S)
        assert cluster.quorum.describe().observers == ()
    second.stop()
    # The replacement is permanent, and the rediscovered disk is not accepted as its own.
    third = supervise(brokers=3)
    produce(third.bootstrap_servers, "t", "c")
    third.stop()
    (data / f"broker-{lost}").rename(data.parent / "new")
    (data.parent / "lost").rename(data / f"broker-{lost}")
    assert "directory.id" in ottla("start", "--brokers", "3", "--data-dir", str(data), code=2)


@pytest.mark.promise("R8")
@pytest.mark.parametrize("lost", [1, 3])
def test_stop_within_the_session_of_a_lost_node_keeps_leaders(supervise: Callable[..., Supervised], lost: int) -> None:
    """The README's `--replace-node`, if the cluster stops while the dead broker still has its session."""
    first = supervise(brokers=3)
    servers, data = first.bootstrap_servers, first.data_dir
    ottla("topic", "create", "t", "-b", servers, "--replication-factor", "3", "--partitions", "6")
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(60):
        producer.produce("t", str(number), partition=number % 6)
    assert producer.flush(TIMEOUT_S) == 0
    pid = first.ready_pid(lost)
    assert pid is not None
    (data / f"broker-{lost}").rename(data.parent / "lost")
    os.kill(pid, signal.SIGKILL)
    first.stop()
    second = supervise("--replace-node", str(lost), brokers=3)
    eventually(lambda: in_sync(second.bootstrap_servers, "t") == 3, "all are in sync", TIMEOUT_S)
    with Cluster(second.bootstrap_servers) as cluster:
        ends = cluster.records.list_offsets({("t", index): LATEST_TIMESTAMP for index in range(6)})
    assert [end.offset for end in ends.values()] == [10] * 6


def test_added_broker_gets_its_share_by_a_rebalance(supervise: Callable[..., Supervised]) -> None:
    first = supervise(brokers=3)
    options = ("-b", first.bootstrap_servers)
    ottla("topic", "create", "t", *options, "--replication-factor", "3", "--partitions", "8")
    produce(first.bootstrap_servers, "t", *map(str, range(20)))
    first.stop()
    second = supervise(brokers=4)
    assert second.bootstrap_servers.startswith(first.bootstrap_servers)
    options = ("-b", second.bootstrap_servers)
    eventually(lambda: in_sync(second.bootstrap_servers, "t") == 3, "all are in sync", TIMEOUT_S)
    command = ("cluster", "rebalance", "--broker", "4", "t", "--by", "partitions", "--by", "leaders")
    planned = json.loads(ottla_output(*command, "--json", *options))
    assert {move["topic"] for move in planned["moves"]} == {"t"}
    assert not planned["executed"]
    assert replicas_on(second.bootstrap_servers, 4) == 0
    ottla(*command, "--throttle", "50000000", "--execute", *options)
    assert replicas_on(second.bootstrap_servers, 4) > 4
    eventually(lambda: in_sync(second.bootstrap_servers, "t") == 3, "all are in sync", TIMEOUT_S)
    assert "Nothing to move." in ottla(*command, *options)
    assert stored(second.bootstrap_servers, "t") == [str(number) for number in range(20)]
    second.stop()
    assert not re.search(r"^\[\d\] .* INFO ", second.log(), re.MULTILINE), "brokers log from WARNING"
    assert "has 4 brokers" in ottla("start", "--brokers", "3", "--data-dir", str(second.data_dir), code=2)


def ottla_output(*arguments: str) -> str:
    """The standard output of a command."""
    command = [sys.executable, "-m", "ottla", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout


def replicas_on(servers: str, broker_id: int) -> int:
    with Cluster(servers) as cluster:
        return sum(broker_id in partition.replicas for partition in cluster.topics.get("t").partitions)


def takes(listening: socket.socket, port: int) -> bool:
    try:
        listening.bind((HOST, port))
    except OSError:
        return False
    listening.listen()
    return True
