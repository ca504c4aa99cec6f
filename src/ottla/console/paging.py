"""Lists in pages: the rows of one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class ListPage(NamedTuple, Generic[T]):
    """One page of a list; `number` begins at 1."""

    rows: Sequence[T]
    number: int
    pages: int


def list_page(items: Sequence[T], number: int, size: int) -> ListPage[T]:
    """The page of this number, each with `size` items; the first or the last page for a number outside of the list."""
    pages = max(1, -(-len(items) // size))
    number = max(1, min(number, pages))
    return ListPage(items[(number - 1) * size : number * size], number, pages)
