"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ottla.client.admin.router import ClusterRouter
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.client.wire.model import BrokerInfo
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.registry import ApiKey

FIRST_OF_SEVERAL_KEYS = 4
"""First version with several keys per request."""


class CoordinatorType(IntEnum):
    """Type of the key in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


NOUNS = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional id"}


def find_coordinator(connection: Connection, key_type: CoordinatorType, key: str) -> BrokerInfo:
    """The coordinator of the key, which need not exist. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""
    if connection.version_for(ApiKey.FIND_COORDINATOR) >= FIRST_OF_SEVERAL_KEYS:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    else:
        request = FindCoordinatorRequest(key=key, key_type=key_type)
    response: FindCoordinatorResponse = connection.request(ApiKey.FIND_COORDINATOR, request)
    found: Any = response.coordinators[0] if response.coordinators else response
    raise_for(found.error_code, f"coordinator of {NOUNS[key_type]} {key!r}", found.error_message)
    return BrokerInfo(found.node_id, found.host, found.port, None)


def coordinator_of(router: ClusterRouter, key_type: CoordinatorType, key: str) -> BrokerInfo:
    """The coordinator of the key, to which the router has an address from now on."""
    coordinator = find_coordinator(router.any_connection(), key_type, key)
    if coordinator.node_id not in router.brokers:
        router.refresh([])
    router.brokers.setdefault(coordinator.node_id, coordinator)
    return coordinator
