"""Broker discovery in ZooKeeper, for clients that know only ZooKeeper."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from functools import partial

from ottla.common.errors import ProtocolError
from ottla.common.platform.endpoint import format_address
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_broker
from ottla.protocol.znodes.operations import Znode
from ottla.protocol.znodes.session import ZooKeeperError, ZooKeeperSession

logger = logging.getLogger(__name__)


class BrokerSearch:
    """Reads the registrations of all brokers, on the loop; a lost response counts as no broker."""

    def __init__(self, session: ZooKeeperSession, found: Future[list[str]], protocol: str = "PLAINTEXT") -> None:
        """Selects the first listener of each broker with this security protocol."""
        self._protocol = protocol
        self._session = session
        self._found = found
        self._missing = 0
        self._addresses: list[str] = []

    def begin(self) -> None:
        self._session.children(paths.BROKER_IDS, self._listed)

    def _listed(self, names: list[str] | None, _error: ZooKeeperError | None) -> None:
        self._missing = len(names or ())
        for name in names or ():
            path = f"{paths.BROKER_IDS}/{name}"
            self._session.get(path, partial(self._read, path))
        self._end()

    def _read(self, path: str, node: Znode | None, _error: ZooKeeperError | None) -> None:
        self._missing -= 1
        try:
            endpoints = () if node is None else decode_broker(path, node.data).endpoints
        except ProtocolError as error:
            logger.warning("ignoring a broker registration: %s", error)
            endpoints = ()
        suitable = next((each for each in endpoints if each.security_protocol == self._protocol), None)
        if suitable is not None:
            self._addresses.append(format_address(suitable.host, suitable.port))
        self._end()

    def _end(self) -> None:
        if not self._missing and not self._found.done():
            self._found.set_result(self._addresses)
