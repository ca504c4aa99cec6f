"""Which limit holds for a client, and with whom it shares it: the eight levels of (user, client id), as Apache Kafka's.

The most specific level that has the limit wins, each kind of limit for itself. All connections of one group share it:
of one user with one client id, of one user whatever its client ids, or of one client id whoever uses it; so a limit
that is a default makes a group for each that has none of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.common.platform.endpoint import canonical_host

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

Entity = tuple[tuple[str, str | None], ...]
"""Kinds and names, as the metadata has them; a name of None is the default of its kind."""

Quotas = Mapping[Entity, Mapping[str, float]]


class _Anybody:
    """Stands for a part that an entity doesn't name."""


_ANYBODY = _Anybody()
_Part = str | None | _Anybody


class Group(NamedTuple):
    """Who shares a limit; None is anybody."""

    user: str | None
    client_id: str | None

    @property
    def labels(self) -> dict[str, str]:
        """As the tags of Apache Kafka's metrics."""
        return {"user": self.user or "", "client_id": self.client_id or ""}


class Limit(NamedTuple):
    """What holds for a client."""

    group: Group
    bound: float


class ClientLimits:
    """One kind of limit, for all clients."""

    __slots__ = ("_bounds",)

    def __init__(self, quotas: Quotas, key: str) -> None:
        self._bounds: dict[tuple[_Part, _Part], float] = {}
        for entity, values in quotas.items():
            parts = dict(entity)
            if key in values and IP not in parts:
                self._bounds[parts.get(USER, _ANYBODY), parts.get(CLIENT_ID, _ANYBODY)] = values[key]

    def __bool__(self) -> bool:
        """Whether anybody is limited."""
        return bool(self._bounds)

    def of(self, user: str, client_id: str) -> Limit | None:
        """What holds for a client; None where nothing does."""
        bounds = self._bounds
        if not bounds:
            return None
        for level_user, level_client_id, group in _levels(user, client_id):
            bound = bounds.get((level_user, level_client_id))
            if bound is not None:
                return Limit(group, bound)
        return None


def _levels(user: str, client_id: str) -> Iterable[tuple[_Part, _Part, Group]]:
    """From the most specific on."""
    both, user_alone, client_alone = Group(user, client_id), Group(user, None), Group(None, client_id)
    yield user, client_id, both
    yield user, None, both
    yield user, _ANYBODY, user_alone
    yield None, client_id, both
    yield None, None, both
    yield None, _ANYBODY, user_alone
    yield _ANYBODY, client_id, client_alone
    yield _ANYBODY, None, client_alone


def user_of(principal: str) -> str:
    """The name that limits know a principal "User:name" by."""
    return principal.partition(":")[2]


def address_limits(quotas: Quotas) -> dict[str | None, float]:
    """New connections a second by address in canonical form; None is the default of all others."""
    limits: dict[str | None, float] = {}
    for entity, values in quotas.items():
        parts = dict(entity)
        if IP in parts and CONNECTION_CREATION_RATE in values:
            address = parts[IP]
            limits[None if address is None else canonical_host(address)] = values[CONNECTION_CREATION_RATE]
    return limits
