"""The simulated ZooKeeper against a real one: equal calls yield equal results, trees and events."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

from simulation.zookeeper import SimZooKeeper
from zookeeper_tree import ZooKeeper

from ottla.protocol.znodes.operations import Check, Create, Delete, Operation, SetData
from ottla.protocol.znodes.session import EventType, ZooKeeperError

CALLS = Path(__file__).parents[1] / "kazoo" / "calls.py"
NAMES = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep")
STEPS = 300


def script(random: Random) -> list[dict[str, Any]]:
    """Returns calls of three sessions on few names, so that they conflict; occasionally a session ends."""
    steps: list[dict[str, Any]] = []
    for _ in range(STEPS):
        step: dict[str, Any] = {"session": random.randrange(3)}
        if random.random() < 0.05:
            step["close"] = True
        else:
            kind = random.choice(["children", "data", "data"])
            step["watch"] = [kind, random.choice(NAMES)] if random.random() < 0.5 else None
            step["operations"] = [operation(random) for _ in range(random.choice([1, 1, 1, 2, 3]))]
        steps.append(step)
    return steps


def operation(random: Random) -> list[Any]:
    path, version = random.choice(NAMES), random.choice([-1, -1, 0, 1])
    return random.choice(
        [
            ["create", path, random.choice("abc"), random.random() < 0.3, random.random() < 0.2],
            ["create", path, "", False, False],
            ["set", path, random.choice("abc"), version],
            ["delete", path, version],
            ["check", path, max(version, 0)],
        ]
    )


def parsed(name: str, path: str, *rest: Any) -> Operation:
    if name == "create":
        return Create(path, rest[0].encode(), ephemeral=rest[1], sequential=rest[2])
    if name == "set":
        return SetData(path, rest[0].encode(), rest[1])
    return Delete(path, rest[0]) if name == "delete" else Check(path, rest[0])


def simulated(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    server = SimZooKeeper()
    reader = server.connect(1000)
    sessions: dict[int, int] = {}
    results = []
    for step in steps:
        number = step["session"]
        if number not in sessions:
            sessions[number] = server.connect(1000)
        outcome: list[Any] = []
        if step.get("close"):
            server.close(sessions.pop(number))
        else:
            if step["watch"]:
                watch(server, sessions[number], *step["watch"])
            try:
                outcome = server.multi(sessions[number], [parsed(*each) for each in step["operations"]])
            except ZooKeeperError as error:
                outcome = [error.code.value, error.position]
        owners = {session: each for each, session in sessions.items()}
        found = {}
        for path in server.tree():
            data, stat = server.get(reader, path)
            owner = owners.get(stat.ephemeral_owner)
            found[path] = [data.decode(), stat.version, owner, stat.cversion, stat.children_count]
        events = {
            str(each): [[event.type.value, event.path] for event in server.events(session)]
            for each, session in sessions.items()
        }
        results.append({"outcome": outcome, "tree": found, "events": events})
    return results


def watch(server: SimZooKeeper, session: int, kind: str, path: str) -> None:
    try:
        if kind == "children":
            server.children(session, path, watch=True)
        else:
            server.exists(session, path, watch=True)
    except ZooKeeperError:
        pass


def test_equal_calls_have_equal_results(zookeeper_classpath: str, kazoo: Path) -> None:
    steps = script(Random(0))
    with ZooKeeper(zookeeper_classpath) as server:
        asked = json.dumps({"server": server.address, "script": steps})
        ran = subprocess.run([kazoo, CALLS], input=asked, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    for number, (step, theirs, ours) in enumerate(zip(steps, json.loads(ran.stdout), simulated(steps), strict=True)):
        assert ours == theirs, (number, step)
    outcomes = [str(each["outcome"]) for each in simulated(steps)]
    for code in ("NoNode", "NodeExists", "BadVersion", "NotEmpty", "NoChildrenForEphemerals"):
        assert any(code in outcome for outcome in outcomes), f"the script never meets {code}"
    kinds = {event[0] for each in simulated(steps) for events in each["events"].values() for event in events}
    assert kinds == {kind.value for kind in EventType if kind is not EventType.EXPIRED}
