"""Names of the engines for `--engine`; in a module of their own, so that commands need not import an engine."""

from __future__ import annotations

SPARK = "spark"
DUCKDB = "duckdb"
ENGINES = (SPARK, DUCKDB)
"""Engines of a query."""
AUTO = "auto"
LOCAL = "local"
LOAD_ENGINES = (AUTO, LOCAL, SPARK)
"""Engines of a load."""
