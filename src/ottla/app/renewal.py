"""Periodic renewal of OAUTHBEARER keys and tokens of a node. Certificates: `security.listener_tls`.

Invariant: the event loop never blocks: requests run in the pool. After a failure the current value stays in use.
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
"""Least seconds between two tokens, however short their lifetime."""


class Backoff(NamedTuple):
    """Delay after a failure: `first_ms`, doubled after each further one, at most `max_ms`."""

    first_ms: int
    max_ms: int


class Renewal(Generic[T]):
    """Requests a value periodically for the lifetime of the node."""

    def __init__(
        self, what: str, ask: Callable[[], T], use: Callable[[T], float], backoff: Backoff, runtime: NodeRuntime
    ) -> None:
        """`what` is the name for the log. `ask` blocks; `use` takes the result and returns the seconds until the next
        request.

        Both raise OperatorError.
        """
        self._what = what
        self._ask = ask
        self._use = use
        self._backoff = backoff
        self._runtime = runtime
        self._failures = 0
        self._asked_s = runtime.clock.monotonic()
        self._timer: TimerHandle | None = None

    def begin_in(self, delay_s: float) -> None:
        """Schedule the next request, which schedules the following ones."""
        self._timer = self._runtime.scheduler.call_later(delay_s, self._again)

    def hasten(self) -> None:
        """Request now, because the current value seems outdated; at most once in `HASTE_S`."""
        if self._timer is not None and self._runtime.clock.monotonic() - self._asked_s >= HASTE_S:
            self._timer.cancel()
            self._again()

    def _again(self) -> None:
        self._timer = None
        self._asked_s = self._runtime.clock.monotonic()
        self._runtime.pool.submit(self._ask, self._came)

    def _came(self, found: T | None, error: BaseException | None) -> None:
        if found is not None:
            try:
                self._failures, delay_s = 0, self._use(found)
            except OperatorError as problem:
                error = problem
            else:
                return self.begin_in(delay_s)
        logger.warning("renewal of %s failed, keeping the current value: %s", self._what, error, extra=RATE_LIMITED)
        delay_ms = min(self._backoff.first_ms << min(self._failures, 32), self._backoff.max_ms)
        self._failures += 1
        return self.begin_in(delay_ms / 1000)


class IssuedToken:
    """The token with which this node authenticates to other nodes, renewed before it expires."""

    def __init__(
        self, what: str, ask: Callable[[], str], window: RefreshWindow, backoff: Backoff, runtime: NodeRuntime
    ) -> None:
        """`ask` is called immediately. Raises OperatorError."""
        self._clock: Clock = runtime.clock
        self._rng = runtime.rng
        self._window = window
        self._what = what
        self._token = ""
        self._ends_s = 0.0
        Renewal(what, ask, self._use, backoff, runtime).begin_in(self._use(ask()))

    def get(self) -> str:
        """The token. Raises ConnectionError if it has expired because the issuer did not return a new one."""
        if self._clock.time_ms() >= self._ends_s * 1000:
            raise ConnectionError(f"the token of {self._what} has expired, and its issuer returned no new one")
        return self._token

    def _use(self, token: str) -> float:
        now_s = self._clock.time_ms() / 1000
        ends_s = ends_of(token, now_s)
        if ends_s <= now_s:
            raise OperatorError(
                f"the issuer in {self._what} returned an expired token: synchronize the clocks of this node "
                "and the issuer"
            )
        self._token, self._ends_s = token, ends_s
        return max(self._window.wait_s(ends_s - now_s, self._rng), MIN_PAUSE_S)
