"""Prometheus scrapes brokers under a little load: PromQL of dashboards, and Ottla's own board and alert rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest
from tests.cluster.nodes import Nodes

from ottla import Admin, Consumer, KafkaError, Producer

sys.path.insert(0, str(Path(__file__).parent))

from boards import BOARDS, REASONS, reason_for
from prometheus_server import Job, Prometheus

ROOT = Path(__file__).parents[2]
OURS = ROOT / "examples" / "monitoring"
RULES = OURS / "ottla.rules.yml"
SCRAPES = 2
"""Of each broker, which rates need; with load between them."""
BROKERS = {"strimzi": 3, "reporter": 1, "confluent": 1}
"""Brokers by spelling. Three have all states of replication; the others only have other names for the same metrics."""
COMPARISON = re.compile(r"\s(?:>|<|!=|==)\s[\d.]+")
TIMING = {"OttlaEventLoopBusy", "OttlaLoopLag"}
"""Alerts that a busy test machine may cause."""
TLS_ONLY = {"OttlaCertificateExpires", "OttlaCertificateExpiresSoon"}
"""Alerts without series here, since these brokers have no certificates; their tests are those of promtool."""

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus (Debian's package) is not installed on this machine",
)


class Load:
    """Clients of a topic with a group; each step writes, reads and commits."""

    def __init__(self, servers: str, replicas: int) -> None:
        self._servers = servers
        with Admin(servers) as admin:
            admin.create_topic("views", partitions=6, replication_factor=replicas)
        self._stack = ExitStack()
        self._producer = self._stack.enter_context(Producer(servers))
        settings = {"group.id": "readers", "auto.offset.reset": "earliest"}
        self._consumer = self._stack.enter_context(Consumer(servers, settings, topics="views"))

    def step(self) -> None:
        """A little traffic of each kind."""
        for number in range(60):
            self._producer.send("views", str(number), partition=number % 6)
        self._producer.flush()
        for _ in islice(self._consumer, 50):
            pass
        self._consumer.commit()
        with Admin(self._servers) as admin, pytest.raises(KafkaError):
            admin.create_topic("views")

    def close(self) -> None:
        self._stack.close()


class Scraped:
    """The cluster of one spelling and its Prometheus; those of another spelling replace them."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._stack = ExitStack()
        self._spelling = ""
        self._prometheus: Prometheus | None = None

    def of(self, spelling: str) -> Prometheus:
        """A Prometheus that has scraped the brokers of this spelling, started with its `--metrics-names`."""
        if self._prometheus is None or self._spelling != spelling:
            self.close()
            self._spelling = spelling
            self._prometheus = self._start(spelling, self._factory.mktemp(spelling))
        return self._prometheus

    def close(self) -> None:
        self._stack.close()

    def _start(self, spelling: str, folder: Path) -> Prometheus:
        count = BROKERS[spelling]
        offsets = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": str(count)}
        nodes = Nodes(folder, count, {**offsets, "broker.session.timeout.ms": "60000"})
        self._stack.callback(nodes.close)
        nodes.start("--metrics-port", "0", "--metrics-names", spelling)
        addresses = [json.loads(node.ready_file.read_bytes())["metrics"] for node in nodes.nodes]
        load = Load(nodes.bootstrap_servers, count)
        self._stack.callback(load.close)
        load.step()
        rules = [RULES] if spelling == "strimzi" else []  # they name series in this spelling
        prometheus = self._stack.enter_context(Prometheus(folder, jobs_of(spelling, addresses), rules))
        prometheus.wait_for(lambda: prometheus.has_scraped(SCRAPES), "scrapes under load", load.step)
        prometheus.wait_for(prometheus.has_evaluated_rules, "an evaluation of the rules", load.step)
        return prometheus


def jobs_of(spelling: str, addresses: list[str]) -> dict[str, Job]:
    """The scrapes with the labels by which the dashboards of a spelling select."""
    if spelling == "confluent":
        job = [(address, {"env": "test"}) for address in addresses]
        return {"kafka-broker": job, "kafka-controller": job}
    labels = {"namespace": "kafka", "strimzi_io_cluster": "my", "strimzi_io_name": "my-kafka", "container": "kafka"}
    pods = [f"my-kafka-{index}" for index in range(len(addresses))]
    return {
        "ottla": [
            (address, {**labels, "kubernetes_pod_name": pod, "pod": pod})
            for address, pod in zip(addresses, pods, strict=True)
        ]
    }


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    found = Scraped(tmp_path_factory)
    yield found
    found.close()


IN_ORDER = sorted(BOARDS, key=lambda name: BOARDS[name].spelling)
"""One spelling after the other, since each needs a cluster; the last one is that of the tests below."""


@pytest.mark.parametrize("name", IN_ORDER)
def test_expression_of_a_dashboard_finds_series_or_has_a_reason(scraped: Scraped, name: str) -> None:
    board = BOARDS[name]
    prometheus = scraped.of(board.spelling)
    empty = [each for each in board.expressions if not prometheus.query(each)]
    unexplained = [each for each in empty if reason_for(each) is None]
    assert not unexplained, "they return nothing: export the metric, or add a reason"
    outdated = [each for each in board.expressions if reason_for(each) is not None and each not in empty]
    assert not outdated, "they return something: remove the reason"
    print(f"{name}: {len(board.expressions) - len(empty)} of {len(board.expressions)} expressions return series")


def test_every_reason_explains_an_expression() -> None:
    expressions = [each for board in BOARDS.values() for each in board.expressions]
    assert not [pattern for pattern in REASONS if not any(re.search(pattern, each) for each in expressions)]


def own_expressions() -> list[str]:
    """The expressions of Ottla's board with its variables, and the metrics of the variables."""
    board = json.loads((OURS / "ottla-dashboard.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    variables = [each["definition"] for each in board["templating"]["list"] if "definition" in each]
    found += [re.sub(r"label_values\((\w+), (\w+)\)", r'\1{\2!=""}', each) for each in variables]
    return [each.replace("$instance", ".*").replace("$topic", ".*").replace("$__rate_interval", "1m") for each in found]


def test_own_dashboard_has_data_in_every_panel(scraped: Scraped) -> None:
    prometheus = scraped.of("strimzi")
    assert not [each for each in own_expressions() if not prometheus.query(each)]


def test_own_alerts_read_series_and_are_silent(scraped: Scraped) -> None:
    prometheus = scraped.of("strimzi")
    rules = prometheus.rules()
    assert len(rules) == RULES.read_text().count("- alert: ")
    assert not [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"]
    assert not [rule["name"] for rule in rules if rule["state"] != "inactive" and rule["name"] not in TIMING]
    for rule in rules:
        for side in re.split(r"\sand\s", rule["query"]):
            assert bool(prometheus.query(COMPARISON.sub("", side))) != (rule["name"] in TLS_ONLY), rule["name"]


def test_lag_rule_of_the_documents_computes_lag(scraped: Scraped) -> None:
    page = (ROOT / "docs/operations/monitoring.md").read_text()
    expression = page.partition("expr: >")[2].partition("```")[0]
    lags = scraped.of("strimzi").query(" ".join(expression.split()))
    assert len(lags) == 6
    assert sum(lags) > 0


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, cwd=OURS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_configuration_are_valid() -> None:
    promtool("check", "rules", "ottla.rules.yml")
    promtool("check", "config", "prometheus.yml")


def test_important_alerts_fire_and_name_their_runbook() -> None:
    promtool("test", "rules", "ottla.rules.test.yml")
