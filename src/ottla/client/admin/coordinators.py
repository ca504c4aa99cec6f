"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ottla.client.admin.router import ClusterRouter
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.client.wire.model import BrokerInfo
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.registry import ApiKey

FIRST_OF_SEVERAL_KEYS = 4
"""First version with several keys per request."""


class CoordinatorType(IntEnum):
    """Type of the key in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


NOUNS = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional id"}
_HIDDEN = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


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


def coordinators_of(router: ClusterRouter, key_type: CoordinatorType, keys: Sequence[str]) -> dict[int, list[str]]:
    """The keys by the node ids of their coordinators, to which the router has addresses from now on.

    Omits keys that this user may not see. Raises KafkaError for any other failure.
    """
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    response: FindCoordinatorResponse = router.any_connection().request(ApiKey.FIND_COORDINATOR, request)
    found: dict[int, list[str]] = {}
    addresses: dict[int, BrokerInfo] = {}
    for each in response.coordinators:
        if each.error_code in _HIDDEN:
            continue
        raise_for(each.error_code, f"coordinator of {NOUNS[key_type]} {each.key!r}", each.error_message)
        found.setdefault(each.node_id, []).append(each.key)
        addresses[each.node_id] = BrokerInfo(each.node_id, each.host, each.port, None)
    if not addresses.keys() <= router.brokers.keys():
        router.refresh([])
    router.brokers = addresses | router.brokers
    return found
