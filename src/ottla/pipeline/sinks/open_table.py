"""Which format a table has: found by what lies in its directory, chosen when it is made."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ottla.common.errors import OperatorError
from ottla.pipeline.model.extras import require_packages
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.sinks.table import Table
from ottla.pipeline.stores.object_store import is_url
from ottla.pipeline.stores.open_store import open_store
from ottla.pipeline.stores.store import Store

DEFAULT_FORMAT = "delta"
STORE_MANUAL = "docs/guides/pipeline-object-stores.md"
_MARKS = {"_delta_log": "delta", "catalog.db": "iceberg", "_ottla_log": "parquet"}
"""What a table of each format has in its directory."""


def found_format(store: Store) -> str | None:
    """The format of the table at a place; None when there is none. Raises OperatorError when that can't be told."""
    try:
        return next((name for mark, name in _MARKS.items() if store.holds(mark)), None)
    except OSError as error:
        way = f"; {STORE_MANUAL} says by which variables a store is found, and who asks it" if store.is_remote else ""
        raise OperatorError(f"the table {store.location} can't be looked up: {os_reason(error)}{way}") from error


def open_table(
    location: str | os.PathLike[str],
    *,
    format: str | None = None,
    partition_by: Sequence[str] = (),
    catalog_url: str | None = None,
) -> Table:
    """The table at `location`, which need not exist yet; `catalog_url` is that of a REST catalog of Iceberg.

    `format`: delta, iceberg or parquet, for a table that is made; None takes what is there, else DEFAULT_FORMAT.
    `partition_by`: its partition columns; none takes those that are there. Raises OperatorError when another format is
    there or other columns are, or the extra of the format is missing.
    """
    found = "iceberg" if catalog_url is not None else found_format(open_store(location))
    if format is not None and found is not None and format != found:
        what = "a catalog holds Iceberg tables" if catalog_url is not None else f"{location} holds a table of {found}"
        raise OperatorError(f"{what}, not of {format}; leave --format away or choose another place")
    table = _table_of(found or format or DEFAULT_FORMAT, location, partition_by, catalog_url)
    if partition_by and (columns := table.layout().partition_columns) != tuple(partition_by):
        held = f"partitioned by {', '.join(columns)}" if columns else "not partitioned"
        raise OperatorError(
            f"the table {table.location} is {held} since it was made, and can't be by {', '.join(partition_by)}; leave "
            "--partition-by away, or choose another place"
        )
    return table


def _table_of(
    kind: str, location: str | os.PathLike[str], partition_by: Sequence[str], catalog_url: str | None
) -> Table:
    if kind == "iceberg" and catalog_url is None and is_url(location):
        raise OperatorError(
            f"{location} can't hold an Iceberg table, whose catalog can't be a file in an object store: name a REST "
            "catalog by --catalog, or take --format delta or parquet"
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
