"""Registrations of brokers: requests, and the service `Cluster.brokers`. See `client.admin.topics`."""

from __future__ import annotations

from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.client.wire.model import ClusterBroker
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.registry import ApiKey


def describe_brokers(connection: Connection) -> list[ClusterBroker]:
    """DescribeCluster: all registered brokers by id, including fenced ones."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response: DescribeClusterResponse = connection.request(ApiKey.DESCRIBE_CLUSTER, request)
    raise_for(response.error_code, "the cluster", response.error_message)
    brokers = [
        ClusterBroker(item.broker_id, item.host, item.port, item.rack, item.is_fenced) for item in response.brokers
    ]
    return sorted(brokers, key=lambda broker: broker.node_id)


def unregister_broker(connection: Connection, broker_id: int) -> None:
    """UnregisterBroker: remove the registration of a broker that will not return."""
    response: UnregisterBrokerResponse = connection.request(
        ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker_id)
    )
    raise_for(response.error_code, f"broker {broker_id}", response.error_message)


class BrokerService(ClusterService):
    """Brokers and their registrations."""

    def all(self) -> list[ClusterBroker]:
        """All registered brokers by id, including fenced ones."""
        return self._router.retry(lambda: describe_brokers(self._router.any_connection()))

    def unregister(self, broker_id: int) -> None:
        """Remove the registration of a broker that will not return."""
        self._router.change(lambda connection: unregister_broker(connection, broker_id))
