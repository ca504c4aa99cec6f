"""Apache Kafka's command line tools, started by class name as its shell scripts do, or many in one JVM."""

from __future__ import annotations

import re
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "connect-standalone": "org.apache.kafka.connect.cli.ConnectStandalone",
    "connect-distributed": "org.apache.kafka.connect.cli.ConnectDistributed",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}

JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""One compiler tier starts a short-lived JVM in half the time."""

TOOL_S = 240.0
LENGTH = struct.Struct(">I")
NO_LOG = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Standard output is for results: Java would print its own warnings there."""


def archive_of(classpath: str) -> Path:
    """Path of the archive of loaded classes (JEP 350) for a class path, identified by its first jars.

    Java starts without it if it does not exist or was created for other jars.
    """
    return Path(classpath.split(":")[0]).parent / "classes.jsa"


def java(classpath: str, *options: str) -> list[str]:
    """Returns the start of a command line, up to the class."""
    return ["java", *JAVA_OPTIONS, f"-XX:SharedArchiveFile={archive_of(classpath)}", *options, "-cp", classpath]


COMPLAINTS = re.compile(r"mismatch|isvalid: false|out of order|Exception|invalid bytes|Could not deserialize", re.I)
"""Output of kafka-dump-log for invalid files. It reports offsets that start above 0 as "non-consecutive"."""

OLDER = frozenset({"kafka-broker-api-versions", "kafka-dump-log", "connect-distributed"})
"""Tools that call APIs removed from the newer modules: these run with the modules that they were built with."""


ALONE = frozenset({"kafka-verifiable-producer", "kafka-verifiable-consumer"})
"""Tools with shutdown hooks that produce output: each runs in a separate JVM."""

SERVER = Path(__file__).parent / "programs" / "Tools.java"


class ToolServer:
    """One JVM that runs tools in sequence by their main methods, which costs a tenth of a JVM for each."""

    def __init__(self, classpath: str) -> None:
        self._classpath = classpath
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, name: str, arguments: Sequence[str], stdin: str) -> tuple[int, str, str]:
        """Returns exit code, standard output and standard error of a tool by its class `name`.

        Raises AssertionError when the JVM exits, as it does when a tool takes longer than TOOL_S.
        """
        process = self._process or self._start()
        late = threading.Timer(TOOL_S, process.kill)
        late.start()
        try:
            parts = [part.encode() for part in (name, *arguments, stdin)]
            assert process.stdin is not None
            process.stdin.write(LENGTH.pack(len(parts)) + b"".join(LENGTH.pack(len(part)) + part for part in parts))
            process.stdin.flush()
            code, output, errors = (self._part(process) for _ in range(3))
        except BaseException:  # also on a test's timeout: late output would be taken for the next result
            self.close()
            raise
        finally:
            late.cancel()
        return int(code), output, errors

    def close(self) -> None:
        """End the JVM; the next tool starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [*java(self._classpath, *NO_LOG), str(SERVER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    @staticmethod
    def _part(process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        length = process.stdout.read(LENGTH.size)
        assert len(length) == LENGTH.size, f"the JVM of the tools ended, or a tool took more than {TOOL_S:g} s"
        return process.stdout.read(*LENGTH.unpack(length)).decode()


class JavaTools:
    """Runs one tool at a time; a failing tool fails the test. As a context manager it ends its JVMs."""

    def __init__(self, classpath: str, older_classpath: str, options: tuple[str, ...] = ()) -> None:
        """`older_classpath` is for the tools in OLDER; `options` are additional JVM options of a command line."""
        self._classpath = classpath
        self._older_classpath = older_classpath
        self._options = options
        self._servers = {path: ToolServer(path) for path in (classpath, older_classpath)}

    def __enter__(self) -> JavaTools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers.values():
            server.close()

    def command(self, tool: str, *arguments: str) -> list[str]:
        """Returns the command line of a tool in a separate process."""
        return [*java(self._classpath_of(tool), *self._options), CLASSES[tool], *arguments]

    def run(self, tool: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Returns the tool's standard output, and for kafka-dump-log also standard error, where it reports errors."""
        if tool in ALONE:
            done = subprocess.run(
                self.command(tool, *arguments), input=stdin, capture_output=True, text=True, timeout=TOOL_S, check=False
            )
            code, output, errors = done.returncode, done.stdout, done.stderr
        else:
            code, output, errors = self._servers[self._classpath_of(tool)].run(CLASSES[tool], arguments, stdin)
        if check and code != 0:
            raise AssertionError(f"{tool} {' '.join(arguments)} ended with {code}:\n{output}\n{errors}")
        return output + errors if tool == "kafka-dump-log" else output

    def _classpath_of(self, tool: str) -> str:
        return self._older_classpath if tool in OLDER else self._classpath
