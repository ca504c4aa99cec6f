"""Runs a script of calls against a real ZooKeeper by kazoo, in a separate environment (requirements.txt).

Standard input is a JSON object with `server` and `script`, a list of steps: `{"session": N, "watch": [kind, path] |
null, "operations": [[name, path, ...]]}` or `{"session": N, "close": true}`. A step with a new number opens a session.
Standard output is a list with the result of each step: `outcome` (the paths, or the error and its position), `tree`,
and `events` by session.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, RolledBackError

EVENTS = {
    "CREATED": "NodeCreated",
    "DELETED": "NodeDeleted",
    "CHANGED": "NodeDataChanged",
    "CHILD": "NodeChildrenChanged",
}


class Session:
    """One client and the events of its watches."""

    def __init__(self, server: str) -> None:
        self.client = KazooClient(server, timeout=30.0)
        self.client.start()
        self.events: list[list[str]] = []

    def record_event(self, event: Any) -> None:
        """Record an event, and a deletion only once: kazoo passes it to both the data watch and the child watch."""
        recorded = [EVENTS[event.type], event.path]
        if event.type != "DELETED" or self.events[-1:] != [recorded]:
            self.events.append(recorded)

    def take_events(self) -> list[list[str]]:
        """Returns all events up to now: they precede the response to a read, and the callback queue is drained."""
        self.client.exists("/")
        done = threading.Event()
        self.client.handler.callback_queue.put(done.set)
        done.wait(30)
        events, self.events = self.events, []
        return events

    def watch(self, kind: str, path: str) -> None:
        try:
            if kind == "children":
                self.client.get_children(path, watch=self.record_event)
            else:
                self.client.exists(path, watch=self.record_event)
        except KazooException:
            pass

    def run(self, operations: list[list[Any]]) -> list[Any]:
        """Returns the created paths, or the error and the position of the failed operation."""
        transaction = self.client.transaction()
        for name, path, *rest in operations:
            if name == "create":
                data, ephemeral, sequential = rest
                transaction.create(path, data.encode(), ephemeral=ephemeral, sequence=sequential)
            elif name == "set":
                transaction.set_data(path, rest[0].encode(), rest[1])
            elif name == "delete":
                transaction.delete(path, rest[0])
            else:
                transaction.check(path, rest[0])
        results = transaction.commit()
        for position, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                return [type(result).__name__.removesuffix("Error"), position]
        return [result if isinstance(result, str) else "" for result in results]


def tree(client: KazooClient, sessions: dict[int, Session], path: str = "/") -> dict[str, list[Any]]:
    """Returns data, version, ephemeral owner, change count and child count of every znode below `path`."""
    owners = {each.client.client_id[0]: number for number, each in sessions.items()}
    found: dict[str, list[Any]] = {}
    for name in client.get_children(path):
        child = f"{path.rstrip('/')}/{name}"
        if child != "/zookeeper":
            data, stat = client.get(child)
            owner = owners[stat.ephemeralOwner] if stat.ephemeralOwner else None
            found[child] = [data.decode(), stat.version, owner, stat.cversion, stat.numChildren]
            found.update(tree(client, sessions, child))
    return found


def main() -> None:
    asked = json.load(sys.stdin)
    reader = Session(asked["server"])
    sessions: dict[int, Session] = {}
    steps = []
    for step in asked["script"]:
        number = step["session"]
        if number not in sessions:
            sessions[number] = Session(asked["server"])
        outcome: list[Any] = []
        if step.get("close"):
            closed = sessions.pop(number)
            closed.client.stop()
            closed.client.close()
        else:
            if step["watch"]:
                sessions[number].watch(*step["watch"])
            outcome = sessions[number].run(step["operations"])
        events = {each: session.take_events() for each, session in sessions.items()}
        steps.append({"outcome": outcome, "tree": tree(reader.client, sessions), "events": events})
    for session in [reader, *sessions.values()]:
        session.client.stop()
    json.dump(steps, sys.stdout)


if __name__ == "__main__":
    main()
