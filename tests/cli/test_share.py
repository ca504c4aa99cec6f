"""`ottla share` on a real broker."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from ottla import ShareConsumer
from ottla.cli.config import config
from ottla.cli.consume import consume
from ottla.cli.group import group
from ottla.cli.produce import produce
from ottla.cli.share import share
from ottla.cli.topic import topic
from ottla.client.librdkafka.producer import RecordProducer

NUMBERS = itertools.count()
CONFIGS = {"group.share.min.heartbeat.interval.ms": 200, "group.share.heartbeat.interval.ms": 200}
RECORDS = 10
WAIT = ("--timeout", "20")


@pytest.fixture(scope="module", autouse=True)
def enabled(servers):
    from ottla.client.admin.cluster import Cluster
    from ottla.client.wire.model import FeatureUpdate, UpgradeType

    with Cluster(servers) as cluster:
        cluster.features.update([FeatureUpdate("share.version", 2, UpgradeType.UPGRADE)])


@pytest.fixture
def name(run) -> str:
    """A topic with records, and a share group of that name that reads them from the first one."""
    found = f"cli-share-{next(NUMBERS)}"
    run(topic, "create", found)
    run(produce, found, stdin="".join(f"{number}\n" for number in range(RECORDS)))
    run(config, "set", "group", found, "share.auto.offset.reset=earliest")
    return found


def described(run, name):
    [found] = json.loads(run(share, "describe", name, "--json").stdout)
    return found


def test_consumed_records_are_accepted_and_others_are_released(run, name):
    first = run(share, "consume", name, name, "--max", "4", *WAIT).stdout.split()
    assert first == ["0", "1", "2", "3"]
    found = described(run, name)
    assert (found["type"], found["state"], found["members"]) == ("share", "Empty", 0)
    assert found["partitions"] == [{"topic": name, "partition": 0, "start_offset": 4, "end": RECORDS, "lag": 6}]
    assert run(share, "consume", name, name, "--max", "6", *WAIT).stdout.split() == ["4", "5", "6", "7", "8", "9"]
    listed = {each["group"]: each for each in json.loads(run(share, "list", "--json").stdout)}
    assert listed[name] == {"group": name, "state": "Empty", "lag": 0}


def test_released_record_is_delivered_again_and_rejected_one_is_not(run, name):
    released = run(share, "consume", name, name, "--max", "1", "--acknowledge", "release", *WAIT).stdout
    rejected = run(share, "consume", name, name, "--max", "1", "--acknowledge", "reject", *WAIT).stdout
    assert released == rejected == "0\n"
    template = ("--format", "{partition}:{offset} {headers}{value}")
    assert run(share, "consume", name, name, "--max", "1", *template, *WAIT).stdout == "0:1 1\n"


def test_offsets_are_reset_and_deleted(run, name):
    run(share, "consume", name, name, "--max", str(RECORDS), *WAIT)
    planned = run(share, "reset-offsets", name, name, "--shift-by", "-3", "--json")
    assert json.loads(planned.stdout)["offsets"] == [
        {"topic": name, "partition": 0, "from": RECORDS, "to": RECORDS - 3}
    ]
    assert described(run, name)["partitions"][0]["start_offset"] == RECORDS
    run(share, "reset-offsets", name, "--all-topics", "--shift-by", "-3", "--execute")
    assert described(run, name)["partitions"][0]["lag"] == 3
    assert run(share, "consume", name, name, "--max", "3", *WAIT).stdout.split() == ["7", "8", "9"]
    run(share, "delete-offsets", name, name)
    assert described(run, name)["partitions"] == []
    assert run(share, "reset-offsets", name, "--all-topics", "--to-earliest", exit_code=1)
    assert run(share, "delete", name, "--yes").stdout == f"Deleted group {name}.\n"
    assert "does not exist" in run(share, "describe", name, exit_code=1).stderr


def test_groups_of_other_types_are_refused(run, name):
    run(consume, name, "--group", f"{name}-readers", "--from-beginning", "--stop-at-end")
    run(share, "consume", name, name, "--max", "1", *WAIT)
    assert "is not a share group" in run(share, "delete", f"{name}-readers", "--yes", exit_code=1).stderr
    assert "is not a consumer group" in run(group, "describe", name, exit_code=1).stderr
    described_groups = json.loads(run(group, "describe", "--all", "--json").stdout)
    assert f"{name}-readers" in {each["group"] for each in described_groups}
    assert all(each["type"] != "share" for each in described_groups)
    assert name in run(group, "list", "--type", "share").stdout


def test_members_are_shown_while_a_consumer_runs(run, servers, name):
    with ShareConsumer(servers, {"group.id": name, "client.id": "worker"}, topics=name) as consumer:
        jobs = []
        while len(jobs) < RECORDS:
            jobs += consumer.poll(20)
        [member] = json.loads(run(share, "members", name, "--json").stdout)
        assert (member["client_id"], member["assignment"], member["protocol"]) == ("worker", {name: [0]}, "share")
        assert "stop them first" in run(share, "reset-offsets", name, name, "--to-latest", exit_code=1).stderr
        assert "it has members" in run(share, "delete-offsets", name, name, exit_code=1).stderr
        consumer.release(jobs[0])
    assert run(share, "consume", name, name, "--max", "1", *WAIT).stdout == "0\n"


def test_property_of_other_consumers_is_refused(run, name):
    result = run(share, "consume", name, name, "-X", "isolation.level=read_committed", *WAIT, exit_code=1)
    assert "`isolation.level` is not applicable for share consumer" in result.stderr


# --- redrive ----------------------------------------------------------------------------------------------------------

REJECTED = "Offset rejected by client."


def letter_headers(source: str, offset: int, group_id: str, **more: str) -> list[tuple[str, bytes]]:
    """Headers of a dead letter of partition 0."""
    texts = {"topic": source, "partition": "0", "offset": str(offset), "group": group_id, "message": REJECTED, **more}
    return [(f"__dlq.errors.{name}", text.encode()) for name, text in texts.items()]


def counts(group_id: str, source: str, redrivable: int, not_redrivable: int = 0) -> dict[str, Any]:
    return {
        "group": group_id,
        "topic": source,
        "reason": REJECTED,
        "redrivable": redrivable,
        "not_redrivable": not_redrivable,
    }


def redriven(run, dead: str, *arguments: str) -> list[dict[str, Any]]:
    found = json.loads(run(share, "redrive", "--dlq", dead, "--json", *arguments).stdout)
    assert found["executed"] == ("--dry-run" not in arguments)
    return found["dead_letters"]


def committed(run, name: str, *arguments: str) -> list[str]:
    """The lines of the committed records of a topic."""
    options = ("--from-beginning", "--stop-at-end", "--isolation", "read_committed", *arguments)
    return run(consume, name, *options).stdout.splitlines()


def test_rejected_jobs_are_redriven_once(run, name):
    dead = f"dlq.{name}"
    run(topic, "create", dead, "--config", "errors.deadletterqueue.group.enable=true")
    run(config, "set", "group", name, f"errors.deadletterqueue.topic.name={dead}")
    run(share, "consume", name, name, "--max", "4", "--acknowledge", "reject", *WAIT)
    assert len(run(consume, dead, "--from-beginning", "--max", "4", *WAIT).stdout.split()) == 4
    assert redriven(run, dead, "--dry-run") == [counts(name, name, 4)]
    assert redriven(run, dead) == [counts(name, name, 4)]
    assert redriven(run, dead) == []
    assert committed(run, name, "--format", "{headers} {value}")[RECORDS:] == [
        f"ottla-redriven-from={dead}-0@{number} {number}" for number in range(4)
    ]
    assert run(share, "consume", name, name, "--max", "10", *WAIT).stdout.split() == [*"4567890123"]


def test_copies_are_redriven_where_records_are_deleted(run, servers, name):
    dead, gone = f"dlq.{name}", f"gone-{name}"
    run(topic, "create", dead)
    producer = RecordProducer(servers)
    producer.send(dead, b"first", headers=letter_headers(gone, 7, "a"))
    producer.send(dead, None, headers=letter_headers(gone, 8, "a"))
    producer.send(dead, b"not a dead letter")
    producer.send(dead, b"second", headers=letter_headers(name, 0, "b", timestamp="1"))  # of an earlier topic
    producer.send(dead, b"third", headers=letter_headers(name, 10**9, "a"))
    producer.flush()
    refused = run(share, "redrive", "--dlq", dead, exit_code=1).stderr
    assert f"topic '{gone}', which dead letter {dead}-0@0 names, does not exist" in refused
    assert redriven(run, dead, "--group", "a", "--to", name) == [counts("a", name, 1), counts("a", gone, 1, 1)]
    assert redriven(run, dead) == [counts("b", name, 1)]
    assert redriven(run, dead, "--group", "a") == redriven(run, dead, "--group", "b") == []
    assert committed(run, name)[RECORDS:] == ["first", "third", "second"]
    assert "would become dead letters again" in run(share, "redrive", "--dlq", dead, "--to", dead, exit_code=2).stderr


def test_killed_redrive_continues_without_duplicates(run, servers, name):
    dead, count = f"dlq.{name}", 500
    run(topic, "create", dead)
    producer = RecordProducer(servers)
    for number in range(count):
        producer.send(dead, str(RECORDS + number).encode(), headers=letter_headers("gone", number, "g"))
    producer.flush()
    arguments = ("share", "redrive", "--dlq", dead, "--to", name, "--rate", "50")
    before = RECORDS
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments], env={**os.environ, "OTTLA_BOOTSTRAP_SERVER": servers}
        ) as process:
            deadline = time.monotonic() + 60
            while len(committed(run, name)) <= before:
                assert time.monotonic() < deadline
                assert process.poll() is None
            process.kill()
        before = len(committed(run, name))
    [rest] = redriven(run, dead, "--to", name)
    assert 0 < rest["redrivable"] < count
    assert committed(run, name) == [str(number) for number in range(RECORDS + count)]
