"""Registrations of brokers: requests, and the service `Cluster.brokers`. See `client.admin.topics`."""

from __future__ import annotations

from ottla.client.admin.configs import describe_configs
from ottla.client.admin.features import describe_features
from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.client.wire.model import ClusterBroker, FeatureInfo, ResourceType
from ottla.common.errors import OttlaError
from ottla.common.kafka.acl import operations_of
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.registry import ApiKey

NODE_VERSION = "ottla.version"
"""Read-only config of an Ottla broker that only a request for this name returns."""


def describe_brokers(connection: Connection) -> list[ClusterBroker]:
    """DescribeCluster: all registered brokers by id, including fenced ones."""
    connection.require_broker()
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response: DescribeClusterResponse = connection.request(ApiKey.DESCRIBE_CLUSTER, request)
    raise_for(response.error_code, "the cluster", response.error_message)
    brokers = [
        ClusterBroker(item.broker_id, item.host, item.port, item.rack, item.is_fenced) for item in response.brokers
    ]
    return sorted(brokers, key=lambda broker: broker.node_id)


def cluster_operations(connection: Connection) -> frozenset[int]:
    """DescribeCluster: operations that this user may perform on the cluster (KIP-430)."""
    connection.require_broker()
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response: DescribeClusterResponse = connection.request(ApiKey.DESCRIBE_CLUSTER, request)
    raise_for(response.error_code, "the cluster", response.error_message)
    return operations_of(response.cluster_authorized_operations)


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

    def cluster_operations(self) -> frozenset[int]:
        """The `AclOperation`s that this user may perform on the cluster."""
        return self._router.retry(lambda: cluster_operations(self._router.any_connection()))

    def versions(self) -> dict[int, str]:
        """The versions of the live brokers by id; without brokers that do not answer or are not Ottla's."""
        found: dict[int, str | None] = {}
        for broker in self.all():
            if broker.fenced:
                continue
            try:
                connection = self._router.broker_connection(broker.node_id)
                entries = describe_configs(connection, ResourceType.BROKER, str(broker.node_id), [NODE_VERSION])
            except OttlaError:
                continue
            found.update((broker.node_id, entry.value) for entry in entries if entry.name == NODE_VERSION)
        return {node_id: version for node_id, version in found.items() if version is not None}

    def certificate_expiries(self) -> dict[int, float]:
        """End of the validity of each live broker's certificate by id, in seconds since the epoch.

        Empty without TLS. A broker that does not answer is omitted.
        """
        found: dict[int, float] = {}
        for broker in self.all():
            if broker.fenced:
                continue
            try:
                certificate = self._router.broker_connection(broker.node_id).peer_certificate()
            except OttlaError:
                continue
            if certificate is None:
                return {}
            from cryptography.x509 import load_der_x509_certificate

            found[broker.node_id] = load_der_x509_certificate(certificate).not_valid_after_utc.timestamp()
        return found

    def features(self) -> dict[int, dict[str, FeatureInfo]]:
        """Finalized and supported feature levels as each live broker reports them, by id."""
        live = [broker.node_id for broker in self.all() if not broker.fenced]

        def features_of(node_id: int) -> dict[str, FeatureInfo]:
            return self._router.retry(lambda: describe_features(self._router.broker_connection(node_id)))

        return {node_id: features_of(node_id) for node_id in live}

    def unregister(self, broker_id: int) -> None:
        """Remove the registration of a broker that will not return."""
        self._router.change(lambda connection: unregister_broker(connection, broker_id))
