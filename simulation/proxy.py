"""A proxy in front of brokers that repeats requests late, or only forwards them late (KAFKA-17754).

A late request arrives on its own connection, perhaps when its client has given up, retried, ended the transaction and
begun the next one. Clients of the first version of transactions are not safe against a repeated EndTxn or repeated
transactional offsets in their next transaction; the second version fixes that (KIP-890). So these requests of the first
version are forwarded unchanged, as are the markers of its coordinators (KIP-1228).
"""

from __future__ import annotations

from ottla.common.platform.disk import Buffer
from ottla.protocol.codec import read_message
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.registry import ApiKey
from simulation.loop import SimLoop
from simulation.network import Address, Network
from simulation.rng import SimRng

LATE_S = (0.02, 20.0)
HELD_S = 5.0
"""Lifetime of a connection of the proxy."""
CHANCE = 0.06
HOLD_CHANCE = 0.4
"""Minimum delay of a late request."""
REPEATED_FROM = {
    ApiKey.PRODUCE: 0,
    ApiKey.ADD_PARTITIONS_TO_TXN: 0,
    ApiKey.ADD_OFFSETS_TO_TXN: 0,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.END_TXN: 5,
}
"""The first version of each request that may be repeated."""
SAFE_MARKERS = 2
"""The version of transactions whose markers may be repeated, recognized by version 2 of their request."""


class LateProxy:
    """Implements `simulation.client.Proxy`, and is used between nodes too."""

    def __init__(self, loop: SimLoop, network: Network, rng: SimRng) -> None:
        self._loop = loop
        self._network = network
        self._rng = rng
        self.active = True
        self.late_count = 0

    def __call__(self, address: Address | None, key: ApiKey, version: int, frame: bytes) -> bool:
        """Whether the frame is forwarded at once."""
        first = REPEATED_FROM.get(key)
        return first is None or version < first or self._passes(address, frame)

    def between_nodes(self, address: Address, key: int, version: int, body: Buffer, frame: bytes) -> bool:
        """See `simulation.network.BetweenNodes`."""
        if key != ApiKey.WRITE_TXN_MARKERS or version < SAFE_MARKERS:
            return True
        request, _ = read_message(WriteTxnMarkersRequest, version, body, 0, len(body))
        safe = all(marker.transaction_version >= SAFE_MARKERS for marker in request.markers)
        return not safe or self._passes(address, frame)

    def _chance(self) -> float:
        """The chance of a request that may be repeated."""
        return CHANCE

    def _passes(self, address: Address | None, frame: bytes) -> bool:
        if not self.active or not self._rng.chance(self._chance()):
            return True
        self.late_count += 1
        self._loop.call_later(self._rng.uniform(*LATE_S), self._pass_on, address, frame)
        return not self._rng.chance(HOLD_CHANCE)

    def _pass_on(self, address: Address | None, frame: bytes) -> None:
        link = self._network.connect("proxy", address)
        if link is not None:
            link.send(frame)
            self._loop.call_later(HELD_S, link.close)
