"""A topic of two partitions and a snapshot of it, in each format and with and without a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..forks import Forks
from ..s3_server import BUCKET

if TYPE_CHECKING:
    from .world import World


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
        pytest.importorskip("sqlalchemy", reason="needs the extra `iceberg`")
    return str(request.param)


@pytest.fixture(scope="session")
def killed() -> Iterator[Forks]:
    """`killed.py`, with a forked process for each of its runs."""
    forks = Forks(Path(__file__).with_name("killed.py"))
    yield forks
    forks.close()


@pytest.fixture
def make_world(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., World]:
    from .world import TOPIC, World

    def make(kind: str = "delta", *, place: str = "disk", history: bool = False, buckets: int = 4) -> World:
        path: Path | str = tmp_path / f"table {kind} {history}"
        if place == "s3":
            request.getfixturevalue("s3_server")
            path = f"s3://{BUCKET}/{tmp_path.name}/{kind}-{history}"
        world = World(path, kind, history, buckets)
        world.cluster.create(TOPIC, 2)
        return world

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def past(make_world: Callable[..., World]) -> World:
    """A snapshot with a history."""
    return make_world(history=True)
