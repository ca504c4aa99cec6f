"""Freezing of the heap: objects and processes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from ottla.pipeline.datasource.worker_heap import DAEMON, freeze_heap


@pytest.fixture
def thawed() -> Iterator[None]:
    """The test runner may have frozen its objects."""
    before = gc.get_freeze_count()
    gc.unfreeze()
    freeze_heap.cache_clear()
    yield
    gc.unfreeze()
    if before:
        gc.freeze()
    freeze_heap.cache_clear()


@pytest.mark.parametrize(("program", "frozen"), [(DAEMON, True), ("pytest.__main__", False), (None, False)])
def test_heap_is_frozen_in_daemon_workers_only(
    thawed: None, monkeypatch: pytest.MonkeyPatch, program: str | None, frozen: bool
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = None if program is None else ModuleSpec(program, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    freeze_heap("read")
    assert (gc.get_freeze_count() > 10_000) == frozen


def test_heap_is_frozen_once(thawed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(DAEMON, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    freeze_heap("read")
    before = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(1000)]
    freeze_heap("read")
    assert gc.get_freeze_count() <= before < before + len(kept)
