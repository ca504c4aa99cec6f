"""Starts in the wrong directory, or with a part of it missing: refused, and nothing is changed.

Each of these looks like a first start; it would hide existing data, which would return with a disk that is mounted
later.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.format import format_cluster
from ottla.app.local_cluster import LocalCluster, plan_cluster, write_plan
from ottla.app.supervisor import write_properties
from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

from .refusals import contents, refusal

OFFLINE_WITHIN_S = 60.0


def formatted(folder: Path, count: int) -> LocalCluster:
    """A cluster on this machine as its first start leaves it before any broker runs."""
    disk, rng = RealDisk(), SystemRng()
    plan = format_cluster(disk, SystemClock(), rng, plan_cluster(disk, rng, str(folder), count, 0))
    write_properties(plan, {})
    write_plan(disk, plan)
    return plan


def kept(folder: Path) -> dict[Path, bytes]:
    """All that must not change; a lock file is not data."""
    return {path: data for path, data in contents(folder).items() if path.name != ".lock"}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A directory with three formatted brokers."""
    formatted(tmp_path / "data", 3)
    return tmp_path / "data"


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """The directory of a broker alone that stopped, with a topic."""
    with Broker(data_dir=tmp_path / "data") as broker:
        with Cluster(broker.bootstrap_servers) as client:
            client.topics.create("kept", 2)
        broker.stop()
    return tmp_path / "data"


def refused_as_it_was(folder: Path, *arguments: str) -> str:
    before = kept(folder)
    sentence = refusal("--data-dir", str(folder), *arguments)
    assert kept(folder) == before
    return sentence


# A cluster on this machine.


def test_one_broker_where_a_cluster_is(cluster: Path) -> None:
    sentence = refused_as_it_was(cluster, "--port", "0")
    assert "--brokers 3" in sentence
    assert "--data-dir" in sentence


def absent(cluster: Path) -> None:
    shutil.rmtree(cluster / "broker-2")


def not_mounted(cluster: Path) -> None:
    absent(cluster)
    (cluster / "broker-2").mkdir()


def half_formatted(cluster: Path) -> None:
    (cluster / "broker-2" / "meta.properties").unlink()


@pytest.mark.promise("D10")
@pytest.mark.parametrize("damage", [absent, not_mounted, half_formatted])
def test_broker_with_a_missing_directory(cluster: Path, damage: Callable[[Path], None]) -> None:
    damage(cluster)
    sentence = refused_as_it_was(cluster, "--brokers", "3")
    assert str(cluster / "broker-2") in sentence
    assert "--replace-node 2" in sentence
    assert "mount" in sentence


def test_all_directories_are_not_there(cluster: Path) -> None:
    """They would be formatted again with the old ids."""
    for number in (1, 2, 3):
        shutil.rmtree(cluster / f"broker-{number}")
    assert "brokers 1, 2 and 3" in refused_as_it_was(cluster, "--brokers", "3")
    assert "a majority of the voters" in refused_as_it_was(cluster, "--brokers", "3", "--replace-node", "1")


@pytest.mark.parametrize("count", ["1", "2"])
def test_fewer_brokers_than_planned_are_refused(cluster: Path, count: str) -> None:
    assert "--brokers 3" in refused_as_it_was(cluster, "--brokers", count)


def edit(path: Path, change: Callable[[dict], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_plan_that_names_another_node(cluster: Path) -> None:
    """It started an empty node and left the old one's replicas."""
    edit(cluster / "cluster.json", lambda plan: plan["brokers"][2].update(node_id=7))
    sentence = refused_as_it_was(cluster, "--brokers", "3")
    assert "broker-3" in sentence
    assert "cluster.json" in sentence


def test_a_plan_with_fewer_brokers(cluster: Path) -> None:
    edit(cluster / "cluster.json", lambda plan: plan["brokers"].pop())
    assert "broker-3" in refused_as_it_was(cluster, "--brokers", "2")


@pytest.mark.parametrize("name", ["cluster_id", "directory_id"])
def test_a_plan_of_another_cluster_or_directory(cluster: Path, name: str) -> None:
    other = "AAAAAAAAAAAAAAAAAAAAAw"
    edit(
        cluster / "cluster.json",
        lambda plan: (
            plan.update(cluster_id=other) if name == "cluster_id" else plan["brokers"][0].update({name: other})
        ),
    )
    sentence = refused_as_it_was(cluster, "--brokers", "3")
    assert name.replace("_", ".") in sentence
    assert str(cluster / "broker-1" / "meta.properties") in sentence


@pytest.mark.promise("D10")
def test_the_directory_of_another_node(cluster: Path) -> None:
    shutil.rmtree(cluster / "broker-2")
    shutil.copytree(cluster / "broker-1", cluster / "broker-2")
    sentence = refused_as_it_was(cluster, "--brokers", "3")
    assert str(cluster / "broker-2" / "meta.properties") in sentence
    assert "node.id" in sentence


def test_a_cluster_without_its_plan(cluster: Path) -> None:
    (cluster / "cluster.json").unlink()
    sentence = refused_as_it_was(cluster, "--brokers", "3")
    assert "cluster.json" in sentence
    assert "broker-1" in sentence


def test_a_plan_of_a_newer_release(cluster: Path) -> None:
    edit(cluster / "cluster.json", lambda plan: plan.update(version=2))
    assert "version 2" in refused_as_it_was(cluster, "--brokers", "3")


def test_a_cluster_where_one_broker_is(used: Path) -> None:
    assert "single broker" in refused_as_it_was(used, "--brokers", "3")
    (used / "meta.properties").unlink()
    assert "kept-0" in refused_as_it_was(used, "--brokers", "3")


def test_manually_started_broker_with_a_missing_directory(tmp_path: Path) -> None:
    """A single voter may format a cluster without a plan; here it would be another one."""
    plan = formatted(tmp_path / "data", 1)
    shutil.rmtree(plan.directory(plan.brokers[0]))
    before = kept(tmp_path / "data")
    sentence = refusal("--config", plan.properties_path(plan.brokers[0]))
    assert "--replace-node 1" in sentence
    assert kept(tmp_path / "data") == before


def test_formatting_where_a_cluster_is(cluster: Path) -> None:
    absent(cluster)
    before = kept(cluster)
    for place in (cluster, cluster / "broker-2"):
        command = [sys.executable, "-m", "ottla", "format", "--data-dir", str(place), "--no-initial-controllers"]
        command += ["--cluster-id", "AAAAAAAAAAAAAAAAAAAAAw", "--set", "node.id=2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done.stderr
        assert "--brokers" in done.stderr
    assert kept(cluster) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--brokers", "3", "--replace-node", "9"), "1, 2, 3"),
        (("--brokers", "3", "--replace-node", "2"), "omit the option"),
        (("--port", "0", "--replace-node", "2"), "--brokers"),
    ],
)
def test_a_replacement_that_makes_no_sense(cluster: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused_as_it_was(cluster, *arguments)


def test_a_replacement_before_the_first_start(tmp_path: Path) -> None:
    assert "omit the option" in refusal("--data-dir", str(tmp_path / "data"), "--brokers", "3", "--replace-node", "2")


def test_two_supervisors_at_a_time(cluster: Path) -> None:
    lock = RealDisk().lock(str(cluster / ".lock"))
    try:
        assert "in use" in refused_as_it_was(cluster, "--brokers", "3")
    finally:
        lock.release()


# One broker.


def test_directory_without_meta_properties(used: Path) -> None:
    """It began a new cluster and renamed all partitions to -stray."""
    (used / "meta.properties").unlink()
    sentence = refused_as_it_was(used, "--port", "0")
    assert "meta.properties" in sentence
    assert "kept-0" in sentence


@pytest.mark.promise("D10")
def test_partitions_beside_a_metadata_log_that_is_gone(used: Path) -> None:
    shutil.rmtree(used / "__cluster_metadata-0")
    partitions = {path: data for path, data in kept(used).items() if path.parent.name.startswith("kept-")}
    for _ in range(2):  # the first one created an empty directory
        sentence = refusal("--data-dir", str(used), "--port", "0")
        assert "__cluster_metadata-0" in sentence
        assert "kept-0" in sentence
    assert partitions
    assert partitions.items() <= kept(used).items()


def test_the_directories_of_a_broker_in_another_order(used: Path) -> None:
    """The first of them has the metadata log."""
    second = used.parent / "second"
    second.mkdir()
    meta = (used / "meta.properties").read_text()
    (second / "meta.properties").write_text(re.sub("directory.id=.*", "directory.id=JEXY6aqzQY-32P5TStzaFg", meta))
    shutil.move(used / "kept-1", second)
    for _ in range(2):  # the first one created an empty metadata log
        sentence = refusal("--set", f"log.dirs={second},{used}", "--port", "0")
        assert f"name {used} first in log.dirs" in sentence
    with Broker(data_dir=f"{used},{second}") as broker, Cluster(broker.bootstrap_servers) as client:
        assert all(partition.leader == 1 for partition in client.topics.get("kept").partitions)


def shown(broker: Broker, *arguments: str) -> Any:
    """The JSON output of a command, with a shorter timeout than its wait for a leader that does not run."""
    command = [sys.executable, "-m", "ottla", *arguments, "--json", "-b", broker.bootstrap_servers]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=20).stdout)


def test_commands_show_offline_partitions_of_missing_directory(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with Broker(data_dir=f"{first},{second}") as broker:
        with Cluster(broker.bootstrap_servers) as client:
            client.topics.create("kept", 4)
        broker.stop()
    lost = {int(path.name.removeprefix("kept-")) for path in second.glob("kept-*")}
    assert len(lost) == 2
    second.rename(tmp_path / "away")
    with Broker(data_dir=f"{first},{second}") as broker:
        # The controller may not have recorded the directories before the stop; then the broker reports the loss now.
        until = time.monotonic() + OFFLINE_WITHIN_S
        while shown(broker, "cluster", "describe")["without_leader"] != len(lost):
            assert time.monotonic() < until
        rows = {row["partition"]: row for row in shown(broker, "topic", "describe", "kept")["partitions"]}
        for number, row in rows.items():
            assert (row["leader"], row["end"]) == ((None, None) if number in lost else (1, 0))
        with Cluster(broker.bootstrap_servers) as client:
            assert {each.index for each in client.topics.get("kept").partitions if each.offline_replicas} == lost


def test_foreign_directories_next_to_a_first_start(tmp_path: Path) -> None:
    (tmp_path / "backup-2024").mkdir()
    (tmp_path / "backup-2024" / "file").write_text("mine")
    assert "backup-2024" in refused_as_it_was(tmp_path, "--port", "0")


def test_foreign_directory_next_to_partitions(used: Path) -> None:
    (used / "backup-2024").mkdir()
    (used / "backup-2024" / "file").write_text("mine")
    assert "move it out of log.dirs" in refusal("--data-dir", str(used), "--port", "0")
    assert [path.name for path in (used / "backup-2024").iterdir()] == ["file"]


def test_the_directory_of_a_node_beside_partitions(used: Path) -> None:
    shutil.copytree(used, used / "broker-1")
    before = kept(used / "broker-1")
    sentence = refusal("--data-dir", str(used), "--port", "0")
    assert str(used / "broker-1") in sentence
    assert "node" in sentence
    assert kept(used / "broker-1") == before


def test_a_directory_of_a_newer_release(used: Path) -> None:
    path = used / "meta.properties"
    path.write_text(path.read_text().replace("version=1", "version=2"))
    sentence = refused_as_it_was(used, "--port", "0")
    assert "version 2" in sentence
    assert "--data-dir" in sentence


def test_cluster_node_without_its_metadata_log(cluster: Path) -> None:
    """It would vote as if it had forgotten nothing."""
    shutil.rmtree(cluster / "broker-2" / "__cluster_metadata-0")
    before = kept(cluster)
    sentence = refusal("--config", str(cluster / "broker-2.properties"))
    assert "__cluster_metadata-0" in sentence
    assert kept(cluster) == before
