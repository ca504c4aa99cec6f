"""Metrics of clients (KIP-714), read from the Prometheus endpoints of brokers that the operator named.

The cluster has no request for them. The console reads with its own token, so a page must check the permissions of its
user first (`rights.may_describe_cluster`).

Bounds: `MAX_CLIENTS`; one pass over all endpoints at a time for the list, whose result is reused for `LIST_S`, and one
for single clients.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from ottla.client.views.pushed_metrics import (
    CLIENT_ID,
    INSTANCE_ID,
    MetricsSource,
    PushedSeries,
    pushing_clients,
    series_of_client,
)
from ottla.common.errors import OperatorError
from ottla.common.platform.clock import Clock

LIST_S = 5.0
MAX_CLIENTS = 20_000
"""Clients of the list, of one endpoint."""
CONCURRENT_READS = 8


class PushingClient(NamedTuple):
    """A client that pushes metrics to a broker."""

    client_id: str
    instance_id: str
    labels: Mapping[str, str]
    """Software, address, group and other attributes, as exported."""
    source: MetricsSource


class ClientList(NamedTuple):
    """Clients by their client ids, and a sentence for each endpoint that could not be read."""

    clients: Sequence[PushingClient]
    problems: Sequence[str]


class ClientScrapes:
    """Reads the endpoints. Used by several threads."""

    def __init__(self, sources: Sequence[MetricsSource], clock: Clock) -> None:
        self.sources = tuple(sources)
        self._clock = clock
        self._list = ClientList((), ())
        self._listed_s: float | None = None
        self._listing = threading.Lock()
        self._reading = threading.Lock()

    def clients(self) -> ClientList:
        """All clients, at most `LIST_S` old."""
        with self._listing:
            if self._listed_s is None or self._clock.monotonic() - self._listed_s >= LIST_S:
                self._list = self._read()
                self._listed_s = self._clock.monotonic()
            return self._list

    def _read(self) -> ClientList:
        with ThreadPoolExecutor(CONCURRENT_READS) as pool:
            results = list(pool.map(_clients_of, self.sources))
        clients = [client for found, _ in results for client in found]
        clients.sort(key=lambda client: (client.client_id, client.instance_id))
        return ClientList(clients, [problem for _, problem in results if problem is not None])

    def series(self, client: PushingClient) -> list[PushedSeries]:
        """The values of the last push. Raises OperatorError."""
        with self._reading:
            return series_of_client(client.source, client.instance_id)


def _clients_of(source: MetricsSource) -> tuple[list[PushingClient], str | None]:
    found: list[PushingClient] = []
    try:
        for labels in islice(pushing_clients(source), MAX_CLIENTS):
            client_id, instance_id = labels.pop(CLIENT_ID, ""), labels.pop(INSTANCE_ID, "")
            found.append(PushingClient(client_id, instance_id, labels, source))
    except OperatorError as error:
        return found, str(error)
    return found, None
