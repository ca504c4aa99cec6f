"""`ottla group` and `ottla consume --group` on a real broker.

OTTLA_TEST_BOOTSTRAP=host:port runs them against that broker instead: Apache Kafka judges these tests.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time

import pytest

from ottla.cli.consume import consume
from ottla.cli.group import group
from ottla.cli.produce import produce
from ottla.cli.topic import topic

NUMBERS = itertools.count(int(time.time()) % 100_000 * 100)
WAIT_S = 90.0
CONFIGS = {"group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 5000}


@pytest.fixture
def name() -> str:
    return f"cli-group-{next(NUMBERS)}"


@pytest.fixture
def filled(run, name):
    """A topic of two partitions with ten records each, the values being numbers."""
    run(topic, "create", name, "-p", "2")
    for partition in (0, 1):
        run(produce, name, "-p", str(partition), stdin="".join(f"{number}\n" for number in range(10)))
    return name


def partitions(run, group_id: str) -> dict[int, tuple[int | None, int | None, int | None]]:
    """Offset, end and lag by partition."""
    [described] = json.loads(run(group, "describe", group_id, "--json").stdout)
    return {row["partition"]: (row["offset"], row["end"], row["lag"]) for row in described["partitions"]}


def reset(run, group_id: str, *arguments: str, exit_code: int = 0) -> dict[int, tuple[int | None, int]]:
    """From and to by partition."""
    result = run(group, "reset-offsets", group_id, *arguments, "--json", exit_code=exit_code)
    return {row["partition"]: (row["from"], row["to"]) for row in json.loads(result.stdout)["offsets"]}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consuming_as_a_member(run, filled, protocol):
    """A second run resumes where the first one stopped; all commands show the group."""
    at = [filled, "--group", filled, "-X", f"group.protocol={protocol}"]
    first = run(consume, *at, "--from-beginning", "--max", "7").stdout.split()
    assert len(first) == 7
    rest = run(consume, *at, "--from-beginning", "--stop-at-end").stdout.split()
    assert sorted(first + rest) == sorted([str(number) for number in range(10)] * 2)
    assert run(consume, *at, "--stop-at-end").stdout == ""
    assert partitions(run, filled) == {0: (10, 10, 0), 1: (10, 10, 0)}
    run(produce, filled, "-p", "1", stdin="10\n11\n")
    assert partitions(run, filled) == {0: (10, 10, 0), 1: (10, 12, 2)}
    assert {e["group"]: e["lag"] for e in json.loads(run(group, "list", "--json").stdout)}[filled] == 2
    assert run(consume, *at, "--max", "2").stdout.split() == ["10", "11"]

    listed = {entry["group"]: entry for entry in json.loads(run(group, "list", "--json").stdout)}
    assert listed[filled] == {
        "group": filled,
        "type": protocol,
        "protocol_type": "consumer",
        "state": "Empty",
        "lag": 0,
    }
    assert filled in run(group, "list", "--state", "empty", "--type", protocol).stdout
    assert filled not in run(group, "list", "--state", "Stable").stdout
    state = json.loads(run(group, "state", filled, "--json").stdout)
    assert (state["state"], state["type"], state["members"]) == ("Empty", protocol, 0)
    assert "Empty" in run(group, "state", filled).stdout
    assert f"Group {filled}, {protocol}, Empty, 0 members" in run(group, "describe", filled).stdout


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member(run, servers, filled, protocol):
    """The assignment is shown, and the group cannot be changed while it has a member."""
    command = [sys.executable, "-m", "ottla", "consume", filled, "--group", filled, "--from-beginning"]
    command += ["-X", f"group.protocol={protocol}", "-b", servers]
    member = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert member.stdout is not None
        lines = [member.stdout.readline().strip() for _ in range(20)]
        assert sorted(lines) == sorted([str(number) for number in range(10)] * 2)
        deadline = time.monotonic() + WAIT_S
        while partitions(run, filled) != {0: (10, 10, 0), 1: (10, 10, 0)}:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        [described] = json.loads(run(group, "describe", filled, "--json").stdout)
        assert (described["state"], described["type"]) == ("Stable", protocol)
        assert {row["client_id"] for row in described["partitions"]} == {"ottla-cli"}
        [only] = json.loads(run(group, "members", filled, "--json").stdout)
        assert (only["client_id"], only["protocol"], only["assignment"]) == ("ottla-cli", protocol, {filled: [0, 1]})
        assert only["host"] == "127.0.0.1"
        assert f"{filled}:0,1" in run(group, "members", filled).stdout
        assert run(group, "list", "--state", "stable", "--json").stdout.count(f'"{filled}"') == 1

        refused = run(group, "reset-offsets", filled, "--all-topics", "--to-earliest", "--execute", exit_code=1)
        assert "is Stable with 1 member" in refused.stderr
        assert "still has members" in run(group, "delete", filled, exit_code=1).stderr
        refused = run(group, "delete-offsets", filled, filled, exit_code=1)
        assert "a member is subscribed to the topic" in refused.stderr
        assert partitions(run, filled) == {0: (10, 10, 0), 1: (10, 10, 0)}
        member.send_signal(signal.SIGINT)
        assert member.wait(WAIT_S) == 130
    finally:
        member.kill()
        member.wait()
    assert json.loads(run(group, "members", filled, "--json").stdout) == []
    run(group, "delete", filled)


def test_offsets_are_reset_in_every_way(run, filled):
    run(consume, filled, "--group", filled, "--from-beginning", "--stop-at-end")
    both = [filled]
    assert reset(run, filled, *both, "--to-earliest") == {0: (10, 0), 1: (10, 0)}
    assert partitions(run, filled) == {0: (10, 10, 0), 1: (10, 10, 0)}  # a dry run
    dry = run(group, "reset-offsets", filled, *both, "--to-earliest")
    assert "Dry run" in dry.stderr
    assert reset(run, filled, *both, "--to-offset", "4", "--execute") == {0: (10, 4), 1: (10, 4)}
    assert partitions(run, filled) == {0: (4, 10, 6), 1: (4, 10, 6)}
    assert reset(run, filled, f"{filled}:1", "--shift-by", "-3", "--execute") == {1: (4, 1)}
    assert reset(run, filled, "--all-topics", "--shift-by", "100") == {0: (4, 10), 1: (1, 10)}
    assert reset(run, filled, "--all-topics", "--to-offset", "99") == {0: (4, 10), 1: (1, 10)}
    assert reset(run, filled, *both, "--to-current") == {0: (4, 4), 1: (1, 1)}
    assert reset(run, filled, *both, "--to-latest") == {0: (4, 10), 1: (1, 10)}
    assert reset(run, filled, *both, "--by-duration", "1d12h") == {0: (4, 0), 1: (1, 0)}
    assert reset(run, filled, *both, "--to-datetime", "2001-01-01") == {0: (4, 0), 1: (1, 0)}
    assert reset(run, filled, *both, "--to-datetime", "2200-01-01T00:00:00Z") == {0: (4, 10), 1: (1, 10)}
    lines = run(consume, filled, "--group", filled, "--stop-at-end", "-f", r"{partition}:{offset}\n").stdout.split()
    assert sorted(lines) == sorted([f"0:{n}" for n in range(4, 10)] + [f"1:{n}" for n in range(1, 10)])

    fresh = f"{filled}-fresh"
    assert reset(run, fresh, *both, "--to-latest", "--execute") == {0: (None, 10), 1: (None, 10)}
    assert partitions(run, fresh) == {0: (10, 10, 0), 1: (10, 10, 0)}
    assert reset(run, fresh, *both, "--to-current") == {0: (10, 10), 1: (10, 10)}


def test_offsets_and_groups_are_deleted(run, filled):
    for name in (filled, f"{filled}-b"):
        run(group, "reset-offsets", name, filled, "--to-latest", "--execute")
    assert run(group, "delete-offsets", filled, f"{filled}:0").stdout.startswith("Deleted 1 offset of")
    assert partitions(run, filled) == {1: (10, 10, 0)}
    assert run(group, "delete-offsets", filled, "other").stdout.startswith("Deleted 0 offsets of")
    deleted = run(group, "delete", filled, f"{filled}-none", f"{filled}-b", exit_code=1)
    assert deleted.stdout == f"Deleted group {filled}.\nDeleted group {filled}-b.\n"
    assert deleted.stderr == f"ottla: group '{filled}-none' does not exist\n"
    run(group, "delete", filled, "--if-exists")
    assert json.loads(run(group, "delete", filled, "--if-exists", "--json").stdout) == {"deleted": []}
    assert filled not in run(group, "list").stdout


def test_a_deleted_topic_leaves_a_describable_group(run, filled):
    run(group, "reset-offsets", filled, filled, "--to-latest", "--execute")
    run(topic, "delete", filled)
    assert run(group, "describe", filled, "--json").stdout


def test_refusals_are_sentences(run, filled):
    none = f"{filled}-none"
    for command in (["describe"], ["members"], ["state"], ["delete"], ["delete-offsets", filled]):
        refused = run(group, command[0], none, *command[1:], exit_code=1)
        assert refused.stderr == f"ottla: group '{none}' does not exist\n"
    refused = run(group, "reset-offsets", none, "--all-topics", "--to-latest", exit_code=1)
    assert refused.stderr == f"ottla: group '{none}' does not exist\n"
    refused = run(group, "reset-offsets", none, f"{filled}:7", "--to-latest", exit_code=1)
    assert "has no partition 7" in refused.stderr
    refused = run(group, "reset-offsets", none, filled, "--shift-by", "1", exit_code=1)
    assert refused.stderr == f"ottla: --shift-by needs a committed offset, and {filled}-0 has none\n"
    assert "does not exist" in run(group, "reset-offsets", none, none, "--to-latest", exit_code=1).stderr
    for arguments in (
        ["describe"],
        ["describe", none, "--all"],
        ["delete-offsets", none],
        ["delete-offsets", none, "t:x"],
        ["reset-offsets", none, "--to-latest"],
        ["reset-offsets", none, filled],
        ["reset-offsets", none, filled, "--to-latest", "--to-earliest"],
        ["reset-offsets", none, filled, "--by-duration", "soon"],
        ["reset-offsets", none, filled, "--to-datetime", "soon"],
    ):
        assert "Error: " in run(group, *arguments, exit_code=2).stderr
    for arguments in (["-p", "0"], ["-o", "1"], ["-t", "1ms"]):
        assert "reset-offsets" in run(consume, filled, "--group", none, *arguments, exit_code=2).stderr
