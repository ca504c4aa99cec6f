"""Sessions: their end, their bounds, and their cookie."""

from __future__ import annotations

from typing import Any

from ottla.client.wire.security import ClientSecurity
from ottla.console.sessions import (
    CACHE_S,
    CURSORS,
    IDLE_S,
    LIFETIME_S,
    MAX_CURSORS,
    MAX_IDLE_CLIENTS,
    MAX_SESSIONS,
    Session,
    SessionStore,
)

from .browsing import CountingRng

SECURITY = ClientSecurity()


class FakeClient:
    def __init__(self, security: ClientSecurity) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


Client: Any = FakeClient


def test_session_ends_when_idle_or_old(clock):
    store = SessionStore(clock, CountingRng())
    idle, used = store.start(), store.start()
    for _ in range(int(LIFETIME_S / IDLE_S) + 1):
        clock.now_s += IDLE_S - 1
        store.find(used.identity)
    assert store.find(idle.identity) is None
    clock.now_s += 30
    assert store.find(used.identity) is None
    assert len(store) == 0


def test_least_recently_used_session_ends_beyond_bound(clock):
    store = SessionStore(clock, CountingRng())
    first, second = store.start(), store.start()
    store.find(first.identity)
    for _ in range(MAX_SESSIONS - 1):
        store.start()
    assert len(store) == MAX_SESSIONS
    assert store.find(second.identity) is None
    assert store.find(first.identity) is first


def test_anonymous_sessions_never_displace_signed_in_ones(clock):
    store = SessionStore(clock, CountingRng())
    signed_in = store.start()
    signed_in.user = "ada"
    for _ in range(2 * MAX_SESSIONS):
        store.start()
    assert store.find(signed_in.identity) is signed_in


def test_end_closes_clients_and_drops_credentials():
    session = Session("a", "b", 0.0)
    session.security = SECURITY
    with session.client(Client) as idle:
        pass
    used: Any
    with session.client(Client) as used:
        assert used is idle
        session.end()
        assert session.security is None
    assert used.is_closed


def test_clients_are_kept_up_to_a_bound():
    session = Session("a", "b", 0.0)
    session.security = SECURITY
    contexts = [session.client(Client) for _ in range(MAX_IDLE_CLIENTS + 2)]
    clients: list[Any] = [context.__enter__() for context in contexts]
    for context in contexts:
        context.__exit__(None, None, None)
    assert sum(client.is_closed for client in clients) == 2


def test_cache_expires_and_oldest_cursor_is_dropped():
    session = Session("a", "b", 0.0)
    values = iter(range(9))
    assert [session.cached("x", now_s, lambda: next(values)) for now_s in (0.0, CACHE_S - 1, CACHE_S)] == [0, 0, 1]
    session.forget_cached()
    assert session.cached("x", CACHE_S, lambda: next(values)) == 2
    for number in range(MAX_CURSORS + 1):
        session.keep(CURSORS, str(number), number, MAX_CURSORS)
    assert list(session.kept(CURSORS)) == [str(number) for number in range(1, MAX_CURSORS + 1)]


def test_cookie_is_unreadable_for_scripts_and_other_sites(browse):
    cookie = browse().get("/sign-in").header("set-cookie")
    assert "ottla_console_8080=" in cookie
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=28800"))


def test_link_on_another_site_does_not_replace_the_session(browse):
    linked = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    answer = browse().get("/topics/a%22b/records?q=%3Cb%3E", **linked)
    assert answer.status == 200
    assert answer.header("set-cookie") is None
    assert 'content="0;url=/topics/a%2522b/records?q=%3Cb%3E"' in answer.text
