"""Feature levels by Apache Kafka's `kafka-features`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tools import JavaTools

from ottla.testing import Broker


@pytest.fixture
def at() -> Iterator[list[str]]:
    """A new broker for each test: level changes are not reverted."""
    with Broker() as broker:
        yield ["--bootstrap-server", broker.bootstrap_servers]


def described(tools: JavaTools, at: list[str]) -> dict[str, tuple[str, ...]]:
    """Returns (lowest supported, highest supported, finalized) by feature."""
    row = r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)"
    found = re.findall(row, tools.run("kafka-features", *at, "describe"))
    return {name: (low, high, level) for name, low, high, level in found}


def test_levels_are_described_raised_and_lowered(tools: JavaTools, at: list[str]) -> None:
    before = described(tools, at)
    assert before["metadata.version"] == ("3.3-IV3", "4.4-IV2", "4.0-IV3")
    assert before["transaction.version"] == ("0", "2", "2")
    output = tools.run("kafka-features", *at, "upgrade", "--feature", "metadata.version=27")
    assert "metadata.version was upgraded to 27." in output
    output = tools.run("kafka-features", *at, "downgrade", "--feature", "transaction.version=1")
    assert "transaction.version was downgraded to 1." in output
    assert "group.version was disabled." in tools.run("kafka-features", *at, "disable", "--feature", "group.version")
    tools.run("kafka-features", *at, "upgrade", "--release-version", "4.1-IV1")
    after = described(tools, at)
    assert [after[name][2] for name in ("metadata.version", "transaction.version", "group.version")] == [
        *("4.1-IV1", "2", "1")
    ]


def test_invalid_levels_are_refused_with_the_reason(tools: JavaTools, at: list[str]) -> None:
    before = described(tools, at)
    lower = ("downgrade", "--metadata", "3.9-IV0")
    assert "Refusing to perform the requested downgrade" in tools.run("kafka-features", *at, *lower, check=False)
    assert "Unsafe metadata downgrade is not supported" in tools.run(
        "kafka-features", *at, *lower, "--unsafe", check=False
    )
    output = tools.run("kafka-features", *at, "upgrade", "--feature", "metadata.version=26", "--dry-run")
    assert "metadata.version can be upgraded to 26." in output
    assert described(tools, at) == before


def test_tables_of_the_tool_hold_here(tools: JavaTools, at: list[str]) -> None:
    mapping = tools.run("kafka-features", *at, "version-mapping", "--release-version", "4.0-IV3")
    assert "metadata.version=25" in mapping
    needs = tools.run("kafka-features", *at, "feature-dependencies", "--feature", "eligible.leader.replicas.version=1")
    assert "metadata.version=23" in needs
