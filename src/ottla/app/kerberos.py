"""Tickets of Kerberos by which a node says to others who it is, taken anew before they end.

The loop waits for nobody, and nothing else waits for a KDC: threads of its own ask, for one ticket of a host at a time.
A ticket counts until it ends, also where the KDC gave a newer first one, and while that for a host is asked for.

Left out: to say how long a KDC is waited for, which is krb5.conf's (`kdc_timeout` and its like, half a minute or so).
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
"""How long a start waits for the first ticket."""
FIRST_BACKOFF_MS = 1000


class NodeTickets:
    """Belongs to the loop."""

    def __init__(self, login: KerberosLogin, initiator: Initiator, window: RefreshWindow, machine: NodeRuntime) -> None:
        """`initiator` takes the tickets of `login`, in threads of the machine's pool, which may wait.

        Waits for the first one. Raises OperatorError.
        """
        self._machine = machine
        self._window = window
        self._whose = login.principal or login.source
        self._known: dict[str, Tickets] = {}
        """What has a ticket for a host."""
        self._asking: dict[str, list[Begun]] = {}
        """Who waits for one, by host."""
        late = f"{login.setting}: the KDC gave no ticket of {login.source} within {START_S:.0f} s; check krb5.conf"
        backoff = Backoff(FIRST_BACKOFF_MS, max(FIRST_BACKOFF_MS, int(1000 * window.min_period_s)))
        renewal = Renewal("the ticket of this node", initiator.take, self._use, backoff, machine)
        renewal.begin_in(self._use(within(START_S, initiator.take, late)))

    def begin(self, host: str, begun: Begun) -> None:
        """For `ottla.net.peer.Login`."""
        known = self._known.get(host)
        if known is not None and known.last(host):
            if known is not self._tickets:
                self._fetch(host)
            begun(GssapiClient(known.context(host)), None)
        elif self._now_s() >= self._tickets.ends_s:
            begun(None, ConnectionError(f"the ticket of {self._whose} is over, and the KDC gave no other"))
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

        self._machine.pool.submit(lambda: tickets.fetch(host), came)

    def _use(self, tickets: Tickets) -> float:
        self._tickets = tickets
        self._known = {host: known for host, known in self._known.items() if known.last(host)}
        life_s = tickets.ends_s - self._now_s()
        return max(self._window.wait_s(life_s, self._machine.rng), MIN_PAUSE_S)

    def _now_s(self) -> float:
        return self._machine.clock.time_ms() / 1000
