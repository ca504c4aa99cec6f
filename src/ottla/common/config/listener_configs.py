"""Listener settings: names, addresses, security protocols, and overrides for one listener (KIP-103).

The prefix `listener.name.<name>.` sets a value for one listener. A SASL mechanism after it narrows it to that mechanism
(`listener.name.<name>.plain.sasl.jaas.config`, KIP-85). A prefixed setting takes precedence over the unprefixed one,
regardless of their layers, as in Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ottla.common.config.config_keys_sasl import SASL_CONFIGS
from ottla.common.config.config_keys_tls import TLS_CONFIGS
from ottla.common.errors import OperatorError
from ottla.common.platform.endpoint import BRACKETED_HOST, Endpoint, canonical_host

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECURED_PROTOCOLS = SECURITY_PROTOCOLS[1:]

CONNECTION_RATE = "max.connection.creation.rate"
LISTENER_CONFIGS = frozenset({CONNECTION_RATE, *(key.name for key in (*TLS_CONFIGS, *SASL_CONFIGS))})
"""Settings that can be set for one listener."""

_LISTENER = re.compile(rf"([^:/]+)://(?:{BRACKETED_HOST}|([^:\[\]/]*)):([0-9]{{1,5}})")
_MECHANISMS = "plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi"
_OVERRIDE = re.compile(rf"(listener\.name\.[^.]*\.(?:(?:{_MECHANISMS})\.)?)(.*)", re.DOTALL)
_BOTH_FAMILIES = "::"
_NOWHERE = ("0.0.0.0", _BOTH_FAMILIES)


def without_listener(name: str) -> str:
    """Return `name` without its listener prefix."""
    override = _OVERRIDE.fullmatch(name)
    return override.group(2) if override else name


def of_listener(listener_name: str, setting: str, mechanism: str = "") -> str:
    """Return the name of `setting` for one listener, or for one SASL mechanism of it."""
    within = f"{mechanism.lower()}." if mechanism else ""
    return f"listener.name.{listener_name.lower()}.{within}{setting}"


def canonical(name: str) -> str:
    """Return `name` with its listener in lower case, as `of_listener` does."""
    override = _OVERRIDE.fullmatch(name)
    return override.group(1).lower() + override.group(2) if override else name


def parse_endpoints(setting: str, items: Iterable[str], protocols: Mapping[str, str]) -> list[Endpoint]:
    """Parse `NAME://host:port` items; names become upper case. Raises OperatorError with the name of `setting`."""
    endpoints: list[Endpoint] = []
    for item in items:
        match = _LISTENER.fullmatch(item.strip())
        if match is None or int(match.group(4)) > 65535:
            raise OperatorError(f"{setting} contains {item!r}, which is not of the form NAME://host:port")
        name = match.group(1).upper()
        host = match.group(2) or match.group(3) or ""
        if ":" in host and canonical_host(host) == _BOTH_FAMILIES:
            host = _BOTH_FAMILIES  # it has many forms, such as 0:0:0:0:0:0:0:0
        endpoints.append(Endpoint(name, protocol_of(setting, name, protocols), host, int(match.group(4))))
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise OperatorError(f"{setting} uses a listener name twice; each listener needs its own name")
    return endpoints


def protocol_of(setting: str, name: str, protocols: Mapping[str, str]) -> str:
    """Return the security protocol of a listener named in `setting`; raises OperatorError."""
    if name not in protocols:
        raise OperatorError(
            f"{setting} names listener {name}, which listener.security.protocol.map does not map to a protocol"
        )
    return protocols[name]


def parse_protocols(text: str) -> dict[str, str]:
    """Return security protocols by listener name, from `listener.security.protocol.map`. Raises OperatorError."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise OperatorError(
                f"listener.security.protocol.map contains {item!r}; each entry is NAME:PROTOCOL with one of "
                f"{', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def implied_controllers(listeners: Sequence[str], controllers: Iterable[str]) -> dict[str, str]:
    """Return the default map: PLAINTEXT for controller listeners, unless one is named like a secured protocol."""
    named = [item.strip().partition("://")[0].upper() for item in listeners] + [name.upper() for name in controllers]
    if any(name in SECURED_PROTOCOLS for name in named):
        return {}
    return {name.upper(): "PLAINTEXT" for name in controllers}


def check_distinct_addresses(endpoints: Sequence[Endpoint]) -> None:
    """Check that listeners do not share an address; a port may serve IPv4 and IPv6. Raises OperatorError.

    An address cannot be bound twice, nor together with the wildcard address of both families.
    """
    seen: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        for other in seen.setdefault(endpoint.port, []) if endpoint.port else ():
            if other.host == endpoint.host:
                raise OperatorError(f"listeners uses {endpoint.address} twice; each listener needs its own port")
            for one, all_addresses in ((endpoint, other), (other, endpoint)):
                if all_addresses.host in ("", _BOTH_FAMILIES):
                    raise OperatorError(
                        f"listeners uses {one.address} and {all_addresses.address}, which serves all addresses of "
                        "IPv4 and IPv6; each listener needs its own port"
                    )
        seen.setdefault(endpoint.port, []).append(endpoint)


def check_advertised(endpoints: Iterable[Endpoint], bound: Iterable[Endpoint]) -> None:
    """Check that advertised listeners exist and have connectable addresses. Raises OperatorError."""
    names = {endpoint.listener_name for endpoint in bound}
    for endpoint in endpoints:
        if endpoint.host in _NOWHERE:
            raise OperatorError(
                f"advertised.listeners: {endpoint.listener_name} advertises {endpoint.host}, which no client can "
                "connect to; name a host that clients can reach"
            )
        if endpoint.listener_name not in names:
            raise OperatorError(
                f"advertised.listeners names {endpoint.listener_name}, which is not in listeners; add it there"
            )
