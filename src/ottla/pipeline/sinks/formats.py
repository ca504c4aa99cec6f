"""Names of the table formats for `--format`; in a module of their own, so that commands need not import Arrow."""

from __future__ import annotations

TABLE_FORMATS = ("delta", "iceberg", "parquet")
