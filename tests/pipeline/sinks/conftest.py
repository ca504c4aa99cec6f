"""A table of each format, and a topic in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..memory_cluster import MemoryCluster


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
        pytest.importorskip("sqlalchemy", reason="needs the extra `iceberg`")
    return str(request.param)


@pytest.fixture
def table(kind: str, tmp_path: Path):
    from ottla.pipeline.sinks.open_table import open_table

    return open_table(tmp_path / "table", format=kind)


@pytest.fixture
def cluster() -> MemoryCluster:
    from .loads import make_cluster

    return make_cluster()
