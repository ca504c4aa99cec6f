"""Kerberos tickets for tools, from Kafka's client properties: from a keytab, or from a cache that kinit fills.

They are requested on connect; those of a keytab are renewed after four fifths of their lifetime.
"""

from __future__ import annotations

import time

from ottla.client.wire.time_limit import within
from ottla.common.errors import OperatorError
from ottla.security.sasl.kerberos import GssapiClient
from ottla.security.sasl.kerberos_login import KerberosLogin
from ottla.security.sasl.kerberos_tickets import Initiator, Tickets
from ottla.security.sasl.refresh import renewal_s

TIMEOUT_S = 30.0
"""Timeout for the KDC, in seconds."""


class KerberosClient:
    """Creates SASL exchanges: a `Login` of `ottla.client.wire.login`."""

    def __init__(self, login: KerberosLogin) -> None:
        """Sends no request. Raises OperatorError."""
        self._login = login
        self._initiator = Initiator(login, time.time)
        self._tickets: Tickets | None = None
        self._again_s = 0.0

    def __call__(self, host: str) -> GssapiClient:
        """Start an exchange; blocks until there is a ticket for `host`. Raises OperatorError."""
        late = f"{self._login.setting}: the KDC issued no ticket within {TIMEOUT_S:.0f} s: check krb5.conf"
        tickets = within(TIMEOUT_S, lambda: self._with_ticket(host), late)
        return GssapiClient(tickets.context(host))

    def _with_ticket(self, host: str) -> Tickets:
        tickets, now_s = self._tickets, time.time()
        if tickets is None or now_s >= self._again_s:
            try:
                tickets = self._tickets = self._initiator.take()
            except OperatorError:
                if tickets is None or now_s >= tickets.ends_s:
                    raise
            else:
                self._again_s = renewal_s(now_s, tickets.ends_s)
        if not tickets.last(host):
            tickets.fetch(host)
        return tickets
