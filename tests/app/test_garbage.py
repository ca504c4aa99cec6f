"""Garbage collection of a broker: cycles that were frozen are found again, and others do not cause full collections."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from ottla.app.garbage import collect_garbage_rarely

PROGRAM = """
import asyncio, gc, weakref
from ottla.app import garbage

class Cycle:
    def __init__(self):
        self.me = self

async def main():
    garbage.YOUNG_OBJECTS, garbage.CHECKED_EVERY, garbage.MIN_GROWTH = 500, 4, 2_000
    garbage.collect_garbage_rarely()
    full = []
    gc.callbacks.append(lambda phase, info: full.append(info) if info["generation"] == 2 else None)
    frozen = [Cycle() for _ in range(COUNT)]
    first = weakref.ref(frozen[0])
    assert gc.get_freeze_count() > COUNT
    frozen.clear()
    for _ in range(100):
        others = [[] for _ in range(1_000)]
        others.clear()
        await asyncio.sleep(0)
    print(first() is None, bool(full))

asyncio.run(main())
"""


@pytest.mark.parametrize(("count", "printed"), [(200_000, "True True"), (1_000, "False False")])
def test_frozen_cycles_are_collected_once_there_are_many(count: int, printed: str) -> None:
    program = PROGRAM.replace("COUNT", str(count))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == printed, done.stderr


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
def test_young_cycle_is_freed_and_a_survivor_skipped() -> None:
    survivor = Node()
    seen = weakref.ref(survivor), weakref.ref(Node())
    gc.collect(0)
    assert [each() for each in seen] == [survivor, None]
    del survivor
    gc.collect(0)
    assert seen[0]() is not None
    gc.collect()
    assert seen[0]() is None
