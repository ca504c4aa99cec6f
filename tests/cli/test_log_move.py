"""`ottla log move` on a broker with two data directories."""

from __future__ import annotations

import json

import pytest

from ottla.cli.consume import consume
from ottla.cli.log import log
from ottla.cli.produce import produce
from ottla.cli.topic import topic
from ottla.testing import Broker


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("disks")
    return str(folder / "one"), str(folder / "other")


@pytest.fixture(scope="module")
def servers(paths):
    with Broker(data_dir=",".join(paths)) as broker:
        yield broker.bootstrap_servers


def places(run) -> dict[int, str]:
    found = json.loads(run(log, "dirs", "--json").stdout)
    return {row["partition"]: each["path"] for each in found for row in each["replicas"] if row["topic"] == "moved"}


def test_replicas_move_between_directories_and_are_served(run, paths):
    run(topic, "create", "moved", "-p", "4")
    for partition in range(4):
        run(produce, "moved", "-p", str(partition), "-q", stdin=f"record {partition}\n")
    before = places(run)
    assert set(before.values()) == set(paths)
    target = paths[1]
    (node_id,) = {each["broker"] for each in json.loads(run(log, "dirs", "--json").stdout)}
    command = ("move", "moved", "--broker", str(node_id), "--to", target)

    dry = run(log, *command, "--json")
    expected = [
        {"topic": "moved", "partition": index, "from": paths[0], "to": target}
        for index, path in sorted(before.items())
        if path != target
    ]
    assert json.loads(dry.stdout) == {"executed": False, "broker": node_id, "moves": expected}
    assert "Dry run" in dry.stderr
    assert places(run) == before

    assert "Moved 2 partitions." in run(log, *command, "--execute").stderr
    assert places(run) == dict.fromkeys(range(4), target)
    assert sorted(run(consume, "moved", "--from-beginning", "-e").stdout.split("\n")[:-1]) == [
        f"record {partition}" for partition in range(4)
    ]
    assert run(log, *command, "--execute").stdout == "Nothing to move.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("refused:0", "--broker", "1", "--to", "/nowhere"),
            "/nowhere is not in log.dirs of broker 1: give --to one of",
        ),
        (("refused:0", "--broker", "7", "--to", "/nowhere"), "broker 7 is not registered"),
        (("refused:0", "--to", "/nowhere"), "Missing option '--broker'"),
    ],
)
def test_impossible_moves_are_rejected(run, arguments, sentence):
    run(topic, "create", "refused", "--if-not-exists")
    assert sentence in run(log, "move", *arguments, exit_code=2).stderr
