"""The plan of `--brokers N`: created once, reused, resumed, and rejected if it does not match."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path

import pytest

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.format import format_cluster
from ottla.app.local_cluster import LocalCluster, check_base_settings, plan_cluster, write_plan
from ottla.common.errors import OperatorError
from ottla.common.platform.disk_refusal import disk_refusal


def plan(directory: Path, count: int, port: int | None = None) -> LocalCluster:
    return plan_cluster(RealDisk(), SystemRng(), str(directory), count, port)


class Killed(BaseException):
    """The process ended."""


class KilledAtWrite(RealDisk):
    """A disk under a process that is killed before its write number `number`, counted from 0."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def write_atomic(self, path: str, data: bytes) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1
        super().write_atomic(path, data)


class NotRead(RealDisk):
    """A disk with a file that may not be read."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def read_bytes(self, path: str) -> bytes:
        if path == self.path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().read_bytes(path)


def first_start(disk: RealDisk, directory: Path, count: int = 3) -> LocalCluster:
    """Everything that `ottla start --brokers` does before the brokers."""
    planned = plan_cluster(disk, SystemRng(), str(directory), count, None)
    made = format_cluster(disk, SystemClock(), SystemRng(), planned)
    if not planned.formatted or planned.added:
        write_plan(disk, made)
    return made


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_first_start_that_was_killed_anywhere_is_resumed(tmp_path: Path) -> None:
    disk = KilledAtWrite(100)
    first_start(disk, tmp_path / "whole")
    writes = 100 - disk.left
    assert writes == 1 + 3 * 2 + 1  # the plan, a snapshot and meta.properties for each broker, the mark
    for number in range(writes):
        directory = tmp_path / str(number)
        with pytest.raises(Killed):
            first_start(KilledAtWrite(number), directory)
        before = files(directory)
        made = first_start(RealDisk(), directory)
        after = files(directory)
        assert all(after[path] == data for path, data in before.items() if path.name == "meta.properties")
        assert first_start(RealDisk(), directory) == made
        assert files(directory) == after
        assert json.loads((directory / "cluster.json").read_text())["formatted"] is True
        for broker in made.brokers:
            lines = (directory / f"broker-{broker.node_id}" / "meta.properties").read_text().splitlines()
            assert f"directory.id={broker.directory_id}" in lines
            assert f"cluster.id={made.cluster_id}" in lines


def test_growth_that_was_killed_anywhere_is_resumed(tmp_path: Path) -> None:
    for number in range(4):  # before the plan, meta.properties of the new broker, and the mark; and never
        directory = tmp_path / str(number)
        small = first_start(RealDisk(), directory)
        disk = KilledAtWrite(number)
        with contextlib.suppress(Killed):
            first_start(disk, directory, 4)
        assert disk.left == 0
        if number > 0:
            with pytest.raises(OperatorError, match="--brokers 4"):
                plan(directory, 3)
        grown = first_start(RealDisk(), directory, 4)
        assert grown.brokers[:3] == small.brokers
        assert grown.voters == small.voters
        assert [broker.node_id for broker in grown.brokers] == [1, 2, 3, 4]
        assert grown.brokers[3].port == small.brokers[2].port + 1
        assert grown.added == ()
        assert first_start(RealDisk(), directory, 4) == grown


def test_lost_directory_is_not_taken_for_an_added_one(tmp_path: Path) -> None:
    first_start(RealDisk(), tmp_path)
    (tmp_path / "broker-2" / "meta.properties").unlink()
    with pytest.raises(OperatorError, match="--replace-node 2"):
        first_start(RealDisk(), tmp_path, 4)


def test_cluster_does_not_grow_before_it_is_formatted(tmp_path: Path) -> None:
    plan(tmp_path, 3)
    with pytest.raises(OperatorError, match="--brokers 3"):
        plan(tmp_path, 4)


def test_node_that_ran_before_formatting_ended_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        first_start(KilledAtWrite(3), tmp_path)
    (tmp_path / "broker-1" / "__cluster_metadata-0" / "quorum-state").write_text("{}")
    with pytest.raises(OperatorError, match="brokers 2 and 3"):
        first_start(RealDisk(), tmp_path)


def test_plan_without_formatted_flag_counts_as_formatted(tmp_path: Path) -> None:
    plan(tmp_path, 3)
    path = tmp_path / "cluster.json"
    content = json.loads(path.read_text())
    del content["version"], content["formatted"]
    path.write_text(json.dumps(content))
    with pytest.raises(OperatorError, match="brokers 1, 2 and 3"):
        first_start(RealDisk(), tmp_path)


def test_ports_lie_in_a_row_and_the_first_three_vote(tmp_path: Path) -> None:
    made = plan(tmp_path / "data", 5, 19092)
    assert [broker.port for broker in made.brokers] == [19092, 19093, 19094, 19095, 19096]
    assert [broker.controller_port for broker in made.voters] == [20092, 20093, 20094]
    assert made.bootstrap_servers.startswith("127.0.0.1:19092,127.0.0.1:19093,")


@pytest.mark.parametrize(("count", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3)])
def test_cluster_of_two_brokers_has_one_voter(tmp_path: Path, count: int, voters: int) -> None:
    assert len(plan(tmp_path, count).voters) == voters


def test_a_later_start_finds_the_same_plan(tmp_path: Path) -> None:
    made = plan(tmp_path, 3, 0)
    assert plan(tmp_path, 3) == plan(tmp_path, 3, 0) == plan(tmp_path, 3, made.brokers[0].port) == made
    ports = [port for broker in made.brokers for port in (broker.port, broker.controller_port)]
    assert len(set(ports)) == 6


@pytest.mark.parametrize(
    ("count", "port", "words"), [(2, None, "--brokers 3"), (3, 1234, "omit --port"), (4, 0, "--brokers 3")]
)
def test_another_plan_is_refused(tmp_path: Path, count: int, port: int | None, words: str) -> None:
    plan(tmp_path, 3)
    with pytest.raises(OperatorError, match=words):
        plan(tmp_path, count, port)


def test_the_directory_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(OperatorError, match="single broker"):
        plan(tmp_path, 3)


BROKER = '{"node_id": 1, "port": 1, "controller_port": 2, "directory_id": "AAAAAAAAAAAAAAAAAAAAAw"}'
OTHER = BROKER.replace("AAAw", "AAAg")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"cluster_id": "x", "brokers": []}',
        '{"brokers": 1}',
        f'{{"cluster_id": "AAAAAAAAAAAAAAAAAAAAAQ", "brokers": [{BROKER.replace(": 1,", ": Infinity,", 1)}]}}',
        "[" * 100_000,
        f'{{"cluster_id": "AAAAAAAAAAAAAAAAAAAAAQ", "brokers": [{BROKER}, {OTHER}]}}',
        f'{{"cluster_id": "AAAAAAAAAAAAAAAAAAAAAQ", "brokers": [{BROKER}, {BROKER.replace(": 1,", ": 5,", 1)}]}}',
    ],
)
def test_a_damaged_plan_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(OperatorError, match=r"cluster\.json is damaged"):
        plan(tmp_path, 3)


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage", "directory", "unreadable"])
def test_a_plan_that_is_lost_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    first_start(RealDisk(), tmp_path)
    path, disk = tmp_path / "cluster.json", RealDisk()
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    elif damage == "garbage":
        path.write_bytes(b"\xa5garbage \x00" * 10)
    elif damage == "unreadable":
        disk = NotRead(str(path))
    else:
        path.unlink()
    if damage == "directory":
        path.mkdir()
    before = files(tmp_path)
    with pytest.raises((OperatorError, OSError)) as message:
        plan_cluster(disk, SystemRng(), str(tmp_path), 3, None)
    error = message.value
    assert path.name in str(disk_refusal(error, str(tmp_path)) if isinstance(error, OSError) else error)
    assert files(tmp_path) == before


def test_ports_beyond_the_last_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="lower --port"):
        plan(tmp_path, 3, 64_600)


def test_settings_of_a_broker(tmp_path: Path) -> None:
    made = plan(tmp_path, 4, 19092)
    voter = made.settings(made.brokers[0], {"num.partitions": "3", "broker.rack": "mine"})
    assert voter["broker.rack"] == "mine"
    assert voter["num.partitions"] == "3"
    assert voter["process.roles"] == "broker,controller"
    assert voter["controller.quorum.auto.join.enable"] == "true"
    assert (
        made.settings(made.brokers[0], {"controller.quorum.auto.join.enable": "false"})[
            "controller.quorum.auto.join.enable"
        ]
        == "false"
    )
    assert voter["listeners"] == "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:20092"
    other = made.settings(made.brokers[3], {})
    assert other["process.roles"] == "broker"
    assert other["listeners"] == "PLAINTEXT://127.0.0.1:19095"
    assert other["log.dirs"] == str(tmp_path / "broker-4")
    assert "log.dir" not in made.settings(made.brokers[3], {"log.dir": str(tmp_path)})
    assert json.loads((tmp_path / "cluster.json").read_text())["cluster_id"] == made.cluster_id


@pytest.mark.parametrize(
    "name", ["node.id", "listeners", "process.roles", "controller.quorum.voters", "metadata.log.dir"]
)
def test_per_broker_settings_are_rejected(name: str) -> None:
    with pytest.raises(OperatorError, match=name):
        check_base_settings({name: "1"})
