"""What a node asks others for again and again: the keys that sign tokens, its own token.

Invariant: the loop waits for nobody: the pool asks. Where that fails, what there is goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ottla.common.errors import OperatorError
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import Clock, TimerHandle
from ottla.common.platform.runtime import NodeRuntime
from ottla.security.sasl.refresh import RefreshWindow
from ottla.security.sasl.token_source import ends_of

logger = logging.getLogger(__name__)
T = TypeVar("T")

HASTE_S = 60.0
MIN_PAUSE_S = 1.0
"""Between two tokens, however short they live."""


class Backoff(NamedTuple):
    """How long to wait after a failure: `first_ms`, and double that after each further one, at most `max_ms`."""

    first_ms: int
    max_ms: int


class Renewal(Generic[T]):
    """Asks for something as long as the node lives."""

    def __init__(
        self, what: str, ask: Callable[[], T], use: Callable[[T], float], backoff: Backoff, machine: NodeRuntime
    ) -> None:
        """`what` names it in the log; `ask` blocks; `use` takes what came and returns in how many seconds to ask again.

        Both raise OperatorError.
        """
        self._what = what
        self._ask = ask
        self._use = use
        self._backoff = backoff
        self._machine = machine
        self._failures = 0
        self._asked_s = machine.clock.monotonic()
        self._timer: TimerHandle | None = None

    def begin_in(self, delay_s: float) -> None:
        """Ask then, and so on."""
        self._timer = self._machine.scheduler.call_later(delay_s, self._again)

    def hasten(self) -> None:
        """Ask now, since what there is seems to be old; at most once in `HASTE_S`, whoever causes it."""
        if self._timer is not None and self._machine.clock.monotonic() - self._asked_s >= HASTE_S:
            self._timer.cancel()
            self._again()

    def _again(self) -> None:
        self._timer = None
        self._asked_s = self._machine.clock.monotonic()
        self._machine.pool.submit(self._ask, self._came)

    def _came(self, found: T | None, error: BaseException | None) -> None:
        if found is not None:
            try:
                self._failures, delay_s = 0, self._use(found)
            except OperatorError as problem:
                error = problem
            else:
                return self.begin_in(delay_s)
        logger.warning("%s stays as it was: %s", self._what, error, extra=RATE_LIMITED)
        delay_ms = min(self._backoff.first_ms << min(self._failures, 32), self._backoff.max_ms)
        self._failures += 1
        return self.begin_in(delay_ms / 1000)


class IssuedToken:
    """The token by which this node says to others who it is, asked for again before it ends."""

    def __init__(
        self, what: str, ask: Callable[[], str], window: RefreshWindow, backoff: Backoff, machine: NodeRuntime
    ) -> None:
        """`ask` is called at once. Raises OperatorError."""
        self._clock: Clock = machine.clock
        self._rng = machine.rng
        self._window = window
        self._what = what
        self._token = ""
        self._ends_s = 0.0
        Renewal(what, ask, self._use, backoff, machine).begin_in(self._use(ask()))

    def get(self) -> str:
        """Raises ConnectionError where it is over, since its issuer did not give another."""
        if self._clock.time_ms() >= self._ends_s * 1000:
            raise ConnectionError(f"the token by {self._what} is over, and its issuer gave no other")
        return self._token

    def _use(self, token: str) -> float:
        now_s = self._clock.time_ms() / 1000
        ends_s = ends_of(token, now_s)
        if ends_s <= now_s:
            raise OperatorError(f"{self._what} gives a token that is over; compare the clocks of both machines")
        self._token, self._ends_s = token, ends_s
        return max(self._window.wait_s(ends_s - now_s, self._rng), MIN_PAUSE_S)
