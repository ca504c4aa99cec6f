"""An address that a broker listens on or advertises, with the listener's name and security protocol."""

from __future__ import annotations

from typing import NamedTuple


class ListenerInfo(NamedTuple):
    """The listener that a connection came by, as who authenticates and authorises it needs to know."""

    name: str
    security_protocol: str
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    @property
    def encrypts(self) -> bool:
        """Whether its connections speak TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        """Whether its clients say who they are by SASL before anything else."""
        return self.security_protocol.startswith("SASL_")


class Endpoint(NamedTuple):
    """One listener, as in `listeners` and `advertised.listeners`."""

    listener_name: str
    security_protocol: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """`host:port`, with the brackets that an IPv6 address needs."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def listener(self) -> ListenerInfo:
        return ListenerInfo(self.listener_name, self.security_protocol)
