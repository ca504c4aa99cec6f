"""Consumer groups: rebalance times, a restart with a million committed offsets, the cost of many members.

python bench/groups.py [rebalance|offsets|members ...] [--peer kafka] [--protocol classic|consumer]

rebalance: 10 librdkafka members of one group when the topic grows by 900 partitions, until all are owned; heartbeats
           every second, and at the defaults (3 s classic, 5 s consumer). Classic members look for new partitions every
           second (their default: five minutes); the new protocol needs no looking.
offsets:   one million committed offsets (1,000 groups of 1,000 partitions): time from the start of the process until
           every coordinator partition answers, memory before and after.
members:   2,000 members in 200 groups, each a bare connection: broker CPU and latency of heartbeats and commits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import threading
import time
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from group_load import PROTOCOLS, BareMember, Tally
from harness.output import add_output, write_result
from harness.peers import PEERS, ROOT, Server

from ottla.client.admin.cluster import Cluster

LIMIT_S = 180.0
REBALANCE_MEMBERS = 10
FIRST_PARTITIONS = 100
MORE_PARTITIONS = 900
FAST = {
    "group.consumer.heartbeat.interval.ms": 1000,
    "group.consumer.min.heartbeat.interval.ms": 1000,
}
OFFSETS_TOPIC_PARTITIONS = 50


class RebalanceMember(threading.Thread):
    """A librdkafka consumer that tracks its partitions."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        super().__init__(daemon=True)
        self.owned: set[int] = set()
        self.stopping = threading.Event()
        self._settings = settings
        self._topic = topic

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe(
            [self._topic],
            on_assign=lambda _, partitions: self.owned.update(each.partition for each in partitions),
            on_revoke=lambda _, partitions: self.owned.difference_update(each.partition for each in partitions),
        )
        while not self.stopping.is_set():
            consumer.poll(0.1)
        consumer.close()


def owned_by_all(members: list[RebalanceMember], partitions: int) -> bool:
    counts = [len(member.owned) for member in members]
    return sum(counts) == partitions and min(counts) > 0 and len(set.union(*(m.owned for m in members))) == partitions


def wait_owned(members: list[RebalanceMember], partitions: int) -> float:
    started = time.perf_counter()
    while not owned_by_all(members, partitions):
        if time.perf_counter() - started > LIMIT_S:
            raise RuntimeError(f"not balanced within {LIMIT_S:.0f} s")
        time.sleep(0.005)
    return time.perf_counter() - started


def rebalance(name: str, protocol: str, fast: bool) -> dict[str, Any]:
    """Returns the seconds from the CreatePartitions request until ten members own all partitions."""
    with PEERS[name](name, settings=dict(FAST) if fast else {}) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("grows", FIRST_PARTITIONS, 1)], request_timeout=60)["grows"].result(90)
        settings: dict[str, Any] = {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "bench",
            "group.protocol": protocol,
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
        }
        if protocol == "classic":
            settings["partition.assignment.strategy"] = "cooperative-sticky"
            if fast:
                settings["heartbeat.interval.ms"] = 1000
        members = [RebalanceMember(settings, "grows") for _ in range(REBALANCE_MEMBERS)]
        started = time.perf_counter()
        for member in members:
            member.start()
        wait_owned(members, FIRST_PARTITIONS)
        formed_s = time.perf_counter() - started
        time.sleep(3)
        cpu = server.cpu_seconds()
        total = FIRST_PARTITIONS + MORE_PARTITIONS
        started = time.perf_counter()
        admin.create_partitions([NewPartitions("grows", total)], request_timeout=60)["grows"].result(90)
        created_s = time.perf_counter() - started
        wait_owned(members, total)
        grown_s = time.perf_counter() - started
        cpu = server.cpu_seconds() - cpu
        for member in members:
            member.stopping.set()
        for member in members:
            member.join(30)
    return {
        "bench": "rebalance",
        "server": name,
        "protocol": protocol,
        "heartbeats": "1 s" if fast else "default",
        "ten_members_formed_s": round(formed_s, 2),
        "partitions_created_s": round(created_s, 2),
        "plus_900_partitions_s": round(grown_s, 2),
        "broker_cpu_s": round(cpu, 2),
    }


def offsets(name: str, groups: int, partitions: int) -> dict[str, Any]:
    """Measure a restart with groups x partitions committed offsets."""
    with PEERS[name](name) as server:
        with Cluster(server.bootstrap_servers, timeout_s=120) as cluster:
            cluster.topics.create("committed", partitions)
            cluster.groups.commit_offsets("warm", {("committed", 0): 1})
            empty_mb = server.memory_mb()
            started, cpu = time.perf_counter(), server.cpu_seconds()
            for number in range(groups):
                values = {("committed", each): number + each for each in range(partitions)}
                cluster.groups.commit_offsets(f"group-{number}", values)
            commit_s, commit_cpu_s = time.perf_counter() - started, server.cpu_seconds() - cpu
        full_mb = server.memory_mb()
        bytes_on_disk = sum(path.stat().st_size for path in server.home.glob("data/__consumer_offsets-*/*.log"))
        process_started = server.restart()
        with Cluster(server.bootstrap_servers, timeout_s=120) as cluster:
            cluster.describe()
            answered_s = time.perf_counter() - process_started
            for number in range(min(groups, 4 * OFFSETS_TOPIC_PARTITIONS)):
                found = cluster.groups.offsets(f"group-{number}")
                if len(found) != partitions or found["committed", partitions - 1].offset != number + partitions - 1:
                    raise RuntimeError(f"group-{number} came back with {len(found)} offsets")
                if number + 1 == OFFSETS_TOPIC_PARTITIONS:
                    loaded_s = time.perf_counter() - process_started
        loaded_cpu_s, loaded_mb, peak_mb = server.cpu_seconds(), server.memory_mb(), server.peak_memory_mb()
    return {
        "bench": "offsets",
        "server": name,
        "offsets": groups * partitions,
        "commit_s": round(commit_s, 1),
        "commit_broker_cpu_s": round(commit_cpu_s, 1),
        "log_mb": round(bytes_on_disk / 1e6, 1),
        "first_answer_s": round(answered_s, 2),
        "fifty_groups_read_s": round(loaded_s, 2),
        "broker_cpu_s_until_then": round(loaded_cpu_s, 2),
        "memory_empty_mb": round(empty_mb, 1),
        "memory_after_commits_mb": round(full_mb, 1),
        "memory_after_load_mb": round(loaded_mb, 1),
        "memory_peak_of_load_mb": round(peak_mb, 1),
    }


def quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50_ms": round(statistics.median(ordered), 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)], 2),
        "max_ms": round(ordered[-1], 1),
    }


async def drive(server: Server, protocol: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Join all members, then measure for a while."""
    tally = Tally()
    per_group = arguments.members // arguments.groups
    intervals = (arguments.heartbeat_s, arguments.commit_s)
    members: list[BareMember] = [
        PROTOCOLS[protocol](server.port, f"group-{group}", number, "load", intervals, tally)
        for group in range(arguments.groups)
        for number in range(per_group)
    ]
    started = time.perf_counter()
    tasks = []
    for member in members:
        tasks.append(asyncio.create_task(member.run()))
        if len(tasks) % 50 == 0:
            await asyncio.sleep(0.02)
    async with asyncio.timeout(LIMIT_S):
        for member in members:
            await member.joined.wait()
    joined_s = time.perf_counter() - started
    await asyncio.sleep(max(arguments.heartbeat_s, arguments.commit_s))
    cpu, measured, rejoins = server.cpu_seconds(), time.perf_counter(), tally.rejoins
    tally.counting = True
    await asyncio.sleep(arguments.seconds)
    tally.counting = False
    seconds = time.perf_counter() - measured
    cpu = server.cpu_seconds() - cpu
    failed = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if failed:
        raise RuntimeError(f"{len(failed)} members ended: {failed[0]}")
    requests = len(tally.heartbeat_ms) + len(tally.commit_ms)
    return {
        "heartbeat_interval_s": arguments.heartbeat_s,
        "commit_interval_s": arguments.commit_s,
        "all_joined_s": round(joined_s, 1),
        "requests_per_s": round(requests / seconds),
        "broker_cpu_percent": round(100 * cpu / seconds, 1),
        "broker_cpu_us_per_request": round(1e6 * cpu / max(1, requests), 1),
        "heartbeat": quantiles(tally.heartbeat_ms),
        "commit": quantiles(tally.commit_ms),
        "errors": tally.errors,
        "rejoins_while_measured": tally.rejoins - rejoins,
        "memory_mb": round(server.memory_mb(), 1),
    }


def members(name: str, protocol: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure many members that only send heartbeats and commits."""
    settings: dict[str, object] = {"group.initial.rebalance.delay.ms": 3000}
    with PEERS[name](name, settings=settings) as server:
        with Cluster(server.bootstrap_servers) as cluster:
            cluster.topics.create("load", arguments.members // arguments.groups)
            cluster.groups.commit_offsets("warm", {("load", 0): 1})  # looks for a coordinator, which creates the topic
        measured = asyncio.run(drive(server, protocol, arguments))
    shape = {"members": arguments.members, "groups": arguments.groups}
    return {"bench": "members", "server": name, "protocol": protocol, **shape, **measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", metavar="rebalance|offsets|members", help="default: all of them")
    parser.add_argument("--peer", choices=[name for name in PEERS if name != "ottla"])
    parser.add_argument("--only-peer", action="store_true", help="leave Ottla out")
    parser.add_argument("--protocol", choices=list(PROTOCOLS), help="default: both")
    parser.add_argument("--members", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--heartbeat-s", type=float, default=3.0)
    parser.add_argument("--commit-s", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--offset-groups", type=int, default=1000)
    parser.add_argument("--offset-partitions", type=int, default=1000)
    add_output(parser, "groups")
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, arguments.members + 500)), hard))
    names = [*([] if arguments.only_peer else ["ottla"]), *([arguments.peer] if arguments.peer else [])]
    protocols = [arguments.protocol] if arguments.protocol else list(PROTOCOLS)
    wanted = arguments.benches or ["rebalance", "offsets", "members"]
    rows: list[dict[str, Any]] = []

    def report(row: dict[str, Any]) -> None:
        rows.append(row)
        print(json.dumps(row), flush=True)

    for name in names:
        for bench in wanted:
            if bench == "offsets":
                report(offsets(name, arguments.offset_groups, arguments.offset_partitions))
                continue
            for protocol in protocols:
                if bench == "members":
                    report(members(name, protocol, arguments))
                else:
                    for fast in (True, False):
                        report(rebalance(name, protocol, fast))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    machine = {"platform": platform.platform(), "cpus": os.cpu_count(), "commit": commit}
    write_result(arguments.output, {"machine": machine, "results": rows})
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
