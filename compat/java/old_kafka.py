"""A broker and programs of Kafka 0.8.2 and 0.9: their clients use ZooKeeper for discovery, membership and offsets."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from tests.cluster.ensemble import JAVA
from zookeeper_tree import ZooKeeper

from ottla.app.ports import free_ports
from ottla.testing import Broker

WITHIN_S = 240
SEND_RETRIES = 1000
"""Retries while a new partition has no leader yet; the default number takes less than a second."""
SEND_TIMEOUT_MS = 120_000
"""After the default of 1.5 s producers drop records, which the console's exit code does not report."""


class OffsetRow(NamedTuple):
    """One partition in the output of ConsumerOffsetChecker."""

    offset: int
    end: int
    lag: int


class OldPrograms:
    """Programs of one version, each in a separate JVM: current Java does not accept the flags of their scripts."""

    def __init__(self, classpath: str, folder: Path) -> None:
        self._command = [*JAVA, "-cp", classpath]
        self._folder = folder

    def begin(self, *arguments: str, out: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a long-running program with its output in `out`."""
        with (out or self._folder / "printed").open("wb") as printed:
            return subprocess.Popen([*self._command, *arguments], stdout=printed, stderr=subprocess.DEVNULL)

    def run(self, *arguments: str, lines: Iterable[str] = ()) -> str:
        """Run a program to successful completion and return its output; `lines` are its input."""
        ended = subprocess.run(
            [*self._command, *arguments],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def properties(self, name: str, settings: Mapping[str, object]) -> str:
        """Write a properties file of that name."""
        path = self._folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def produce(self, bootstrap_servers: str, topic: str, lines: Iterable[str]) -> None:
        """Produce with the console producer, acknowledged."""
        options = ["--request-required-acks", "-1", "--message-send-max-retries", str(SEND_RETRIES)]
        options += ["--request-timeout-ms", str(SEND_TIMEOUT_MS)]
        self.run(
            "kafka.tools.ConsoleProducer", "--broker-list", bootstrap_servers, "--topic", topic, *options, lines=lines
        )

    def consume(self, zookeeper: str, group: str, topic: str, count: int, *options: str) -> list[str]:
        """Returns the next records of a group, read and committed by the console consumer."""
        config = self.properties("console", {"group.id": group})
        arguments = ["--zookeeper", zookeeper, "--topic", topic, "--consumer.config", config]
        printed = self.run("kafka.tools.ConsoleConsumer", *arguments, "--max-messages", str(count), *options)
        return [line for line in printed.splitlines() if line and " messages" not in line]

    def exported(self, zookeeper: str, group: str) -> dict[str, int]:
        """Returns the group's offsets as ExportZkOffsets writes them, by znode."""
        target = self._folder / "exported"
        arguments = ["--zkconnect", zookeeper, "--group", group, "--output-file", str(target)]
        self.run("kafka.tools.ExportZkOffsets", *arguments)
        rows = (line.rpartition(":") for line in target.read_text().split())
        return {path: int(offset) for path, _, offset in rows}

    def imported(self, zookeeper: str, offsets: Mapping[str, int]) -> None:
        """Write offsets with ImportZkOffsets."""
        source = self._folder / "to-import"
        source.write_text("".join(f"{path}:{offset}\n" for path, offset in offsets.items()))
        self.run("kafka.tools.ImportZkOffsets", "--zkconnect", zookeeper, "--input-file", str(source))

    def checked(self, zookeeper: str, group: str, topic: str) -> dict[int, OffsetRow]:
        """Returns the output of ConsumerOffsetChecker by partition."""
        arguments = ["--zookeeper", zookeeper, "--group", group, "--topic", topic]
        rows = [line.split() for line in self.run("kafka.tools.ConsumerOffsetChecker", *arguments).splitlines()]
        return {int(row[2]): OffsetRow(*map(int, row[3:6])) for row in rows if row[:2] == [group, topic]}


class OldKafka(ZooKeeper):
    """A broker of one of these versions with its own ZooKeeper."""

    def __enter__(self) -> Self:
        super().__enter__()
        (self._broker_port,) = free_ports(1)
        self.bootstrap_servers = f"127.0.0.1:{self._broker_port}"
        settings = {
            "broker.id": "1",
            "host.name": "127.0.0.1",
            "port": str(self._broker_port),
            "zookeeper.connect": self.address,
            "log.dirs": str(self.home / "data"),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
        }
        properties = self.home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.begin(self._serves, "kafka.Kafka", str(properties))
        return self

    def _serves(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._broker_port)) == 0


@contextmanager
def ottla_on(classpath: str) -> Iterator[tuple[str, Broker]]:
    """The address of a ZooKeeper, and an Ottla broker on it."""
    with ZooKeeper(classpath) as server:
        configs = {"zookeeper.connect": server.address, "broker.id": 7, "offsets.topic.num.partitions": 1}
        # Nothing here waits for this session to expire.
        with Broker(configs=configs | {"zookeeper.session.timeout.ms": 30_000}, start_timeout_s=WITHIN_S) as broker:
            yield server.address, broker
