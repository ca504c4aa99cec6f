"""Collector for a coordinator's responses."""

from __future__ import annotations

from typing import Generic, TypeVar

from ottla.common.errors import ErrorCode

R = TypeVar("R")


class Answer(Generic[R]):
    """Records the arguments of `done`, which may be called at most once."""

    def __init__(self) -> None:
        self.responses: list[R] = []

    def __call__(self, response: R) -> None:
        self.responses.append(response)
        assert len(self.responses) == 1, self.responses

    @property
    def pending(self) -> bool:
        return not self.responses

    @property
    def response(self) -> R:
        assert len(self.responses) == 1, self.responses
        return self.responses[0]

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)  # type: ignore[attr-defined]

    @property
    def producer(self) -> tuple[int, int]:
        """Return producer id and epoch of a successful response."""
        assert self.error is ErrorCode.NONE
        return self.response.producer_id, self.response.producer_epoch  # type: ignore[attr-defined]
