"""Connections of a `Cluster`: at most one per broker, and one to any reachable bootstrap server.

Left out: routing and retries (`client.admin.router`).
"""

from __future__ import annotations

from collections.abc import Iterable

import ottla
from ottla.client.wire.connection import BrokerUnreachable, Connection, parse_bootstrap_servers
from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.endpoint import format_address

Address = tuple[str, int]


class BrokerConnections:
    """See the module. Connections are opened on first use, and again after `close`."""

    __slots__ = ("_any", "_bootstrap", "_by_node", "_client_id", "_max_response_bytes", "_security", "_timeout_s")

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        timeout_s: float,
        max_response_bytes: int,
        security: ClientSecurity,
    ) -> None:
        """Raises OperatorError for malformed addresses; connects later."""
        self._bootstrap = parse_bootstrap_servers(bootstrap_servers)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._max_response_bytes = max_response_bytes
        self._security = security
        self._by_node: dict[int, Connection] = {}
        self._any: Connection | None = None

    def close(self) -> None:
        """Close all connections."""
        for connection in self._by_node.values():
            connection.close()
        self._by_node.clear()
        if self._any is not None:
            self._any.close()
            self._any = None

    def open_to(self, node_id: int) -> Connection | None:
        """The open connection to a broker, if any."""
        connection = self._by_node.get(node_id)
        return None if connection is None or connection.closed else connection

    def to(self, node_id: int, address: Address) -> Connection:
        """A new connection to a broker. Raises BrokerUnreachable."""
        connection = self._by_node[node_id] = self._connect(*address)
        return connection

    def to_any(self, known: Iterable[Address]) -> Connection:
        """An open connection, or the first that can be opened: to the `known` brokers, then to the bootstrap servers.

        Raises BrokerUnreachable.
        """
        for connection in (*self._by_node.values(), self._any):
            if connection is not None and not connection.closed:
                return connection
        addresses = list(dict.fromkeys([*known, *self._bootstrap]))
        failure: BrokerUnreachable | KafkaError | None = None
        for host, port in addresses:
            try:
                self._any = self._connect(host, port)
            except BrokerUnreachable as error:
                failure = error
                continue
            except KafkaError as error:  # a broker that accepts connections and does not respond: others may
                if error.code != ErrorCode.REQUEST_TIMED_OUT or len(addresses) == 1:
                    raise
                failure = error
                continue
            return self._any
        if failure is None or len(addresses) == 1:
            raise BrokerUnreachable(f"{failure}; is a broker running there?") from failure
        tried = ", ".join(format_address(host, port) for host, port in addresses)
        raise BrokerUnreachable(f"{failure}; none of {tried} responds") from failure

    def _connect(self, host: str, port: int) -> Connection:
        return Connection(
            host,
            port,
            client_id=self._client_id,
            timeout_s=self._timeout_s,
            software_version=ottla.__version__,
            max_response_bytes=self._max_response_bytes,
            tls=self._security.tls,
            login=self._security.login,
        )
