"""The plan of `--brokers N`: made once, found again, and refused where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.app.clock import SystemRng
from ottla.app.disk import RealDisk
from ottla.app.local_cluster import LocalCluster, check_base_settings, plan_cluster
from ottla.common.errors import OperatorError


def plan(directory: Path, count: int, port: int | None = None) -> LocalCluster:
    return plan_cluster(RealDisk(), SystemRng(), str(directory), count, port)


def test_ports_lie_in_a_row_and_the_first_three_vote(tmp_path: Path) -> None:
    made = plan(tmp_path / "data", 5, 19092)
    assert [broker.port for broker in made.brokers] == [19092, 19093, 19094, 19095, 19096]
    assert [broker.controller_port for broker in made.voters] == [20092, 20093, 20094]
    assert made.bootstrap_servers.startswith("127.0.0.1:19092,127.0.0.1:19093,")


@pytest.mark.parametrize(("count", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3)])
def test_two_brokers_would_not_survive_one_as_voters_so_one_votes(tmp_path: Path, count: int, voters: int) -> None:
    assert len(plan(tmp_path, count).voters) == voters


def test_a_later_start_finds_the_same_plan(tmp_path: Path) -> None:
    made = plan(tmp_path, 3, 0)
    assert plan(tmp_path, 3) == plan(tmp_path, 3, 0) == plan(tmp_path, 3, made.brokers[0].port) == made
    ports = [port for broker in made.brokers for port in (broker.port, broker.controller_port)]
    assert len(set(ports)) == 6


@pytest.mark.parametrize(
    ("count", "port", "words"), [(2, None, "--brokers 3"), (3, 1234, "leave --port away"), (4, 0, "--brokers 3")]
)
def test_another_plan_is_refused(tmp_path: Path, count: int, port: int | None, words: str) -> None:
    plan(tmp_path, 3)
    with pytest.raises(OperatorError, match=words):
        plan(tmp_path, count, port)


def test_the_directory_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(OperatorError, match="single broker"):
        plan(tmp_path, 3)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"cluster_id": "x", "brokers": []}', '{"brokers": 1}'])
def test_a_damaged_plan_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(OperatorError, match=r"cluster\.json is damaged"):
        plan(tmp_path, 3)


def test_ports_beyond_the_last_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="lower --port"):
        plan(tmp_path, 3, 64_600)


def test_settings_of_a_broker(tmp_path: Path) -> None:
    made = plan(tmp_path, 4, 19092)
    voter = made.settings(made.brokers[0], {"num.partitions": "3", "broker.rack": "mine"})
    assert voter["broker.rack"] == "mine"
    assert voter["num.partitions"] == "3"
    assert voter["process.roles"] == "broker,controller"
    assert voter["listeners"] == "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:20092"
    other = made.settings(made.brokers[3], {})
    assert other["process.roles"] == "broker"
    assert other["listeners"] == "PLAINTEXT://127.0.0.1:19095"
    assert other["log.dirs"] == str(tmp_path / "broker-4")
    assert json.loads((tmp_path / "cluster.json").read_text())["cluster_id"] == made.cluster_id


@pytest.mark.parametrize("name", ["node.id", "listeners", "process.roles", "controller.quorum.voters"])
def test_what_each_broker_must_have_for_itself_is_refused(name: str) -> None:
    with pytest.raises(OperatorError, match=name):
        check_base_settings({name: "1"})
