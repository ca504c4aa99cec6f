"""Context of the handlers of client metrics: the receiver, which exists while the cluster has a subscription."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.kafka.ids import Uuid, new_uuid
from ottla.common.platform.channel import ClientChannel
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import ConfigResource, MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.series import Step
from ottla.server.requests.request import Request

if TYPE_CHECKING:
    from ottla.telemetry.instances import ClientInstance
    from ottla.telemetry.receiver import ClientMetricsReceiver


class TelemetryContext:
    """Dependencies of the handlers; follows the subscriptions of the cluster."""

    __slots__ = ("_monotonic", "_random_bytes", "_receiver", "max_bytes")

    def __init__(self, runtime: NodeRuntime, publisher: MetadataPublisher, max_bytes: int) -> None:
        self._monotonic = runtime.clock.monotonic
        self._random_bytes = runtime.rng.random_bytes
        self._receiver: ClientMetricsReceiver | None = None
        self.max_bytes = max_bytes
        self._update(publisher.image, list(publisher.image.configs))
        publisher.register(self._image_published)

    @property
    def receiver(self) -> ClientMetricsReceiver | None:
        """The receiver; None without a subscription."""
        return self._receiver

    def now_s(self) -> float:
        """Monotonic time, in seconds."""
        return self._monotonic()

    def new_instance_id(self) -> Uuid:
        """A new id for a client."""
        return new_uuid(self._random_bytes(16))

    def instance_of(
        self, receiver: ClientMetricsReceiver, request: Request, instance_id: Uuid, now_s: float
    ) -> ClientInstance:
        """The instance of the client of a request."""
        from ottla.common.kafka.ids import uuid_to_string
        from ottla.telemetry.subscriptions import ClientAttributes  # imported here: with the first subscription

        channel = cast(ClientChannel, request.channel)
        name, version = channel.client_software or (None, None)
        port = channel.client_port
        attributes = ClientAttributes(
            client_id=request.client_id,
            client_instance_id=uuid_to_string(instance_id),
            client_software_name=name,
            client_software_version=version,
            client_source_address=channel.client_host,
            client_source_port=None if port is None else str(port),
        )
        return receiver.instances.find(instance_id, attributes, channel.id, now_s)

    def collect(self) -> Iterator[Step]:
        """Collector of the clients' series for scrapes."""
        if self._receiver is not None:
            yield from self._receiver.collect(self._monotonic())

    def _image_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        if changes.changed_configs:
            self._update(image, changes.changed_configs)

    def _update(self, image: MetadataImage, resources: list[ConfigResource]) -> None:
        """Apply changed subscriptions; the receiver ends with the last one."""
        names = [each.name for each in resources if each.type is ConfigResourceType.CLIENT_METRICS]
        if not names:
            return
        if self._receiver is None:
            from ottla.telemetry.receiver import ClientMetricsReceiver  # imported here: with the first subscription

            self._receiver = ClientMetricsReceiver()
        for name in names:
            self._receiver.subscriptions.update(name, image.client_metrics_configs(name))
        if not any(each.type is ConfigResourceType.CLIENT_METRICS for each in image.configs):
            self._receiver = None
