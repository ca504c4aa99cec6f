"""Loads step by step, as `load` runs them but without Spark, into tables of real formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipeline.transform.value_format import ValueFormat


class TopicTable:
    """A topic of any cluster, and the table into which it is loaded."""

    def __init__(
        self,
        open_cluster: Callable[[], AbstractContextManager[Any]],
        topic: str,
        path: Path,
        partition_by: Sequence[str] = (),
        table_format: str = "delta",
    ) -> None:
        from ottla.pipeline.sinks.open_table import open_table

        self.topic = topic
        self.table: Any = open_table(path, format=table_format, partition_by=partition_by)
        self._open_cluster = open_cluster
        self._format = table_format

    def load(
        self,
        value_format: ValueFormat | None,
        before_tasks: Callable[[], None] = lambda: None,
        *,
        keeps_bad: bool = False,
    ) -> list[Any]:
        """Run one load; returns its manifest rows. `before_tasks` runs after planning, `keeps_bad` is that of
        `settle`."""
        from ottla.pipeline.load import driver as loading
        from ottla.pipeline.load.land import LandSettings, land_task
        from ottla.pipeline.model.plan import PlanSettings, make_plan
        from ottla.pipeline.sinks.writer import new_load_id
        from ottla.pipeline.transform.target_schema import settle

        letters = self.table.dead_letters()
        with self._open_cluster() as cluster:
            plan = make_plan(cluster, self.table, [self.topic], PlanSettings(), letters)
            decoder = None
            if value_format:
                decoder = settle(value_format, self.table, cluster, plan.ranges, plan.isolation, keeps_bad=keeps_bad)
        settings = LandSettings(
            self._open_cluster,
            self.table.ensure(loading.rows_schema(self.table, decoder)),
            letters.layout(),
            new_load_id(),
            letters_held=plan.letters.held,
            record_decoder=decoder,
        )
        before_tasks()
        rows = [land_task(number, task, settings) for number, task in enumerate(plan.tasks)]
        if not any(row.error for row in rows):
            loading._commit(plan, self.table, rows, settings.load_id)
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """All rows, read by another library, by offset, without Kafka's other columns."""
        from ottla.pipeline.model.decode import SCHEMA

        dropped = set(SCHEMA.names) - {"offset"}
        found = self._read().sort_by("offset").to_pylist()
        return [{name: value for name, value in row.items() if name not in dropped} for row in found]

    def letters(self) -> dict[int, str]:
        """Dead letters: offset -> reason."""
        import pyarrow.parquet as pq

        table = self.table.dead_letters()
        found = pq.read_table(table.files()).to_pylist() if table.exists() else []
        return {row["offset"]: row["reason"] for row in sorted(found, key=lambda row: row["offset"])}

    def _read(self) -> Any:
        """An Arrow table."""
        if self._format == "parquet":
            import pyarrow.dataset as ds

            return ds.dataset(self.table.files(), schema=self.table.schema(), format="parquet").to_table()
        if self._format == "iceberg":
            from pyiceberg.catalog import load_catalog

            address = f"sqlite:///{self.table.location}/catalog.db"
            return load_catalog("ottla", type="sql", uri=address).load_table("ottla.records").scan().to_arrow()
        from deltalake import DeltaTable

        return DeltaTable(self.table.location).to_pyarrow_table()
