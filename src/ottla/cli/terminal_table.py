"""Tables on a terminal: long names are shortened in the middle, so that each row stays on one line.

A name is a cell without spaces. Sentences, numbers and the column `value` are never shortened: rich wraps them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ottla.common.control_chars import escape_control_chars

SHORTEST_NAME = 12
"""Names are not shortened further; on a narrower terminal they wrap."""
WHOLE = "value"
"""Column with the content that the command shows."""
_MARK, _ASCII_MARK = "…", "~"


def print_on_terminal(columns: Sequence[str], cells: Iterable[Sequence[str]], right: Sequence[str]) -> None:
    """Print a table; `right` names the columns to align right, which contain numbers."""
    console = Console(file=sys.__stdout__)
    mark = _MARK if console.encoding.startswith("utf") else _ASCII_MARK
    rows = [[escape_control_chars(text) for text in row] for row in cells]
    longest = longest_names(columns, rows, right, console.width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.upper(), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shorten(text, length, mark)) for text, length in zip(row, longest, strict=True)))
    console.print(table)


def longest_names(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], width: int
) -> list[int | None]:
    """Maximum length of names in each column, so that a table of `width` cells has no wrapped names.

    The longest names are shortened first, to an equal length. None: the column is not shortened.
    """
    frame = 3 * len(columns) - 1  # of rich: an edge on both sides, and three cells between two columns
    widths = [max((cell_len(row[at]) for row in rows), default=0) for at in range(len(columns))]
    widths = [max(used, cell_len(column)) for used, column in zip(widths, columns, strict=True)]
    excess = sum(widths) + frame - width
    may = [column not in right and column != WHOLE for column in columns]
    limit = max((used for used, shrinks in zip(widths, may, strict=True) if shrinks), default=0)
    while excess > 0 and limit > SHORTEST_NAME:
        excess -= sum(shrinks and used >= limit for used, shrinks in zip(widths, may, strict=True))
        limit -= 1
    return [limit if shrinks and used > limit else None for used, shrinks in zip(widths, may, strict=True)]


def shorten(text: str, length: int | None, mark: str) -> str:
    """`text`, or a name of more than `length` characters with its middle replaced by `mark`, one character."""
    if length is None or len(text) <= length or any(character.isspace() for character in text):
        return text
    kept = length - 1
    return text[: kept - kept // 2] + mark + text[len(text) - kept // 2 :]
