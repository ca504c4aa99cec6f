"""Opening of tables: the format is detected from the directory, and chosen when the table is created."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ottla.common.errors import OperatorError
from ottla.common.extras import require_packages
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.sinks.table import Table
from ottla.pipeline.stores.locations import is_url
from ottla.pipeline.stores.open_store import open_store
from ottla.pipeline.stores.store import Store

DEFAULT_FORMAT = "delta"
STORE_MANUAL = "docs/guides/pipeline-object-stores.md"
_MARKS = {"_delta_log": "delta", "catalog.db": "iceberg", "_ottla_log": "parquet"}
"""Entry in the directory of a table, by format."""


def found_format(store: Store) -> str | None:
    """The format of the table at a place; None when there is none. Raises OperatorError when the store can't be
    read."""
    try:
        return next((name for mark, name in _MARKS.items() if store.holds(mark)), None)
    except OSError as error:
        way = (
            f"; {STORE_MANUAL} lists the environment variables for endpoint and credentials" if store.is_remote else ""
        )
        raise OperatorError(f"the table {store.location} can't be looked up: {os_reason(error)}{way}") from error


def open_table(
    location: str | os.PathLike[str],
    *,
    format: str | None = None,
    partition_by: Sequence[str] = (),
    catalog_url: str | None = None,
) -> Table:
    """The table at `location`, which need not exist yet; `catalog_url` is that of a REST catalog of Iceberg.

    `format`: delta, iceberg or parquet, for a table to be created; None takes that of an existing table, else
    DEFAULT_FORMAT. `partition_by`: its partition columns; empty takes those of an existing table. Raises OperatorError
    for an existing table of another format or with other partition columns, and if the extra of the format is missing.
    """
    found = "iceberg" if catalog_url is not None else found_format(open_store(location))
    if format is not None and found is not None and format != found:
        what = "a catalog contains Iceberg tables" if catalog_url is not None else f"{location} is a table of {found}"
        raise OperatorError(f"{what}, not of {format}; leave --format out or choose another place")
    table = _table_of(found or format or DEFAULT_FORMAT, location, partition_by, catalog_url)
    if partition_by and (columns := table.layout().partition_columns) != tuple(partition_by):
        held = f"partitioned by {', '.join(columns)}" if columns else "not partitioned"
        raise OperatorError(
            f"the table {table.location} was created {held}, and can't be changed to {', '.join(partition_by)}; leave "
            "--partition-by out, or choose another place"
        )
    return table


def _table_of(
    kind: str, location: str | os.PathLike[str], partition_by: Sequence[str], catalog_url: str | None
) -> Table:
    if kind == "iceberg" and catalog_url is None and is_url(location):
        raise OperatorError(
            f"{location} can't contain an Iceberg table without a catalog: name a REST catalog with --catalog, or use "
            "--format delta or parquet"
        )
    if kind == "iceberg":
        packages = {"pyiceberg": "pyiceberg", "sqlalchemy": "sqlalchemy"}
        require_packages("Iceberg tables need", packages, "ottla[iceberg]")
        from ottla.pipeline.sinks.iceberg import IcebergTarget

        return IcebergTarget(location, partition_by, catalog_url)
    if kind == "parquet":
        from ottla.pipeline.sinks.parquet import ParquetTarget

        return ParquetTarget(location, partition_by)
    from ottla.pipeline.sinks.delta import DeltaTarget

    return DeltaTarget(location, partition_by)
