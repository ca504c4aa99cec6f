"""Dashboards of Kafka find their metrics on a broker under a little load, or a reason is listed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla import Admin, Consumer, KafkaError, Producer
from ottla.app import certificates, scraping
from ottla.app.scraping import disk_bytes
from ottla.metrics.exposition import render
from ottla.metrics.registry import MetricsRegistry
from ottla.metrics.spellings import SPELLINGS, spelling
from ottla.testing import Broker

from .dashboards import BOARDS, Board

ROOT = Path(__file__).parents[2]
OURS = ROOT / "examples" / "monitoring"
METRIC = re.compile(r"\b(?:kafka|ottla|process)_\w+")
UP = 'up{job="ottla"} == 0'
"""The only expression without a metric of Ottla: Prometheus's own."""
TLS_ONLY = {certificates.METRIC}
"""Exported by nodes with TLS (`tests/cli/test_security.py`)."""

Labels = dict[str, list[dict[str, str]]]
"""Labels of all series by metric."""


@pytest.fixture(scope="module")
def exported() -> Iterator[Labels]:
    """One scrape of a broker with a topic, a group, a failed request and a quota."""
    with Broker(arguments=["--metrics-port", "0"]) as broker:
        servers = broker.bootstrap_servers
        quota = [*("quota", "set", "--user", "ANONYMOUS", "--default", "client-id"), "--producer-byte-rate", "1e12"]
        subprocess.run(
            [sys.executable, "-m", "ottla", *quota, "--consumer-byte-rate", "1e12", "--request-percentage", "1000"],
            env=os.environ | {"OTTLA_BOOTSTRAP_SERVER": servers},
            check=True,
        )
        with Admin(servers) as admin:
            admin.create_topic("views", partitions=2)
            with pytest.raises(KafkaError):
                admin.create_topic("views")
        with Producer(servers) as producer:
            for number in range(4):
                producer.send("views", str(number), partition=number % 2)
        settings = {"group.id": "readers", "auto.offset.reset": "earliest"}
        with Consumer(servers, settings, topics="views") as consumer:
            next(iter(consumer))
            consumer.commit()
            url = f"http://{broker.ready['metrics']}/metrics"
            text = urllib.request.urlopen(url, timeout=60).read().decode()
        found: Labels = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
        yield found


def spelled(exported: Labels, name: str) -> Labels:
    """The scrape with another `--metrics-names`."""
    to = spelling(name)
    return {
        to(each): [{to(label): value for label, value in labels.items()} for labels in series]
        for each, series in exported.items()
    }


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_name_of_a_dashboard_is_exported(exported: Labels, board: Board) -> None:
    found = spelled(exported, board.spelling)
    absent = [
        (name, labels)
        for name, labels in board.names.items()
        if not any(set(labels) <= set(series) for series in found.get(name, ()))
    ]
    assert not absent


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_names_that_are_missing_have_a_reason_each(exported: Labels, board: Board) -> None:
    found = spelled(exported, board.spelling)
    assert not [name for name in board.missing if name in found], "it is exported: move it to the names"
    assert not set(board.missing) & set(board.names)


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_do_not_join_families(exported: Labels, name: str) -> None:
    assert len(spelled(exported, name)) == len(exported)


def test_disk_counters_are_read_from_the_kernels_text() -> None:
    text = "rchar: 5\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n"
    assert dict(disk_bytes(text)) == {"read": 4096, "write": 8192}
    assert not dict(disk_bytes(""))


def test_connections_beyond_the_bound_of_client_software_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "MAX_CLIENT_SOFTWARE", 2)
    listener = SimpleNamespace(name="PLAINTEXT")
    software = [("a", "1"), ("a", "1"), None, ("b", "1"), ("c", "1"), ("a", "1")]
    connections = {
        number: SimpleNamespace(listener=listener, client_software=each) for number, each in enumerate(software)
    }
    sets: Any = [SimpleNamespace(connections=connections)]
    collect = scraping.connection_series(sets, ["PLAINTEXT"], MetricsRegistry())
    text = b"".join(render(MetricsRegistry(), [collect])).decode()
    found = dict(re.findall(r'connections\{client_software_name="(\w+)",.*\} (\d+)', text))
    assert found == {"a": "3", "unknown": "1", "other": "2"}
    assert 'connection_count{listener="PLAINTEXT",networkProcessor="0"} 6' in text


def alerts() -> list[dict[str, str]]:
    """The fields of each alert rule."""
    text = (OURS / "ottla.rules.yml").read_text()
    rules = text.split("- alert: ")[1:]
    return [{"alert": rule.partition("\n")[0]} | dict(re.findall(r"(\w+): (.+)", rule)) for rule in rules]


def expressions() -> list[str]:
    """Every expression and variable of the dashboard."""
    board = json.loads((OURS / "ottla-dashboard.json").read_text())
    targets = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return targets + [each["definition"] for each in board["templating"]["list"] if "definition" in each]


def test_own_dashboard_and_rules_name_exported_metrics(exported: Labels) -> None:
    for expression in (*expressions(), *(rule["expr"] for rule in alerts())):
        names = METRIC.findall(expression)
        assert bool(names) == (expression != UP), expression
        assert set(names) <= set(exported) | TLS_ONLY, expression


def test_own_dashboard_selects_by_exported_labels(exported: Labels) -> None:
    from_prometheus = {"instance", "le"}
    for expression in expressions():
        names = METRIC.findall(expression)
        labels = set(re.findall(r"(\w+)(?:=~|!=|=)\"", expression))
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            labels |= {label.strip() for label in grouped.split(",")}
        for name in names:
            known = {label for series in exported[name] for label in series}
            assert labels - from_prometheus <= known, expression


def test_every_alert_is_documented_with_its_runbook() -> None:
    page = (ROOT / "docs/operations/monitoring.md").read_text()
    table = page.partition("## Alerts")[2].partition("\n## ")[0]
    for rule in alerts():
        assert rule["runbook"].startswith("docs/operations/runbooks/"), rule
        assert f"({rule['runbook'].removeprefix('docs/operations/')}" in table, rule
        assert (ROOT / rule["runbook"]).is_file(), rule
        assert rule["summary"].endswith("."), rule
        for name in METRIC.findall(rule["expr"]):
            assert f"`{name}`" in table, rule["alert"]
    documented = set(METRIC.findall(table))
    assert documented == {name for rule in alerts() for name in METRIC.findall(rule["expr"])}
