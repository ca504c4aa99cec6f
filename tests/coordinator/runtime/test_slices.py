"""Sliced work: a failing piece does not stop the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.coordinator.runtime.slices import SlicedWork

from .harness import VirtualTime


def test_work_behind_a_piece_that_fails_is_done() -> None:
    time = VirtualTime()
    work = SlicedWork(time, time)
    done: list[str] = []

    def piece(name: str, *, fails: bool = False) -> Iterator[None]:
        yield
        if fails:
            raise ValueError(name)
        done.append(name)

    work.add(piece("first"))
    work.add(piece("second", fails=True))
    work.add(piece("third"))
    with pytest.raises(ValueError, match="second"):
        time.settle()
    time.settle()
    work.add(piece("fourth"))
    time.settle()
    assert done == ["first", "third", "fourth"]
