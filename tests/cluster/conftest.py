"""Fixtures: clusters of real processes on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .nodes import Nodes


@pytest.fixture
def make_nodes(tmp_path: Path) -> Iterator[Callable[..., Nodes]]:
    made: list[Nodes] = []

    def make(count: int = 3, **settings: str) -> Nodes:
        folder = tmp_path / f"cluster-{len(made)}"
        folder.mkdir()
        nodes = Nodes(folder, count, {name.replace("_", "."): value for name, value in settings.items()})
        made.append(nodes)
        return nodes

    yield make
    for nodes in made:
        nodes.close()


@pytest.fixture
def steady(make_nodes: Callable[..., Nodes]) -> Nodes:
    """Three running nodes with long sessions, even on a busy machine: leaders only move when a test moves them."""
    nodes = make_nodes(broker_session_timeout_ms="60000")
    nodes.start()
    return nodes


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    """Three running nodes."""
    nodes = make_nodes()
    nodes.start()
    return nodes
