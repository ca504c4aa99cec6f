"""Sign-in: a name and a password, or a delegation token, become the credentials of all requests of a session.

The cluster checks them, since the console has no users of its own. Failed attempts are throttled by address and by
name, so that a browser cannot try passwords faster than at the broker. Sign-in at an issuer: `openid`.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import NamedTuple

from ottla.client.wire.security import ClientSecurity
from ottla.common.platform.clock import Clock
from ottla.console.settings import Transport
from ottla.security.sasl.credentials import BY_NAME
from ottla.security.sasl.plain import MECHANISM as PLAIN
from ottla.security.sasl.plain import PlainClient
from ottla.security.sasl.scram import ScramClient

FREE_FAILURES_OF_NAME = 3
FREE_FAILURES_OF_ADDRESS = 20
"""Failed attempts before the first pause. All users behind one proxy share an address."""
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
FORGET_AFTER_S = 900.0
MAX_KEYS = 10_000
"""Bound of names and addresses with failures; the oldest is dropped."""
MAX_CREDENTIAL_CHARS = 1_000


def credentials(
    transport: Transport, mechanism: str, name: str, password: str, *, by_token: bool = False
) -> ClientSecurity:
    """The security of connections as this user. `mechanism` is one of `transport.mechanisms`.

    `by_token`: name and password are the id and the HMAC of a delegation token (KIP-48), for SCRAM only.
    """
    if mechanism == PLAIN:
        return transport.security._replace(login=lambda _: PlainClient(name, password))
    scram = BY_NAME[mechanism]
    return transport.security._replace(
        login=lambda _: ScramClient(scram, name, password, os.urandom, by_token=by_token)
    )


class Attempt(NamedTuple):
    """Where a sign-in comes from, and the name that it claims; None for one at an issuer."""

    address: str
    name: str | None

    def sources(self) -> tuple[tuple[str, int], ...]:
        of_address = (f"address {self.address}", FREE_FAILURES_OF_ADDRESS)
        return (of_address,) if self.name is None else (of_address, (f"name {self.name}", FREE_FAILURES_OF_NAME))


class _Failures(NamedTuple):
    number: int
    last_s: float

    def pause_s(self, free: int) -> float:
        over = self.number - free
        return 0.0 if over < 0 else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(over, 20))


class SignInThrottle:
    """Pauses after failed attempts, by any of the keys of an attempt."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, attempt: Attempt) -> float:
        """Seconds until this attempt may run; 0 if it runs now, and is then counted as failed until `succeeded`."""
        now_s = self._clock.monotonic()
        with self._lock:
            wait_s = 0.0
            for key, free in attempt.sources():
                before = self._failures.get(key)
                if before is not None:
                    wait_s = max(wait_s, before.last_s + before.pause_s(free) - now_s)
            if wait_s > 0:
                return wait_s
            for key, _ in attempt.sources():
                before = self._failures.pop(key, None)
                is_old = before is None or now_s - before.last_s > FORGET_AFTER_S
                self._failures[key] = _Failures(1 if before is None or is_old else before.number + 1, now_s)
            while len(self._failures) > MAX_KEYS:
                self._failures.popitem(last=False)
        return 0.0

    def succeeded(self, attempt: Attempt) -> None:
        """Forget the failures."""
        with self._lock:
            for key, _ in attempt.sources():
                self._failures.pop(key, None)
