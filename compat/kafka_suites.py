"""Runs Apache Kafka's own integration tests against Ottla, or against Apache Kafka itself, and writes a table.

    python compat/kafka_suites.py                                   all classes, against both
    python compat/kafka_suites.py --cluster ottla '*AutoTopic*'     some classes, against Ottla

The tests request a cluster from Apache Kafka's test kit. The classes in java/suites precede the kit on the class path
and start Ottla processes instead. A test that needs an object inside a broker's process is "not applicable".

Each class runs in its own JVM. The output directory contains the table as JSON and as Markdown. A run replaces the
results of its classes and its cluster there, and keeps the others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import fetch

OTTLA, KAFKA = "ottla", "kafka"
COLUMNS = {OTTLA: "Ottla", KAFKA: "Apache Kafka 4.3.1"}
PASSED, FAILED, NOT_APPLICABLE, SKIPPED, NOT_RUN = "passed", "failed", "not applicable", "skipped", "not run"
ABORTED = "Not applicable: "
"""Start of the messages of java/suites/suites/ClusterLifecycle.java."""
SOURCES = fetch.ROOT / "compat" / "java" / "suites"
PACKAGE = "org.apache.kafka.clients"
CLASSES = (
    "producer.ProducerCompressionTest",
    "producer.ProducerIntegrationTest",
    "producer.ProducerIdExpirationTest",
    "producer.ProducerFailureHandlingTest",
    "producer.ProducerSendWhileDeletionTest",
    "consumer.PlaintextConsumerAssignTest",
    "consumer.PlaintextConsumerCallbackTest",
    "consumer.PlaintextConsumerCloseTest",
    "consumer.PlaintextConsumerCommitTest",
    "consumer.PlaintextConsumerFetchTest",
    "consumer.PlaintextConsumerPollTest",
    "consumer.PlaintextConsumerSubscriptionTest",
    "consumer.PlaintextConsumerTest",
    "consumer.SaslPlainPlaintextConsumerTest",
    "consumer.ConsumerBounceTest",
    "consumer.ConsumerIntegrationTest",
    "consumer.ConsumerTopicCreationTest",
    "consumer.ConsumerWithLegacyMessageFormatIntegrationTest",
    "TransactionsExpirationTest",
    "TransactionsWithMaxInFlightOneTest",
    "ClientRebootstrapTest",
    "MetadataVersionIntegrationTest",
    "MetricsDuringTopicCreationDeletionTest",
    "CreateTopicsRequestWithPolicyTest",
    "admin.AdminClientWithPoliciesIntegrationTest",
    "admin.AdminFenceProducersTest",
    "admin.AutoTopicCreationTest",
    "admin.ClientTelemetryTest",
    "admin.ConcurrentListOffsetsRequestTest",
    "admin.DeleteTopicTest",
    "admin.DescribeAuthorizedOperationsTest",
    "admin.DescribeFeaturesTest",
    "admin.DescribeProducersWithBrokerIdTest",
    "admin.DynamicGroupConfigIntegrationTest",
    "admin.ListOffsetsIntegrationTest",
    "admin.RackAwareAutoTopicCreationTest",
    "admin.StaticBrokerConfigTest",
    "security.GroupAuthorizerIntegrationTest",
    "consumer.ShareConsumerTest",
    "consumer.ShareConsumerRackAwareTest",
)
TEST_LIMIT_S = 300
CLASS_LIMIT_S = 7200.0
REASON_CHARS = 300

Outcome = dict[str, str]
"""Status by cluster, and the reason of Ottla's status under "reason"."""
Table = dict[str, dict[str, Outcome]]
"""Outcomes by class and test."""


def compiled(folder: Path, libraries: str) -> Path:
    """Compile the classes of java/suites. Raises CalledProcessError."""
    sources = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
    subprocess.run([fetch.need("javac"), "-nowarn", "-d", str(folder), "-cp", libraries, *sources], check=True)
    return folder


def run_class(name: str, classpath: str, reports: Path) -> Path | None:
    """Run a class in a JVM; returns its report, or None when the JVM did not write one."""
    command = ["java", "-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dsuites.python={sys.executable}"]
    command += ["-Djunit.jupiter.extensions.autodetection.enabled=true"]
    command += [f"-Djunit.jupiter.execution.timeout.testable.method.default={TEST_LIMIT_S}s", "-cp", classpath]
    command += ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--details=none"]
    command += ["--reports-dir", str(reports), "--select-class", f"{PACKAGE}.{name}"]
    with (reports / "output.txt").open("wb") as output:
        try:
            subprocess.run(command, stdout=output, stderr=output, timeout=CLASS_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return None
    report = reports / "TEST-junit-jupiter.xml"
    return report if report.exists() else None


def outcomes(report: Path) -> dict[str, tuple[str, str]]:
    """Returns status and reason of each test of a report."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        failure = next((child for child in case if child.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        if failure is not None:
            status, reason = FAILED, failure.get("message") or failure.text or failure.get("type") or ""
        elif skipped is not None:
            reason = (skipped.get("message") or skipped.text or "").strip()
            applicable = ABORTED not in reason
            status, reason = (SKIPPED, reason) if applicable else (NOT_APPLICABLE, reason.partition(ABORTED)[2])
        else:
            status, reason = PASSED, ""
        name = case.attrib["name"].replace("(ClusterInstance)", "")
        found[name] = status, reason.strip().partition("\n")[0][:REASON_CHARS]
    return found


def merge(table: Table, name: str, cluster: str, found: Mapping[str, tuple[str, str]]) -> None:
    """Replace the results of one class on one cluster."""
    tests = table.setdefault(name, {})
    for outcome in tests.values():
        outcome.pop(cluster, None)
        if cluster == OTTLA:
            outcome.pop("reason", None)
    for test, (status, reason) in found.items():
        outcome = tests.setdefault(test, {})
        outcome[cluster] = status
        if cluster == OTTLA and reason:
            outcome["reason"] = reason
    table[name] = {test: outcome for test, outcome in sorted(tests.items()) if OTTLA in outcome or KAFKA in outcome}


def markdown(table: Table) -> str:
    """Returns the totals and the table."""
    tests = [outcome for found in table.values() for outcome in found.values()]
    lines = [
        "| cluster | tests | passed | failed | not applicable | skipped |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for cluster, title in COLUMNS.items():
        counts = Counter(outcome[cluster] for outcome in tests if cluster in outcome)
        numbers = (counts.total(), *(counts[status] for status in (PASSED, FAILED, NOT_APPLICABLE, SKIPPED)))
        lines.append(f"| {title} | {' | '.join(map(str, numbers))} |")
    lines += ["", f"| class | test | {' | '.join(COLUMNS.values())} | reason |", "| --- | --- | --- | --- | --- |"]
    for name, found in table.items():
        for test, outcome in found.items():
            statuses = " | ".join(outcome.get(cluster, NOT_RUN) for cluster in COLUMNS)
            reason = outcome.get("reason", "").replace("|", "\\|")
            lines.append(f"| {name.rpartition('.')[2]} | {test} | {statuses} | {reason} |")
    return "\n".join(lines) + "\n"


def run(names: Iterable[str], clusters: Sequence[str], output: Path) -> Table:
    """Run classes against clusters; the table is written after each class. Raises NotToBeHad."""
    libraries = fetch.java_libraries("suites")
    output.mkdir(parents=True, exist_ok=True)
    results = output / "results.json"
    table: Table = json.loads(results.read_text()) if results.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        classes = compiled(Path(folder), libraries)
        for name in names:
            for cluster in clusters:
                reports = output / cluster / name
                reports.mkdir(parents=True, exist_ok=True)
                (reports / "TEST-junit-jupiter.xml").unlink(missing_ok=True)
                classpath = f"{classes}{os.pathsep}{libraries}" if cluster == OTTLA else libraries
                report = run_class(name, classpath, reports)
                lost = {"all tests": (FAILED, f"the JVM wrote no report within {CLASS_LIMIT_S:g} s")}
                found = outcomes(report) if report else lost
                merge(table, name, cluster, found)
                counts = Counter(status for status, _ in found.values())
                print(f"{name} on {COLUMNS[cluster]}: {dict(counts)}", flush=True)
            results.write_text(json.dumps(table, indent=1) + "\n")
            results.with_suffix(".md").write_text(markdown(table))
    return table


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run Apache Kafka's integration tests against Ottla.")
    parser.add_argument("patterns", nargs="*", metavar="CLASS", help="patterns of class names; all by default")
    parser.add_argument("--cluster", action="append", choices=COLUMNS, help="cluster to test; both by default")
    parser.add_argument("--output", type=Path, default=fetch.ROOT / "build" / "kafka-suites", help="output directory")
    arguments = parser.parse_args()
    patterns = arguments.patterns or ["*"]
    names = [name for name in CLASSES if any(fnmatch(name, pattern) for pattern in patterns)]
    if not names:
        parser.error(f"no class matches {' '.join(patterns)}")
    try:
        run(names, arguments.cluster or list(COLUMNS), arguments.output)
    except fetch.NotToBeHad as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
