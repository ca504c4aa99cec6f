"""One Apache Kafka node, broker and controller, on its own directories."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tools import archive_of

from ottla.app.ports import free_ports

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 180.0
"""A stop may write the archive of classes, and a busy machine is several times slower."""
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
JAVA = ("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Kafka:
    """A combined KRaft node that is the only voter; as a context manager it deletes its files on exit.

    `voters_in_log`: format as `--standalone` (kraft.version 1) instead of by `controller.quorum.voters`. `directories`:
    number of directories in `log.dirs`; the metadata log is in the first. `option`: an additional JVM option. `asking`:
    add a listener of that name, with the protocol in `configs`.
    """

    def __init__(
        self,
        classpath: str,
        configs: Mapping[str, str],
        *,
        voters_in_log: bool = False,
        directories: int = 1,
        option: str = "",
        asking: bool = False,
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ottla-apache-"))
        self.data_dirs = [self.home / f"data-{number}" for number in range(directories)]
        self.properties = self.home / "server.properties"
        self._java = [*JAVA, option or f"-XX:SharedArchiveFile={archive_of(classpath)}", "-cp", classpath]
        self._voters_in_log = voters_in_log
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self.controller_port, self.asking_port = free_ports(3)
        controller = f"127.0.0.1:{self.controller_port}"
        more = f",ASKING://127.0.0.1:{self.asking_port}" if asking else ""
        setting = "bootstrap.servers" if voters_in_log else "voters"
        settings = {
            **configs,
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            f"controller.quorum.{setting}": controller if voters_in_log else f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}{more}",
            "log.dirs": self.log_dirs,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    @property
    def log_dirs(self) -> str:
        """Returns the directories as the value of `log.dirs`."""
        return ",".join(map(str, self.data_dirs))

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self, *arguments: str) -> None:
        """Format the directories, with additional `arguments` for the tool."""
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.properties)]
        command += [*(("--standalone",) if self._voters_in_log else ()), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        """Start on the existing directories; raises RuntimeError when the node fails to start."""
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self.properties)], stdout=log, stderr=subprocess.STDOUT, cwd=self.home
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"Apache Kafka ended: {(self.home / 'server.log').read_text()[-2000:]}")
            try:
                if client.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                time.sleep(0.02)
        raise RuntimeError("Apache Kafka did not come up")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the node, cleanly or by SIGKILL; the directories remain."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        """Stop the node and delete its files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Kafka:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def record_classes(classpath: str) -> None:
    """Have one node archive the classes that it loads: later nodes and tools start with 40 % less CPU time."""
    archive = archive_of(classpath)
    if not archive.exists():
        partial = archive.with_suffix(".part")  # the final name only appears on a complete archive
        with Kafka(classpath, {"node.id": "1"}, option=f"-XX:ArchiveClassesAtExit={partial}") as node:
            node.format()
            node.start()
            node.stop()
        if partial.exists():  # a Java that writes no archive runs without one
            partial.rename(archive)
