"""Generations of requests: responses that belong to an older generation are dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


class Generation:
    """A generation: responses that belong to an older one are dropped."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = 0

    def renew(self) -> None:
        """Start a new generation: drop responses to all earlier requests."""
        self._number += 1

    def during(self, callback: Callable[P, None]) -> Callable[P, None]:
        """Return `callback` guarded: it does nothing if this generation is over when it is called."""
        begun = self._number

        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            if begun == self._number:
                callback(*args, **kwargs)

        return call
