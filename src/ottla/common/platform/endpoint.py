"""An address that a broker listens on or advertises, with listener name and security protocol."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

BRACKETED_HOST = r"\[([0-9A-Fa-f:.]+(?:%[0-9A-Za-z_.:-]+)?)\]"
"""Pattern of an IPv6 address in brackets, optionally with a zone; the group has no brackets."""
_MAPPED = "::ffff:"


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_host(address: str) -> str:
    """Return the address of a socket's peer in the form that limits, quotas, ACLs and logs use.

    For an IPv4 client of a dual-stack socket, the IPv4-mapped address (`::ffff:10.0.0.1`) becomes the IPv4 address.
    The zone of a link-local address is removed.
    """
    ipv4 = address.removeprefix(_MAPPED)
    if ipv4 != address and "." in ipv4 and ":" not in ipv4:
        return ipv4
    return address.partition("%")[0]


@lru_cache(maxsize=1024)  # called for each authorized request
def canonical_host(host: str) -> str:
    """Return one form for each IP address, as `peer_host` does; other text unchanged."""
    from ipaddress import IPv6Address, ip_address  # imported here: a start without ACLs does not need it

    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address).partition("%")[0]


class ListenerInfo(NamedTuple):
    """Listener of a connection, for authentication and authorization."""

    name: str
    security_protocol: str
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    @property
    def encrypts(self) -> bool:
        """Return whether its connections use TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        """Return whether its clients authenticate by SASL before any other request."""
        return self.security_protocol.startswith("SASL_")


class Endpoint(NamedTuple):
    """One listener, as in `listeners` and `advertised.listeners`."""

    listener_name: str
    security_protocol: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """Return `host:port`, with brackets around an IPv6 address."""
        return format_address(self.host, self.port)

    @property
    def listener(self) -> ListenerInfo:
        return ListenerInfo(self.listener_name, self.security_protocol)
