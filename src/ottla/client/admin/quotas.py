"""Client quotas (KIP-546): requests, and the service `Cluster.quotas`. See `client.admin.topics`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.client.wire.model import ClientQuota
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    AlterQuotaOperation,
    AlterQuotasEntry,
)
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.registry import ApiKey

Entity = Sequence[tuple[str, str | None]]
"""Names by kind ("user", "client-id", "ip"); None is the default of its kind."""


def describe_client_quotas(connection: Connection) -> list[ClientQuota]:
    """DescribeClientQuotas without a filter: all quotas, sorted by kind and name."""
    response: DescribeClientQuotasResponse = connection.request(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest()
    )
    raise_for(response.error_code, "the quotas", response.error_message)
    found = [
        ClientQuota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or ()
    ]
    return sorted(found, key=lambda quota: sorted((kind, name or "") for kind, name in quota.entity.items()))


def alter_client_quotas(connection: Connection, entity: Entity, changes: Mapping[str, float | None]) -> None:
    """AlterClientQuotas of one entity: set quotas, and remove those with the value None; all or none."""
    ops = [AlterQuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()]
    named = [AlteredEntity(entity_type=kind, entity_name=name) for kind, name in entity]
    request = AlterClientQuotasRequest(entries=[AlterQuotasEntry(entity=named, ops=ops)])
    response: AlterClientQuotasResponse = connection.request(ApiKey.ALTER_CLIENT_QUOTAS, request)
    for entry in response.entries:
        raise_for(entry.error_code, "the quotas", entry.error_message)


class QuotaService(ClusterService):
    """Client quotas."""

    def all(self) -> list[ClientQuota]:
        """All client"""
        return self._router.retry(lambda: describe_client_quotas(self._router.any_connection()))

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of one entity, and remove those with the value None."""
        self._router.change(lambda connection: alter_client_quotas(connection, entity, changes))
