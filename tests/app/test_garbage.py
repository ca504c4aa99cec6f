"""Garbage collection of a broker."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from ottla.app.garbage import THRESHOLDS, collect_garbage_rarely


class Node:
    """A reference cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def rare() -> Iterator[None]:
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    collect_garbage_rarely()
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("rare")
def test_survivors_are_skipped_until_a_full_collection() -> None:
    assert gc.get_threshold() == THRESHOLDS
    node = Node()
    seen = weakref.ref(node)
    gc.collect(1)
    del node
    gc.collect(1)
    assert seen() is not None
    gc.collect()
    assert seen() is None


@pytest.mark.usefixtures("rare")
def test_young_cycle_is_freed_by_the_next_collection() -> None:
    seen = weakref.ref(Node())
    assert seen() is not None
    gc.collect(0)
    assert seen() is None
