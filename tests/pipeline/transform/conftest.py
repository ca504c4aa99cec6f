"""Loads step by step, as `load` runs them but without Spark, into tables of a real format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.pipeline.transform.value_format import ValueFormat

from ottla.record.builder import RecordData, build_batch

from ..memory_cluster import MemoryCluster
from .registry_server import RegistryServer, registry_server


class Lake:
    """A cluster with the topic `clicks` of one partition, and a table."""

    def __init__(self, path: Path, partition_by: Sequence[str] = (), table_format: str = "delta") -> None:
        from ottla.pipeline.sinks.open_table import open_table

        self.cluster = MemoryCluster()
        self.cluster.create("clicks", 1)
        self.table: Any = open_table(path, format=table_format, partition_by=partition_by)

    def produce(self, *values: bytes | None) -> None:
        self.cluster.partitions["clicks", 0].append_values(list(values))  # type: ignore[arg-type]

    def produce_with(self, *records: tuple[bytes | None, Sequence[tuple[str, bytes | None]]]) -> None:
        """Values, each with its headers."""
        log = self.cluster.partitions["clicks", 0]
        made = [RecordData(1_700_000_000_000, b"key", value, headers) for value, headers in records]
        log.append(build_batch(made, base_offset=log.end))

    def load(self, value_format: ValueFormat | None) -> list[Any]:
        """One load; returns its manifest rows."""
        from ottla.pipeline import load as loading
        from ottla.pipeline.land import LandSettings, land_task
        from ottla.pipeline.plan import PlanSettings, make_plan
        from ottla.pipeline.sinks.writer import new_load_id
        from ottla.pipeline.transform.target_schema import settle

        letters = self.table.dead_letters()
        plan = make_plan(self.cluster, self.table, ["clicks"], PlanSettings(), letters)
        decoder = settle(value_format, self.table, self.cluster, plan.ranges, plan.isolation) if value_format else None
        settings = LandSettings(
            self.cluster.open,
            self.table.ensure(loading.rows_schema(self.table, decoder)),
            letters.layout(),
            new_load_id(),
            letters_held=plan.letters.held,
            record_decoder=decoder,
        )
        rows = [land_task(number, task, settings) for number, task in enumerate(plan.tasks)]
        if not any(row.error for row in rows):
            loading._commit(plan, self.table, rows, settings)
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """All rows by a reader that is not ours, by offset, without the columns of Kafka but for the offset."""
        return self._read(self.table)

    def letters(self) -> dict[int, str]:
        """Offset -> reason."""
        import pyarrow.parquet as pq

        table = self.table.dead_letters()
        found = pq.read_table(table.files()).to_pylist() if table.exists() else []
        return {row["offset"]: row["reason"] for row in sorted(found, key=lambda row: row["offset"])}

    def _read(self, table: Any) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        from ottla.pipeline.decode import SCHEMA

        dropped = set(SCHEMA.names) - {"offset"}
        found = DeltaTable(table.location).to_pyarrow_table().sort_by("offset").to_pylist()
        return [{name: value for name, value in row.items() if name not in dropped} for row in found]


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
