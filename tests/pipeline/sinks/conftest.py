"""A table of each format, and a topic in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..forks import Forks
from ..memory_cluster import MemoryCluster
from ..s3_server import BUCKET

if TYPE_CHECKING:
    from ottla.pipeline.sinks.table import Table


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


@pytest.fixture(
    params=["delta-disk", "iceberg-disk", "parquet-disk", "delta-s3", "parquet-s3"],
)
def placed_table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table of each format, in each kind of store that supports it."""
    from ottla.pipeline.sinks.open_table import open_table

    kind, _, place = request.param.partition("-")
    if kind == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    if place == "s3":
        request.getfixturevalue("s3_server")
        return open_table(f"s3://{BUCKET}/{tmp_path.name}/table", format=kind)
    return open_table(tmp_path / "table", format=kind)


@pytest.fixture(scope="session")
def committer() -> Iterator[Forks]:
    """`committer.py`, with a forked process for each of its commits."""
    forks = Forks(Path(__file__).with_name("committer.py"))
    yield forks
    forks.close()


@pytest.fixture
def cluster() -> MemoryCluster:
    from .loads import make_cluster

    return make_cluster()
