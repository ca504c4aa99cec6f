"""Kerberos tickets with which a node authenticates to other nodes, renewed before they expire.

The event loop never waits for a KDC: dedicated threads request tickets, one host at a time. A ticket is used until it
expires, also after the KDC issued a newer ticket-granting ticket, and while a request for the host is pending.

Left out: timeouts of KDC requests, which krb5.conf defines (`kdc_timeout` and others, about half a minute).
"""

from __future__ import annotations

from ottla.app.renewal import MIN_PAUSE_S, Backoff, Renewal
from ottla.client.wire.time_limit import within
from ottla.common.platform.runtime import NodeRuntime
from ottla.net.peer import Begun
from ottla.security.sasl.kerberos import GssapiClient
from ottla.security.sasl.kerberos_login import KerberosLogin
from ottla.security.sasl.kerberos_tickets import Initiator, Tickets
from ottla.security.sasl.refresh import RefreshWindow

START_S = 60.0
"""Longest wait of a start for the first ticket, in seconds."""
FIRST_BACKOFF_MS = 1000


class NodeTickets:
    """Ticket cache of a node. All methods must be called on the loop."""

    def __init__(self, login: KerberosLogin, initiator: Initiator, window: RefreshWindow, runtime: NodeRuntime) -> None:
        """`initiator` obtains the tickets of `login`, in threads of the node's pool, which may block.

        Waits for the first ticket. Raises OperatorError.
        """
        self._runtime = runtime
        self._window = window
        self._principal = login.principal or login.source
        self._known: dict[str, Tickets] = {}
        """Initiator with a valid ticket for each host."""
        self._asking: dict[str, list[Begun]] = {}
        """Callbacks that wait for a ticket, by host."""
        late = f"{login.setting}: the KDC issued no ticket for {login.source} within {START_S:.0f} s: check krb5.conf"
        backoff = Backoff(FIRST_BACKOFF_MS, max(FIRST_BACKOFF_MS, int(1000 * window.min_period_s)))
        renewal = Renewal("the ticket of this node", initiator.take, self._use, backoff, runtime)
        renewal.begin_in(self._use(within(START_S, initiator.take, late)))

    def begin(self, host: str, begun: Begun) -> None:
        """Implements `ottla.net.peer.Login`."""
        known = self._known.get(host)
        if known is not None and known.last(host):
            if known is not self._tickets:
                self._fetch(host)
            begun(GssapiClient(known.context(host)), None)
        elif self._now_s() >= self._tickets.ends_s:
            begun(None, ConnectionError(f"the ticket of {self._principal} has expired, and the KDC issued no new one"))
        else:
            self._fetch(host, begun)

    def _fetch(self, host: str, *waiting: Begun) -> None:
        if host in self._asking:
            self._asking[host] += waiting
            return
        self._asking[host] = [*waiting]
        tickets = self._tickets

        def came(_: None, error: BaseException | None) -> None:
            if error is None:
                self._known[host] = tickets
            for begun in self._asking.pop(host):
                if error is None:
                    begun(GssapiClient(tickets.context(host)), None)
                else:
                    begun(None, ConnectionError(str(error)))

        self._runtime.pool.submit(lambda: tickets.fetch(host), came)

    def _use(self, tickets: Tickets) -> float:
        self._tickets = tickets
        self._known = {host: known for host, known in self._known.items() if known.last(host)}
        life_s = tickets.ends_s - self._now_s()
        return max(self._window.wait_s(life_s, self._runtime.rng), MIN_PAUSE_S)

    def _now_s(self) -> float:
        return self._runtime.clock.time_ms() / 1000
