"""A topic in memory beside a table, and a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ottla.record.builder import RecordData, build_batch

from ..memory_cluster import MemoryCluster
from .registry_server import RegistryServer, registry_server
from .topic_table import TopicTable


class Lake(TopicTable):
    """A cluster in memory with the topic `clicks` of one partition, and a table."""

    def __init__(self, path: Path, partition_by: Sequence[str] = (), table_format: str = "delta") -> None:
        self.cluster = MemoryCluster()
        self.cluster.create("clicks", 1)
        super().__init__(self.cluster.open, "clicks", path, partition_by, table_format)

    def produce(self, *values: bytes | None) -> None:
        self.cluster.partitions["clicks", 0].append_values(list(values))  # type: ignore[arg-type]

    def produce_with(self, *records: tuple[bytes | None, Sequence[tuple[str, bytes | None]]]) -> None:
        """Append values, each with its headers."""
        log = self.cluster.partitions["clicks", 0]
        made = [RecordData(1_700_000_000_000, b"key", value, headers) for value, headers in records]
        log.append(build_batch(made, base_offset=log.end))


@pytest.fixture
def make_lake(tmp_path: Path) -> Callable[..., Lake]:
    pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
    return lambda *partition_by, table_format="delta": Lake(tmp_path / "lake", partition_by, table_format)


@pytest.fixture
def lake(make_lake: Callable[..., Lake]) -> Lake:
    return make_lake()


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server
