"""Restores records of a forgotten topic as docs/operations/runbooks/stray-partitions.md describes, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.app.disk import RealDisk
from ottla.app.main import cli
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.storage.files.directories import partition_directories
from ottla.testing import Broker


def offsets(broker: Broker) -> tuple[int, int]:
    """Where partition 0 of the topic begins and ends."""
    key = ("t", 0)
    with Cluster(broker.bootstrap_servers) as cluster:
        first, end = (
            cluster.records.list_offsets({key: which})[key].offset for which in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        )
    return first, end


def create(broker: Broker) -> None:
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.topics.create("t", 1)


def restore(data: Path) -> None:
    done = CliRunner().invoke(cli, ["log", "restore", str(data), "--execute"])
    assert done.exit_code == 0, done.output


@pytest.mark.promise("D15")
def test_records_of_a_forgotten_topic_come_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data) as broker:
        create(broker)
        with Cluster(broker.bootstrap_servers) as cluster:
            produced = CliRunner().invoke(cli, ["produce", "t", "-b", broker.bootstrap_servers], input="a\nb\nc\n")
            assert produced.exit_code == 0, produced.output
            assert offsets(broker) == (0, 3)
            broker.stop()
            (data / "t-0").rename(tmp_path / "kept")
            broker.start()
            cluster.topics.delete(["t"])
            broker.stop()
        (tmp_path / "kept").rename(data / "t-0")
        broker.start()
        [stray] = data.glob("t-0.*-stray")
        broker.stop()
        restore(data)
        broker.start()  # the topic is not known: set aside again
        [stray] = data.glob("t-0.*-stray")
        create(broker)
        assert offsets(broker) == (0, 0)
        broker.stop()
        (data / "t-0").rename(tmp_path / "new")
        (stray / "partition.metadata").rename(tmp_path / "partition.metadata")
        restore(data)
        broker.start()
        assert offsets(broker) == (0, 3)
        assert partition_directories(RealDisk(), str(data)) == ["t-0"]
        broker.stop()
