"""Three brokers of the last release are upgraded to this tree one by one, rolled back, upgraded again, and raised to
its feature levels, while an idempotent producer and a group of transactional copiers work: nothing is lost or doubled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla import build_revision
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import FeatureUpdate, UpgradeType
from ottla.common.config.feature_levels import METADATA_VERSION, NEW_CLUSTER_LEVELS
from ottla.common.errors import OttlaError

from ..cluster.nodes import Node, Nodes, Place, eventually, of_the_quorum, on_loopback
from ..cluster.test_three_nodes import in_sync
from .last_release import REVISION_CHARACTERS, install, last_release
from .test_exactly_once import SETTINGS, Course

LEVELS = ("--release-version", "3.9")
"""Lower than those of every release of Ottla, so that there are levels to raise, also those of transactions."""
TOPICS = ("source", "target", "__consumer_offsets", "__transaction_state")
WAIT_S = 90.0
RELEASE = last_release()


class RollingChange:
    """Restarts nodes with another version of Ottla, as docs/operations/upgrade.md says."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})

    def to(self, python: str, revision: str | None) -> list[Callable[[], None]]:
        """One step for each node; the leader of the quorum is the last."""
        return [partial(self._restart_next, python, revision) for _ in self._nodes.nodes]

    def raise_levels(self) -> None:
        """Raise the levels to those of a new cluster of this tree."""
        with Cluster(self._nodes.bootstrap_servers) as cluster:
            now = {name: info.level for name, info in cluster.features.all().items()}
            raised = {name: level for name, level in NEW_CLUSTER_LEVELS.items() if level > now.get(name, 0)}
            assert METADATA_VERSION in raised
            cluster.features.update([FeatureUpdate(name, level, UpgradeType.UPGRADE) for name, level in raised.items()])
            assert {name: cluster.features.all()[name].level for name in raised} == raised

    def _restart_next(self, python: str, revision: str | None) -> None:
        remaining = [node for node in self._nodes.nodes if node.place.python != python]
        leader = self._quorum_leader()
        node = next((each for each in remaining if each.node_id != leader), remaining[0])
        assert node.stop() == 0
        node.place = replace(node.place, python=python)
        node.start()
        assert revision_of(node) == revision
        self._wait_in_sync()

    def _wait_in_sync(self) -> None:
        for topic in TOPICS:
            eventually(partial(in_sync, self._admin, topic, len(self._nodes.nodes)), f"{topic} is in sync", WAIT_S)

    def _quorum_leader(self) -> int:
        def leader() -> int | None:
            with suppress(OttlaError), Cluster(self._nodes.bootstrap_servers) as cluster:
                return cluster.quorum.describe().leader_id
            return None

        return eventually(leader, "the quorum has a leader", WAIT_S)


def revision_of(node: Node) -> str | None:
    """Git revision of a running node, from its ready file."""
    revision: str | None = json.loads(node.ready_file.read_bytes())["revision"]
    return revision


@pytest.fixture
def released_nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Three running nodes of the last release, which also formatted them."""
    assert RELEASE is not None
    python = install(RELEASE, tmp_path / "release")
    places: list[Place] = [replace(place, python=python) for place in on_loopback(3)]
    settings = {**SETTINGS, "broker.session.timeout.ms": "18000"}  # only stops move leaders, also on a busy machine
    nodes = Nodes(tmp_path, settings=settings, places=places, first=LEVELS)
    nodes.start()
    yield nodes
    nodes.close()


@pytest.mark.timeout(900)
@pytest.mark.promise("R12")
@pytest.mark.skipif(RELEASE is None, reason="needs the git history up to the last release")
@of_the_quorum(reason="feature levels are those of a quorum")
def test_upgrade_and_rollback_lose_and_double_nothing(tmp_path: Path, released_nodes: Nodes) -> None:
    assert RELEASE is not None
    nodes, change = released_nodes, RollingChange(released_nodes)
    released = (nodes[1].place.python, RELEASE[:REVISION_CHARACTERS])
    present = (sys.executable, build_revision())
    assert [revision_of(node) for node in nodes.nodes] == [released[1]] * 3
    course = Course(nodes, tmp_path, "classic")
    try:
        course.run_beside([*change.to(*present), *change.to(*released), *change.to(*present), change.raise_levels])
    finally:
        course.close()
