"""A group with only kafkajs members: two members share, one leaves; the admin client describes, resets, deletes."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from group_history import History
from group_members import produce_evenly
from group_processes import KafkaJsMember

from ottla.testing import Broker

PARTITIONS = 4
WAIT_S = 60.0


def wait_until(history: History, ends: dict[int, int]) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(history.read_ends().get(partition, 0) < end for partition, end in ends.items()):
        assert time.monotonic() < deadline, (history.read_ends(), ends)
        time.sleep(0.05)


def test_group_of_kafkajs(kafkajs: Path, group_broker: Broker) -> None:
    servers = group_broker.bootstrap_servers
    name = f"kafkajs-group-{time.time_ns() // 1_000_000}"
    history = History()
    ends = produce_evenly(servers, name, PARTITIONS, 200)
    members = [KafkaJsMember(f"kafkajs-{number}", kafkajs, servers, name, name, history) for number in range(2)]
    try:
        for member in members:
            member.start()
        wait_until(history, ends)
        members[0].stop()
        ends = produce_evenly(servers, name, PARTITIONS, 200, already=ends)
        wait_until(history, ends)
        members[1].stop()
    finally:
        for member in members:
            member.kill()
    assert history.violations(ends, commits_known=False) == []
    result = subprocess.run(
        ["node", "client.mjs", "groups", servers, name, name],
        cwd=kafkajs,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    listed, described, offsets, reset, deleted = [json.loads(line) for line in result.stdout.splitlines()]
    assert {"groupId": name, "protocolType": "consumer"} in listed["groups"]
    assert (described["groups"][0]["state"], described["groups"][0]["errorCode"]) == ("Empty", 0)
    assert {each["partition"]: each["offset"] for each in offsets[0]["partitions"]} == {
        partition: str(end) for partition, end in ends.items()
    }
    # kafkajs stores its sentinel for the beginning as an offset, which a broker accepts.
    assert {each["offset"] for each in reset[0]["partitions"]} == {"-2"}
    assert deleted == [{"groupId": name, "errorCode": 0}]
