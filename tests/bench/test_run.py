"""The runner: alternation, resuming, failures; with a peer that is a small real server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.cells import PROFILES, Axis, Cell, Figure, Profile, all_cells, chosen
from harness.peers import Server, split
from harness.run import Plan, run_plan, runs_of

PROFILE = Profile("test", seconds=0.01, warm_up_s=0, rounds=2, results="test")
ANSWERS = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"0000")
"""


@dataclass
class Answering(Server):
    """Answers anything with four bytes."""

    def command(self) -> Sequence[str]:
        return [sys.executable, "-S", "-c", ANSWERS, str(self.port)]


@dataclass
class Ending(Server):
    """Ends at once with a word in its log."""

    def command(self) -> Sequence[str]:
        return [sys.executable, "-S", "-c", "print('no memory today'); raise SystemExit(3)"]


@pytest.fixture
def seen() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def make_plan(tmp_path: Path, seen: list[tuple[str, str]]) -> Callable[..., Plan]:
    """Two cells, peers A and B, two rounds."""

    def measure(name: str, server: Server, profile: Profile) -> Sequence[Figure]:
        seen.append((name, server.name))
        assert server.home.exists()
        return [Figure("CPU", server.usage().cpu_s + 1, "s", yardstick=True)]

    def make(**more: Any) -> Plan:
        cells = [Cell(name, partial(measure, name), peers=("A", "B")) for name in ("x/1", "x/2")]
        peers: dict[str, type[Server]] = {"A": Answering, "B": Answering}
        settings = {"cells": cells, "peers": peers, "profile": PROFILE, "rounds": 2, "folder": tmp_path}
        return Plan(**{**settings, "conditions": {"when": "now"}, "full_page_cache": False, **more})

    return make


def test_a_cell_alternates_between_the_peers(make_plan: Callable[..., Plan], seen: list[tuple[str, str]]) -> None:
    run_plan(make_plan())
    assert seen == [(cell, peer) for cell in ("x/1", "x/2") for _ in range(2) for peer in ("A", "B")]


def test_existing_results_are_skipped_by_default(make_plan: Callable[..., Plan], seen: list[tuple[str, str]]) -> None:
    plan = make_plan()
    run_plan(plan)
    next((plan.folder / "runs").glob("x_2--B--1.json")).unlink()
    seen.clear()
    run_plan(plan)
    assert seen == [("x/2", "B")]
    assert len(list(runs_of(make_plan(again=True)))) == 8


def test_an_interrupted_run_leaves_no_result(make_plan: Callable[..., Plan], tmp_path: Path) -> None:
    def interrupted(server: Server, profile: Profile) -> Sequence[Figure]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(make_plan(cells=[Cell("x/1", interrupted, peers=("A",))]))
    assert not list(tmp_path.rglob("*.json"))


def test_a_failed_run_is_kept_and_tried_again(make_plan: Callable[..., Plan], seen: list[tuple[str, str]]) -> None:
    plan = make_plan(peers={"A": Answering, "B": Ending}, rounds=1)
    run_plan(plan)
    failed = json.loads((plan.folder / "runs" / "x_1--B--0.json").read_text())
    assert failed["error"] == "RuntimeError: B ended with 3: no memory today\n"
    assert "figures" not in failed
    assert {path.name for _, _, _, path in runs_of(plan)} == {"x_1--B--0.json", "x_2--B--0.json"}
    seen.clear()
    run_plan(make_plan(rounds=1))
    assert seen == [("x/1", "B"), ("x/2", "B")]


def test_run_records_its_conditions(make_plan: Callable[..., Plan], tmp_path: Path) -> None:
    def nothing(server: Server, profile: Profile) -> Sequence[Figure]:
        return [Figure("CPU", 1.5, "s")]

    axis = Axis("cost", "cold", 10, "partitions")
    cell = Cell("x/1", nothing, peers=("A",), settings={"num.partitions": 3}, axis=axis, shape="1-topic")
    run_plan(make_plan(cells=[cell], rounds=1))
    kept = json.loads((tmp_path / "runs" / "x_1--A--0.json").read_text())
    assert kept["cell"] == "x/1"
    assert kept["settings"] == {"num.partitions": 3}
    assert kept["axis"]["x"] == 10
    assert kept["conditions"]["when"] == "now"
    assert kept["figures"] == [{"name": "CPU", "value": 1.5, "unit": "s", "better": "less", "yardstick": False}]


def test_a_peer_is_gone_after_its_run(make_plan: Callable[..., Plan]) -> None:
    servers: list[tuple[int, Path]] = []

    def remember(server: Server, profile: Profile) -> Sequence[Figure]:
        servers.append((server.pid, server.home))
        raise RuntimeError("in the midst of it")

    run_plan(make_plan(cells=[Cell("x/1", remember, peers=("A",))], rounds=1))
    ((pid, home),) = servers
    assert not Path(f"/proc/{pid}").exists()
    assert not home.exists()


def test_broker_and_load_split_the_cpus_or_share_few() -> None:
    assert [sorted(half) for half in split({0, 1, 2, 3, 4})] == [[0, 1], [2, 3, 4]]
    assert [sorted(half) for half in split({0, 1})] == [[0, 1], [0, 1]]


def test_two_revisions_take_the_place_of_ottla(make_plan: Callable[..., Plan]) -> None:
    cells = [
        Cell("x/1", lambda server, profile: [], peers=("ottla", "kafka")),
        Cell("x/2", lambda *_: [], peers=("kafka",)),
    ]
    plan = make_plan(cells=cells, peers={"base": Answering, "head": Answering}, rounds=1)
    assert [(cell.name, peer) for cell, peer, _, _ in runs_of(plan)] == [("x/1", "base"), ("x/1", "head")]


def test_cells_are_chosen_by_profile_or_by_pattern() -> None:
    cells = [
        Cell("produce/100/none", lambda *_: [], frozenset({"full", "quick"})),
        Cell("produce/1024/none", lambda *_: []),
        Cell("consume/1024/none", lambda *_: []),
    ]
    assert [cell.name for cell in chosen(cells, "quick", [])] == ["produce/100/none"]
    assert [cell.name for cell in chosen(cells, "quick", ["produce/1024/*"])] == ["produce/1024/none"]
    assert len(chosen(cells, "full", [])) == 2 + len([cells[0]])


def test_workload_cells_are_unique_and_subsets_are_of_full() -> None:
    pytest.importorskip("confluent_kafka")
    for cell in all_cells():
        if cell.profiles != {"quick"}:
            assert "full" in cell.profiles, cell.name
        assert "ottla" in cell.peers, cell.name


def test_the_subset_fits_forty_minutes() -> None:
    pytest.importorskip("confluent_kafka")
    subset = PROFILES["subset"]
    runs = len(chosen(all_cells(), "subset", [])) * len(subset.peers) * subset.rounds
    assert runs * 23 <= 40 * 60, f"{runs} runs of about 23 s"
