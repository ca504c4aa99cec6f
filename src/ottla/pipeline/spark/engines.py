"""What runs SQL, by the names of `--engine`; apart, so that commands can tell them without Spark or DuckDB."""

from __future__ import annotations

SPARK = "spark"
DUCKDB = "duckdb"
ENGINES = (SPARK, DUCKDB)
