"""Answers that come too late: those of a round that is over are not heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


class Generation:
    """What goes on until something makes all answers that are still under way meaningless."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = 0

    def renew(self) -> None:
        """Hear no answer any more that was asked for before."""
        self._number += 1

    def during(self, callback: Callable[P, None]) -> Callable[P, None]:
        """`callback`, unless the round of this moment is over by the time it is called."""
        begun = self._number

        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            if begun == self._number:
                callback(*args, **kwargs)

        return call
