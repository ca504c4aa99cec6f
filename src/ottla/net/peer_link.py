"""Link to one node: its connection, replaced after a failure or a change of address."""

from __future__ import annotations

from ottla.common.platform.peer import Address, PeerConnection, PeerNetwork


class PeerLink:
    """Has at most one connection, opened on first use."""

    __slots__ = ("_address", "_connection", "_network")

    def __init__(self, network: PeerNetwork) -> None:
        self._network = network
        self._address: Address | None = None
        self._connection: PeerConnection | None = None

    def to(self, address: Address) -> PeerConnection:
        """The connection to the node, which is at `address` now."""
        self.leave_unless(address)
        connection = self._connection
        if connection is None or connection.failed:
            self.close()
            connection = self._connection = self._network.connect(*address)
            self._address = address
        return connection

    def leave_unless(self, address: Address | None) -> None:
        """Close a connection to any other address; None means that the node has no address now."""
        if address != self._address:
            self.close()

    def close(self) -> None:
        """Close the connection: pending requests fail. The next use opens a new one."""
        connection, self._connection, self._address = self._connection, None, None
        if connection is not None:
            connection.close()
