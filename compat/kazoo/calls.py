"""Runs a script of calls against a real ZooKeeper by kazoo; runs in an environment of its own (requirements.txt).

Standard input is an object of JSON: `server`, and `script`, a list of steps, which are
`{"session": N, "watch": [kind, path] | null, "operations": [[name, path, ...]]}` or `{"session": N, "close": true}`.
Sessions are made as they come. Standard output is a list of what each step came to: `outcome`, the paths or the error
and its position, `tree`, and `events` by session.
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
    """One client, and what its watches told."""

    def __init__(self, server: str) -> None:
        self.client = KazooClient(server, timeout=30.0)
        self.client.start()
        self.events: list[list[str]] = []

    def tell(self, event: Any) -> None:
        """A server tells once that a znode went; kazoo tells both who watched its data and who watched its children."""
        told = [EVENTS[event.type], event.path]
        if event.type != "DELETED" or self.events[-1:] != [told]:
            self.events.append(told)

    def heard(self) -> list[list[str]]:
        """All that was told before now: a read comes behind it, and then the queue of callbacks has its end here."""
        self.client.exists("/")
        done = threading.Event()
        self.client.handler.callback_queue.put(done.set)
        done.wait(30)
        events, self.events = self.events, []
        return events

    def watch(self, kind: str, path: str) -> None:
        try:
            if kind == "children":
                self.client.get_children(path, watch=self.tell)
            else:
                self.client.exists(path, watch=self.tell)
        except KazooException:
            pass

    def run(self, operations: list[list[Any]]) -> list[Any]:
        """The paths that came to be, or the error and which operation it was."""
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
    """Data, version, session of an ephemeral znode, changes and number of children, of all below `path`."""
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
    told = []
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
        events = {each: session.heard() for each, session in sessions.items()}
        told.append({"outcome": outcome, "tree": tree(reader.client, sessions), "events": events})
    for session in [reader, *sessions.values()]:
        session.client.stop()
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
