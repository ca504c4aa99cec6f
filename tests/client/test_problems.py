"""Problems of a cluster, from what brokers answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.client.views.health import FencedBroker, fenced_brokers
from ottla.client.views.problems import cluster_problems
from ottla.client.wire.model import ClusterBroker, LogDirectory, PartitionInfo, QuorumInfo, QuorumReplicaInfo, TopicInfo
from ottla.common.kafka.ids import ZERO_UUID


def cluster(partitions: list[PartitionInfo], *, fenced: tuple[int, ...] = (), failed: str | None = None) -> Any:
    """A client of three brokers, whose topic t has these partitions and min.insync.replicas=2."""
    topic = TopicInfo("t", ZERO_UUID, is_internal=False, partitions=tuple(partitions))
    brokers = [ClusterBroker(number, "h", 9092, None, number in fenced) for number in (1, 2, 3)]
    replicas = tuple(
        QuorumReplicaInfo(number, ZERO_UUID, 10, 1_000 if number in fenced else 100_000, 0) for number in (1, 2, 3)
    )
    return SimpleNamespace(
        describe=lambda: SimpleNamespace(cluster_id="c"),
        brokers=SimpleNamespace(all=lambda: brokers, certificate_expiries=lambda: {2: 0.0}),
        topics=SimpleNamespace(all=lambda: {"t": topic}),
        quorum=SimpleNamespace(describe=lambda: QuorumInfo(1, 1, 10, replicas, ())),
        configs=SimpleNamespace(describe=lambda kind, name, keys: [SimpleNamespace(value="2")]),
        log_directories=SimpleNamespace(all=lambda: [LogDirectory(1, "/d", failed, None, None, {})]),
    )


def test_each_problem_comes_with_its_remedy() -> None:
    found = cluster_problems(
        cluster(
            [
                PartitionInfo(0, -1, 1, (3,), (3,), (3,)),
                PartitionInfo(1, 2, 1, (1, 2, 3), (2,), ()),
                PartitionInfo(2, 1, 1, (1, 2, 3), (1, 2), ()),
            ],
            fenced=(3,),
            failed="KAFKA_STORAGE_ERROR",
        )
    )
    assert [each.problem for each in found] == [
        "t-0 has no leader",
        "writes with acks=all fail: t-1 is below min.insync.replicas",
        "broker 3 does not serve (fenced), last seen 1m39s ago",
        "directory /d of broker 1 is offline (KAFKA_STORAGE_ERROR)",
        "voter 3 of the metadata quorum is gone",
        "t-1, t-2 are under-replicated",
        "the certificate of broker 2 expires on 1970-01-01",
        "1 partition has a leader that is not the preferred one",
    ]
    assert "start broker 3" in found[0].remedy
    assert "ottla cluster voters replace 3" in found[4].remedy
    assert "start broker 3; if broker 1 does not catch up" in found[5].remedy
    assert "ottla cluster elect" in found[7].remedy


def test_full_directory_is_a_problem_with_its_remedy() -> None:
    healthy = cluster([PartitionInfo(0, 1, 1, (1, 2, 3), (1, 2, 3), ())])
    healthy.brokers.certificate_expiries = dict
    for usable, problems in ((0, ["directory /d of broker 1 is full, and writes to it fail"]), (1 << 20, [])):
        directory = LogDirectory(1, "/d", None, 1 << 30, usable, {})
        healthy.log_directories.all = lambda directory=directory: [directory]
        assert [each.problem for each in cluster_problems(healthy)] == problems


def test_healthy_cluster_has_only_expiring_certificates() -> None:
    healthy = cluster([PartitionInfo(0, 1, 1, (1, 2, 3), (1, 2, 3), ())])
    healthy.brokers.certificate_expiries = dict
    assert cluster_problems(healthy) == []


def test_last_fetch_of_a_broker_is_unknown_if_its_leader_does_not_name_it() -> None:
    def seen(*replicas: QuorumReplicaInfo, observers: tuple[QuorumReplicaInfo, ...] = ()) -> FencedBroker:
        (found,) = fenced_brokers([3], QuorumInfo(1, 1, 10, replicas, observers))
        return found

    leader, silent = (QuorumReplicaInfo(1, ZERO_UUID, 10, 9_000, 0), QuorumReplicaInfo(3, ZERO_UUID, -1, -1, -1))
    old_server = QuorumReplicaInfo(1, ZERO_UUID, 10, -1, -1)
    for unknown in (seen(leader), seen(leader, silent), seen(old_server, silent), *fenced_brokers([3], None)):
        assert (unknown.last_seen_ms, unknown.ago_ms, unknown.age_text) == (None, None, "unknown")
    known = seen(leader, observers=(QuorumReplicaInfo(3, ZERO_UUID, 5, 4_000, 0),))
    assert (known.last_seen_ms, known.age_text) == (4_000, "5s ago")
