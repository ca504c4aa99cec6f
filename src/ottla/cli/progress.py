"""Progress bar of a command that handles a known number of things."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def count_progress(activity: str, nouns: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, otherwise nothing; the function gets the number of things that are done.

    `activity` and `nouns` are its texts, as in "moving" and "partitions".
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(activity), BarColumn(), MofNCompleteColumn(), TextColumn(nouns), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.__stderr__), transient=True) as bar:
        task = bar.add_task(activity, total=total)
        yield lambda done: bar.update(task, completed=done)
