"""The console at a large cluster: time and CPU of each page, and the latency of a producer beside open consoles.

python bench/console.py [pages|producer ...] [--topics 10000] [--groups 1000] [--rounds 3] [--seconds 20]

One Ottla broker has the topics with three partitions each; each group has committed offsets of 30 partitions.

pages:    every page, each time by a new session, so without cached metadata and open connections: seconds until the
          whole page has arrived, and CPU seconds of the console and of the broker. Goal: below one second; the CPU of
          console and broker together below half a second.
producer: 500 records a second of 100 bytes to one partition, acks=1, without linger: p50 and p99 until acknowledged,
          alone and beside ten open consoles and five live tails of its topic, in alternation. A console asks for the
          lag of a group every three seconds, as its script does, and loads another page every ten. Goal: p99 at most
          10 % worse.

Exit code 1 if a page is above a goal. Figures of a busy machine are those of CPU only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from confluent_kafka.admin import AdminClient, NewTopic
from harness.load import load, missing
from harness.output import add_output, write_result
from harness.peers import PEERS, Ottla, Server
from harness.processes import usage

from ottla.client.admin.cluster import Cluster
from ottla.console.producing import produce_record
from ottla.console.route import Operation
from ottla.console.routes import ROUTES
from ottla.record.builder import RecordData

PARTITIONS = 3
TOPICS_OF_GROUP = 10
BATCH = 100
"""Topics of one request."""
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""The page of ACLs needs an authorizer."""
FIRST, LOADED, GROUP = "topic-00000", "loaded", "group-0000"
CONSOLES, TAILS = 10, 5
LAG_PAUSE_S, PAGE_PAUSE_S = 3.0, 10.0
RATE, RECORD_BYTES = 500, 100
PAGE_GOAL_S, CPU_GOAL_S = 1.0, 0.5
TIMEOUT_S = 120.0
ROWS = [f"{number:05d}" for number in range(50)]
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "flow": "/flow",
    "topic flows": "/topic-flows?" + "&".join(f"name=topic-{number}" for number in ROWS),
    "topic form": "/create-topic",
    "topic": f"/topics/{FIRST}",
    "topic flow": f"/topics/{FIRST}/flow",
    "records": f"/topics/{FIRST}/records",
    "record": f"/topics/{FIRST}/records/0/0",
    "versions": f"/topics/{FIRST}/records/0/0/versions",
    "live": f"/topics/{FIRST}/live",
    "produce form": f"/topics/{FIRST}/produce",
    "topic settings": f"/topics/{FIRST}/settings",
    "settings edit": f"/topics/{FIRST}/settings/edit?name=retention.ms",
    "settings preview": f"/topics/{FIRST}/settings/preview?name=retention.ms&operation=set&value=86400000",
    "topic groups": f"/topics/{FIRST}/groups",
    "topic manage": f"/topics/{FIRST}/manage",
    "clone preview": f"/topics/{FIRST}/clone?name=copy",
    "trim preview": f"/topics/{FIRST}/trim?before=1",
    "groups": "/groups",
    "group flows": "/group-flows?" + "&".join(f"name=group-{number[1:]}" for number in ROWS),
    "group": f"/group?id={GROUP}",
    "group flow": f"/group-flow?id={GROUP}",
    "reset preview": f"/group/reset?id={GROUP}&target=to_earliest",
    "cluster": "/cluster",
    "directory sizes": "/directory-sizes",
    "transactions": "/transactions",
    "users": "/users",
    "acls": "/acls",
    "quotas": "/quotas",
    "clients": "/clients",
    "subscription form": "/subscription",
    "subscription preview": "/subscription/preview?name=all&metrics=*",
}
"""Rows of the console's route table, and their addresses here."""
LEFT_OUT = {"value", "export", "tail", "transaction", "user removal", "acl removal", "client"}
"""Rows without a page, or without a resource here."""


def check_pages() -> None:
    """Raises RuntimeError for a page that is not measured."""
    rows = {
        row.name
        for row in ROUTES
        if row.method == "GET" and row.operation is not Operation.PUBLIC and row.setting is None
    }
    if rows != PAGES.keys() | LEFT_OUT:
        raise RuntimeError(f"bench/console.py and the route table differ: {sorted(rows ^ (PAGES.keys() | LEFT_OUT))}")


def fill(server: Server, arguments: argparse.Namespace) -> None:
    """Create the topics, a record in the first one, and the groups."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "socket.timeout.ms": 300_000, "log_level": 0})
    names = [*(f"topic-{number:05d}" for number in range(arguments.topics)), LOADED]
    for start in range(0, len(names), BATCH):
        wanted = [NewTopic(name, 1 if name == LOADED else PARTITIONS, 1) for name in names[start : start + BATCH]]
        for future in admin.create_topics(wanted, request_timeout=300).values():
            future.result(600)
    with Cluster(server.bootstrap_servers, timeout_s=120) as cluster:
        produce_record(cluster, FIRST, 0, RecordData(1, b"k", b'{"id": 1}'))
        for number in range(arguments.groups):
            first = number * TOPICS_OF_GROUP
            topics = [f"topic-{(first + each) % arguments.topics:05d}" for each in range(TOPICS_OF_GROUP)]
            offsets = {(topic, each): 0 for topic in topics for each in range(PARTITIONS)}
            cluster.groups.commit_offsets(f"group-{number:04d}", offsets)


class Console(NamedTuple):
    """A running console."""

    pid: int
    host: str
    port: int

    def get(self, path: str, cookie: str | None = None) -> tuple[bytes, str | None]:
        """The body of a page, and the cookie of a new session. Raises RuntimeError."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path, headers={} if cookie is None else {"Cookie": cookie})
            response = connection.getresponse()
            body = response.read()
            if response.status != http.client.OK:
                raise RuntimeError(f"{path}: HTTP {response.status}")
            return body, (response.getheader("Set-Cookie") or "").partition(";")[0] or cookie
        finally:
            connection.close()


@contextmanager
def console(server: Ottla) -> Iterator[Console]:
    """`ottla console` of the broker, on a free port."""
    ready, log = server.home / "console.json", server.home / "console.log"
    ready.unlink(missing_ok=True)  # of the console before
    command = [sys.executable, "-m", "ottla", "console", "-b", server.bootstrap_servers, "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready)], stdout=output, stderr=output, env=server.environment()
        )
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the console did not start: {log.read_text()[-500:]}")
            time.sleep(0.01)
        parts = urlsplit(json.loads(ready.read_text())["url"])
        yield Console(process.pid, str(parts.hostname), int(parts.port or 0))
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def pages(server: Ottla, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each page; the medians of the rounds, after one that does not count."""
    runs: dict[str, list[tuple[float, float, float, int]]] = {name: [] for name in PAGES}
    with console(server) as opened:
        for number in range(arguments.rounds + 1):
            for name, path in PAGES.items():
                before, broker = usage(opened.pid), server.usage()
                body, _ = opened.get(path)
                after, broker_after = usage(opened.pid), server.usage()
                if number:
                    used = (after - before).cpu_s, (broker_after - broker).cpu_s
                    runs[name].append((after.seconds - before.seconds, *used, len(body)))
    rows = []
    for name, found in runs.items():
        seconds, console_cpu_s, broker_cpu_s, size = (statistics.median(each) for each in zip(*found, strict=True))
        row = {"page": name, "s": round(seconds, 3), "console_cpu_s": console_cpu_s, "broker_cpu_s": broker_cpu_s}
        rows.append({**row, "bytes": int(size), "is_slow": is_slow(seconds, console_cpu_s + broker_cpu_s)})
    return rows


def is_slow(seconds: float, cpu_s: float) -> bool:
    """True if a page is above a goal."""
    return seconds > PAGE_GOAL_S or cpu_s > CPU_GOAL_S


class Visitor(threading.Thread):
    """An open console: the chart of a group, and now and then another page."""

    def __init__(self, opened: Console, number: int, stopped: threading.Event) -> None:
        super().__init__(daemon=True)
        self._console = opened
        self._number = number
        self._stopped = stopped
        self.requests = 0

    def run(self) -> None:
        _, cookie = self._console.get("/")
        chosen = [
            path
            for name, path in PAGES.items()
            if name not in ("flow", "topic flow", "topic flows", "group flows", "group flow")
        ]
        page_at_s = time.monotonic() + PAGE_PAUSE_S * self._number / CONSOLES
        while not self._stopped.wait(LAG_PAUSE_S):
            self._console.get(PAGES["group flow"], cookie)
            self.requests += 1
            if time.monotonic() >= page_at_s:
                page_at_s += PAGE_PAUSE_S
                self._console.get(chosen[(self._number + self.requests) % len(chosen)], cookie)


class Tail(threading.Thread):
    """A live tail; `events` counts its events."""

    def __init__(self, opened: Console, stopped: threading.Event) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection(opened.host, opened.port, timeout=TIMEOUT_S)
        self._stopped = stopped
        self.events = 0

    def run(self) -> None:
        self._connection.request("GET", f"/topics/{LOADED}/tail")
        response = self._connection.getresponse()
        while not self._stopped.is_set() and (line := response.readline()):
            self.events += line.startswith(b"event: records")
        self._connection.close()


@contextmanager
def visited(server: Ottla) -> Iterator[None]:
    """Ten open consoles and five live tails. Raises RuntimeError if one did nothing."""
    stopped = threading.Event()
    with console(server) as opened:
        visitors = [Visitor(opened, number, stopped) for number in range(CONSOLES)]
        tails = [Tail(opened, stopped) for _ in range(TAILS)]
        for thread in (*visitors, *tails):
            thread.start()
        try:
            yield
        finally:
            stopped.set()
            for thread in (*visitors, *tails):
                thread.join(TIMEOUT_S)
    if not all(each.requests for each in visitors) or not all(each.events for each in tails):
        raise RuntimeError("a console or a live tail did nothing: measure for longer with --seconds")


def producer(server: Ottla, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Two rows in each round: without and with consoles."""
    rows = []
    for number in range(arguments.rounds):
        for consoles in (0, CONSOLES):
            with ExitStack() as stack:
                if consoles:
                    stack.enter_context(visited(server))
                loaded = load(
                    "latency",
                    server,
                    {"producer.linger.ms": 0, "producer.acks": "1"},
                    topic=LOADED,
                    rate=RATE,
                    partitions=1,
                    size=RECORD_BYTES,
                    warm_up_s=arguments.warm_up_s,
                    seconds=arguments.seconds,
                )
            quantiles = {float(name): 1000 * seconds for name, seconds in loaded.counts["ack"].items()}
            row = {"producer": "beside consoles" if consoles else "alone", "round": number}
            figures = {"p50_ms": round(quantiles[0.5], 3), "p99_ms": round(quantiles[0.99], 3)}
            rows.append({**row, **figures, "broker_cpu_s": round(loaded.used.cpu_s, 2)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def p99_ratio(rows: Sequence[dict[str, Any]]) -> float:
    """Median over the rounds of the p99 beside consoles by that alone."""
    found = {(row["producer"], row["round"]): row["p99_ms"] for row in rows}
    rounds = sorted({row["round"] for row in rows})
    return float(statistics.median(found["beside consoles", each] / found["alone", each] for each in rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", metavar="pages|producer", help="default: both")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm-up-s", type=float, default=4.0)
    add_output(parser, "console")
    arguments = parser.parse_args()
    if unknown := set(arguments.benches) - {"pages", "producer"}:
        parser.error(f"{', '.join(sorted(unknown))} is not one of pages, producer")
    if arguments.topics < len(ROWS) or arguments.groups < len(ROWS):
        parser.error(f"--topics and --groups are at least {len(ROWS)}")
    check_pages()
    wanted = arguments.benches or ["pages", "producer"]
    if "producer" in wanted and missing():
        print(f"SKIPPED: producer: {missing()}", file=sys.stderr)
        wanted.remove("producer")
    result: dict[str, Any] = {"topics": arguments.topics, "groups": arguments.groups, "cpus": os.cpu_count()}
    slow: list[str] = []
    with PEERS["ottla"]("ottla", settings=dict(SETTINGS)) as server:
        assert isinstance(server, Ottla)
        before = server.usage()
        fill(server, arguments)
        result["filled"] = {"s": round((server.usage() - before).seconds, 1), "memory_mb": round(server.memory_mb())}
        print(json.dumps(result), flush=True)
        if "pages" in wanted:
            result["pages"] = pages(server, arguments)
            for row in result["pages"]:
                print(json.dumps(row), flush=True)
            slow = [row["page"] for row in result["pages"] if row["is_slow"]]
        if "producer" in wanted:
            result["producer"] = producer(server, arguments)
            result["p99_ratio"] = round(p99_ratio(result["producer"]), 2)
            print(f"p99 beside {CONSOLES} consoles and {TAILS} live tails, by that alone: {result['p99_ratio']}")
    write_result(arguments.output, result)
    print(f"written to {arguments.output}")
    if slow:
        sys.exit(f"above a goal: {', '.join(slow)}")


if __name__ == "__main__":
    main()
