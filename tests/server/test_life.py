"""Start and stop: recovery, strays, background steps, gauges, a failing disk."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable

import pytest

from ottla.app.disk import RealDisk
from ottla.common.errors import ErrorCode, OperatorError
from ottla.metrics.exposition import render
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest

from .harness import Connection, Server, fetch_request, fetched, produce_request


@pytest.mark.promise("D15")
def test_topic_with_an_interrupted_deletion_is_quarantined(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t")
    client.produce("t", b"old")
    server.stop()
    data = server.directory / "data"
    shutil.copytree(data / "t-0", server.directory / "left-over")
    server.start()
    client = server.connect()
    assert client.ask(DeleteTopicsRequest(topic_names=["t"]), 5).responses[0].error_code == 0
    server.stop()
    shutil.copytree(server.directory / "left-over", data / "t-0")
    server.start()
    client = server.connect()
    strays = [name for name in os.listdir(data) if name.endswith("-stray")]
    assert len(strays) == 1
    assert strays[0].startswith("t-0.")
    client.create_topic("t")
    assert client.produce("t", b"new").base_offset == 0
    server.restart()
    assert server.connect().produce("t", b"new").base_offset == 1


def test_corrupt_topic_id_is_repaired(make_server: Callable[..., Server]) -> None:
    """The log was quarantined as stray and replaced by an empty one, a loss that is not recorded anywhere."""
    server = make_server()
    client = server.connect()
    client.create_topic("t")
    client.produce("t", b"a")
    path = server.directory / "data" / "t-0" / "partition.metadata"
    written = path.read_bytes()
    for number in range(2):
        server.stop()
        changed = bytearray(written)
        changed[written.index(b"topic_id: ") + 14] ^= 1 << number
        path.write_bytes(changed)
        server.start()
        assert path.read_bytes() == written
        assert server.connect().produce("t", b"b").base_offset == 1 + number
    assert not list((server.directory / "data").glob("*-stray"))


def test_a_directory_is_used_by_one_broker_at_a_time(server: Server) -> None:
    with pytest.raises(OperatorError, match="in use"):
        Server(server.directory)


def test_another_node_id_is_refused(make_server: Callable[..., Server]) -> None:
    server = make_server()
    server.stop()
    with pytest.raises(OperatorError, match=r"node\.id"):
        Server(server.directory, node_id="7")
    server.start()


def test_offsets_are_checkpointed_while_it_runs(make_server: Callable[..., Server]) -> None:
    server = make_server(replica_high_watermark_checkpoint_interval_ms="20")
    client = server.connect()
    client.create_topic("t")
    client.produce("t", b"a", b"b")
    path = server.directory / "data" / "replication-offset-checkpoint"
    server.run_until(lambda: path.exists() and "t 0 2" in path.read_text().splitlines())


def test_retention_notifies_readers(make_server: Callable[..., Server]) -> None:
    server = make_server(log_retention_check_interval_ms="20")
    client = server.connect()
    client.create_topic("t", retention_ms="1")
    client.produce("t", b"a", b"b")
    log = server.broker.parts.replicas.find("t", 0).log
    server.run_until(lambda: log.log_start_offset == 2)
    partition = fetched(client.ask(fetch_request(("t", 0, 0)), 12))[("t", 0)]
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_idle_producers_expire_at_their_own_interval(make_server: Callable[..., Server]) -> None:
    server = make_server(producer_id_expiration_check_interval_ms="20", producer_id_expiration_ms="1")
    client = server.connect()
    client.create_topic("t")
    client.produce("t", b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    producers = server.broker.parts.replicas.find("t", 0).log.producers
    server.run_until(lambda: not len(producers))


@pytest.mark.promise("D3")
def test_a_log_is_flushed_by_time(server: Server, client: Connection) -> None:
    client.create_topic("t", flush_ms="1")
    client.produce("t", b"a")
    log = server.broker.parts.replicas.find("t", 0).log
    server.run_until(lambda: log.recovery_point == 1)


def test_a_clean_stop_leaves_a_marker_and_all_is_trusted(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t", 3)
    for index in range(3):
        client.produce("t", b"a", partition=index)
    server.stop()
    marker = server.directory / "data" / ".kafka_cleanshutdown"
    assert marker.exists()
    server.start()
    assert not marker.exists()
    assert [p.high_watermark for p in server.broker.parts.replicas.partitions()] == [1, 1, 1]


def test_failing_disk_is_reported_and_reads_continue(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("t", 2)
    client.produce("t", b"a")
    partition = server.broker.parts.replicas.find("t", 0)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(type(partition.log.active_segment.data), "append", refuse)
        answer = client.produce("t", b"b")
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bytes(fetched(client.ask(fetch_request(("t", 0, 0)), 12))[("t", 0)].records)
    assert client.produce("t", b"b").error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_gauges_are_rendered(server: Server, client: Connection) -> None:
    client.create_topic("t", 3)
    client.produce("t", b"a")
    text = b"".join(render(server.registry)).decode()
    for line in (
        "kafka_server_replicamanager_partitioncount 3",
        "kafka_server_replicamanager_leadercount 3",
        "kafka_server_replicamanager_underreplicatedpartitions 0",
        "kafka_server_replicamanager_underminisrpartitioncount 0",
        "kafka_server_replicamanager_atminisrpartitioncount 3",
        "kafka_server_replicamanager_isrshrinks_total 0",
        'kafka_server_replicafetchermanager_maxlag{clientId="Replica"} 0',
        "kafka_controller_kafkacontroller_activecontrollercount 1",
        "kafka_controller_kafkacontroller_activebrokercount 1",
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount 0",
        "kafka_controller_controllerstats_uncleanleaderelections_total 0",
        "kafka_server_raft_metrics_current_leader 1",
        "kafka_server_raft_metrics_number_of_voters 1",
        "kafka_server_raft_metrics_is_observer 0",
        'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 1',
    ):
        assert line in text.splitlines()
    client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    text = b"".join(render(server.registry)).decode()
    assert 'topic="t"' not in text


def test_stop_waits_for_work_in_the_pool(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t", cleanup_policy="compact", flush_messages="1")
    assert not client.send(produce_request("t", b"x" * 1000, key=b"k", compression="gzip"), 9)
    server.stop()
    assert client.answer().responses[0].partition_responses[0].error_code == 0
    assert (server.directory / "data" / ".kafka_cleanshutdown").exists()
    server.start()
    assert server.broker.parts.replicas.find("t", 0).high_watermark == 1


def test_a_new_leader_epoch_is_above_that_of_the_log(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t")
    client.produce("t", b"a")
    server.stop()
    path = server.directory / "data" / "t-0" / "leader-epoch-checkpoint"
    assert path.read_text() == "0\n1\n0 0\n"
    path.write_text("0\n1\n5 0\n")
    server.start()
    partition = server.broker.parts.replicas.find("t", 0)
    assert partition.leader_epoch == 6
    assert server.connect().produce("t", b"b").base_offset == 1
    assert partition.log.leader_epoch == 6


def test_checkpoints_are_written_off_the_loop(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(log_flush_offset_checkpoint_interval_ms="1", replica_high_watermark_checkpoint_interval_ms="1")
    client = server.connect()
    write = RealDisk.write_atomic
    threads: dict[str, threading.Thread] = {}

    def noting(disk: RealDisk, path: str, data: bytes) -> None:
        write(disk, path, data)
        threads[path.rpartition("/")[2]] = threading.current_thread()

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "write_atomic", noting)
        client.create_topic("t", flush_messages="1")
        client.produce("t", b"a")
        names = {"recovery-point-offset-checkpoint", "replication-offset-checkpoint"}
        path = server.directory / "data" / "recovery-point-offset-checkpoint"
        server.run_until(lambda: names <= threads.keys() and "t 0 1" in path.read_text())
        assert not {name for name in names if threads[name] is threading.main_thread()}
