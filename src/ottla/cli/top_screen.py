"""The screen of `ottla top`: frames of exactly the size of the terminal, and what keys change.

A frame is a function of the latest reading, the state and the size, so a test needs no terminal. Names of others are
printed without control characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import set_cell_size
from rich.text import Text

from ottla.cli.top_views import LEFT, VIEWS, Column, TopReading, View, summary
from ottla.common.control_chars import escape_control_chars

KEYS = "1-4 Tab view   s sort   r reverse   j/k scroll   Space pause   q quit"
MAX_PROBLEMS = 3
"""Lines of problems; the last one counts the others."""
MIN_NAME_WIDTH = 8
PAGE = 10
_UP, _DOWN = ("k", "\x1b[A", "\x1bOA"), ("j", "\x1b[B", "\x1bOB")
_PAGE_UP, _PAGE_DOWN = ("\x1b[5~", "b"), ("\x1b[6~", "f")
_QUIT = ("q", "Q", "\x04")
_DIGITS = [str(index + 1) for index in range(len(VIEWS))]


class ScreenState:
    """The view, its order and position, and whether the screen is paused. Changed by keys only."""

    __slots__ = ("first_row", "paused", "quits", "reverse", "sort", "view_index")

    def __init__(self, view: View) -> None:
        self.view_index = VIEWS.index(view)
        self.sort = [each.first_sort for each in VIEWS]
        self.reverse = [False] * len(VIEWS)
        self.first_row = 0
        self.paused = False
        self.quits = False

    @property
    def view(self) -> View:
        """The view that is shown."""
        return VIEWS[self.view_index]

    def press(self, key: str) -> None:
        """Apply a key; an unknown one is ignored."""
        if key in _QUIT:
            self.quits = True
        elif key in _DIGITS:
            self._show(_DIGITS.index(key))
        elif key == "\t":
            self._show((self.view_index + 1) % len(VIEWS))
        elif key == "s":
            self.sort[self.view_index] = (self.sort[self.view_index] + 1) % len(self.view.columns)
        elif key == "r":
            self.reverse[self.view_index] = not self.reverse[self.view_index]
        elif key == " ":
            self.paused = not self.paused
        else:
            step = {**dict.fromkeys(_UP, -1), **dict.fromkeys(_DOWN, 1)}
            step |= {**dict.fromkeys(_PAGE_UP, -PAGE), **dict.fromkeys(_PAGE_DOWN, PAGE)}
            self.first_row = max(0, self.first_row + step.get(key, 0))

    def _show(self, index: int) -> None:
        self.view_index, self.first_row = index, 0


def frame(
    reading: TopReading, outage: str | None, clock_text: str, state: ScreenState, size: tuple[int, int]
) -> list[Text]:
    """The lines of a frame for a terminal of `size` (columns, lines). `outage` is the reason for an old reading."""
    width, height = size
    view = state.view
    title = f"ottla top  {summary(reading)}"
    right = f"{'paused ' if state.paused else ''}{clock_text}"
    lines = [
        _line(f"{title:<{max(0, width - len(right) - 1)}.{max(0, width - len(right) - 1)}} {right}", width, "bold")
    ]
    lines.append(_tabs(state, width))
    problems = [*([] if outage is None else [f"no response, showing earlier values: {outage}"]), *reading.problems]
    lines += _problem_lines(problems, width)
    body = max(0, height - len(lines) - 1)
    lines += _table(view, reading, state, width, body)
    lines = lines[: max(0, height - 1)]
    lines += [_line("", width)] * (height - 1 - len(lines))
    lines.append(_line(KEYS, width, "dim"))
    return lines


def _tabs(state: ScreenState, width: int) -> Text:
    text = Text(no_wrap=True)
    for index, view in enumerate(VIEWS):
        text.append(f"{index + 1} {view.name}", "reverse" if index == state.view_index else "")
        text.append("  ")
    order = state.view.columns[state.sort[state.view_index]].title.lower()
    text.append(f"by {order}{', reversed' if state.reverse[state.view_index] else ''}", "dim")
    text.truncate(width)
    return text


def _problem_lines(problems: Sequence[str], width: int) -> list[Text]:
    shown = list(problems[:MAX_PROBLEMS])
    if len(problems) > MAX_PROBLEMS:
        shown[-1] = f"and {len(problems) - MAX_PROBLEMS + 1} more problems"
    return [_line(f"! {each}", width, "bold red") for each in shown]


def _table(view: View, reading: TopReading, state: ScreenState, width: int, height: int) -> list[Text]:
    if view.rows(reading) is None:
        return [Text(part) for part in _wrapped(view.absent, width)][:height]
    rows = view.sorted_rows(reading, state.sort[state.view_index], reverse=state.reverse[state.view_index])
    room = max(0, height - 1)
    state.first_row = min(state.first_row, max(0, len(rows) - room))
    columns = _columns(view, width)
    header = "".join(_cell(column.title, cells, column) for column, cells in columns)
    lines = [_line(header, width, "bold underline")]
    lines += [
        _line(_row(columns, row), width, "yellow" if view.is_urgent(row) else "")
        for row in rows[state.first_row : state.first_row + room]
    ]
    if not rows:
        lines.append(_line(f"no {view.name}", width))
    return lines[:height]


def _columns(view: View, width: int) -> list[tuple[Column, int]]:
    """The columns with their widths; without room for all, the last ones are left out."""
    chosen = list(view.columns)
    while len(chosen) > 1 and sum(column.width or MIN_NAME_WIDTH for column in chosen) > width:
        chosen.pop()
    rest = max(1, width - sum(column.width for column in chosen))
    return [(column, column.width or rest) for column in chosen]


def _row(columns: Sequence[tuple[Column, int]], row: Any) -> str:
    return "".join(_cell(escape_control_chars(column.text(row)), cells, column) for column, cells in columns)


def _cell(text: str, cells: int, column: Column) -> str:
    """Names and states to the left, numbers to the right; a name that is too long ends with an ellipsis."""
    if column.title in LEFT:
        room = max(0, cells - 1)
        cut = text if len(text) <= room else f"{text[: max(0, room - 1)]}…"
        return set_cell_size(cut, room) + " " * (cells - room)
    return f"{text:>{cells}.{cells}}"


def _line(text: str, width: int, style: str = "") -> Text:
    return Text(
        set_cell_size(escape_control_chars(text).replace("\n", " ").replace("\t", " "), width), style, no_wrap=True
    )


def _wrapped(text: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(text, max(10, width))
