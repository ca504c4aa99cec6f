"""Sessions of browsers, in memory: the user, the token of forms, clients of the cluster, and values that pages keep.

A session ends 8 hours after its start, 30 minutes after its last request, at sign-out, or with credentials that cannot
be renewed. Its password or token is part of its clients and disappears with it. Everything has a bound: the number of
sessions, and the clients, cursors and sign-ins of each.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import OttlaError
from ottla.common.platform.clock import Clock, Rng

LIFETIME_S = 8 * 3600.0
IDLE_S = 30 * 60.0
MAX_SESSIONS = 1_000
MAX_IDLE_CLIENTS = 4
"""Clients that a session keeps for its next requests."""
MAX_CURSORS = 20
"""Record listings that a session can page through; the oldest is dropped."""
CURSORS = "cursors"
CACHE_S = 5.0
"""Age up to which the list of topics is reused."""
TOKEN_BYTES = 32

MAX_NOTICES = 5
MAX_SIGN_INS = 5
"""Sign-ins at the issuer that a browser has started and not finished; the oldest is dropped."""
SIGN_IN_S = 600.0
"""Time for the sign-in at the issuer."""

OpenCluster = Callable[[ClientSecurity], Cluster]


class SessionEnded(OttlaError):
    """The user signed out, or the session expired, while a request of it was running."""


class PendingSignIn(NamedTuple):
    """A sign-in that the issuer has not answered. `state` and `nonce` bind its answer to it, `verifier` the code."""

    state: str
    nonce: str
    verifier: str
    next_path: str
    """Path of the console after the sign-in."""
    started_s: float


class Session:
    """One browser. Requests of a session run in several threads."""

    def __init__(self, identity: str, token: str, now_s: float) -> None:
        self.identity = identity
        self.token = token
        """Field of each form: a page of another site cannot read it."""
        self.started_s = self.used_s = now_s
        self.user: str | None = None
        """Name of the signed-in user; None for an anonymous cluster, and before sign-in."""
        self.security: ClientSecurity | None = None
        """Credentials for the cluster; None before sign-in."""
        self.credentials_end_s: Callable[[], float] = lambda: math.inf
        """End of the credentials on the monotonic clock, which a renewal moves."""
        self._notices: list[str] = []
        self._sign_ins: OrderedDict[str, PendingSignIn] = OrderedDict()
        self._kept: dict[str, OrderedDict[Hashable, Any]] = {}
        self.tails = 0
        """Live tails that are open."""
        self._clients: list[Cluster] = []
        self._cache: dict[str, tuple[float, Any]] = {}
        self._lock = threading.Lock()
        self._is_ended = False

    @contextmanager
    def client(self, open_cluster: OpenCluster) -> Iterator[Cluster]:
        """A client with the credentials of the user, for one request."""
        with self._lock:
            cluster = self._clients.pop() if self._clients else None
        if cluster is None:
            if self.security is None:
                raise SessionEnded("the session has ended")
            cluster = open_cluster(self.security)
        try:
            yield cluster
        finally:
            with self._lock:
                is_kept = not self._is_ended and len(self._clients) < MAX_IDLE_CLIENTS
                if is_kept:
                    self._clients.append(cluster)
            if not is_kept:
                cluster.close()

    def cached(self, name: str, now_s: float, compute: Callable[[], Any]) -> Any:
        """A value of this user that is at most CACHE_S old."""
        with self._lock:
            found = self._cache.get(name)
        if found is not None and now_s - found[0] < CACHE_S:
            return found[1]
        value = compute()
        with self._lock:
            self._cache[name] = (now_s, value)
        return value

    def forget_cached(self) -> None:
        """Drop cached values after a change."""
        with self._lock:
            self._cache.clear()

    def keep(self, kind: str, name: Hashable, value: Any, most: int) -> None:
        """Keep a value of this user; beyond `most` of its kind, the oldest one is dropped."""
        with self._lock:
            values = self._kept.setdefault(kind, OrderedDict())
            values[name] = value
            values.move_to_end(name)
            while len(values) > most:
                values.popitem(last=False)

    def kept(self, kind: str) -> dict[Any, Any]:
        """The values of a kind, the oldest first."""
        with self._lock:
            return dict(self._kept.get(kind, {}))

    def put_sign_in(self, sign_in: PendingSignIn) -> None:
        """Keep a sign-in at the issuer; the oldest one beyond the bound is dropped."""
        with self._lock:
            self._sign_ins[sign_in.state] = sign_in
            while len(self._sign_ins) > MAX_SIGN_INS:
                self._sign_ins.popitem(last=False)

    def take_sign_in(self, state: str, now_s: float) -> PendingSignIn | None:
        """The sign-in with this state, once; None if this browser did not start it, or too long ago."""
        with self._lock:
            found = self._sign_ins.pop(state, None)
        return found if found is not None and now_s - found.started_s < SIGN_IN_S else None

    def add_notice(self, sentence: str) -> None:
        """Show a sentence on the next page."""
        with self._lock:
            self._notices = [*self._notices, sentence][-MAX_NOTICES:]

    def take_notices(self) -> list[str]:
        """The sentences for this page, once."""
        with self._lock:
            found, self._notices = self._notices, []
        return found

    def end(self) -> None:
        """Close the clients; the credentials are dropped."""
        with self._lock:
            self._is_ended = True
            clients, self._clients = self._clients, []
            self._cache.clear()
            self._sign_ins.clear()
            self._kept.clear()
        self.security = None
        for cluster in clients:
            with suppress(OSError):
                cluster.close()


class SessionStore:
    """All sessions by their cookies."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        """The least recently used first."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, identity: str | None) -> Session | None:
        """The session of a cookie, which is used now; None if it is unknown or has expired."""
        if identity is None:
            return None
        now_s = self._clock.monotonic()
        with self._lock:
            session = self._sessions.get(identity)
            if session is not None and not _is_expired(session, now_s):
                session.used_s = now_s
                self._sessions.move_to_end(identity)
                return session
        if session is not None:
            self.end(session)
        return None

    def start(self) -> Session:
        """A new session that is not signed in. Expired ones end, and beyond the bound the least recently used one.

        One that is not signed in ends first, so that requests without cookies cannot sign out a user.
        """
        now_s = self._clock.monotonic()
        session = Session(self.random_secret(), self.random_secret(), now_s)
        with self._lock:
            ended = [each for each in self._sessions.values() if _is_expired(each, now_s)]
            for each in ended:
                del self._sessions[each.identity]
            while len(self._sessions) >= MAX_SESSIONS:
                ended.append(self._sessions.pop(self._least_worthy()))
            self._sessions[session.identity] = session
        for each in ended:
            each.end()
        return session

    def end(self, session: Session) -> None:
        """Sign out."""
        with self._lock:
            self._sessions.pop(session.identity, None)
        session.end()

    def end_all(self) -> None:
        """End every session, when the console stops."""
        for session in list(self._sessions.values()):
            self.end(session)

    def _least_worthy(self) -> str:
        unused = next((each for each in self._sessions.values() if each.user is None), None)
        return next(iter(self._sessions)) if unused is None else unused.identity

    def random_name(self) -> str:
        """An unpredictable name for a cursor."""
        return self.random_secret()[:16]

    def random_secret(self) -> str:
        """An unpredictable text of 256 bits, which URLs can contain."""
        return self._rng.random_bytes(TOKEN_BYTES).hex()


def _is_expired(session: Session, now_s: float) -> bool:
    if now_s - session.started_s >= LIFETIME_S or now_s - session.used_s >= IDLE_S:
        return True
    return now_s >= session.credentials_end_s()
