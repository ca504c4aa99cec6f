"""Quota lookup: the limit of a client and its sharing group, by Apache Kafka's eight levels of (user, client id).

The most specific level that has the limit applies, separately for each quota type. All connections of one group share
it: of one user with one client id, of one user with any client id, or of one client id with any user. A default
limit therefore creates a group for each user or client id without a limit of its own.
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
"""Kinds and names, as in the metadata; a name of None is the default of its kind."""

Quotas = Mapping[Entity, Mapping[str, float]]


class _AnyName:
    """Placeholder for a part that an entity doesn't name."""


_ANY_NAME = _AnyName()
_Part = str | None | _AnyName


class Group(NamedTuple):
    """Clients that share a limit; None matches any name."""

    user: str | None
    client_id: str | None

    @property
    def labels(self) -> dict[str, str]:
        """The tags of Apache Kafka's metrics."""
        return {"user": self.user or "", "client_id": self.client_id or ""}


class Limit(NamedTuple):
    """The limit of a client."""

    group: Group
    bound: float


class ClientLimits:
    """One quota type, for all clients."""

    __slots__ = ("_bounds",)

    def __init__(self, quotas: Quotas, key: str) -> None:
        self._bounds: dict[tuple[_Part, _Part], float] = {}
        for entity, values in quotas.items():
            parts = dict(entity)
            if key in values and IP not in parts:
                self._bounds[parts.get(USER, _ANY_NAME), parts.get(CLIENT_ID, _ANY_NAME)] = values[key]

    def __bool__(self) -> bool:
        """Whether any client has a limit."""
        return bool(self._bounds)

    def of(self, user: str, client_id: str) -> Limit | None:
        """The limit of a client; None if it has none."""
        bounds = self._bounds
        if not bounds:
            return None
        for level_user, level_client_id, group in _levels(user, client_id):
            bound = bounds.get((level_user, level_client_id))
            if bound is not None:
                return Limit(group, bound)
        return None


def _levels(user: str, client_id: str) -> Iterable[tuple[_Part, _Part, Group]]:
    """The levels, most specific first."""
    both, user_alone, client_alone = Group(user, client_id), Group(user, None), Group(None, client_id)
    yield user, client_id, both
    yield user, None, both
    yield user, _ANY_NAME, user_alone
    yield None, client_id, both
    yield None, None, both
    yield None, _ANY_NAME, user_alone
    yield _ANY_NAME, client_id, client_alone
    yield _ANY_NAME, None, client_alone


def user_of(principal: str) -> str:
    """The quota entity name of a principal "User:name"."""
    return principal.partition(":")[2]


def address_limits(quotas: Quotas) -> dict[str | None, float]:
    """Connection creation rates by canonical address; None is the default of all others."""
    limits: dict[str | None, float] = {}
    for entity, values in quotas.items():
        parts = dict(entity)
        if IP in parts and CONNECTION_CREATION_RATE in values:
            address = parts[IP]
            limits[None if address is None else canonical_host(address)] = values[CONNECTION_CREATION_RATE]
    return limits
