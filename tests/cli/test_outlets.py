"""Tools with a broken standard output: they exit with a message, or silently if the reader closed the pipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

from ..outlets import OUTLETS, Ends

OTTLA = (sys.executable, "-m", "ottla")


def test_nothing_can_be_printed(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", ottla_broker.bootstrap_servers)
    topic, ended = "outlets", Ends(monkeypatch, capfd)
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        cluster.topics.create(topic, 1)
    subprocess.run([*OTTLA, "produce", topic], input=b"one\n", check=True, capture_output=True)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(b"")
    commands = [
        ("consume", topic, "--from-beginning", "--stop-at-end"),
        ("consume", topic, "--from-beginning", "--stop-at-end", "--json"),
        ("topic", "list"),
        ("topic", "describe", topic),
        ("topic", "describe", topic, "--json"),
        ("group", "list", "--json"),
        ("cluster", "describe"),
        ("cluster", "brokers"),
        ("config", "describe", "topic", topic),
        ("quota", "describe", "--json"),
        ("txn", "list", "--json"),
        ("user", "list", "--json"),
        ("log", "dump", str(log)),
        ("completion", "bash"),
    ]
    for outlet, end in OUTLETS.items():
        for command in commands:
            assert ended(outlet, *command) == end, (outlet, command)
