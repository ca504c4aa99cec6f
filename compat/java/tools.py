"""Apache Kafka's command line tools, started by class name as its shell scripts do."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

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


def archive_of(classpath: str) -> Path:
    """Where the archive of loaded classes (JEP 350) for a class path lies, if there is one: by its first jars.

    Java starts without it when it is not there or was made for others.
    """
    return Path(classpath.split(":")[0]).parent / "classes.jsa"


COMPLAINTS = re.compile(r"mismatch|isvalid: false|out of order|Exception|invalid bytes|Could not deserialize", re.I)
"""What kafka-dump-log prints of files that are not right. Offsets that begin above 0 it calls "non-consecutive"."""

OLDER = frozenset({"kafka-broker-api-versions", "kafka-dump-log", "connect-distributed"})
"""Tools that call what the newer modules no longer have: these run with the modules that they were built with."""


@dataclass(frozen=True, slots=True)
class JavaTools:
    """Runs one tool at a time; a tool that fails fails the test."""

    classpath: str
    older_classpath: str
    """For the tools in OLDER."""
    options: tuple[str, ...] = ()
    """More options of the JVM."""

    def command(self, tool: str, *arguments: str) -> list[str]:
        """The command line."""
        classpath = self.older_classpath if tool in OLDER else self.classpath
        options = [*JAVA_OPTIONS, f"-XX:SharedArchiveFile={archive_of(classpath)}", *self.options]
        return ["java", *options, "-cp", classpath, CLASSES[tool], *arguments]

    def run(self, tool: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """What the tool printed to standard output; of kafka-dump-log all, since what it finds is on standard error."""
        result = subprocess.run(
            self.command(tool, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check and result.returncode != 0:
            raise AssertionError(
                f"{tool} {' '.join(arguments)} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}"
            )
        return result.stdout + result.stderr if tool == "kafka-dump-log" else result.stdout
