"""The formats that tables have, by the names of `--format`; apart, so that commands can tell them without Arrow."""

from __future__ import annotations

TABLE_FORMATS = ("delta", "iceberg", "parquet")
