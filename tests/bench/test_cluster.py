"""A peer of several processes, with three real nodes: totals, a killed node, and cleanup."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from harness.cells import Cell, Figure, Profile, memory_figures
from harness.cluster import Cluster
from harness.peers import Member, Ottla, Server
from harness.processes import tree
from harness.run import Plan, run_plan

PROFILE = Profile("test", seconds=0.01, warm_up_s=0, rounds=1, results="test")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster("ottla", {"default.replication.factor": 3}, make_node=Ottla)
    with made:
        yield made


def pids(cluster: Cluster) -> list[int]:
    return [node.pid for node in cluster.nodes]


def test_use_and_memory_are_the_sums_of_the_nodes(cluster: Cluster) -> None:
    before = [node.usage().cpu_s for node in cluster.nodes]
    together = cluster.usage().cpu_s
    after = [node.usage().cpu_s for node in cluster.nodes]
    assert len(set(pids(cluster))) == 3
    assert all(seconds > 0 for seconds in before)
    assert sum(before) - 0.001 <= together <= sum(after) + 0.001
    assert cluster.memory_mb() == pytest.approx(sum(node.memory_mb() for node in cluster.nodes), rel=0.05)
    figures = {figure.name: figure.value for figure in memory_figures(cluster)}
    each = [figures[f"peak memory of broker {number}"] for number in (1, 2, 3)]
    assert figures["peak memory"] == pytest.approx(sum(each), rel=0.05)


def test_a_killed_node_is_missed_and_comes_back(cluster: Cluster) -> None:
    cluster.node(2).stop(signal.SIGKILL)
    assert not cluster.answers()
    alive = [cluster.node(1), cluster.node(3)]
    used = cluster.usage().cpu_s
    assert used < sum(node.usage().cpu_s for node in alive) + 0.001  # of 0.01 s each, as floats
    assert cluster.survivor(1) is cluster.node(2)
    assert cluster.survivor(2) is cluster.node(1)
    cluster.node(2).start()
    cluster.wait_until(cluster.answers, 0.01)
    assert set(cluster.bootstrap_servers.split(",")) == {f"127.0.0.1:{node.port}" for node in cluster.nodes}


def test_failed_node_start_is_reported_with_its_output() -> None:
    @dataclasses.dataclass
    class Refusing(Ottla):
        def command(self) -> Sequence[str]:
            return ["sh", "-c", "echo no memory today; exit 3"]

    made = Cluster("refusing", make_node=Refusing)
    with pytest.raises(RuntimeError, match=r"refusing [123] ended with 3: no memory today"), made:
        pass
    assert not made.home.exists()


def test_cell_of_several_brokers_gets_a_temporary_cluster(tmp_path: Path) -> None:
    processes: list[int] = []

    def measure(server: Server, profile: Profile) -> Sequence[Figure]:
        assert isinstance(server, Cluster)
        assert (server.home / "node-3" / "server.properties").read_text().count("log.retention.hours=7") == 1
        processes.extend(each for pid in pids(server) for each in tree(pid))
        return [Figure("CPU", server.usage().cpu_s, "s")]

    cell = Cell("x/1", measure, peers=("ottla",), settings={"log.retention.hours": 7}, brokers=3)
    plan = Plan([cell], {"ottla": Ottla}, PROFILE, 1, tmp_path, {"when": "now"}, full_page_cache=False)
    run_plan(plan)
    kept = json.loads((tmp_path / "runs" / "x_1--ottla--0.json").read_text())
    assert "error" not in kept
    assert kept["brokers"] == 3
    assert len(processes) >= 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)


def test_every_node_is_configured_with_the_same_voters() -> None:
    members = [Member(node_id, {1: 11, 2: 12, 3: 13}) for node_id in (1, 2, 3)]
    assert len({member.initial_controllers() for member in members}) == 1
    names = [voter.split("@")[1].rsplit(":", 1) for voter in members[0].initial_controllers().split(",")]
    assert [address for address, _ in names] == ["127.0.0.1:11", "127.0.0.1:12", "127.0.0.1:13"]
    assert len({directory for _, directory in names}) == 3
    lines = members[1].properties("PLAINTEXT://127.0.0.1:9", Path("d"), {"a": 1}).splitlines()
    assert "node.id=2" in lines
    assert "listeners=PLAINTEXT://127.0.0.1:9,CONTROLLER://127.0.0.1:12" in lines
    assert lines[-1] == "a=1"
