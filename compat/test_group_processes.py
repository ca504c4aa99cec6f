"""Parsing of the output of clients in other processes, with recorded output."""

from __future__ import annotations

import time

import pytest
from group_history import History
from group_processes import ConsoleMember, KafkaJsMember

PREFIX = "INFO org.apache.kafka.clients.consumer.internals"
ABOUT = "[Consumer clientId=c, groupId=g]"


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def console(history: History) -> ConsoleMember:
    return ConsoleMember("c", [], history)


def logged(text: str, *, second: int = 1) -> str:
    return f"2026-11-21T14:00:{second:02}.123 [thread] {PREFIX}.{text}\n"


def test_records_and_rebalances_of_the_classic_consumer(console: ConsoleMember, history: History) -> None:
    console.understand(
        logged(f"ConsumerRebalanceListenerInvoker - {ABOUT} Adding newly assigned partitions: [a-topic-0, a-topic-11]")
    )
    assert history.owned() == {"c": {0, 11}}
    console.understand("Partition:11\tOffset:0\t123\n")
    console.understand(
        logged(f"ConsumerRebalanceListenerInvoker - {ABOUT} Revoke previously assigned partitions [a-topic-11]")
    )
    assert history.owned() == {"c": {0}}
    console.understand("Partition:11\tOffset:1\t124\n")
    assert history.violations({0: 0}) == ["c read 11@1 without owning it"]


def test_record_interrupted_by_a_log_line(console: ConsoleMember, history: History) -> None:
    history.assigned("c", [1])
    console.understand("Partition:1\t" + logged("Metadata - news"))
    console.understand("Offset:0" + logged("Metadata - more news"))
    console.understand("\t55\n")
    console.understand("Partition:1\tOffset:1\t56\n")
    assert history.read_ends() == {1: 2}
    assert history.violations({1: 2}) == []


def test_new_consumer_changes_count_once_acknowledged(console: ConsoleMember, history: History) -> None:
    history.assigned("c", [2, 3])
    console.understand(logged(f"ConsumerMembershipManager - {ABOUT} Reconciling assignment with local epoch 1"))
    console.understand("\tMember:                                    0-GG9GJATn6BDoDxzI90hw\n")
    console.understand("\tAdded partitions (assigned - owned):       [a-topic-7]\n")
    console.understand("\tRevoked partitions (owned - assigned):     [a-topic-2, a-topic-3]\n")
    assert history.owned() == {"c": {2, 3}}
    console.understand(
        logged(f"ConsumerMembershipManager - {ABOUT} Member m transitioned from RECONCILING to ACKNOWLEDGING.")
    )
    assert history.owned() == {"c": {7}}


def test_errors_are_kept_unless_they_are_expected(console: ConsoleMember) -> None:
    lost = "org.apache.kafka.common.errors.DisconnectException\n"
    console.understand(lost)
    console.tolerated += ("DisconnectException",)
    console.understand(lost)
    console.understand("\tat org.apache.kafka.clients.Some.completeExceptionally(Some.java:1)\n")
    failed = logged("ConsumerMembershipManager - Reconciliation failed.").replace("INFO", "ERROR")
    console.understand(failed)
    console.understand("java.util.CompletionException: could not be completed before the consumer closed\n")
    console.understand(logged("Fetcher - tries again").replace("INFO", "WARN"))
    console.understand("org.apache.kafka.common.errors.CoordinatorLoadInProgressException: loading\n")
    other = logged("Fetcher - broken").replace("INFO", "ERROR")
    console.understand(other)
    assert console.errors == [lost, other]


def test_events_of_kafkajs(history: History, tmp_path) -> None:
    member = KafkaJsMember("k", tmp_path, "servers", "topic", "group", history)
    now = time.time_ns() // 1_000_000
    member.understand(f'{{"at": {now}, "assigned": [0, 1]}}\n')
    member.understand(f'{{"at": {now}, "partition": 1, "offset": 0}}\n')
    member.understand(f'{{"at": {now}, "revoked": [0, 1]}}\n')
    member.understand('{"level": "ERROR", "message": "broken"}\n')
    assert history.owned() == {}
    assert history.violations({1: 1}) == []
    assert member.errors == ['{"level": "ERROR", "message": "broken"}\n']
    member.tolerated = ("No broker available",)
    member.understand(f'{{"at": {now}, "assigned": [0]}}\n')
    crash = '"timestamp": "2026-11-21T15:06:43.426Z", "message": "[Consumer] Crash: No broker available"'
    member.understand(f'{{"level": "ERROR", {crash}}}\n')
    assert history.owned() == {}
    assert len(member.errors) == 1
