"""One request in work: who asked, and how the answer gets back.

A handler either returns its response or parks the request and later calls `answer` or `respond_parts` exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.channel import Channel, Part
from ottla.common.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.server.dispatch import RequestDispatcher


class Request:
    """The header of a request and its connection."""

    __slots__ = (
        "api_key",
        "api_version",
        "channel",
        "client_id",
        "correlation_id",
        "dispatcher",
        "fail",
        "failed",
        "started_s",
    )

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        channel: Channel,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        started_s: float,
    ) -> None:
        self.dispatcher = dispatcher
        self.channel = channel
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started_s = started_s
        self.failed = False
        """Whether an error code was counted for the answer."""
        self.fail: Callable[[ErrorCode, str], object | None] | None = None

    def answer(self, build: Callable[[], object]) -> None:
        """Finish a parked request with the message that `build` makes; what it raises is answered as an error."""
        self.dispatcher.answer_parked(self, build)

    def respond_parts(self, parts: list[Part]) -> None:
        """Finish a parked request with an encoded response; an empty list means that none is due."""
        self.dispatcher.finish_parked(self, parts)

    def count_error(self, error_code: int) -> None:
        """Note an error code that the answer carries."""
        self.dispatcher.count_error(self, error_code)
