"""Apache Kafka 3.9 with its own ZooKeeper, and the znodes as printed by ZooKeeper's shell."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.cluster.ensemble import JAVA

from ottla.app.ports import free_ports
from ottla.protocol.znodes.operations import Znode

START_TIMEOUT_S = 180.0

_ANSWER = re.compile(
    r"^(?P<data>.*)\ncZxid = 0x(?P<created>[0-9a-f]+)\nctime = (?:.*\n){5}dataVersion = (?P<version>[0-9]+)\n"
    r"aclVersion = [0-9]+\nephemeralOwner = 0x(?P<owner>[0-9a-f]+)$",
    re.MULTILINE,
)
"""The shell's output for one znode."""


class ZooKeeper:
    """A single server; as a context manager it deletes its files on exit."""

    def __init__(self, classpath: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ottla-zookeeper-"))
        self._java = [*JAVA, "-cp", classpath]
        (self._port,) = free_ports(1)
        self.address = f"127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self, is_there: Callable[[], bool], *arguments: str) -> None:
        """Start a Java program and wait for it; raises RuntimeError when it fails to start."""
        with (self.home / "log").open("ab") as log:
            command = [*self._java, *arguments]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.home))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_there():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                said = (self.home / "log").read_text()[-2000:]
                self.close()
                raise RuntimeError(f"it did not come up: {said}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        server = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self.begin(self._listens, server, str(self._port), str(self.home / "zookeeper"))
        return self

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything and delete the files."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def tree(self) -> dict[str, Znode]:
        """Returns all znodes except ZooKeeper's own; retries when a znode disappears during the reads."""
        while True:
            listed = [line for line in self._shell(["ls -R /"]).splitlines() if re.match(r"/[^ ]", line)]
            paths = [path for path in listed if not path.startswith("/zookeeper")]
            answers = list(_ANSWER.finditer(self._shell([f"get -s {path}" for path in paths])))
            if len(answers) == len(paths):
                return dict(zip(paths, map(_znode, answers), strict=True))

    def _shell(self, commands: Iterable[str]) -> str:
        arguments = ["org.apache.zookeeper.ZooKeeperMain", "-server", self.address]
        lines = "".join(f"{command}\n" for command in [*commands, "quit"])
        command = [*self._java, *arguments]
        return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True).stdout


class KafkaOnZooKeeper(ZooKeeper):
    """ZooKeeper with one Apache Kafka broker in ZooKeeper mode."""

    def __enter__(self) -> Self:
        super().__enter__()
        (port,) = free_ports(1)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        settings = {
            "broker.id": "1",
            "broker.rack": "r1",
            "zookeeper.connect": self.address,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": str(self.home / "data"),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
        }
        properties = self.home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.begin(self._serves, "kafka.Kafka", str(properties))
        return self

    def _serves(self) -> bool:
        try:
            client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            return bool(client.list_topics(timeout=1).brokers)
        except KafkaException:
            return False


def _znode(answer: re.Match[str]) -> Znode:
    data = "" if answer["data"] == "null" else answer["data"]
    return Znode(data.encode(), int(answer["version"]), int(answer["created"], 16), int(answer["owner"], 16))
