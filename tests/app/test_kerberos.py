"""Kerberos tickets of a node: requests to the KDC, waiting logins, and errors."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.kerberos import FIRST_BACKOFF_MS, NodeTickets
from ottla.app.ports import HOST
from ottla.common.errors import OperatorError
from ottla.common.platform.runtime import NodeRuntime
from ottla.security.sasl.kerberos_login import KerberosLogin
from ottla.security.sasl.refresh import RefreshWindow

from ..cluster.nodes import eventually
from ..kdc import REALM, Kdc, need_of_system
from ..server.virtual_time import VirtualTime

SETTING = "listener.name.x.gssapi.sasl.jaas.config"
LOGIN = KerberosLogin(SETTING, "kafka", "ann@R", "/keys", "")
LIFE_S = 100.0
WINDOW = RefreshWindow(factor=0.8, jitter=0.0, min_period_s=4.0)
RENEWED_S = 80.0


class HeldPool:
    """Work waits until a test lets it run."""

    def __init__(self) -> None:
        self.held: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.held.append((work, done))

    def run(self) -> None:
        while self.held:
            work, done = self.held.popleft()
            try:
                found = work()
            except OperatorError as error:
                done(None, error)
            else:
                done(found, None)


class Context:
    """Its first token contains the ticket."""

    complete = True

    def __init__(self, name: str) -> None:
        self._name = name

    def step(self, token: bytes) -> bytes:
        return self._name.encode()


class Realm:
    """A KDC with numbered tickets, behind a fake library."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.down = False
        self.taken = 0
        self.fetched: list[str] = []

    def require_up(self) -> None:
        if self.down:
            raise OperatorError("the KDC is not there")

    def take(self) -> Ticket:
        self.require_up()
        self.taken += 1
        return Ticket(self, self.taken, self.time.now + LIFE_S)


class Ticket:
    """A fake of `Tickets`."""

    def __init__(self, realm: Realm, number: int, ends_s: float) -> None:
        self._realm = realm
        self._number = number
        self._hosts: set[str] = set()
        self.ends_s = ends_s

    def last(self, host: str) -> bool:
        return host in self._hosts and self._realm.time.now < self.ends_s

    def fetch(self, host: str) -> None:
        self._realm.require_up()
        self._realm.fetched.append(f"{host} by {self._number}")
        self._hosts.add(host)

    def context(self, host: str) -> Context:
        assert host in self._hosts
        return Context(f"{host} by {self._number}")


class World:
    """One node in a realm."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.pool = HeldPool()
        self.realm = Realm(self.time)
        runtime = NodeRuntime(RealDisk(), self.time, SystemRng(), self.time, self.pool)
        self.node = NodeTickets(LOGIN, cast(Any, self.realm), WINDOW, runtime)

    def begin(self, host: str = "h") -> list[str]:
        """The results, now or later: the ticket or the error."""
        heard: list[str] = []

        def begun(mechanism: Any, error: ConnectionError | None) -> None:
            heard.append(str(error) if mechanism is None else mechanism.first().decode())

        self.node.begin(host, begun)
        return heard


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_ticket_is_there_when_the_node_is(world: World) -> None:
    assert (world.realm.taken, len(world.pool.held)) == (1, 0)


def test_one_request_per_host_without_blocking_other_hosts(world: World) -> None:
    first, second, other = world.begin("h"), world.begin("h"), world.begin("i")
    assert (first, second, other) == ([], [], [])
    assert len(world.pool.held) == 2
    world.pool.run()
    assert first == second == ["h by 1"]
    assert other == ["i by 1"]
    assert world.begin("h") == ["h by 1"], "at once"
    assert not world.pool.held


def test_failed_request_fails_all_waiters_and_is_retried(world: World) -> None:
    world.realm.down = True
    waiting = [world.begin(), world.begin()]
    world.pool.run()
    assert waiting == [["the KDC is not there"]] * 2
    world.realm.down = False
    later = world.begin()
    world.pool.run()
    assert later == ["h by 1"]


def test_tickets_are_renewed_before_expiry_with_host_tickets(world: World) -> None:
    world.begin()
    world.pool.run()
    world.time.run(RENEWED_S - 1)
    assert not world.pool.held
    world.time.run(1)
    world.pool.run()
    assert world.realm.taken == 2
    assert world.begin() == ["h by 1"], "which lasts, while the new one is asked for"
    assert world.begin() == ["h by 1"]
    world.pool.run()
    assert world.realm.fetched == ["h by 1", "h by 2"]
    assert world.begin() == ["h by 2"]
    assert not world.pool.held


def test_host_ticket_of_previous_ticket_is_used(world: World) -> None:
    """It arrived while the ticket-granting ticket was renewed."""
    waiting = world.begin()
    fetch = world.pool.held.popleft()
    world.time.run(RENEWED_S)
    world.pool.run()
    world.pool.held.append(fetch)
    world.pool.run()
    assert waiting == ["h by 1"]


def test_tickets_are_used_without_kdc_until_expiry(world: World) -> None:
    world.begin()
    world.pool.run()
    world.realm.down = True
    asked = []
    while world.time.now < LIFE_S:
        assert world.begin() == ["h by 1"]
        world.time.run(0.5)
        if world.pool.held:
            asked.append(world.time.now)
            world.pool.run()
    pauses = [after - before for before, after in pairwise(asked)]
    assert asked[0] == RENEWED_S
    assert pauses[0] == FIRST_BACKOFF_MS / 1000
    assert pauses == sorted(pauses)
    assert max(pauses) <= WINDOW.min_period_s
    for host in ("h", "new"):
        assert world.begin(host) == ["the ticket of ann@R has expired, and the KDC issued no new one"]
    assert not world.pool.held, "nothing can be had by it"

    world.realm.down = False
    world.time.run(WINDOW.min_period_s)
    world.pool.run()
    back = world.begin()
    world.pool.run()
    assert back == ["h by 2"]


def test_a_node_without_a_ticket_does_not_start() -> None:
    realm = Realm(VirtualTime())
    realm.down = True
    runtime = NodeRuntime(RealDisk(), realm.time, SystemRng(), realm.time, HeldPool())
    with pytest.raises(OperatorError, match="the KDC is not there"):
        NodeTickets(LOGIN, cast(Any, realm), WINDOW, runtime)


@pytest.fixture
def kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kdc]:
    pytest.importorskip("gssapi", reason="the extra gssapi is not installed, which needs libkrb5-dev")
    with Kdc(tmp_path) as kdc:
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
        monkeypatch.setenv("KRB5RCACHENAME", "none:")
        yield kdc


def node_of(login: KerberosLogin) -> NodeTickets:
    from ottla.security.sasl.kerberos_tickets import Initiator

    time = VirtualTime()
    runtime = NodeRuntime(RealDisk(), time, SystemRng(), time, HeldPool())
    return NodeTickets(login, Initiator(login, lambda: SystemClock().time_ms() / 1000), WINDOW, runtime)


def by_keytab(setting: str, kdc: Kdc) -> KerberosLogin:
    """With keys of ann. The library keeps tickets by the setting, as long as the process lives."""
    return KerberosLogin(setting, "kafka", f"ann@{REALM}", str(kdc.keytab("ann", "ann")), "")


def test_missing_keys_are_reported(kdc: Kdc, tmp_path: Path) -> None:
    login = by_keytab("missing", kdc)
    node_of(login)
    (tmp_path / "rubbish").write_bytes(b"no keytab")
    for wrong in (
        login._replace(keytab=str(tmp_path / "none")),
        login._replace(keytab=str(tmp_path / "rubbish")),
        login._replace(principal=f"bob@{REALM}"),
    ):
        with pytest.raises(OperatorError, match=f"missing: the keytab {wrong.keytab} has no keys of {wrong.principal}"):
            node_of(wrong)


@pytest.mark.parametrize("what", ["keys", "kdc"])
def test_outdated_keys_and_missing_kdc_are_reported(kdc: Kdc, what: str) -> None:
    login = by_keytab(what, kdc)
    if what == "keys":
        kdc.admin("cpw -randkey ann")
    else:
        kdc.kill()
    with pytest.raises(
        OperatorError, match=r"no ticket of ann@.* with the keytab .*; check its keys, krb5\.conf and the"
    ):
        node_of(login)


def test_missing_cache_and_expired_ticket_are_reported(kdc: Kdc, tmp_path: Path) -> None:
    cache = f"FILE:{tmp_path / 'cache'}"
    login = KerberosLogin(SETTING, "kafka", "", "", cache)
    words = f"no ticket of the ticket cache {cache} .*; check klist, or create one with kinit"
    with pytest.raises(OperatorError, match=words):
        node_of(login)

    keytab = str(kdc.keytab("ann", "ann"))
    taken = [need_of_system("kinit"), "-k", "-t", keytab, "-c", cache]
    environment = {**os.environ, "KRB5_CONFIG": str(kdc.config)}
    subprocess.run([*taken, "ann"], check=True, env=environment, timeout=60)
    node_of(login)

    subprocess.run([*taken, "-l", "1s", "ann"], check=True, env=environment, timeout=60)
    silent = [need_of_system("klist"), "-s", "-c", cache]
    eventually(lambda: subprocess.run(silent, env=environment, timeout=60, check=False).returncode, "the ticket ended")
    with pytest.raises(OperatorError, match=words):
        node_of(login)


def test_old_keys_are_needed_until_tickets_for_them_end(kdc: Kdc) -> None:
    from ottla.security.sasl.kerberos_tickets import Acceptor, Initiator, Tickets
    from ottla.security.sasl.mechanism import AuthenticationFailed

    service = f"kafka/{HOST}"
    keytab = kdc.keytab("service", service)
    acceptor = Acceptor("service", f"{service}@{REALM}", str(keytab))

    def tickets() -> Tickets:
        login = by_keytab(f"client {keytab.stat().st_ino} {keytab.stat().st_size}", kdc)
        taken = Initiator(login, lambda: SystemClock().time_ms() / 1000).take()
        taken.fetch(HOST)
        return taken

    def shows(held: Tickets) -> None:
        acceptor.context().step(held.context(HOST).step(b""))

    held = tickets()
    shows(held)
    kdc.keytab("service", service)  # behind the old ones
    shows(held)
    os.replace(kdc.keytab("other", service), keytab)
    with pytest.raises(AuthenticationFailed):
        shows(held)
    shows(tickets())
