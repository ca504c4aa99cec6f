"""An address that a broker listens on or advertises, with the listener's name and security protocol."""

from __future__ import annotations

from typing import NamedTuple


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
